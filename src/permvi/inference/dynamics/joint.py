"""Permutations and weights in turn: Gibbs sampling and alternating maximisation.

These are the classical baselines of Linderman et al. (2018, section 5.2). Given the permutations,
the weights are a sparse ridge regression. Given the weights, each subject's permutation is a
quadratic assignment problem.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from permvi import _threads
from permvi.inference.dynamics.joint_state import KINDS, JointState
from permvi.inference.dynamics.matching import PairScores, frank_wolfe
from permvi.inference.dynamics.regression import Observe, Scales, SharedRegression
from permvi.inference.map.polytope import relaxed_starts
from permvi.inference.map.result import RESTARTS, MapOptions, MapResult
from permvi.inference.mcmc.options import MCMCOptions
from permvi.inference.mcmc.result import MCMCResult
from permvi.inference.method import StepProgress
from permvi.problem.unmatched import random_assignments

# Sweeps of a chain by default.
_NUM_SWEEPS = 400
# The least rise of the log density, in nats, that counts as one.
_LEAST_GAIN = 1e-6


class GibbsResult(NamedTuple):
    """Draws of permutations and weights.

    Attributes:
        chains: The permutations (C, num, J, m) and their log densities with the weights integrated
            out.
        weights: (C, num, E) a draw of W for each of these.
    """

    chains: MCMCResult
    weights: np.ndarray


def run_gibbs(
    problem: SharedRegression,
    scales: Scales,
    rng: np.random.Generator,
    options: MCMCOptions,
    *,
    start: np.ndarray | None = None,
    on_progress: StepProgress | None = None,
    observe: Observe | None = None,
) -> GibbsResult:
    """Draw permutations and weights from their joint posterior (Linderman et al. 2018, 5.2).

    A step is a whole sweep: ``swaps_per_proposal`` Metropolis steps given the weights for each row
    that has a choice, then a draw of all weights given the permutations.

    Args:
        problem: Statistics and constraints.
        scales: The variances.
        rng: The source of randomness.
        options: Settings; there is only one temperature.
        start: (J, m) where all chains start; random matchings by default.
        on_progress: Called as ``on_progress(done, total)``, in sweeps of a chain.
        observe: Called with the chains' permutations (C, J, m) and weights (C, E) at the beginning
            and after every record, warm-up included.
    """
    if options.num_steps is None:
        options = dataclasses.replace(options, num_steps=_NUM_SWEEPS)
    plan = options.plan(sweep_length=1)
    starts = (
        random_assignments(options.num_chains, problem.mask.shape, problem.mask, rng)
        if start is None
        else np.repeat(start[None], options.num_chains, axis=0)
    )
    streams = rng.spawn(options.num_chains)
    states = [JointState(problem, perms, scales) for perms in starts]

    def record(state: JointState, stream: np.random.Generator) -> _Record:
        for _ in range(plan.thin):
            state.swap(options.swaps_per_proposal, stream)
            value = state.regress(stream)
        return _Record(state.perms, state.weights, value)

    with _threads.pool(len(states)) as pool:
        # Draws, because means of the weights would not be draws from the joint posterior.
        list(pool.map(JointState.regress, states, streams))
        _observe(observe, states)
        records: list[list[_Record]] = []
        for index in range(plan.num_records):
            records.append(list(pool.map(record, states, streams)))
            _observe(observe, states)
            if on_progress is not None:
                on_progress((index + 1) * plan.thin, plan.num_records * plan.thin)
    return _collect(options, states, records, plan.num_warmup)


class _Record(NamedTuple):
    """The state of a chain after some sweeps."""

    perms: np.ndarray
    weights: np.ndarray
    log_density: float


def _observe(observe: Observe | None, states: list[JointState]) -> None:
    if observe is not None:
        perms, weights = zip(*((state.perms, state.weights) for state in states), strict=True)
        observe(np.stack(perms), np.stack(weights))


def _collect(
    options: MCMCOptions, states: list[JointState], records: list[list[_Record]], num_warmup: int
) -> GibbsResult:
    """Make the result from the records (num, C)."""
    best = max((each for some in records for each in some), key=lambda each: each.log_density)
    by_chain = list(zip(*records[num_warmup:], strict=True))
    perms, weights, values = (
        np.stack([np.stack([getattr(each, name) for each in chain]) for chain in by_chain])
        for name in _Record._fields
    )
    taken, proposed = (sum(getattr(s, name) for s in states) for name in ("taken", "proposed"))
    rates = {kind: float(taken[k] / proposed[k]) for k, kind in enumerate(KINDS) if proposed[k] > 0}
    chains = MCMCResult(
        options=options,
        draws=perms,
        log_densities=values,
        mode=best.perms,
        mode_log_density=best.log_density,
        acceptance=rates,
        num_evaluations=sum(state.num_evaluations for state in states),
        interrupted=False,
    )
    return GibbsResult(chains, weights)


@dataclasses.dataclass(frozen=True, eq=False)
class WeightScores(PairScores):
    r"""Scores :math:`\langle A_0, X W X^\top \rangle + \langle A_1, X W^\top D W X^\top \rangle`.

    W is much sparser than :math:`W^\top D W`, so slopes multiply by W twice.

    Attributes:
        W: (m, m) the weights.
        present: (m, 1) the diagonal of D.
    """

    W: csr_array
    present: np.ndarray

    def slope(self, perm: np.ndarray) -> np.ndarray:
        """Return the gradient of the quadratic part at a permutation."""
        rows = np.argsort(perm)
        return self._slope(self.A[0][:, rows].T, self.A[0][rows], self.A[1][rows])

    def slope_at(self, X: np.ndarray) -> np.ndarray:
        """Return the gradient of the quadratic part at any (m, m) matrix."""
        return self._slope((self.A[0] @ X).T, X.T @ self.A[0], X.T @ self.A[1])

    def _slope(self, outwards: np.ndarray, inwards: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """Return a gradient from (m, m) tables whose first axis is labels; A_1 is symmetric."""
        through = inwards + 2 * self.present * (self.W @ squares)
        return (self.W @ outwards + self.W.T @ through).T


def weight_scores(
    problem: SharedRegression, j: int, W: np.ndarray, perm: np.ndarray, noise: float
) -> WeightScores:
    r"""Return the log density of subject j given W in the form of Koopmans and Beckmann (1957).

    It is :math:`\langle C_1, X W X^\top \rangle / \sigma^2
    - \langle C_0, X W^\top D W X^\top \rangle / 2 \sigma^2` with D one for labels that have a
    recording. Where some have none, D depends on X; here it is fixed to that of ``perm``, (m,).
    """
    present = np.zeros((problem.size, 1))
    present[perm, 0] = problem.recorded[j]
    A = np.stack([problem.C1[j] / noise, -problem.C0[j] / (2 * noise)])
    B = np.stack([W, W.T @ (present * W)])
    return WeightScores(A, B, problem.prior[j], csr_array(W), present)


class AlternateResult(NamedTuple):
    """The best permutations found, and the weights that go with them.

    Attributes:
        found: The permutations (J, m), and the final joint log density of each restart.
        weights: (E,) the mean of W given the permutations.
        traces: The joint log densities after each alternation, one list for each restart.
    """

    found: MapResult
    weights: np.ndarray
    traces: list[list[float]]


class _Search:
    """One restart; Frank-Wolfe steps start from a doubly stochastic ``start`` (J, m, m)."""

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
        """Match every subject given the weights, then regress; settle if nothing changes."""
        before = self.state.perms
        for j in range(self._problem.num_subjects):
            self._match(j)
        self.settled = bool((self.state.perms == before).all())
        self.state.regress()
        self.trace.append(self.state.log_density)

    def _match(self, j: int) -> None:
        """Improve subject j by swaps, by Frank-Wolfe from ``start`` or by Frank-Wolfe from here."""
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
            # Once something better is known, the last start seldom improves on it.
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

    Start from random matchings. Set the weights to their mean given the permutations, then each
    permutation to the best that Frank-Wolfe (Vogelstein et al. 2015) and swaps find given the
    weights, and repeat until nothing changes. The density never falls.

    Args:
        problem: Statistics and constraints.
        scales: The variances.
        rng: The source of randomness.
        options: Settings; `max_iter` counts alternations, and "tabu" means the same as "swap".
        starts: (k, J, m) further permutations to start from.
        observe: Called with the best permutations (1, J, m) and weights (1, E) so far, at the
            beginning and after every alternation of all restarts.
    """
    shape, mask = problem.mask.shape, problem.mask
    perms = random_assignments(options.num_restarts or RESTARTS, shape, mask, rng)
    if starts is not None:
        perms = np.concatenate([starts, perms])
    relaxed, swaps = relaxed_starts(len(perms), shape, mask, rng), options.polish != "none"
    searches = [
        _Search(problem, scales, *pair, swaps=swaps) for pair in zip(perms, relaxed, strict=True)
    ]
    limit = np.inf if options.max_evaluations is None else options.max_evaluations
    with _threads.pool(len(searches)) as pool:
        _observe(observe, [_best(searches).state])
        for _ in range(options.max_iter):
            active = [search for search in searches if not search.settled]
            if not active or _spent(searches) >= limit:
                break
            list(pool.map(_Search.alternate, active))
            _observe(observe, [_best(searches).state])
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
