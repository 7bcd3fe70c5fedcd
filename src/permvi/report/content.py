"""The numbers of a report's heatmap and table, sparse and rounded."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from permvi.posterior.items import ranked
from permvi.posterior.marginals import TOLERANCE, Marginals
from permvi.report.words import CERTAIN, MILLION

if TYPE_CHECKING:
    from permvi.posterior import Posterior

# Less probable pairs are left out; if there are too many, so are each item's least probable.
_FLOOR = 1e-4
_MAX_ENTRIES = 400_000
_LEAST_PER_ROW = 10
# Pairs less probable than this do not make two items confusable.
_CONFUSABLE = 0.05
# An order helps if it brings confusable items this much closer together.
_MUCH_CLOSER = 0.8


def tables(posterior: "Posterior", matching: np.ndarray, level: float) -> dict[str, Any]:
    """Return the contents of the report's JSON.

    A site's ``states[starts[i]:starts[i + 1]]`` are the columns that row i may have, the most
    probable first and "unmatched" as column m. ``millionths`` are their probabilities, and the
    first ``sizes[i]`` of them are its credible set. ``order`` is an order of the items that groups
    confusable ones, ``grouping_helps`` tells whether it does so better than the given order, and
    ``left_out`` is the largest probability that was left out. The choice of
    labels to highlight is ``matching``, (n,) or (sites, n) with -1 for unmatched.
    """
    S, (n, m) = posterior.num_sites, posterior.shape
    everything = ranked(
        Marginals(posterior.marginals, posterior.p_unmatched_rows, posterior.p_unmatched_cols)
    )
    sizes, entries = everything.sizes(level), everything.rows
    rank = np.arange(len(entries)) - everything.starts[entries]
    kept = (everything.probs >= _FLOOR) & (rank < max(_LEAST_PER_ROW, _MAX_ENTRIES // (S * n)))
    choice = matching.reshape(S, n)
    sites = []
    for site in range(S):
        chosen = kept & (entries // n == site)
        rows, cols, probs = entries[chosen] % n, everything.states[chosen], everything.probs[chosen]
        pairs = cols < m
        listed = rows[pairs], cols[pairs], probs[pairs]
        order = grouped(*listed, (n, m))
        sites.append(
            {
                "starts": np.searchsorted(rows, np.arange(n + 1)).tolist(),
                "states": cols.tolist(),
                "millionths": _millionths(probs),
                "sizes": sizes[site * n : (site + 1) * n].tolist(),
                "unused": _millionths(posterior.p_unmatched_cols.reshape(S, m)[site]),
                "matching": np.where(choice[site] < 0, m, choice[site]).tolist(),
                "order": order.tolist(),
                "grouping_helps": grouping_helps(*listed, order),
            }
        )
    return {
        "rows": posterior.labels[0],
        "cols": posterior.labels[1],
        "num_rows": n,
        "num_cols": m,
        "level": level,
        "certain": CERTAIN,
        # Zeros up to rounding do not need a column.
        "rows_may_be_alone": bool(posterior.p_unmatched_rows.max() > TOLERANCE),
        "cols_may_be_alone": bool(posterior.p_unmatched_cols.max() > TOLERANCE),
        "left_out": float(everything.probs[~kept].max(initial=0.0)),
        "sites": sites,
    }


def grouped(
    rows: np.ndarray, cols: np.ndarray, probs: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Return an order (n,) of rows in which items that compete for labels are neighbours.

    Items and labels are the vertices of a graph whose edges are the probable pairs, given as three
    arrays (entries,). Its connected components stay together, beginning with that of the first
    item. Within each, the reverse Cuthill-McKee order keeps edges short (Cuthill and McKee,
    *Reducing the bandwidth of sparse symmetric matrices*, 1969).
    """
    n, size = shape[0], sum(shape)
    likely = probs >= _CONFUSABLE
    ends = rows[likely], n + cols[likely]
    edges = csr_array((probs[likely], ends), shape=(size, size))
    graph = csr_array(edges + edges.T)
    _, part = connected_components(graph, directed=False)
    # By its first vertex, which is a row, except for a label without any probable item.
    part = np.unique(part, return_index=True)[1][part]
    place = np.empty(size, dtype=np.int64)
    place[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(size)
    return np.lexsort((place[:n], part[:n]))


def grouping_helps(
    rows: np.ndarray, cols: np.ndarray, probs: np.ndarray, order: np.ndarray
) -> bool:
    """Return whether rows that compete for a label are much closer in this order than as given.

    A label's rows are as far apart as the first and the last of those that probably have it.
    """
    likely = probs >= _CONFUSABLE
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    spreads = []
    for where in (place[rows[likely]], rows[likely]):
        first = np.full(cols.max(initial=0) + 1, len(order))
        last = np.zeros(cols.max(initial=0) + 1, np.int64)
        np.minimum.at(first, cols[likely], where)
        np.maximum.at(last, cols[likely], where)
        spreads.append(int(np.maximum(last - first, 0).sum()))
    return spreads[0] <= _MUCH_CLOSER * spreads[1] and spreads[1] > 0


def _millionths(probs: np.ndarray) -> list[int]:
    return np.rint(MILLION * probs).astype(np.int64).tolist()
