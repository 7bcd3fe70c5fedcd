"""An order of items that puts confusable items together."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

# Pairs less probable than this do not make two items confusable.
_CONFUSABLE = 0.05


def grouped(
    rows: np.ndarray, cols: np.ndarray, probs: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Return an order of items in which items that compete for labels are neighbours.

    Items and labels are the vertices of a graph whose edges are the probable pairs. Its connected
    components stay together, beginning with that of the first item. Within each, the reverse
    Cuthill-McKee order keeps edges short.

    Args:
        rows: (entries,) rows of the pairs with positive probability.
        cols: (entries,) columns of these pairs.
        probs: (entries,) probabilities of these pairs.
        shape: The numbers of rows and columns.

    Returns:
        (n,) the rows in order.

    References:
        Cuthill and McKee, *Reducing the bandwidth of sparse symmetric matrices*, 1969.
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
