"""Independent populations of matchings that are crossed and improved by tabu search.

A memetic search (Benlic and Hao 2015): a child takes each row's column from one of two parents,
which keeps what they agree on, tabu search improves it, and it replaces the worst member. An
*island* is a population that begins with random matchings and knows nothing of the others, so that
the number of islands that end at the same value tells how far to believe it. Small islands may all
end in the same trap, therefore they count only if other restarts end there, too.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from permvi._threads import pool
from permvi.inference.map.polytope import solve

# Members of the first islands, how much larger islands become, and their full size.
MEMBERS = 12
_GROWTH = 1.5
_MOST_MEMBERS = 24
# Children without a better best, for each member, after which a population is shaken, and ends.
_PATIENCE = 3
# Islands of the full size that have to end at the best value, and their share: where many end
# elsewhere, a better value may be rare. Or islands of any size, and as many other restarts.
_ENOUGH = 6
_MOST_OF_ALL = 0.75
_ENOUGH_OF_BOTH = 5
# The share of the budget that islands may take; the rest is for a population of their ends.
_FOR_ISLANDS = 0.7
# A wanted pair weighs this much against noise of order one.
_WANTED = 50.0

# Permutations (r, n) -> better ones (r, n), and how many swap differences that took.
Improve = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, int]]
Values = Callable[[np.ndarray], np.ndarray]


class Evolved(NamedTuple):
    """The result of all islands.

    Attributes:
        ends: (r, n) the best member of each island.
        best: (n,) the best permutation of all.
        num_differences: How many swap differences it took.
        agreed: Whether enough islands ended at the value of ``best``.
    """

    ends: np.ndarray
    best: np.ndarray
    num_differences: int
    agreed: bool


class Islands:
    """Populations in a square problem.

    Args:
        values: The values (r,) of permutations (r, n).
        improve: Local search.
        allowed: (n, n) booleans.
        tolerance: Values that differ by less are equal.
        deadline: When to stop, in seconds of `time.monotonic`.
    """

    def __init__(
        self,
        values: Values,
        improve: Improve,
        allowed: np.ndarray,
        tolerance: float,
        deadline: float,
    ) -> None:
        self._values, self._improve, self._allowed = values, improve, allowed
        self._tolerance, self._deadline = tolerance, deadline

    def run(
        self, known: np.ndarray, budget: int, num_threads: int, rng: np.random.Generator
    ) -> Evolved:
        """Run islands until enough of them end at the best value, or the budget is spent.

        Then, if they do not agree, cross their ends with each other and with ``known`` matchings
        (r, n), the ends of other restarts, which no island has seen.
        """
        ends: list[np.ndarray] = []
        sizes: list[int] = []
        agreed = False
        known_values = self._values(known)
        best_known = float(known_values.max())
        spent, size = 0, float(MEMBERS)
        with pool(num_threads) as threads:
            while spent < _FOR_ISLANDS * budget and not self._late():
                share = int((_FOR_ISLANDS * budget - spent) / num_threads) + 1
                tasks = [(round(size), share, child) for child in rng.spawn(num_threads)]
                for end, cost in threads.map(lambda task: self._island(*task), tasks):
                    ends.append(end)
                    sizes.append(round(size))
                    spent += cost
                values = self._values(np.stack(ends))
                best = max(best_known, float(values.max()))
                at_best = values >= best - self._tolerance
                full = np.array(sizes) == _MOST_MEMBERS
                others = known_values >= best - self._tolerance
                enough = max(_ENOUGH, _MOST_OF_ALL * int(full.sum()))
                agreed = int((at_best & full).sum()) >= enough or (
                    min(int(at_best.sum()), int(others.sum())) >= _ENOUGH_OF_BOTH
                )
                if agreed:
                    break
                size = min(size * _GROWTH, _MOST_MEMBERS)
            else:
                if ends and not self._late():
                    members = np.concatenate([np.stack(ends), known])
                    order = np.argsort(-self._values(members), kind="stable")
                    members = _distinct(members[order])[: 2 * _MOST_MEMBERS]
                    found, cost = self._evolve(members, budget - spent, rng)
                    return Evolved(np.stack(ends), found, spent + cost, agreed=False)
        everything = np.concatenate([np.stack(ends), known]) if ends else known
        best_perm = everything[np.argmax(self._values(everything))]
        return Evolved(np.stack(ends) if ends else known[:0], best_perm, spent, agreed)

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _island(self, size: int, budget: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        n = len(self._allowed)
        starts = solve(rng.gumbel(size=(size, n, n)), self._allowed)
        members, spent = self._improve(starts, rng)
        end, cost = self._evolve(members, budget - spent, rng)
        return end, spent + cost

    def _evolve(
        self, members: np.ndarray, budget: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, int]:
        """Return the best member (n,) of a population that has ended, and the differences."""
        members, values = members.copy(), self._values(members)
        best, value = members[np.argmax(values)].copy(), float(values.max())
        size, n = members.shape
        stale, shaken, spent = 0, False, 0
        while spent < budget and not self._late():
            if stale >= _PATIENCE * size:
                if shaken:
                    break
                # Keep the best member, and move all others far away from where they are.
                kept = rng.random((size, n)) < rng.uniform(0.3, 0.7, size=(size, 1))
                starts = self._complete(np.where(kept, members, -1), rng)
                members, cost = self._improve(starts, rng)
                members[0] = best
                values, stale, shaken = self._values(members), 0, True
                spent += cost
            else:
                a, b = members[rng.choice(size, 2, replace=False)] if size > 1 else (best, best)
                mixed = np.where(rng.random(n) < 0.5, a, b)
                if (a != b).sum() <= max(2, n // 10):
                    mixed[rng.random(n) < rng.uniform(0.2, 0.6)] = -1
                child, cost = self._improve(self._complete(mixed[None], rng), rng)
                spent += cost
                stale += 1
                of_child = float(self._values(child)[0])
                worst = int(np.argmin(values))
                if of_child > values[worst] and not (members == child[0]).all(axis=1).any():
                    members[worst], values[worst] = child[0], of_child
            if values.max() > value + self._tolerance:
                best, value = members[np.argmax(values)].copy(), float(values.max())
                stale, shaken = 0, False
        return best, spent

    def _complete(self, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return allowed permutations (r, n) with as many wanted columns as possible.

        ``wanted`` (r, n) is -1 for rows without a wish; all other columns are random.
        """
        num, n = wanted.shape
        scores = rng.gumbel(size=(num, n, n + 1))
        np.put_along_axis(scores, wanted[..., None], _WANTED, axis=-1)
        return solve(scores[..., :n], self._allowed)


def _distinct(perms: np.ndarray) -> np.ndarray:
    """Return the distinct permutations in the order of their first appearance."""
    _, first = np.unique(perms, axis=0, return_index=True)
    return perms[np.sort(first)]
