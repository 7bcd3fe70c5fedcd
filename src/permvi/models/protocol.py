"""The interface of models: a shape and a log density over matchings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from permvi._jax import is_array, jax

# Tables of more pairs than this are not made if a model gives a list of candidates.
MAX_TABLE = 5_000_000
# The largest list.
MAX_PAIRS = 50_000_000


@runtime_checkable
class Model(Protocol):
    """A log density over S permutations (matchings) of n items with m labels.

    Any object with these three members is a model; there is nothing to inherit from.

    The posterior that `permvi.fit` computes is proportional to

        exp(log_density(X) + sum(prior_scores * X) + unmatched weights)

    over all 0/1 matrices X that ``mask`` and ``known`` allow. Without the optional members,
    ``log_evidence = log sum_X exp(log_density(X))``. Optional members may be absent or None:

    ==================  ============================================================================
    ``mask``            (n, m) or (S, n, m) booleans, True where item i may be label j.
    ``known``           (n,) or (S, n) known columns, -1 for unknown.
    ``labels``          A pair: names of the rows, names of the columns, either of them None.
    ``scores``          (n, m) or (S, n, m) with ``log_density(X) = sum(scores * X)`` for every
                        matching: unlocks exact inference beyond a few items.
    ``candidate_pairs``
                        ``(row_alone, col_alone) -> CandidatePairs`` or None: the pairs that matter,
                        prior scores and known pairs included, given the log weights (n,) and (m,)
                        of staying alone. Tables of more than 5 million pairs are then not made.
    ``prior_scores``    Soft prior: log weights of pairs that `fit` adds to the density.
    ``row_unmatched``   (n,) or (S, n) log weights of leaving an item unmatched, -inf where it must
                        be matched. None: all are matched, except a surplus of rows.
    ``col_unmatched``   (m,) or (S, m) log weights of leaving a label unmatched, likewise.
    ``latents``         Priors of other latent variables by name, NumPyro distributions; then the
                        density is ``log_density(X, **latents)``, and its integral over them counts.
    ``pair_scores``     ``(**latents) -> scores`` where the density is linear given the latents.
    ``log_density_of``  ``(perm, **latents) -> (...)`` for integers (..., n) or (..., S, n), -1 for
                        unmatched; by default `log_density` of their matrices.
    ``delta``           ``(perm, i, k, **latents) -> ()``: what swapping the columns of rows i and k
                        of one matching (n,) adds to `log_density_of`, where that is cheaper than a
                        density; ``(perm, i, k, site, **latents)`` for perm (S, n) if S > 1.
    ``quadratic``       Arrays A (n, n), B (m, m), C (n, m), if S = 1, with ``log_density(X) =
                        <A, X B X'> + <C, X>`` for every matching: unlocks "quadratic" and the
                        quadratic solvers of "map" and "convex".
    ``shared_regression``
                        ``() -> arrays by name``: statistics of recordings that share one sparse
                        linear system, see `SharedDynamics.shared_regression`; unlocks "collapsed".
    ``log_constant``    A constant that `log_density` leaves out, so that float32 keeps the digits
                        of the differences; `fit` adds it to ``log_evidence``.
    ``integrated_latents``
                        ``(draws) -> {name: (mean, sd)}``: posterior moments of latents that the
                        density has integrated out, given draws (num, n) or (num, S, n) of the
                        posterior; `fit` adds them to ``posterior.latents``.
    ``auto_method``     ``(name, options)``: the method that "auto" takes where the exact one is not
                        affordable.
    ``predictive_tests``
                        ``(draws, latents) -> tests``: p-values of properties of the data, given
                        draws of the posterior and its latents, or a reason why there are none;
                        for `Posterior.check`. See ``permvi.models._predictive``.
    ``doubt``           ``(mode, latents) -> reason`` or None: why a fit with this best matching
                        must not be trusted, however well it was computed; `fit` then says "check".
    ``traceable``       False if ``log_density`` is not a JAX function; then it runs on the host.
    ``relaxed``         False if ``log_density`` is defined on 0/1 matrices only.
    ``fingerprint``     Text that identifies the model's data, see `fingerprint`.
    ==================  ============================================================================

    Models that are pytrees (arrays as leaves) share compiled code with others of the same shape.

    Attributes:
        shape: (n, m).
        num_sites: S, the number of permutations; 1 unless the model has several.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of items n and of labels m."""

    @property
    def num_sites(self) -> int:
        """The number of permutations S."""

    @property
    def log_density(self) -> Callable[..., Any]:
        """A method (X, **latents): X (..., n, m), or (..., S, n, m) if S > 1, -> (...).

        It returns the log density up to a constant, of 0/1 and relaxed matrices.
        """


_NAMES = ("labels",)


class CandidatePairs(NamedTuple):
    """The pairs that may be matched; others are impossible or negligible.

    Attributes:
        rows: (E,) the row of each pair, in increasing order.
        cols: (E,) the column of each pair, in increasing order within a row.
        scores: (E,) the log weight of each pair.
        lost: A bound on what was left out, 0 if that is nothing; ``note`` says what it bounds.
        note: What was left out, as a clause for the reasons of a verdict; None if that is nothing.
    """

    rows: np.ndarray
    cols: np.ndarray
    scores: np.ndarray
    lost: float = 0.0
    note: str | None = None


def sorted_pairs(rows: np.ndarray, cols: np.ndarray, scores: np.ndarray) -> CandidatePairs:
    """Sort pairs by row and then by column."""
    order = np.lexsort((cols, rows))
    return CandidatePairs(rows[order], cols[order], scores[order])


def fingerprint(model: Any) -> str:
    """Return the SHA-256 of a model's class, arrays and settings, but not labels, in hexadecimal.

    A model with a ``fingerprint`` of its own keeps it. Functions are identified by their names.
    """
    own = getattr(model, "fingerprint", None)
    if own is not None:
        return str(own() if callable(own) else own)
    digest = hashlib.sha256(type(model).__qualname__.encode())
    state = vars(model) if hasattr(model, "__dict__") else {"leaves": jax.tree.leaves(model)}
    for name, value in sorted(state.items()):
        # Private attributes are made of the others.
        if name not in _NAMES and not name.startswith("_"):
            digest.update(f"|{name}=".encode())
            _add(digest, value)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, tuple | list):
        for part in value:
            _add(digest, part)
        return
    simple = value is None or isinstance(value, np.ndarray | str | int | float)
    leaves = [value] if simple else jax.tree.leaves(value, is_leaf=lambda leaf: leaf is None)
    for leaf in leaves:
        if isinstance(leaf, np.ndarray | np.generic) or is_array(leaf):
            array = np.asarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
        elif callable(leaf):
            name = getattr(leaf, "__qualname__", type(leaf).__qualname__)
            digest.update(f"{getattr(leaf, '__module__', '')}.{name}".encode())
        else:
            digest.update(repr(leaf).encode())
