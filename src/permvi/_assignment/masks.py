"""Find the entries of a mask that some matching uses: bipartite graphs, on the host.

An n-by-m problem is drawn on an (n+1)-by-(m+1) *board*, where being left over is an entry like any
other: row n holds the columns that no row takes (n < m), column m is held by the rows that take no
column (n > m). A matching is then a vector with an entry in 0, ..., m for each of the n rows.
"""

from typing import Any

import numpy as np


def board(entries: np.ndarray) -> np.ndarray:
    """The board of an (n, m) boolean array; rows, or columns, in excess may be left over."""
    n, m = entries.shape
    result = np.zeros((n + 1, m + 1), bool)
    result[:n, :m] = entries
    result[n, :m] = n < m
    result[:n, m] = n > m
    return result


def maximum_matching(entries: np.ndarray) -> np.ndarray:
    """The column of each row, or m, in a matching of the (n, m) entries with the most rows."""
    from scipy.sparse.csgraph import maximum_bipartite_matching

    m = entries.shape[1]
    column = maximum_bipartite_matching(_sparse(entries, width=m), perm_type="column")
    return np.where(column < 0, m, column)


def is_complete(column: np.ndarray, num_columns: int) -> bool:
    """Whether a matching covers all rows or all columns, whichever are fewer."""
    return int(np.sum(column < num_columns)) == min(len(column), num_columns)


def matchable(board: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The entries of a board that are in at least one matching, given one matching of it.

    Two matchings differ by cycles of rows, each taking the column that the next one holds. So an
    entry is in some matching if it is in the given one or if its row and its column are in one
    strongly connected component of the graph row -> column it could take -> row that holds it
    (Dulmage and Mendelsohn 1958).
    """
    from scipy.sparse.csgraph import connected_components

    n, m = board.shape[0] - 1, board.shape[1] - 1
    held = np.zeros_like(board)
    held[np.arange(n), column] = True
    held[n, :m] = ~held[:n, :m].any(axis=0)
    graph = _sparse(board & ~held, held.T, offsets=(n + 1, 0), width=n + m + 2)
    _, label = connected_components(graph, directed=True, connection="strong")
    return held | (board & (label[: n + 1, None] == label[n + 1 :]))


def prune(mask: np.ndarray) -> np.ndarray | None:
    """Remove the entries that are in no complete matching; None if there is no matching."""
    column = maximum_matching(mask)
    if not is_complete(column, mask.shape[1]):
        return None
    return matchable(board(mask), column)[:-1, :-1]


def prune_all(mask: np.ndarray) -> np.ndarray:
    """Prune (..., n, m) masks; raise ``ValueError`` if one of them allows no matching."""
    flat = mask.reshape(-1, *mask.shape[-2:])
    pruned = np.empty_like(flat)
    for b, one in enumerate(flat):
        kept = prune(one)
        if kept is None:
            raise ValueError(infeasible(mask.shape[:-2], b))
        pruned[b] = kept
    return pruned.reshape(mask.shape)


def infeasible(batch: tuple[int, ...], index: int) -> str:
    return (
        "mask must allow an assignment of every row (of every column if there are fewer), "
        f"got one that allows none{of_problem(batch, index)}."
    )


def of_problem(batch: tuple[int, ...], index: int) -> str:
    if not batch:
        return ""
    return f" in problem {', '.join(str(k) for k in np.unravel_index(index, batch))} of the batch"


def conflict(
    rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return rows that have fewer columns together than there are rows, and these columns.

    ``rows`` and ``cols``, (E,), are the allowed pairs. None if every row can have a column of its
    own. By Hall's theorem one of the two is the case (Hall, *On representatives of subsets*, 1935).
    The rows are those that alternating paths reach from a row without a partner.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_bipartite_matching

    n, m = shape
    allowed = csr_array((np.ones(len(rows), np.int8), (rows, cols)), shape=shape)
    partner = np.asarray(maximum_bipartite_matching(allowed, perm_type="column"))
    alone = np.flatnonzero(partner < 0)
    if not alone.size:
        return None
    # Paths go from a row to any of its columns, and from a column to its partner.
    matched = np.flatnonzero(partner >= 0)
    ends = np.concatenate([cols + n, matched]), np.concatenate([rows, partner[matched] + n])
    graph = csr_array((np.ones(len(ends[0])), (ends[1], ends[0])), shape=(n + m, n + m))
    reached = breadth_first_order(graph, int(alone[0]), return_predecessors=False)
    return np.sort(reached[reached < n]), np.sort(reached[reached >= n] - n)


def components(mask: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows and columns of each connected part of an (n, m) mask, by their first rows.

    Rows and columns without any entry are in no part.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(mask)
    rows, cols = np.nonzero(mask)
    graph = csr_array((np.ones(len(rows)), (rows, cols + n)), shape=(sum(mask.shape),) * 2)
    _, label = connected_components(graph, directed=False)
    used = dict.fromkeys(label[rows])
    return [(np.flatnonzero(label[:n] == k), np.flatnonzero(label[n:] == k)) for k in used]


def _sparse(*tables: np.ndarray, offsets: tuple[int, ...] = (0,), width: int) -> Any:
    """Stack tables as one sparse matrix of ``width`` columns, each table shifted by its offset.

    This builds SciPy's index lists directly, many times faster than from a dense matrix.
    """
    from scipy.sparse import csr_array

    flat = [np.flatnonzero(np.ascontiguousarray(table)) % table.shape[1] for table in tables]
    columns = np.concatenate([np.add(*pair) for pair in zip(flat, offsets, strict=True)])
    counts = np.concatenate([np.count_nonzero(table, axis=1) for table in tables])
    start = np.concatenate([[0], np.cumsum(counts)])
    entries = np.ones(len(columns)), columns.astype(np.int32), start.astype(np.int32)
    return csr_array(entries, shape=(len(counts), width))
