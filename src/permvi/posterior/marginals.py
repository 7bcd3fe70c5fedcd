"""Marginals whose rows and columns sum to one: the check of every posterior, and a repair.

Marginals of large problems are SciPy's sparse arrays, which hold the pairs of positive probability.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array, issparse

from permvi.problem.sites import Layout

TOLERANCE = 1e-6
# Tables of more cells than this are kept as lists of pairs.
MAX_CELLS = 25_000_000

_SCALED = 1e-12
_SINKHORN_STEPS = 20
_NEWTON_STEPS = 200
# Added to the Hessian, which is singular where scaling rows up and columns down cancels: this share
# of the error that is left. More would stall on entries that have to vanish, whose curvature is
# their own size.
_RIDGE = 1e-3


def is_large(shape: tuple[int, int]) -> bool:
    """Return whether the marginals of n by m pairs are kept as a sparse array."""
    return shape[0] * shape[1] > MAX_CELLS


def with_known(marginals: Any, known: Any) -> Any:
    """Return marginals (..., n, m) with ones for known pairs, where draws leave 1 - 1e-16.

    ``known`` is (..., n), -1 for unknown, or None. Several sites may share it.
    """
    if not (isinstance(marginals, np.ndarray) and isinstance(known, np.ndarray)):
        return marginals
    known, exact = np.broadcast_to(known, marginals.shape[:-1]), marginals.copy()
    places = np.nonzero(known >= 0)
    pairs = (*places, known[places])
    exact[pairs] = np.where(exact[pairs] > 1.0 - TOLERANCE, 1.0, exact[pairs])
    return exact


class Marginals(NamedTuple):
    """Marginals (..., n, m) with the probabilities of unmatched rows and columns.

    Attributes:
        marginals: A NumPy array, or a ``scipy.sparse.csr_array`` (n, m) for large problems.
        p_unmatched_rows: (..., n).
        p_unmatched_cols: (..., m).
    """

    marginals: Any
    p_unmatched_rows: np.ndarray
    p_unmatched_cols: np.ndarray

    @classmethod
    def of_pairs(
        cls,
        rows: np.ndarray,
        cols: np.ndarray,
        probs: np.ndarray,
        p_unmatched_rows: np.ndarray,
        p_unmatched_cols: np.ndarray,
        shape: tuple[int, int] | None = None,
    ) -> "Marginals":
        """Make the marginals of distinct pairs (E,), dense up to 25 million cells, else sparse.

        Args:
            rows: (E,) the row of each pair.
            cols: (E,) the column of each pair.
            probs: (E,) the probability of each pair.
            p_unmatched_rows: (n,).
            p_unmatched_cols: (m,).
            shape: (n, m), by default the sizes of the two arrays before.
        """
        n, m = shape or (len(p_unmatched_rows), len(p_unmatched_cols))
        if is_large((n, m)):
            table: Any = csr_array(coo_array((probs, (rows, cols)), shape=(n, m)))
        else:
            table = np.zeros((n, m))
            table[rows, cols] = probs
        return cls(table, p_unmatched_rows, p_unmatched_cols)

    @property
    def is_sparse(self) -> bool:
        """Whether the marginals are a sparse array."""
        return issparse(self.marginals)

    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, columns and probabilities of the pairs of a sparse array, row by row."""
        found = self.marginals.tocoo()
        return found.row.astype(np.int64), found.col.astype(np.int64), found.data


def check_marginals(
    marginals: Any, p_unmatched_rows: ArrayLike | None, p_unmatched_cols: ArrayLike | None
) -> Marginals:
    """Return float64 copies, clipped to [0, 1], if all rows and columns sum to one.

    Shapes are (n, m), (n,) and (m,), with or without a leading site axis. None stands for zeros.
    Sparse marginals have no site axis, and come back as a ``csr_array`` without zeros.

    Raises:
        ValueError: A shape is wrong, or a sum or an entry is off by more than ``TOLERANCE``.
    """
    pairs: Any = _lists(marginals) if issparse(marginals) else np.array(marginals, dtype=np.float64)
    layout = Layout.of("marginals", pairs.shape)
    rows = _alone("p_unmatched_rows", p_unmatched_rows, layout.event_shape)
    cols = _alone("p_unmatched_cols", p_unmatched_cols, (*layout.site_axes, layout.num_cols))
    values = pairs.data if issparse(pairs) else pairs
    names = ("marginals", "p_unmatched_rows", "p_unmatched_cols")
    for name, array in zip(names, (values, rows, cols), strict=True):
        bad = array[~((array >= -TOLERANCE) & (array <= 1 + TOLERANCE))]
        if bad.size:
            raise ValueError(f"{name} must be probabilities, got {bad[0]}.")
    for side, sums in (("row", pairs.sum(-1) + rows), ("column", pairs.sum(-2) + cols)):
        error = np.abs(sums - 1)
        if error.max() > TOLERANCE:
            worst = np.unravel_index(np.argmax(error), error.shape)
            place = f"{side} {worst[-1]}" + (f" of site {worst[0]}" if len(worst) > 1 else "")
            raise ValueError(
                f"marginals must sum to one in each {side}, within {TOLERANCE:g} and including the "
                f"probability of staying unmatched, got {sums[worst]:.9g} in {place}; "
                "normalise_marginals repairs small errors."
            )
    rows, cols = np.clip(rows, 0.0, 1.0), np.clip(cols, 0.0, 1.0)
    if not issparse(pairs):
        return Marginals(np.clip(pairs, 0.0, 1.0), rows, cols)
    np.clip(pairs.data, 0.0, 1.0, out=pairs.data)
    pairs.eliminate_zeros()
    return Marginals(pairs, rows, cols)


