"""One subject's permutation given the weights: a quadratic assignment problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from permvi import _threads
from permvi.inference.dynamics.evidence import Scales
from permvi.inference.dynamics.joint_state import JointState
from permvi.inference.dynamics.matching import PairScores, frank_wolfe
from permvi.inference.dynamics.regression import SharedRegression
from permvi.inference.map.polytope import relaxed_starts
from permvi.inference.map.result import MapOptions, MapResult
from permvi.problem.unmatched import random_assignments


@dataclass(frozen=True, eq=False)
class WeightScores(PairScores):
    r""":math:`\langle A_0, X W X^\top \rangle + \langle A_1, X W^\top D W X^\top \rangle`.

    W is much sparser than :math:`W^\top D W`, so slopes go through it twice instead.

    Attributes:
        W: (m, m) the weights.
        present: (m, 1) D, a factor for each label.
    """

    W: csr_array
    present: np.ndarray

    def slope(self, perm: np.ndarray) -> np.ndarray:
        """As `PairScores.slope`."""
        rows = np.argsort(perm)
        return self._slope(self.A[0][:, rows].T, self.A[0][rows], self.A[1][rows])

    def slope_at(self, X: np.ndarray) -> np.ndarray:
        """As `PairScores.slope_at`."""
        return self._slope((self.A[0] @ X).T, X.T @ self.A[0], X.T @ self.A[1])

    def _slope(self, outwards: np.ndarray, inwards: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """From (m, m) tables whose first axis has been brought to the labels; A_1 is symmetric."""
        through = inwards + 2 * self.present * (self.W @ squares)
        return (self.W @ outwards + self.W.T @ through).T


def weight_scores(
    problem: SharedRegression, j: int, W: np.ndarray, perm: np.ndarray, noise: float
) -> WeightScores:
    r"""The log density of subject j given W, in the form of Koopmans and Beckmann (1957).

    :math:`\langle C_1, X W X^\top \rangle / \sigma^2
    - \langle C_0, X W^\top D W X^\top \rangle / 2 \sigma^2`, with D one for labels that have a
    recording. Where some have none, D ought to move with X; here it stays that of ``perm``.

    Args:
        problem: The statistics.
        j: The subject.
        W: (m, m) weights, zero off the support.
        perm: (m,) where the subject is.
        noise: The noise variance.
    """
    present = np.zeros((problem.size, 1))
    present[perm, 0] = problem.recorded[j]
    A = np.stack([problem.C1[j] / noise, -problem.C0[j] / (2 * noise)])
    B = np.stack([W, W.T @ (present * W)])
    return WeightScores(A, B, problem.prior[j], csr_array(W), present)


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
    perms = random_assignments(options.num_restarts, shape, mask, rng)
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
