"""The most probable permutations and weights together: regression and quadratic assignment."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from permvi import _threads
from permvi.inference.collapsed.matching import frank_wolfe
from permvi.inference.collapsed.problem import SharedRegression
from permvi.inference.collapsed.state import Scales
from permvi.inference.dynamics.scores import weight_scores
from permvi.inference.dynamics.state import JointState
from permvi.inference.map.options import MapOptions
from permvi.inference.map.result import MapResult
from permvi.inference.map.starts import random_matchings, relaxed_starts

# The best permutations (1, J, m) and weights (1, E) so far.
Observe = Callable[[np.ndarray, np.ndarray], None]

# A log density that rises by less than this, in nats, has not risen.
_LEAST_GAIN = 1e-6


class AlternateResult(NamedTuple):
    """The best permutations found, and the weights that go with them.

    Attributes:
        found: The permutations (J, m), and the joint log densities that the restarts ended at.
        weights: (E,) the mean of W given the permutations.
        traces: For each restart the joint log densities after each alternation.
    """

    found: MapResult
    weights: np.ndarray
    traces: list[list[float]]


class _Search:
    """One restart, and the doubly stochastic (J, m, m) that Frank-Wolfe starts from."""

    def __init__(
        self,
        problem: SharedRegression,
        scales: Scales,
        perms: np.ndarray,
        start: np.ndarray,
        *,
        swaps: bool,
    ) -> None:
        self._problem, self._noise, self._start, self._swaps = problem, scales.noise, start, swaps
        self.state = JointState(problem, perms, scales)
        self.trace = [self.state.log_density]
        self.num_gradients = 0
        self.settled = False

    def alternate(self) -> None:
        """Match every subject given the weights, then regress; settled if nothing changes."""
        before = self.state.perms
        for j in range(self._problem.num_subjects):
            self._match(j)
        self.settled = bool((self.state.perms == before).all())
        self.state.regress()
        self.trace.append(self.state.log_density)

    def _match(self, j: int) -> None:
        """Improve subject j: by swaps, or by Frank-Wolfe from afar, or from where it is."""
        state, here = self.state, self.state.perms[j]
        best, value = here, state.log_density
        scores = weight_scores(self._problem, j, state.table, here, self._noise)
        for start in (None, self._start[j], here):
            if start is not None:
                perm, num_gradients = frank_wolfe(scores, start, self._problem.mask[j])
                self.num_gradients += num_gradients
                state.move(j, perm)
            if self._swaps:
                state.climb(j)
            if state.log_density > value + _LEAST_GAIN:
                best, value = state.perms[j], state.log_density
            # From here it seldom gets anywhere if something better is known.
            if start is not None and best is not here:
                break
        state.move(j, best)


def alternate(
    problem: SharedRegression,
    scales: Scales,
    rng: np.random.Generator,
    options: MapOptions,
    *,
    starts: np.ndarray | None = None,
    observe: Observe | None = None,
) -> AlternateResult:
    """Maximise the joint density of permutations and weights (Linderman et al. 2018, 5.2).

    From random matchings, the weights are set to their mean given the permutations, and each
    permutation to the best that Frank-Wolfe (Vogelstein et al. 2015) and swaps find given the
    weights, in turn, until nothing changes. The density never falls.

    Args:
        problem: Statistics and constraints.
        scales: The variances.
        rng: The source of randomness.
        options: Settings: `max_iter` counts alternations, and "tabu" is as good as "swap".
        starts: (k, J, m) permutations to start from as well.
        observe: Called with the best permutations (1, J, m) and weights (1, E) so far, at the
            beginning and after every alternation of all restarts.
    """
    shape, mask = problem.mask.shape, problem.mask
    perms = random_matchings(options.num_restarts, shape, mask, rng)
    if starts is not None:
        perms = np.concatenate([starts, perms])
    relaxed, swaps = relaxed_starts(len(perms), shape, mask, rng), options.polish != "none"
    searches = [
        _Search(problem, scales, *pair, swaps=swaps) for pair in zip(perms, relaxed, strict=True)
    ]
    limit = np.inf if options.max_evaluations is None else options.max_evaluations
    with _threads.pool(len(searches)) as pool:
        _observe(observe, searches)
        for _ in range(options.max_iter):
            active = [search for search in searches if not search.settled]
            if not active or _spent(searches) >= limit:
                break
            list(pool.map(_Search.alternate, active))
            _observe(observe, searches)
    best = _best(searches)
    found = MapResult(
        best.state.perms,
        np.array([search.trace[-1] for search in searches]),
        _spent(searches),
        optimal=False,
        finished=swaps and all(search.settled for search in searches),
    )
    return AlternateResult(found, best.state.weights, [search.trace for search in searches])


def _spent(searches: list[_Search]) -> int:
    return sum(search.num_gradients + search.state.num_evaluations for search in searches)


def _best(searches: list[_Search]) -> _Search:
    return max(searches, key=lambda search: search.trace[-1])


def _observe(observe: Observe | None, searches: list[_Search]) -> None:
    if observe is not None:
        state = _best(searches).state
        observe(state.perms[None], state.weights[None])
