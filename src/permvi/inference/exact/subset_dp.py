"""The subset programme: exact sums over all matchings of a block in O(2^N N) or O(2^N N M).

The smaller side of the block gives the N *labels*, the larger one the M *items*. Items choose one
after the other, and all the later ones need to know of the past is which labels are used:

    B_t[S]  total weight of what items t, ..., M-1 can do when the labels S are used,
    F_t[S]  total weight of the ways in which items 0, ..., t-1 use the labels S,
    P(item t takes label j) = sum_S F_t[S - j] w[t, j] B_{t+1}[S] / B_0[{}].

Where every item has to take a label, the set's size tells the layer, and one table holds them all.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

MAX_LABELS = 24

# Up to this many bytes of layers are kept outright; beyond, every sqrt(M)-th, the rest recomputed.
_KEEP_ALL_BYTES = 1 << 26
# Measured on one core of a server: one term of the forward or backward sum, in seconds.
_SECONDS_PER_TERM = 2e-9


class SubsetSolution:
    """The distribution of one block, by dynamic programming over subsets of its smaller side.

    Args:
        table: (n+1, m+1) grounded log weights, reduced so that the best matching has log weight 0:
            the sums below are then at least 1, and what underflows is too small to be seen in them.
    """

    def __init__(self, table: np.ndarray) -> None:
        # Importing numba is slow, and problems in small blocks never need it.

        from permvi.inference.exact import subset_kernels

        self._kernels = subset_kernels
        self._num_rows, num_cols = table.shape[0] - 1, table.shape[1] - 1
        self._items_are_cols = self._num_rows < num_cols
        weights = np.exp(table.T if self._items_are_cols else table)
        self._moves = np.ascontiguousarray(weights[:-1, :-1])
        self._stays = weights[:-1, -1].copy()
        self._windows = _windows(self._stays, weights[-1, :-1])
        self._spacing = _spacing(*self._moves.shape)
        self._one_table = _fits_one_table(self._windows)
        self._kept: dict[int, np.ndarray] = {}
        self._total = self._sweep_back(_leftover_table(weights[-1, :-1]))

    @property
    def log_total(self) -> float:
        """Log of the sum of all weights."""
        return float(np.log(self._total))

    def marginals(self) -> np.ndarray:
        """(n+1, m+1) grounded marginals; the last row and column are 'unmatched'."""
        num_items, num_labels = self._moves.shape
        table = np.zeros(1 << num_labels)
        table[0] = 1.0
        sums = np.zeros((num_items + 1, num_labels + 1))
        for t, backward in enumerate(self._layers()):
            self._kernels.step_forward(
                table,
                backward,
                self._moves[t],
                self._stays[t],
                self._windows[t + 1],
                self._windows[t],
                sums[t],
            )
        sums[:-1, :-1] *= self._moves
        sums[:-1, -1] *= self._stays
        self._kernels.add_leftovers(table, backward, self._windows[-1], sums[-1, :-1])
        marginals = sums / self._total
        return marginals.T if self._items_are_cols else marginals

    def draw(self, num: int, generator: np.random.Generator) -> np.ndarray:
        """(num, n) independent draws, -1 for an unmatched row."""
        num_items = len(self._moves)
        used = np.zeros(num, dtype=np.int64)
        chosen = np.empty((num_items, num), dtype=np.int64)
        for t, backward in enumerate(self._layers()):
            self._kernels.step_draw(
                used,
                generator.random(num),
                backward,
                self._moves[t],
                self._stays[t],
                self._windows[t + 1],
                chosen[t],
            )
        if not self._items_are_cols:
            return chosen.T
        rows = np.full((num, self._num_rows), -1)
        col, draw = np.nonzero(chosen >= 0)
        rows[draw, chosen[col, draw]] = col
        return rows

    def _sweep_back(self, table: np.ndarray) -> float:
        """Compute all B_t from B_M, keep what the forward passes will need, return B_0[{}]."""
        num_items = len(self._moves)
        for t in reversed(range(num_items)):
            if not self._one_table and (t + 1 == num_items or (t + 1) % self._spacing == 0):
                self._kept[t + 1] = table.copy()
            self._step_back(table, t)
        if self._one_table:
            self._kept[0] = table
        return float(table[0])

    def _step_back(self, table: np.ndarray, t: int) -> None:
        self._kernels.step_back(
            table, self._moves[t], self._stays[t], self._windows[t], self._windows[t + 1]
        )

    def _layers(self) -> Iterator[np.ndarray]:
        """B_1, ..., B_M in this order, recomputing those not kept; use each before the next."""
        num_items = len(self._moves)
        if self._one_table:
            yield from itertools.repeat(self._kept[0], num_items)
            return
        buffers = [np.empty_like(self._kept[num_items]) for _ in range(self._spacing - 1)]
        for start in range(0, num_items, self._spacing):
            end = min(start + self._spacing, num_items)
            segment = [self._kept[end]]
            for t, table in zip(range(end - 1, start, -1), buffers, strict=False):
                np.copyto(table, segment[-1])
                self._step_back(table, t)
                segment.append(table)
            yield from reversed(segment)


def cost_estimate(table: np.ndarray) -> tuple[float, float]:
    """What a grounded block would take: bytes of memory and seconds for evidence and marginals."""
    grounded = table if table.shape[0] >= table.shape[1] else table.T
    num_items, num_labels = grounded.shape[0] - 1, grounded.shape[1] - 1
    windows = _windows(np.isfinite(grounded[:-1, -1]), np.isfinite(grounded[-1, :-1]))
    subsets = sum(
        math.comb(num_labels, size)
        for low, high in windows.tolist()
        for size in range(low, high + 1)
    )
    if _fits_one_table(windows):
        passes, tables = 2, 2
    else:
        spacing = _spacing(num_items, num_labels)
        passes = 2 if spacing == 1 else 3
        tables = -(-num_items // spacing) + spacing + 1
    return 8.0 * tables * 2.0**num_labels, passes * subsets * num_labels * _SECONDS_PER_TERM


def _windows(stays: np.ndarray, leftovers: np.ndarray) -> np.ndarray:
    """(M+1, 2) smallest and largest number of labels used before each item, and at the end.

    Items and labels of weight zero for staying unmatched have to be matched.
    """
    num_items, num_labels = len(stays), len(leftovers)
    done = np.arange(num_items + 1)
    required = np.concatenate([[0], np.cumsum(stays == 0)])
    owed = np.count_nonzero(leftovers == 0) - (num_items - done)
    low = np.maximum(required, owed)
    high = np.minimum(done, num_labels - (required[-1] - required))
    return np.stack([low, high], axis=1)


def _fits_one_table(windows: np.ndarray) -> bool:
    """Whether layers have one size of sets each, no two the same."""
    return bool((windows == np.arange(len(windows))[:, None]).all())


def _spacing(num_items: int, num_labels: int) -> int:
    """Every how many layers one is kept."""
    if num_items * 8 * 2.0**num_labels <= _KEEP_ALL_BYTES:
        return 1
    return math.isqrt(num_items)


def _leftover_table(leftovers: np.ndarray) -> np.ndarray:
    """B_M: the product of the weights of the labels not in S, for every S."""
    table = np.ones(1)
    for weight in leftovers:
        table = np.concatenate([table * weight, table])
    return table
