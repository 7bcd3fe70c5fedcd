"""The search for the best matching of a quadratic problem."""

import os
import sys
import time

import numpy as np

from permvi._threads import pool
from permvi.inference.map.local_search import Neighbourhood
from permvi.inference.map.polytope import Ascent, matrices, relaxed_starts, solve
from permvi.inference.map.population import MEMBERS, Islands
from permvi.inference.map.quadratic import Quadratic, climb, spectral_starts, upper_bound
from permvi.inference.map.result import RESTARTS, MapOptions, MapResult, agree, num_best

# Steps of tabu search from each start: this many times n, or fewer so that about this many swap
# differences are updated (a tenth of a second), but n at least.
_STEPS_PER_ROW = 500
_DIFFERENCES = 3_000_000
# Likewise for members of a population.
_STEPS_PER_MEMBER = 100
# The most swap differences of all populations together: some 15 seconds of CPU time up to 25 items,
# twice as many for 50, and then fewer, since "quadratic" takes the same search as its first step.
_BUDGET = 5_000_000_000
_BUDGET_OF_MANY = 1_000_000_000
_FEW, _HARDEST = 25, 50
# Taillard's tenures around n; swaps unused for this many times n^2 steps go first.
_TENURE = (0.9, 1.1)
_PATIENCE = 5
# Gains below this share of the largest possible difference are rounding errors.
_RELATIVE_TOLERANCE = 1e-12
# A bound this close to the value, relative to it, is reached.
_REACHED = 1e-9
# Alternations of Frank-Wolfe and swaps at the end; they settle after one or two.
_MAX_ROUNDS = 10
# The usual number of restarts is for so many items; a climb takes time of order n^3, so that there
# are fewer beyond.
_FEWEST_RESTARTS = 6
_MANY = 200


def default_restarts(size: int) -> int:
    """Return the number of restarts of so many items by default.

    Of many items most restarts begin with spectral similarities, from which alone climbs find a
    planted matching there.
    """
    return max(_FEWEST_RESTARTS, int(RESTARTS * min(1.0, _MANY / size) ** 1.5))


def default_budget(size: int) -> int:
    """Return the most swap differences that populations of so many items take by default."""
    if size <= _HARDEST:
        return int(_BUDGET * max(1.0, size / _FEW))
    return max(_BUDGET_OF_MANY, int(_BUDGET * _HARDEST / _FEW * (_HARDEST / size) ** 3.5))


