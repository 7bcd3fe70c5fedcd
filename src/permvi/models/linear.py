"""Models whose log density is linear in the permutation matrix."""

from __future__ import annotations

from typing import Any

from permvi._checks import positive_number
from permvi._jax import ArrayLike, jax, jnp, pytree
from permvi.models import _arguments
from permvi.models.labels import frame_labels


def sum_of_pairs(scores: Any, X: ArrayLike, num_sites: int) -> jax.Array:
    """Return ``sum(scores * X)`` over pairs and sites: (..., [S,] n, m) twice -> (...)."""
    axes = (-2, -1) if num_sites == 1 else (-3, -2, -1)
    return jnp.sum(jnp.asarray(scores) * jnp.asarray(X), axis=axes)


def sum_of_matched(scores: Any, perm: ArrayLike, num_sites: int) -> jax.Array:
    """Sum the scores of the pairs of permutations (..., [S,] n); rows with -1 add nothing."""
    scores, perm = jnp.asarray(scores), jnp.asarray(perm)
    ndim = max(scores.ndim, perm.ndim + 1)
    scores = jnp.expand_dims(scores, tuple(range(ndim - scores.ndim)))
    perm = jnp.expand_dims(perm, tuple(range(ndim - 1 - perm.ndim)))
    chosen = jnp.take_along_axis(scores, jnp.maximum(perm, 0)[..., None], axis=-1)[..., 0]
    axes = (-1,) if num_sites == 1 else (-2, -1)
    return jnp.sum(jnp.where(perm >= 0, chosen, 0), axis=axes)


def gain_of_swap(scores: Any, perm: ArrayLike, i: Any, k: Any, *site: Any) -> jax.Array:
    """Return what `sum_of_matched` gains if rows i and k of one matching swap their columns.

    The scores are (n, m) or (S, n, m). ``perm`` is (n,), or (S, n) with the ``site`` of the rows if
    there are several, -1 for unmatched.
    """
    table = jnp.asarray(scores)
    # One table may serve all sites.
    table = table[site] if table.ndim == 3 else table
    columns = jnp.asarray(perm)[site]
    rows = jnp.stack([i, k])
    now = columns[rows]

    def total(chosen: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(chosen >= 0, table[rows, jnp.maximum(chosen, 0)], 0))

    return total(now[::-1]) - total(now)


@pytree(leaves=("scores", *_arguments.ARRAYS), static=("labels",))
class LinearMatching(_arguments.Constrained):
    r"""A matching whose log density is a sum over its pairs.

    :math:`\log p(X) = \sum_{ij} s_{ij} X_{ij} + \text{const}`. Scores may be log likelihoods of
    pairs, log odds or negative costs over a temperature.

    Args:
        scores: (n, m), or (S, n, m) for S independent permutations: log weights of pairs. The index
            and columns of a DataFrame name items and labels. A score of -inf forbids a pair.
        mask: Booleans of the same shape (or (n, m) for all sites), True where a pair is allowed.
            Scores of forbidden pairs are ignored, whatever they are.
        known: (n,) or (S, n) known columns, -1 for unknown; or a mapping {row: column}, by label or
            index.
        labels: A pair: names of the rows, names of the columns, either of them None.
        row_unmatched: Log weight of leaving an item unmatched, a number or (n,), -inf where it must
            be matched. None: all items are matched, except a surplus over the labels.
        col_unmatched: Log weight of leaving a label unmatched, likewise.
        prior_scores: (n, m) or (S, n, m) log prior weights of pairs, which are added.
        costs: Instead of scores, what each pair costs; the scores are ``-costs / temperature``.
        temperature: Divides scores or costs: the costs that make a pair e times less probable.

    Raises:
        ValueError: Shapes do not fit, or scores are not finite where allowed.
        TypeError: Something is of the wrong kind.
    """

    scores: Any

    def __init__(
        self,
        scores: Any = None,
        mask: Any = None,
        known: Any = None,
        labels: Any = None,
        row_unmatched: Any = None,
        col_unmatched: Any = None,
        prior_scores: Any = None,
        *,
        costs: Any = None,
        temperature: float = 1.0,
    ) -> None:
        if (scores is None) == (costs is None):
            raise TypeError(
                f"scores or costs must be given, got {'neither' if scores is None else 'both'}."
            )
        name, frame, sign = ("scores", scores, 1) if costs is None else ("costs", costs, -1)
        factor = sign / positive_number("temperature", temperature)
        table = _arguments.one_site(_arguments.real(name, frame, (2, 3)))
        table = table if factor == 1 else table * factor
        found = frame_labels(frame)
        mask = _arguments.possible_pairs(table, mask, found)
        given = mask, known, labels, row_unmatched, col_unmatched, prior_scores
        self._constrain(table.shape, found, *given)
        self.scores = _arguments.scores(name, table, self.mask)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of items and labels."""
        return self.scores.shape[-2], self.scores.shape[-1]

    @property
    def num_sites(self) -> int:
        """The number of permutations."""
        return self.scores.shape[0] if self.scores.ndim == 3 else 1

    def log_density(self, X: ArrayLike) -> jax.Array:
        """Return ``sum(scores * X)``: (..., n, m) or (..., S, n, m) -> (...)."""
        return sum_of_pairs(self.scores, X, self.num_sites)

    def log_density_of(self, perm: ArrayLike) -> jax.Array:
        """Return log densities (...) of permutations (..., n) or (..., S, n), -1 for unmatched."""
        return sum_of_matched(self.scores, perm, self.num_sites)

    def delta(self, perm: ArrayLike, i: Any, k: Any, *site: Any) -> jax.Array:
        """Return what swapping the columns of rows i and k adds, in O(1); ``site`` if S > 1."""
        return gain_of_swap(self.scores, perm, i, k, *site)
