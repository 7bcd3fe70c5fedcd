"""The weights of a linear matching problem: checked input in, one grounded table out.

A row or column that stays unmatched is thought of as matched to the *ground*, an extra row and an
extra column that take any number of partners. All log weights then fit one (n+1, m+1) table:

    table[i, j]  score of the pair (i, j)              table[i, m]  row i stays unmatched
    table[n, j]  column j stays unmatched              table[n, m]  0

with -inf for what is not allowed. Index -1 is the ground, which is also how matchings write it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

# Counting which columns a batch of matchings uses takes memory; this many cells at a time.
_CELLS_PER_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class LogWeights:
    """Log weights of all (partial) matchings of n rows and m columns.

    Attributes:
        table: (n+1, m+1) grounded log weights, -inf where not allowed, 0 in the last corner.
    """

    table: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns, ground excluded."""
        return self.table.shape[0] - 1, self.table.shape[1] - 1

    def of(self, matchings: np.ndarray) -> np.ndarray:
        """The log weight of each matching: (..., n) integers in -1..m-1 -> (...).

        ``sum_i table[i, x_i] + sum over unmatched j of table[n, j]``, and -inf for what is
        forbidden or takes a column twice.
        """
        n, m = self.shape
        flat = matchings.reshape(-1, n)
        chunk = max(1, _CELLS_PER_CHUNK // (m + 1))
        parts = [self._of_chunk(flat[k : k + chunk]) for k in range(0, len(flat), chunk)]
        values = np.concatenate(parts) if parts else np.zeros(0)
        return values.reshape(matchings.shape[:-1])

    def _of_chunk(self, matchings: np.ndarray) -> np.ndarray:
        n, m = self.shape
        cells = matchings % (m + 1) + (m + 1) * np.arange(len(matchings))[:, None]
        uses = np.bincount(cells.ravel(), minlength=len(matchings) * (m + 1))
        uses = uses.reshape(-1, m + 1)[:, :m]
        values = self.table[np.arange(n), matchings].sum(axis=-1)
        values += np.where(uses == 0, self.table[n, :m], 0.0).sum(axis=-1)
        values[(uses > 1).any(axis=-1)] = -np.inf
        return values


def build_weights(
    scores: ArrayLike,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
    row_unmatched: ArrayLike | None = None,
    col_unmatched: ArrayLike | None = None,
) -> LogWeights:
    """Check the arguments of a linear matching problem and ground them.

    The arguments are those of :func:`~permvi.inference.exact.solve_exact`. A known pair leaves its
    row and its column nothing else to choose.
    """
    pairs = _real("scores", scores)
    if pairs.ndim != 2 or 0 in pairs.shape:
        raise ValueError(f"scores must have shape (n, m) with n, m >= 1, got shape {pairs.shape}.")
    n, m = pairs.shape
    if mask is not None:
        pairs = np.where(_boolean("mask", mask, (n, m)), pairs, -np.inf)
    bad = np.argwhere(np.isnan(pairs) | (pairs == np.inf))
    if len(bad):
        i, j = bad[0]
        raise ValueError(
            "scores must be finite, or -inf for a forbidden pair, wherever mask allows a pair, "
            f"got {pairs[i, j]} at row {i}, column {j}."
        )
    table = np.zeros((n + 1, m + 1))
    table[:n, :m] = pairs
    table[:n, m] = _unmatched("row_unmatched", row_unmatched, n, surplus=n > m)
    table[n, :m] = _unmatched("col_unmatched", col_unmatched, m, surplus=m > n)
    if known is not None:
        _fix_known(table, known)
    return LogWeights(table)


def positive_int(name: str, value: object) -> int:
    """``value`` as an int, refused unless it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")
    return int(value)


def check_matchings(name: str, value: ArrayLike, shape: tuple[int, int]) -> np.ndarray:
    """``value`` as a (..., n) array of columns in -1..m-1, refused if it is anything else."""
    n, m = shape
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer array, got dtype {array.dtype}.")
    if array.ndim < 1 or array.shape[-1] != n:
        raise ValueError(f"{name} must have shape (..., {n}), got shape {array.shape}.")
    array = array.astype(np.int64)
    outside = array[(array < -1) | (array >= m)]
    if outside.size:
        raise ValueError(f"{name} must hold columns 0 to {m - 1} or -1, got {outside[0]}.")
    return array


def _real(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind in "bcmMOSU":
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}.")
    return array.astype(np.float64)


def _boolean(name: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype != bool:
        raise TypeError(f"{name} must be a boolean array, got dtype {array.dtype}.")
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape} of scores, got {array.shape}.")
    return array


def _unmatched(name: str, value: ArrayLike | None, size: int, *, surplus: bool) -> np.ndarray:
    if value is None:
        # On the longer side something has to be left over, and nothing says what it costs.
        return np.full(size, 0.0 if surplus else -np.inf)
    array = _real(name, value)
    if array.shape not in ((), (size,)):
        raise ValueError(f"{name} must be a scalar or have shape ({size},), got {array.shape}.")
    array = np.broadcast_to(array, (size,))
    bad = array[np.isnan(array) | (array == np.inf)]
    if bad.size:
        raise ValueError(
            f"{name} must be finite, or -inf for what has to be matched, got {bad[0]}."
        )
    return array


def _fix_known(table: np.ndarray, known: ArrayLike) -> None:
    n, m = table.shape[0] - 1, table.shape[1] - 1
    partner = check_matchings("known", known, (n, m))
    if partner.shape != (n,):
        raise ValueError(f"known must have shape ({n},), got shape {partner.shape}.")
    rows = np.flatnonzero(partner >= 0)
    cols = partner[rows]
    values = table[rows, cols]
    for i, j, value in zip(rows, cols, values, strict=True):
        if np.count_nonzero(cols == j) > 1:
            raise ValueError(f"known must use each column at most once, got column {j} twice.")
        if value == -np.inf:
            raise ValueError(
                f"known must respect mask and scores, got the forbidden pair of row {i} and "
                f"column {j}."
            )
    table[rows, :] = -np.inf
    table[:, cols] = -np.inf
    table[rows, cols] = values