def _lists(marginals: Any) -> csr_array:
    """Return a copy of a sparse array in float64, row by row and sorted by column."""
    if marginals.ndim != 2:
        raise ValueError(f"sparse marginals must have shape (n, m), got {marginals.shape}.")
    pairs = csr_array(marginals, dtype=np.float64, copy=True)
    pairs.sum_duplicates()
    return pairs


def normalise_marginals(
    raw: ArrayLike,
    p_unmatched_rows: ArrayLike | None = None,
    p_unmatched_cols: ArrayLike | None = None,
) -> Marginals:
    """Return the nearest marginals whose rows and columns sum to one exactly.

    Rows and columns of ``raw``, with their unmatched probabilities, are multiplied by factors until
    all sums are one within 1e-12: the projection in Kullback-Leibler divergence, which keeps zeros.
    Sinkhorn steps come first; Newton steps on the logarithms of the factors finish.

    Args:
        raw: (n, m) or (sites, n, m) non-negative numbers, roughly marginals.
        p_unmatched_rows: (n,) or (sites, n), roughly the probabilities of staying unmatched. By
            default one minus the sum of the row if n > m, else zero.
        p_unmatched_cols: (m,) or (sites, m), likewise.

    Returns:
        Marginals that a posterior accepts.

    Raises:
        ValueError: An entry is negative or not finite, or no matching has all entries positive.
    """
    pairs = np.array(raw, dtype=np.float64)
    layout = Layout.of("raw", pairs.shape)
    n, m = layout.num_rows, layout.num_cols
    if p_unmatched_rows is None and n > m:
        p_unmatched_rows = np.clip(1.0 - pairs.sum(-1), 0.0, 1.0)
    if p_unmatched_cols is None and m > n:
        p_unmatched_cols = np.clip(1.0 - pairs.sum(-2), 0.0, 1.0)
    rows = _alone("p_unmatched_rows", p_unmatched_rows, layout.event_shape)
    cols = _alone("p_unmatched_cols", p_unmatched_cols, (*layout.site_axes, m))
    tables = np.zeros((layout.num_sites, n + 1, m + 1))
    tables[:, :n, :m] = pairs
    tables[:, :n, m] = rows
    tables[:, n, :m] = cols
    if not (np.isfinite(tables) & (tables >= 0)).all():
        raise ValueError("raw must be finite and non-negative, unmatched probabilities included.")
    tables = np.stack([_scale(table) for table in tables]).reshape(*layout.site_axes, n + 1, m + 1)
    return Marginals(tables[..., :n, :m], tables[..., :n, m], tables[..., n, :m])


def _scale(table: np.ndarray) -> np.ndarray:
    """Scale a table (n+1, m+1) so that all rows and columns but the last ones sum to one."""
    n, m = table.shape[0] - 1, table.shape[1] - 1
    if not (table[:n].sum(1).all() and table[:, :m].sum(0).all()):
        raise ValueError("raw must have a positive entry in each row and column, got none in one.")
    for step in range(_SINKHORN_STEPS + _NEWTON_STEPS):
        rows, cols = table[:n].sum(1), table[:, :m].sum(0)
        errors = np.concatenate([rows, cols]) - 1
        if np.abs(errors).max() <= _SCALED:
            return table
        if step < _SINKHORN_STEPS:
            table[:n] /= rows[:, None]
            table[:, :m] /= table[:, :m].sum(0)
            continue
        change = _newton_step(table[:n, :m], rows, cols, _RIDGE * np.abs(errors).max())
        change /= max(1.0, np.abs(change).max())
        table[:n] *= np.exp(change[:n, None])
        table[:, :m] *= np.exp(change[n:])
    raise ValueError("raw must be positive on some matching, got no way to scale it to marginals.")


def _newton_step(pairs: np.ndarray, rows: np.ndarray, cols: np.ndarray, ridge: float) -> np.ndarray:
    """Return (n + m,) the Newton step in the logarithms of the factors of rows and columns.

    The sums minus one are the gradient of a convex function of these logarithms. Its Hessian has
    the sums on the diagonal and the pairs off it. Eliminating the columns leaves n equations.
    """
    shares = pairs / (cols + ridge)
    left = np.diag(rows + ridge) - shares @ pairs.T
    of_rows = np.linalg.solve(left, shares @ (cols - 1) - (rows - 1))
    of_cols = -(cols - 1 + of_rows @ pairs) / (cols + ridge)
    return np.concatenate([of_rows, of_cols])


def _alone(name: str, value: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray:
    array = np.zeros(shape) if value is None else np.array(value, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got shape {array.shape}.")
    return array
