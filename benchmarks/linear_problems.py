"""Families of linear matching problems; `FAMILIES` maps a name to a function of size and seed."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import permvi as pv

# The largest side of a block whose truth comes from the subset programme.
EXACT_SIZE = 22
# The error (mean total variation of a row) and the CPU seconds allowed up to a number of items.
LIMITS = {60: (0.005, 4.0), 150: (0.008, 5.0), 300: (0.015, 10.0), 10**9: (0.02, 60.0)}
SEED = 770_000  # added to all seeds of problems; none of these was used for tuning
_PEAK = 12.0


class Problem(NamedTuple):
    """A table of scores, what may stay unmatched, and how to compute the truth."""

    scores: np.ndarray
    mask: np.ndarray | None = None
    row_unmatched: np.ndarray | None = None
    col_unmatched: np.ndarray | None = None
    oracle: str = "chains"
    # Orders of rows and columns that undo the shuffle.
    row_order: np.ndarray | None = None
    col_order: np.ndarray | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that models and exact solvers share."""
        return {
            "scores": self.scores, "mask": self.mask,
            "row_unmatched": self.row_unmatched, "col_unmatched": self.col_unmatched,
        }  # fmt: skip

    def model(self) -> pv.models.LinearMatching:
        """Return the model."""
        return pv.models.LinearMatching(**self.arguments())

    def weights(self) -> np.ndarray:
        """Return the (n, m) log weights, -inf for forbidden pairs."""
        return self.scores if self.mask is None else np.where(self.mask, self.scores, -np.inf)

    def grounded(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights with a last column for unmatched rows, and weights of unused columns."""
        n, m = self.scores.shape
        rows, cols = self.row_unmatched, self.col_unmatched
        if rows is None:
            rows = -np.inf
            cols = (0.0 if n < m else -np.inf) if cols is None else cols
        weights = np.column_stack([self.weights(), np.broadcast_to(rows, n)])
        return weights, np.append(np.broadcast_to(0.0 if cols is None else cols, m), 0.0)

    def write(self, path: Path) -> list[str]:
        """Write the table as CSV and return the options of ``permvi match`` that go with it."""
        cells = np.where(np.isfinite(self.weights()), self.scores.astype("U25"), "")
        lines = [["item", *(f"c{j}" for j in range(cells.shape[1]))]]
        lines += [[f"r{i}", *row] for i, row in enumerate(cells.tolist())]
        options = []
        if self.row_unmatched is not None:
            border = ["none", *map(str, np.broadcast_to(self.row_unmatched, len(cells)))]
            lines = [[*line, cell] for line, cell in zip(lines, border, strict=True)]
            options += ["--unmatched", "none"]
        if self.col_unmatched is not None:
            border = np.broadcast_to(self.col_unmatched, cells.shape[1]).astype(str).tolist()
            lines.append(["none", *border, *[""] * (self.row_unmatched is not None)])
            options += ["--unused", "none"]
        path.write_text("\n".join(map(",".join, lines)) + "\n", encoding="utf-8")
        return [str(path), *options]


def limits(n: int) -> tuple[float, float]:
    """Return the allowed error and CPU seconds for n items."""
    return next(limit for size, limit in LIMITS.items() if n <= size)


def start(
    weights: np.ndarray, unused: np.ndarray, seed: int | None, heat: float = 1.0
) -> np.ndarray:
    """Return the best matching, of scores with Gumbel noise times ``heat`` if there is a seed."""
    from scipy.optimize import linear_sum_assignment  # which no fit should pay for

    n, m = len(weights), len(unused) - 1
    gain = weights[:, :m] - np.where(np.isfinite(unused[:m]), unused[:m], 0.0)
    alone = np.full((n, n), -np.inf)
    np.fill_diagonal(alone, weights[:, m])
    table = np.hstack([gain, alone])
    if seed is not None:
        table = table + heat * np.random.default_rng(seed).gumbel(size=table.shape)
    cost = np.where(np.isfinite(table), -table, 1e12)
    return np.minimum(linear_sum_assignment(cost)[1], m)


def points(dim: int, sigma: float, n: int, seed: int) -> Problem:
    """Draw noisy, shuffled copies of standard normal points."""
    rng = np.random.default_rng((seed, n, dim, 1))
    centers = rng.normal(size=(n, dim))
    observed = centers[rng.permutation(n)] + sigma * rng.normal(size=(n, dim))
    return Problem(_log_density(observed, centers, sigma))


def partial_points(sigma: float, n: int, seed: int) -> Problem:
    """Draw points in space: a sixth of the items is clutter, and 41 % of the labels are unused."""
    rng = np.random.default_rng((seed, n, 2))
    m, used = round(n * 185 / 109), round(5 * n / 6)
    centers = rng.normal(size=(m, 3))
    observed = centers[rng.permutation(m)[:n]] + sigma * rng.normal(size=(n, 3))
    observed[used:] = rng.normal(size=(n - used, 3))
    clutter = math.log(1 / 6) + _log_density(observed, np.zeros((1, 3)), 1.0)[:, 0]
    scores = math.log(used / m) + _log_density(observed, centers, sigma)
    return Problem(scores, None, clutter, np.full(m, math.log(1 - used / m)))


def gaussian(factor: float, n: int, seed: int) -> Problem:
    """Draw standard normal scores times a factor."""
    return Problem(factor * np.random.default_rng((seed, n, 3)).normal(size=(n, n)))


def cauchy(n: int, seed: int) -> Problem:
    """Draw Cauchy scores."""
    return Problem(np.random.default_rng((seed, n, 4)).standard_cauchy(size=(n, n)))


def banded(width: int, n: int, seed: int) -> Problem:
    """Draw normal scores times 2 for pairs ``|i - j| <= width``; other pairs are forbidden."""
    rng = np.random.default_rng((seed, n, width, 5))
    i, j = np.indices((n, n))
    return _shuffled(2 * rng.normal(size=(n, n)), abs(i - j) <= width, "frontier", rng)


def cycle(ratio: float, n: int, seed: int) -> Problem:
    """Build two modes that differ in every row, the second with 1 / ratio of the first's mass."""
    eye = np.eye(n)
    table = _PEAK * eye + (_PEAK - math.log(ratio) / n) * np.roll(eye, 1, 1)
    return _shuffled(table, None, "cycle", np.random.default_rng((seed, n, 6)))


def exchange(n: int, seed: int) -> Problem:
    """Build two blocks A and B that keep or exchange their labels, with freedom in both modes.

    Items and labels of A and B alternate on a ring. Shift 0 matches a block with itself, shift 1
    with the other one. Shifts -2 to 3 have weights lower by e^2 or more, so that each mode has
    many neighbours, and no chain of small changes leads from one mode to the other.
    """
    n += n % 2
    rng = np.random.default_rng((seed, n, 7))
    tilt = rng.uniform(-1.5, 1.5)
    table, i = np.zeros((n, n)), np.arange(n)
    for shift in (-2, -1, 2, 3):
        table[i, (i + shift) % n] = _PEAK - 2 - rng.exponential(size=n)
    for shift in (0, 1):
        table[i, (i + shift) % n] = _PEAK + shift * tilt / n
    return _ring(table, rng)


def three(n: int, seed: int) -> Problem:
    """Build three modes: the shifts 0 and 2 of a ring, and mixtures that wind around it once.

    Shift 1 has a weight for which the mixtures have about as much mass as each of the others.
    """
    rng = np.random.default_rng((seed, n, 8))
    tilts, root = rng.uniform(-1, 1, size=2) / n, math.exp(rng.uniform(0.5, 1.5) / n)
    table, i = np.zeros((n, n)), np.arange(n)
    for shift, score in enumerate((tilts[0], math.log(root - 1 / root), tilts[1])):
        table[i, (i + shift) % n] = _PEAK + score
    return _ring(table, rng)


def _log_density(x: np.ndarray, centers: np.ndarray, sigma: float) -> np.ndarray:
    squares = ((x[:, None] - centers) ** 2).sum(-1)
    return -0.5 * squares / sigma**2 - x.shape[1] * math.log(sigma * math.sqrt(2 * math.pi))


def _ring(table: np.ndarray, rng: np.random.Generator) -> Problem:
    """Forbid all other pairs where the subset programme cannot tell what they add."""
    mask = None if len(table) <= EXACT_SIZE else table != 0
    return _shuffled(table, mask, "frontier", rng)


def _shuffled(
    table: np.ndarray, mask: np.ndarray | None, oracle: str, rng: np.random.Generator
) -> Problem:
    """Shuffle rows and columns, and add numbers to rows and columns, which changes nothing."""
    rows, cols = (rng.permutation(size) for size in table.shape)
    scores = table[np.ix_(rows, cols)] + 2 * rng.normal(size=(len(rows), 1)) + rng.normal(size=len(cols))  # fmt: skip  # noqa: E501
    mask = None if mask is None else mask[np.ix_(rows, cols)]
    return Problem(scores, mask, None, None, oracle, np.argsort(rows), np.argsort(cols))


_SIGMAS = (0.1, 0.2, 0.3, 0.4, 0.5)
FAMILIES: dict[str, Callable[[int, int], Problem]] = {
    **{f"plane-{sigma}": partial(points, 2, sigma) for sigma in _SIGMAS},
    **{f"space-{sigma}": partial(points, 3, sigma) for sigma in _SIGMAS},
    **{f"gaussian-{factor}": partial(gaussian, factor) for factor in (2, 5)},
    "cauchy": cauchy,
    **{f"banded-{width}": partial(banded, width) for width in (3, 5)},
    "partial": partial(partial_points, 0.2),
    "partial-0.4": partial(partial_points, 0.4),
    **{f"cycle-{ratio}": partial(cycle, ratio) for ratio in (1, 5, 20)},
    "exchange": exchange,
    "three": three,
}
MODES = tuple(name for name in FAMILIES if name.startswith(("cycle", "exchange", "three")))


def problem_of(family: str, n: int, seed: int) -> Problem:
    """Return a problem that no method was tuned on."""
    return FAMILIES[family](n, SEED + seed)
