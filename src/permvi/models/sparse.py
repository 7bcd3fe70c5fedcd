"""Linear matchings with few candidates for each item, as lists of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from permvi._jax import ArrayLike, jax, jnp, pytree
from permvi.models import _arguments
from permvi.models.labels import NO_LABELS, Labels
from permvi.models.protocol import CandidatePairs, sorted_pairs


@pytree(
    leaves=("rows", "cols", "pair_weights", "known", "row_unmatched", "col_unmatched"),
    static=("shape", "labels"),
)
class SparseMatching:
    r"""A linear matching in which only listed pairs are possible.

    :math:`\log p(X) = \sum_e s_e X_{i_e j_e} + \text{const}`, and X is zero off the list. The list
    may hold gated detections, blocked record pairs or nearest neighbours. The posterior is that of
    a `LinearMatching` with a mask, from lists instead of tables.

    Args:
        rows: (E,) the item of each pair.
        cols: (E,) the label of each pair.
        scores: (E,) the log weight of each pair.
        shape: (n, m), the numbers of items and of labels.
        known: Known pairs; see `LinearMatching` for this and all arguments that follow.

    Raises:
        ValueError: Shapes do not fit, a pair is outside the table or listed twice, or a score is
            not finite.
        TypeError: Something is of the wrong kind.
    """

    rows: Any
    cols: Any
    pair_weights: Any
    known: Any
    row_unmatched: Any
    col_unmatched: Any
    shape: tuple[int, int]
    labels: Labels

    def __init__(
        self,
        rows: ArrayLike,
        cols: ArrayLike,
        scores: ArrayLike,
        shape: tuple[int, int],
        known: Any = None,
        labels: Any = None,
        row_unmatched: Any = None,
        col_unmatched: Any = None,
    ) -> None:
        self.shape = _shape(shape)
        n, m = self.shape
        weights = _arguments.finite("scores", _arguments.real("scores", scores, (1,)))
        self.rows = _places("rows", rows, n, len(weights))
        self.cols = _places("cols", cols, m, len(weights))
        codes, counts = np.unique(self.rows * m + self.cols, return_counts=True)
        if (counts > 1).any():
            twice = int(codes[counts > 1][0])
            raise ValueError(f"rows and cols must list a pair once, got {divmod(twice, m)} twice.")
        self.pair_weights = weights
        found = _arguments.constraints(
            self.shape, NO_LABELS, None, known, labels, row_unmatched, col_unmatched
        )
        self.known, self.labels = found.known, found.labels
        if self.known is not None:
            _check_known(self.known, codes, m)
        self.row_unmatched, self.col_unmatched = found.row_unmatched, found.col_unmatched

    @classmethod
    def from_matrix(cls, matrix: Any, **constraints: Any) -> SparseMatching:
        """Make the model of a SciPy sparse array or matrix, whose stored entries are the pairs.

        Args:
            matrix: A stored zero is a pair of log weight zero; an entry that is not stored is not a
                pair.
            **constraints: ``known``, ``labels``, ``row_unmatched`` and ``col_unmatched``.
        """
        try:
            pairs = matrix.tocoo()
        except AttributeError:
            raise TypeError(f"matrix must be a SciPy sparse array, got {type(matrix)}.") from None
        return cls(pairs.row, pairs.col, pairs.data, pairs.shape, **constraints)

    @property
    def num_sites(self) -> int:
        """The number of permutations, 1."""
        return 1

    # Tables are made on demand: a model that kept them would not be sparse.
    @property
    def mask(self) -> np.ndarray:
        """The mask (n, m), True for the listed pairs."""
        table = np.zeros(self.shape, bool)
        table[self.rows, self.cols] = True
        return table

    @property
    def scores(self) -> np.ndarray:
        """The log weights (n, m), zero off the list."""
        table = np.zeros(self.shape)
        table[self.rows, self.cols] = self.pair_weights
        return table

    def candidate_pairs(self, row_alone: Any, col_alone: Any) -> CandidatePairs:
        """Return the list, sorted by row and then by column; see `Model`."""
        del row_alone, col_alone
        return sorted_pairs(self.rows, self.cols, np.asarray(self.pair_weights))

    def log_density(self, X: ArrayLike) -> jax.Array:
        """Return the sum over the listed pairs: (..., n, m) -> (...)."""
        return jnp.sum(self.pair_weights * jnp.asarray(X)[..., self.rows, self.cols], axis=-1)

    def log_density_of(self, perm: ArrayLike) -> jax.Array:
        """Return log densities (...) of permutations (..., n), -1 for unmatched."""
        chosen = jnp.asarray(perm)[..., self.rows] == jnp.asarray(self.cols)
        return jnp.sum(jnp.where(chosen, self.pair_weights, 0.0), axis=-1)


def _check_known(known: np.ndarray, codes: np.ndarray, num_cols: int) -> None:
    """Raise ``ValueError`` if a known pair is not among the listed ones, sorted ``codes``."""
    rows = np.flatnonzero(known >= 0)
    bad = rows[~np.isin(rows * num_cols + known[rows], codes)]
    if len(bad):
        raise ValueError(
            f"known must respect mask, got the forbidden pair of row {bad[0]} and column "
            f"{known[bad[0]]}."
        )


def _shape(value: Any) -> tuple[int, int]:
    numbers = tuple(value) if isinstance(value, tuple | list) else ()
    if len(numbers) != 2 or not all(isinstance(k, int | np.integer) and k > 0 for k in numbers):
        raise ValueError(f"shape must be two positive integers, got {value!r:.60}.")
    return int(numbers[0]), int(numbers[1])


def _places(name: str, value: ArrayLike, size: int, count: int) -> np.ndarray:
    """Return (count,) indices below ``size``."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer array, got dtype {array.dtype}.")
    if array.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},) as scores has, got {array.shape}.")
    outside = array[(array < 0) | (array >= size)]
    if outside.size:
        raise ValueError(f"{name} must be in 0..{size - 1}, got {outside[0]}.")
    return array.astype(np.int64)
