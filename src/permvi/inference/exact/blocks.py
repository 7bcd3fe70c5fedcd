"""Split a matching problem into independent blocks of reduced weights.

An entry is in some feasible matching if and only if a cycle of the residual graph passes through
it, that is, if its two ends lie in one strongly connected component. Dropping all other entries
leaves connected components that are independent of each other. Their log evidences and entropies
add up, and each has its own marginals and draws.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from permvi._assignment.duality import best_matching, reduce_by_prices, residual_graph
from permvi.problem.unmatched import LogWeights


@dataclass(frozen=True, eq=False)
class Block:
    """An independent block: k rows, l columns, and their reduced log weights.

    ``table`` is grounded, (k+1, l+1). Its entries are at most 0, and 0 on the best matching.
    """

    rows: np.ndarray
    cols: np.ndarray
    table: np.ndarray


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A matching problem as its best matching and independent blocks.

    Attributes:
        best: (n,) the matching of largest weight. Rows outside all blocks have no other choice.
        best_log_weight: Its log weight in the original problem.
        reduced: Log weights relative to the best matching, -inf on entries in no feasible one.
        blocks: The rows and columns that have a choice.
    """

    best: np.ndarray
    best_log_weight: float
    reduced: LogWeights
    blocks: list[Block]


def decompose(weights: LogWeights) -> Decomposition:
    """Find the best matching, drop entries that are in no feasible one, and split.

    Raise ``ValueError`` if no matching is feasible.
    """
    table = weights.table
    best = best_matching(table)
    if best is None:
        raise ValueError(_why_infeasible(table))
    lengths = residual_graph(table, best)
    _, component = connected_components(csr_array(np.isfinite(lengths)), connection="strong")
    reduced = reduce_by_prices(table, best, lengths)
    holder = np.append(component[best], component[-1])
    reduced[holder[:, None] != component[None, :]] = -np.inf
    return Decomposition(best, float(weights.of(best)), LogWeights(reduced), _split(reduced))


def _split(table: np.ndarray) -> list[Block]:
    n, m = table.shape[0] - 1, table.shape[1] - 1
    allowed = np.isfinite(table)
    # A row with a single admissible choice is settled, as is the column that it takes.
    rows = np.flatnonzero(allowed[:n].sum(axis=1) > 1)
    cols = np.flatnonzero(allowed[:, :m].sum(axis=0) > 1)
    i, j = np.nonzero(allowed[np.ix_(rows, cols)])
    size = len(rows) + len(cols)
    edges = coo_array((np.ones(len(i), dtype=bool), (i, len(rows) + j)), shape=(size, size))
    count, component = connected_components(edges, directed=False)
    blocks = []
    for label in range(count):
        members = np.flatnonzero(component == label)
        block_rows = rows[members[members < len(rows)]]
        block_cols = cols[members[members >= len(rows)] - len(rows)]
        grounded = np.ix_(np.append(block_rows, n), np.append(block_cols, m))
        blocks.append(Block(block_rows, block_cols, table[grounded]))
    return blocks


def _why_infeasible(table: np.ndarray) -> str:
    n, m = table.shape[0] - 1, table.shape[1] - 1
    stuck_rows = np.flatnonzero(~np.isfinite(table[:n]).any(axis=1))
    stuck_cols = np.flatnonzero(~np.isfinite(table[:, :m]).any(axis=0))
    if len(stuck_rows):
        reason = f"row {stuck_rows[0]} has to be matched and has no allowed column"
    elif len(stuck_cols):
        reason = f"column {stuck_cols[0]} has to be matched and has no allowed row"
    else:
        reason = "rows or columns that have to be matched share too few partners"
    return f"scores, mask and known must leave a feasible matching, got none: {reason}."
