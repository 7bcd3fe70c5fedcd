"""Assignment on the host, from NumPy arrays to NumPy arrays: SciPy, lapx or the compiled solver."""

import functools
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from permvi._assignment import HUGE, INFEASIBLE, NOT_FINITE, SHRINK, SOLVED, TIE_ULPS, masks

# Up to this many entries SciPy is done before numba is loaded.
_FEW_ENTRIES = 4096
# Work (entries times the shorter side) that justifies another thread: about a millisecond.
_WORK_PER_THREAD = 1_000_000


def solve(
    scores: np.ndarray, mask: np.ndarray | None, *, maximize: bool, solver: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return permutations (..., n), all -1 if unsolved, and the status of each problem (...).

    Scores and mask are (..., n, m) of equally many dimensions, and their batch shapes broadcast.
    The solver is "compiled", "scipy", "lapx", or "auto": the compiled one, or SciPy if that is not
    loaded yet and the problems are small.
    """
    n = scores.shape[-2]
    batch = scores.shape[:-2]
    if mask is not None:
        batch = np.broadcast_shapes(batch, mask.shape[:-2])
        # One mask for all is common, and need not be copied.
        shared = math.prod(mask.shape[:-2]) == 1
        mask = _flat(mask, mask.shape[:-2] if shared else batch)
    scores = _flat(scores, batch)
    if solver == "auto":
        ready = "permvi._assignment.kernel" in sys.modules
        solver = "compiled" if ready or scores.size > _FEW_ENTRIES else "scipy"
    sign = -1.0 if maximize else 1.0
    perm = np.empty((len(scores), n), np.int32)
    status = np.empty(len(scores), np.uint8)
    if solver == "compiled":
        _solve_compiled(scores, mask, sign, perm, status)
    else:
        for b in range(len(scores)):
            allowed = None if mask is None else mask[min(b, len(mask) - 1)]
            perm[b], status[b] = _solve_one(scores[b], allowed, sign, solver)
    return perm.reshape(*batch, n), status.reshape(batch)


def compile_for(dtype: np.dtype) -> None:
    """Compile the solver now, not inside a running XLA programme."""
    solve(np.zeros((1, 1, 1), dtype), None, maximize=True, solver="compiled")


def _flat(array: np.ndarray, batch: tuple[int, ...]) -> np.ndarray:
    """The array as (batch size, n, m), contiguous and read-only (numba compiles one version)."""
    n, m = array.shape[-2:]
    array = np.broadcast_to(array, (*batch, n, m)).reshape(math.prod(batch), n, m)
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array


def _solve_compiled(
    scores: np.ndarray, mask: np.ndarray | None, sign: float, perm: np.ndarray, status: np.ndarray
) -> None:
    from permvi._assignment import kernel

    batch, n, m = scores.shape
    if mask is None:
        mask = np.broadcast_to(np.True_, (1, 0, 0))
    allowed = mask

    def solve_part(part: slice) -> None:
        own_mask = allowed if len(allowed) == 1 else allowed[part]
        kernel.solve_batch(scores[part], own_mask, sign, perm[part], status[part])

    work = batch * n * m * min(n, m)
    num_threads = min(os.cpu_count() or 1, batch, 1 + work // _WORK_PER_THREAD)
    if num_threads <= 1:
        solve_part(slice(None))
        return
    # Several parts per thread even out problems that take longer than others.
    edges = np.linspace(0, batch, min(batch, 4 * num_threads) + 1).astype(int)
    list(_pool().map(solve_part, map(slice, edges[:-1], edges[1:])))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """A lasting pool: a fit makes thousands of calls, and starting threads takes a millisecond."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="permvi-assignment")


# A forked process has none of the threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _solve_one(
    scores: np.ndarray, mask: np.ndarray | None, sign: float, solver: str
) -> tuple[np.ndarray, int]:
    """Solve one problem with a library; if the optimum is not unique, with the compiled solver."""
    n, m = scores.shape
    cost = sign * scores.astype(np.float64)
    if mask is not None:
        cost = np.where(mask, cost, np.inf)
    unsolved = np.full(n, -1)
    if not np.isfinite(cost if mask is None else cost[mask]).all():
        return unsolved, NOT_FINITE
    if mask is not None and not masks.is_complete(masks.maximum_matching(mask), m):
        return unsolved, INFEASIBLE
    if np.max(np.abs(cost), initial=0.0, where=np.isfinite(cost)) > HUGE:
        cost *= SHRINK
    column = _scipy(cost) if solver == "scipy" else _lapx(cost)
    if _is_unique(cost, column):
        return np.where(column == m, -1, column), SOLVED
    perm, status = np.empty((1, n), np.int32), np.empty(1, np.uint8)
    _solve_compiled(
        _flat(scores, (1,)), None if mask is None else _flat(mask, (1,)), sign, perm, status
    )
    return perm[0], int(status[0])


def _scipy(cost: np.ndarray) -> np.ndarray:
    from scipy.optimize import linear_sum_assignment

    column = np.full(cost.shape[0], cost.shape[1])
    rows, cols = linear_sum_assignment(cost)
    column[rows] = cols
    return column


def _lapx(cost: np.ndarray) -> np.ndarray:
    import lap

    column, _ = lap.lapjv(cost, extend_cost=True, return_cost=False)
    return np.where(column < 0, cost.shape[1], column)


def _is_unique(cost: np.ndarray, column: np.ndarray) -> bool:
    """Whether an optimal matching is the only one, by the rule for ties of this package."""
    n, m = cost.shape
    rows = np.flatnonzero(column < m)
    cols = column[rows]
    if n > m:
        v, u = _potentials(cost.T, np.argsort(np.where(column < m, column, m), kind="stable")[:m])
    else:
        u, v = _potentials(cost, column)
    tolerance = TIE_ULPS * np.finfo(np.float64).eps
    slack_u, slack_v = np.abs(u), np.abs(v)
    slack_u[rows] += np.abs(cost[rows, cols])
    slack_v[cols] += np.abs(cost[rows, cols])
    slack_u, slack_v = tolerance * slack_u, tolerance * slack_v
    board = masks.board(cost <= (u + slack_u)[:, None] + (v + slack_v))
    board[:n, m] &= u >= -slack_u
    board[n, :m] &= v >= -slack_v
    board[rows, cols] = True
    return int(np.sum(masks.matchable(board, column)[:n, :m])) == len(rows)


def _potentials(cost: np.ndarray, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Optimal potentials of an n <= m problem from its optimal matching (Bellman and Ford)."""
    matched = cost[np.arange(len(cost)), column]
    v = np.zeros(cost.shape[1])
    # n rounds suffice; without a limit, rounding errors could go on for ever.
    for _ in range(len(cost)):
        lower = np.minimum(v, np.min(cost + (v[column] - matched)[:, None], axis=0))
        if np.array_equal(lower, v):
            break
        v = lower
    return matched - v[column], v
