"""The subset programme: exact sums over all matchings of a block in O(2^N N) or O(2^N N M).

The smaller side of the block gives the N *labels*, the larger one the M *items*. Items choose one
after the other, and a choice depends on the past only through the set of labels already used:

    B_t[S]  total weight of the choices of items t, ..., M-1 when the labels S are used,
    F_t[S]  total weight of the ways in which items 0, ..., t-1 use the labels S,
    P(item t takes label j) = sum_S F_t[S - j] w[t, j] B_{t+1}[S] / B_0[{}].

If every item has to take a label, the size of S gives the layer t, and one table holds all layers.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

MAX_LABELS = 24

# Keep all layers up to this many bytes; beyond that keep every sqrt(M)-th and recompute the others.
_KEEP_ALL_BYTES = 1 << 26
# The time of one term of the forward or backward sum, measured on one core of a server.
_SECONDS_PER_TERM = 2e-9


class SubsetSolution:
    """The distribution of one block, by dynamic programming over subsets of its smaller side.

    Args:
        table: (n+1, m+1) grounded log weights, reduced so that the best matching has log weight 0.
            The sums are then at least 1, and terms that underflow are too small to matter.
    """

    def __init__(self, table: np.ndarray) -> None:
        # Importing numba is slow, and problems with small blocks never need it.
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
        """The log of the sum of all weights."""
        return float(np.log(self._total))

    def marginals(self) -> np.ndarray:
        """Return grounded marginals (n+1, m+1); the last row and column mean "unmatched"."""
        num_items, num_labels = self._moves.shape
        table = np.zeros(1 << num_labels)
        table[0] = 1.0
        sums = np.zeros((num_items + 1, num_labels + 1))
        for t, backward in enumerate(self._layers()):
            weights, windows = (self._moves[t], self._stays[t]), self._windows[[t + 1, t]]
            self._kernels.step_forward(table, backward, *weights, *windows, sums[t])
        sums[:-1, :-1] *= self._moves
        sums[:-1, -1] *= self._stays
        self._kernels.add_leftovers(table, backward, self._windows[-1], sums[-1, :-1])
        marginals = sums / self._total
        return marginals.T if self._items_are_cols else marginals

    def draw(self, num: int, generator: np.random.Generator) -> np.ndarray:
        """Return independent draws, (num, n), -1 for an unmatched row."""
        used = np.zeros(num, dtype=np.int64)
        chosen = np.empty((len(self._moves), num), dtype=np.int64)
        for t, backward in enumerate(self._layers()):
            uniforms, weights = generator.random(num), (self._moves[t], self._stays[t])
            self._kernels.step_draw(
                used, uniforms, backward, *weights, self._windows[t + 1], chosen[t]
            )
        if not self._items_are_cols:
            return chosen.T
        rows = np.full((num, self._num_rows), -1)
        col, draw = np.nonzero(chosen >= 0)
        rows[draw, chosen[col, draw]] = col
        return rows

    def _sweep_back(self, table: np.ndarray) -> float:
        """Compute all B_t from B_M, keep those that forward passes need, and return B_0[{}]."""
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
        """Yield B_1, ..., B_M, recomputing those not kept; use each before asking for the next."""
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
    """Return the bytes and seconds that evidence and marginals of a grounded block would take."""
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
    """Return (M+1, 2) the fewest and most labels used before each item, and at the end.

    Items and labels whose weight of staying unmatched is zero have to be matched.
    """
    num_items, num_labels = len(stays), len(leftovers)
    done = np.arange(num_items + 1)
    required = np.concatenate([[0], np.cumsum(stays == 0)])
    owed = np.count_nonzero(leftovers == 0) - (num_items - done)
    low = np.maximum(required, owed)
    high = np.minimum(done, num_labels - (required[-1] - required))
    return np.stack([low, high], axis=1)


def _fits_one_table(windows: np.ndarray) -> bool:
    """Return whether each layer has sets of one size only, different from all other layers."""
    return bool((windows == np.arange(len(windows))[:, None]).all())


def _spacing(num_items: int, num_labels: int) -> int:
    """Return the distance between layers that are kept."""
    return 1 if num_items * 8 * 2.0**num_labels <= _KEEP_ALL_BYTES else math.isqrt(num_items)


def _leftover_table(leftovers: np.ndarray) -> np.ndarray:
    """Return B_M: for every S the product of the weights of the labels not in S."""
    table = np.ones(1)
    for weight in leftovers:
        table = np.concatenate([table * weight, table])
    return table
