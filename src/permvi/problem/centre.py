r"""Linear models with constants taken out of their rows and columns, in float64.

JAX computes in float32, where a score of -6e6 has no decimals left. A constant :math:`u_i` in all
log weights of row i, that of staying unmatched included, changes nothing but the evidence, and so
does :math:`v_j` in those of column j. So

.. math:: s_{ij} \to s_{ij} - u_i - v_j, \quad r_i \to r_i - u_i, \quad c_j \to c_j - v_j

with the prices of the best matching for u and v leaves all log weights at most zero, and those of
the best matching at zero.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from permvi._assignment.duality import best_matching, reduce_by_prices, residual_graph
from permvi._jax import jnp
from permvi.models.linear import LinearMatching
from permvi.problem.unmatched import LogWeights, may_be_partial, tables_by_site

# Scores closer to zero than this keep six decimals in float32, so they are left as they are.
_NEAR = 16.0
# Matchings this much less probable than the best one, in nats, have probability zero; float32 holds
# sums of such numbers, and not much more.
_FLOOR = -1e30


class Centred(NamedTuple):
    """A linear model with constants taken out, and the log evidence that they add up to."""

    model: LinearMatching
    offset: float


def centre(
    scores: np.ndarray,
    mask: np.ndarray | None,
    known: np.ndarray | None,
    row_unmatched: np.ndarray | None,
    col_unmatched: np.ndarray | None,
    *,
    even_if_near: bool = False,
) -> Centred | None:
    """Take constants out of rows and columns; None if they are near zero or nothing is feasible.

    Args:
        scores: (n, m) or (S, n, m) in float64.
        mask: Booleans of the same shape, or None.
        known: (n,) or (S, n), -1 for unknown, or None. Scores of known pairs become zero.
        row_unmatched: (n,) or (S, n), or None, which means that all rows are matched unless there
            are more rows than columns.
        col_unmatched: (m,) or (S, m), or None, likewise.
        even_if_near: Whether to take constants near zero out, too.
    """
    n, m = scores.shape[-2:]
    weights: dict[str, Any] = {"row_unmatched": row_unmatched, "col_unmatched": col_unmatched}
    given = {"scores": scores, "mask": mask, "known": known, **weights}
    tables = tables_by_site(given, len(scores) if scores.ndim == 3 else 1)
    if not (even_if_near or _is_far(tables)):
        return None
    if may_be_partial(row_unmatched, col_unmatched) or n == m:
        found = [_by_prices(table) for table in tables]
    else:
        # What stays unmatched has no weight to take a constant out of.
        found = [_by_maxima(table, axis=1 if n < m else 0) for table in tables]
    solved = [one for one in found if one is not None]
    if len(solved) < len(found):
        return None
    reduced = np.stack([table for table, _ in solved])
    reduced = reduced if scores.ndim == 3 else reduced[0]
    if may_be_partial(row_unmatched, col_unmatched):
        weights = {"row_unmatched": reduced[..., :n, m], "col_unmatched": reduced[..., n, :m]}
    pairs = reduced[..., :n, :m]
    model = LinearMatching(np.where(np.isfinite(pairs), pairs, 0.0), mask, known, **weights)
    return Centred(model, math.fsum(offset for _, offset in solved))


def _is_far(tables: np.ndarray) -> bool:
    """Return whether the best log weight of some row, or then of some column, is far from zero.

    So is any log weight that float32 does not hold.
    """
    if (tables[np.isfinite(tables)] < _FLOOR).any():
        return True
    rows = tables[:, :-1].max(axis=2)
    rows = np.where(np.isfinite(rows), rows, 0.0)
    cols = (tables[:, :-1, :-1] - rows[:, :, None]).max(axis=1)
    return max(np.abs(part[np.isfinite(part)]).max(initial=0.0) for part in (rows, cols)) > _NEAR


def _by_prices(table: np.ndarray) -> tuple[np.ndarray, float] | None:
    choice = best_matching(table)
    if choice is None:
        return None
    reduced = reduce_by_prices(table, choice, residual_graph(table, choice))
    # What float64 has rounded away may be far above zero for float32.
    finite = np.isfinite(reduced)
    terms = np.abs(table[finite] / 2) + np.abs(table[finite] / 2 - reduced[finite] / 2)
    noise = np.abs(reduced[finite]) <= 8 * np.finfo(np.float64).eps * terms
    reduced[finite] = np.where(noise, 0.0, np.minimum(reduced[finite], 0.0))
    return _floored(reduced), float(LogWeights(table).of(choice))


def _by_maxima(table: np.ndarray, axis: int) -> tuple[np.ndarray, float] | None:
    pairs = table[:-1, :-1]
    best = pairs.max(axis=axis, keepdims=True)
    if not np.isfinite(best).all():
        return None
    reduced = table.copy()
    reduced[:-1, :-1] = pairs - best
    if (reduced[np.isfinite(reduced)] < _FLOOR).any():
        choice = best_matching(reduced)
        if choice is None:
            return None
        # Where rows compete for columns, even the best matching may be as far away.
        if LogWeights(reduced).of(choice) < _FLOOR / 2 and jnp.result_type(float) != np.float64:
            raise ValueError(
                f"scores must differ by less than {-_FLOOR:.0e} in float32, got differences of "
                f"{-reduced[np.isfinite(reduced)].min():.0e}; enable JAX's float64."
            )
        reduced = _floored(reduced) if jnp.result_type(float) != np.float64 else reduced
    return reduced, math.fsum(best.ravel())


def _floored(reduced: np.ndarray) -> np.ndarray:
    """Return log weights relative to the best matching, none of them too small for float32."""
    return np.where(np.isfinite(reduced), np.maximum(reduced, _FLOOR), reduced)
