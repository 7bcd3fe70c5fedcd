"""Laws: distributions over matchings that give a posterior its draws and probabilities.

A law registers itself where it is defined. Its line in ``_HOMES`` lets a saved posterior find it in
a new process.
"""

import hashlib
import importlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array

from permvi.posterior.marginals import Marginals, is_large
from permvi.problem.sites import Layout, narrow

# Draws per chunk when counting pairs, to limit memory.
_DRAWS_PER_CHUNK = 32
# Larger sets of draws are not put into lexicographic order.
_MAX_SORTED = 5_000_000


class Law(Protocol):
    """A distribution over matchings of one layout, provided by a method of inference."""

    kind: ClassVar[str]

    @property
    def entropy(self) -> float | None:
        """``-sum_x p(x) log p(x)`` in nats, or None if the family does not give it."""

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (num, n) or (num, sites, n) integers, -1 for an unmatched row."""

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Return log probabilities (...) of matchings (..., n) or (..., sites, n).

        Raises:
            ValueError: The family has no probabilities.
        """

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return up to k most probable matchings and their probabilities, in decreasing order."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that :meth:`from_arrays` needs; their names are Python identifiers."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the law from its arrays."""


class Summary(NamedTuple):
    """Summaries of an exact law; shapes as in :class:`~permvi.posterior.Posterior`."""

    marginals: np.ndarray
    p_unmatched_rows: np.ndarray
    p_unmatched_cols: np.ndarray
    mode: np.ndarray
    log_evidence: float


class SolvedLaw(Law, Protocol):
    """A law that is known exactly."""

    def summary(self) -> Summary:
        """Return marginals, mode and evidence."""


LawClass = TypeVar("LawClass", bound=type[Law])

_LAWS: dict[str, type[Law]] = {}

# The module that defines each kind of law; importing it registers the law.
_HOMES = {
    "exact": "permvi.inference.exact.laws",
    "tabular": "permvi.inference.exact.laws",
    "draws": "permvi.posterior.laws",
    "linear": "permvi.inference.linear.law",
    "orders": "permvi.inference.rankings.exact",
    "family": "permvi.inference.discrete.law",
    "marginals": "permvi.posterior.marginal_law",
    "mallows": "permvi.inference.mallows.method",
    "plackett_luce": "permvi.inference.plackett_luce.method",
}


def register_law(cls: LawClass) -> LawClass:
    """Class decorator: read saved posteriors of this ``kind`` with this class."""
    _LAWS[cls.kind] = cls
    return cls


def restore_law(kind: str, arrays: Mapping[str, np.ndarray]) -> Law:
    """Return the law of a saved posterior.

    Raises:
        ValueError: There is no law of this kind.
    """
    if kind not in _LAWS and kind in _HOMES:
        importlib.import_module(_HOMES[kind])
    if kind not in _LAWS:
        raise ValueError(
            f"kind must be a registered law ({', '.join(sorted({*_LAWS, *_HOMES}))}), got {kind!r}."
        )
    return _LAWS[kind].from_arrays(arrays)


def normalise_log_weights(log_weights: ArrayLike | None, num: int) -> np.ndarray:
    """Return (num,) probabilities proportional to ``exp(log_weights)``, equal ones for None."""
    if log_weights is None:
        return np.full(num, 1.0 / num)
    values = np.asarray(log_weights, dtype=np.float64)
    if values.shape != (num,):
        raise ValueError(
            f"log_weights must have one entry for each of {num} draws, got shape {values.shape}."
        )
    largest = values.max()
    if not np.isfinite(largest):
        raise ValueError("log_weights must be below inf, never NaN and not all -inf.")
    weights = np.exp(values - largest)
    return weights / weights.sum()


@register_law
class DrawsLaw:
    """Stored draws with optional weights; new draws are resampled from these.

    Args:
        draws: (num, n) or (num, sites, n) matchings, -1 for unmatched, repeats allowed.
        log_weights: (num,) log weights up to a constant; equal weights by default.
    """

    kind: ClassVar[str] = "draws"

    def __init__(self, draws: ArrayLike, log_weights: ArrayLike | None = None) -> None:
        perms = np.asarray(draws)
        if perms.ndim not in (2, 3) or 0 in perms.shape or perms.dtype.kind not in "iu":
            raise ValueError(
                "draws must be integers of shape (num, n) or (num, sites, n), "
                f"got dtype {perms.dtype} and shape {perms.shape}."
            )
        self.draws = narrow(perms)
        self.weights = normalise_log_weights(log_weights, len(perms))
        self.draws.flags.writeable = self.weights.flags.writeable = False
        self._log_weights = None if log_weights is None else np.array(log_weights, dtype=np.float64)

    @property
    def entropy(self) -> None:
        """None: the entropy of a finite set of draws says little about that of their law."""
        return

    def choose(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Return (num,) indices of draws by systematic resampling, in random order."""
        positions = (rng.random() + np.arange(num)) / num
        # Rounding up to 1 would reach past the last draw that has a weight.
        positions = np.minimum(positions, np.nextafter(1.0, 0.0))
        cumulative = np.cumsum(self.weights)
        chosen = np.searchsorted(cumulative / cumulative[-1], positions, side="right")
        return rng.permutation(chosen)

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Resample draws by their weights, as evenly as possible (systematic resampling)."""
        return self.draws[self.choose(num, rng)].astype(np.int64)

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Raise an error: draws have no density."""
        raise ValueError(
            "log_prob needs a method with an exact probability for each matching, got a posterior "
            "made of draws; see top(k) for estimates, or fit with method='exact' or 'sequential'."
        )

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k distinct draws with the largest total weights."""
        perms, probs = self._distinct
        best = np.argsort(-probs, kind="stable")[:k]
        return perms[best].astype(np.int64), probs[best]

    def weight(self, perm: np.ndarray) -> float:
        """Return the total weight of the draws that are equal to a matching."""
        same = (self.draws == perm).reshape(len(self.draws), -1).all(axis=1)
        return float(self.weights[same].sum())

    def marginals(self, layout: Layout) -> Marginals:
        """Return weighted frequencies of pairs, of unmatched rows and of unmatched columns.

        The frequencies of pairs are a sparse array if the table would be large.
        """
        states = layout.num_cols + 1
        num_rows = self.draws[0].size
        if self.draws.ndim == 2 and is_large((num_rows, layout.num_cols)):
            return self._sparse_marginals(layout)
        cells = self.draws.reshape(-1, num_rows) % states + states * np.arange(num_rows)
        weights = np.repeat(self.weights, num_rows)
        table = np.bincount(cells.ravel(), weights=weights, minlength=num_rows * states)
        table = table.reshape(*layout.event_shape, states)
        # Dividing by the sums keeps rows at one even with very many draws.
        table = table / table.sum(axis=-1, keepdims=True)
        marginals, p_rows = table[..., :-1], table[..., -1]
        return Marginals(marginals, p_rows, np.clip(1.0 - marginals.sum(axis=-2), 0.0, 1.0))

    def _sparse_marginals(self, layout: Layout) -> Marginals:
        """Return the frequencies as lists, some draws at a time to save memory."""
        n, m = layout.num_rows, layout.num_cols
        total: Any = csr_array((n, m + 1))
        for chunk in range(0, len(self.draws), _DRAWS_PER_CHUNK):
            perms = self.draws[chunk : chunk + _DRAWS_PER_CHUNK]
            weights = np.repeat(self.weights[chunk : chunk + len(perms)], n)
            places = np.tile(np.arange(n), len(perms)), perms.ravel() % (m + 1)
            total = total + csr_array(coo_array((weights, places), shape=(n, m + 1)))
        pairs = total.tocoo()
        probs = pairs.data / np.asarray(total.sum(axis=1))[pairs.row]
        matched = pairs.col < m
        rows, cols, probs_of_pairs = pairs.row[matched], pairs.col[matched], probs[matched]
        p_rows = np.bincount(pairs.row[~matched], probs[~matched], minlength=n)
        p_cols = np.clip(1.0 - np.bincount(cols, probs_of_pairs, minlength=m), 0.0, 1.0)
        return Marginals.of_pairs(rows, cols, probs_of_pairs, p_rows, p_cols)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return draws and log weights."""
        arrays = {"draws": self.draws}
        return arrays if self._log_weights is None else {**arrays, "log_weights": self._log_weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the law from its arrays."""
        return cls(arrays["draws"], arrays.get("log_weights"))

    @cached_property
    def _distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct draws and their total weights; small ones are in lexicographic order."""
        flat = self.draws.reshape(len(self.draws), -1)
        if flat.size <= _MAX_SORTED:
            perms, place = np.unique(flat, axis=0, return_inverse=True)
        else:
            # Sorting would compare all entries of many draws, although most differ early.
            seen: dict[bytes, int] = {}
            names = (hashlib.sha256(row.tobytes()).digest() for row in flat)
            place = np.array([seen.setdefault(name, len(seen)) for name in names])
            perms = flat[np.unique(place, return_index=True)[1]]
        probs = np.bincount(place.ravel(), weights=self.weights, minlength=len(perms))
        return perms.reshape(-1, *self.draws.shape[1:]), probs