def solve_quadratic(
    quadratic: Quadratic,
    mask: np.ndarray | None = None,
    options: MapOptions | None = None,
    rng: np.random.Generator | None = None,
    starts: np.ndarray | None = None,
    budget: int | None = None,
) -> MapResult:
    r"""Search for the matching with the largest ``<A, X B X'> + <C, X>``.

    FAQ (Vogelstein et al. 2015) climbs from the centre of the polytope, from random points and from
    spectral similarities, then robust tabu search (Taillard 1991) from each end. Then Frank-Wolfe
    from each matching, which moves along cycles that swaps cannot follow through a mask, alternates
    with swaps while that gains anything. If fewer than half of these restarts end at the best
    value, and no bound proves it, independent populations follow (see `population`), until six of
    them, and three quarters, end at the best value of all. Forbidden pairs are never used.

    Args:
        quadratic: The problem; rectangular ones leave the surplus of the longer side unmatched.
        mask: (n, m) booleans, True where allowed, pruned; or None.
        options: Settings.
        rng: The source of randomness.
        starts: (k, n) additional matchings to start from.
        budget: The most swap differences of all populations together; None: `default_budget`, or
            all that ``max_seconds`` leaves time for.

    Returns:
        The best matching. A Frank-Wolfe step counts as two evaluations (gradient and curvature),
        and every swap difference, computed or updated, as one.
    """
    options = options or MapOptions()
    rng = rng or np.random.default_rng(0)
    n, m = quadratic.shape
    square = quadratic.padded().symmetrised()
    size = max(n, m)
    allowed = np.ones((size, size), bool)
    if mask is not None:
        allowed[:n, :m] = mask
    search = _Search(square, allowed, options)
    num_restarts = options.num_restarts or default_restarts(size)
    num_spectral = num_restarts // 4 if size <= _MANY else max(0, num_restarts - 2)
    spectral = spectral_starts(square, allowed, num_spectral)
    num_random = num_restarts - len(spectral)
    random = relaxed_starts(num_random, (size, size), allowed, rng)
    perms = search.frank_wolfe(np.concatenate([random, spectral]))
    if starts is not None:
        given = Neighbourhood(allowed[:n, :m]).padded(np.asarray(starts)[:, None])[:, 0]
        perms = np.concatenate([perms, search.from_matchings(given)])
    climbed = perms[:0]
    if options.polish == "tabu":
        # From a lesser mode nearby, tabu search crosses over to the best one.
        climbed = search.swapped(perms) if size <= _MANY else climbed
        perms = search.tabu(perms, rng)
    if options.polish != "none":
        perms = search.settle(perms)
    bound = upper_bound(square, allowed)
    independent, best, confirmed = perms, None, False
    if options.polish == "tabu" and not search.is_settled(perms, bound):
        if budget is None:
            budget = default_budget(size) if options.max_seconds is None else sys.maxsize
        ends, best, confirmed = search.evolve(perms, budget, rng)
        independent = np.concatenate([perms, ends])
    values = square.values(independent)
    best = independent[np.argmax(values)] if best is None else best
    value = float(square.values(best))
    ends = np.concatenate([independent, climbed])
    return MapResult(
        np.where(best < m, best, -1)[:n],
        values,
        search.num_evaluations + len(independent),
        optimal=value >= bound - _REACHED * max(1.0, abs(bound)),
        finished=options.polish != "none",
        value=value,
        agreed=confirmed or agree(values[: len(perms)], value),
        bound=bound,
        ends=np.where(ends < m, ends, -1)[:, :n],
    )


class _Search:
    """The parts of the search in a square problem, which count their evaluations."""

    def __init__(self, quadratic: Quadratic, allowed: np.ndarray, options: MapOptions) -> None:
        self._quadratic, self._allowed, self._options = quadratic, allowed, options
        arrays = (np.ascontiguousarray(array) for array in (quadratic.A, quadratic.B, quadratic.C))
        self._arrays = (*arrays, quadratic.is_symmetric)
        A, B, C = (float(np.abs(M).max()) for M in (quadratic.A, quadratic.B, quadratic.C))
        self._tolerance = _RELATIVE_TOLERANCE * (4 * len(allowed) * A * B + 4 * C)
        self._num_pairs = len(allowed) * (len(allowed) - 1) // 2
        limit = options.max_seconds
        self._deadline = np.inf if limit is None else time.monotonic() + limit
        self.num_evaluations = 0

    def is_settled(self, perms: np.ndarray, bound: float) -> bool:
        """Return whether restarts that ended at permutations (r, n) leave nothing to search."""
        values = self._quadratic.values(perms)
        best = float(values.max())
        reached = best >= bound - _REACHED * max(1.0, abs(bound))
        return reached or len(self._allowed) < 4 or agree(values, best)

    def frank_wolfe(self, starts: np.ndarray) -> np.ndarray:
        """Climb from relaxed matchings (r, n, n) to permutations (r, n)."""
        with pool(len(starts)) as threads:
            found = list(threads.map(self._climb, starts))
        self.num_evaluations += sum(2 * one.num_gradients for one in found)
        return solve(np.concatenate([one.X for one in found]), self._allowed)

    def _climb(self, start: np.ndarray) -> Ascent:
        limit = self._options.max_iter
        return climb(self._quadratic, self._allowed, start, limit, self._deadline)

    def tabu(self, perms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the best permutations (r, n) that tabu search finds from each."""
        streams = rng.spawn(len(perms))
        with pool(len(perms)) as threads:
            tasks = threads.map(
                lambda perm, stream: self._tabu(perm[None], stream, _STEPS_PER_ROW), perms, streams
            )
            found, costs = zip(*tasks, strict=True)
        self.num_evaluations += sum(costs)
        return np.concatenate(found)

    def _num_steps(self, steps_per_row: int) -> int:
        """Return the number of steps of one tabu search."""
        n = len(self._allowed)
        return max(n, min(steps_per_row * n, _DIFFERENCES // max(self._num_pairs, 1)))

    def _tabu(
        self, perms: np.ndarray, rng: np.random.Generator, steps_per_row: int
    ) -> tuple[np.ndarray, int]:
        """Run tabu search from permutations (r, n); also return the number of differences."""
        from permvi.inference.map.tabu_kernels import tabu_search

        n = perms.shape[1]
        if n < 2:
            return perms, 0
        num_steps = self._num_steps(steps_per_row)
        low, high = (max(1, round(factor * n)) for factor in _TENURE)
        found, cost = [], 0
        for perm in perms:
            if time.monotonic() > self._deadline:
                found.append(perm)
                continue
            tenures = rng.integers(low, high, size=(num_steps, 2), endpoint=True)
            end, swaps = tabu_search(
                *self._arrays, self._allowed, perm.copy(), tenures, _PATIENCE * n * n
            )
            found.append(end)
            cost += self._num_pairs * (swaps + 1)
        return np.stack(found), cost

    def evolve(
        self, perms: np.ndarray, budget: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return where islands ended, (r, n), the best (n,), and whether islands agree on it."""
        if budget < 2 * MEMBERS * self._num_pairs * self._num_steps(_STEPS_PER_MEMBER):
            # Not enough for two islands: random matchings of so many items lead nowhere.
            return perms[:0], perms[np.argmax(self._quadratic.values(perms))], False
        islands = Islands(
            self._quadratic.values,
            lambda members, stream: self._tabu(members, stream, _STEPS_PER_MEMBER),
            self._allowed,
            len(self._allowed) * self._tolerance,
            self._deadline,
        )
        found = islands.run(perms, budget, os.cpu_count() or 1, rng)
        self.num_evaluations += found.num_differences
        settled = self.settle(np.concatenate([found.best[None], found.ends]))
        everything = np.concatenate([settled, perms])
        best = everything[np.argmax(self._quadratic.values(everything))]
        values = self._quadratic.values(np.stack([found.best, best]))
        return settled[1:], best, found.agreed and num_best(values[:1], float(values[1])) == 1

    def from_matchings(self, perms: np.ndarray) -> np.ndarray:
        """Return the permutations (r, n), or what Frank-Wolfe reaches from them if better."""
        return self._better(perms, self.frank_wolfe(matrices(perms, perms.shape[1])))

    def settle(self, perms: np.ndarray) -> np.ndarray:
        """Improve permutations (r, n) until neither a swap nor Frank-Wolfe gains anything."""
        perms = self.swapped(perms)
        for _ in range(_MAX_ROUNDS):
            found = self.swapped(self.from_matchings(perms))
            if (found == perms).all():
                break
            perms = found
        return perms

    def _better(self, perms: np.ndarray, others: np.ndarray) -> np.ndarray:
        values, other_values = self._quadratic.values(perms), self._quadratic.values(others)
        self.num_evaluations += 2 * len(perms)
        return np.where((other_values > values + self._tolerance)[:, None], others, perms)

    def swapped(self, perms: np.ndarray) -> np.ndarray:
        from permvi.inference.map.tabu_kernels import swap_ascent

        perms = perms.copy()
        for perm in perms:
            swaps = swap_ascent(*self._arrays, self._allowed, perm, self._tolerance)
            self.num_evaluations += self._num_pairs * (1 + swaps)
        return perms
