"""Search for a local optimum of the exact evidence: match each subject, all jointly, then move."""

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from permvi.inference.dynamics import wiring
from permvi.inference.dynamics.evidence import CollapsedState, Moves, differences
from permvi.inference.dynamics.matching import (
    Edges,
    PairScores,
    climb,
    frank_wolfe,
    pair_scores,
    posterior_beliefs,
    prior_beliefs,
)
from permvi.inference.dynamics.regression import Scales, SharedRegression, Sums
from permvi.inference.dynamics.wiring import Wiring, WiringState
from permvi.problem.unmatched import random_assignments

_MAX_SWEEPS = 3
# Moves with a smaller approximate gain, in nats, are not plausible.
_SWAP_FLOOR = -30.0
_RELABEL_FLOOR = -60.0
# Moves of one subject below this are hardly ever uphill: approximate gains err by 2 nats.
_ASCENT_FLOOR = -12.0
_LEAST_GAIN = 1e-9
# The most moves that a round tries, and the number of evidences after which no round begins.
_MAX_MOVES = 4000
_MAX_EVALUATIONS = 10000
# Rows of a block: larger blocks reach further, smaller ones cost less.
_SIZES = (30, 60, 100)
MEAN_SIZE = sum(_SIZES) // len(_SIZES)
# The number of random matchings whose mean is a start.
_CORNERS = 8


# The law of the weights: normal on the diagram, or with wrong edges; and permutations under it.
Law = Scales | Wiring
State = CollapsedState | WiringState


def state_of(
    problem: SharedRegression, edges: Sequence[Edges], perms: np.ndarray, law: Law
) -> State:
    """Return permutations (J, m) with their evidence under a law of the weights."""
    if isinstance(law, Wiring):
        return WiringState(problem, edges, perms, law)
    return CollapsedState(problem, perms, law)


@overload
def search(
    problem: SharedRegression,
    edges: Sequence[Edges],
    law: Scales,
    starts: np.ndarray,
    *,
    learn_weight: bool,
    learn_noise: bool,
) -> CollapsedState: ...
@overload
def search(
    problem: SharedRegression,
    edges: Sequence[Edges],
    law: Wiring,
    starts: np.ndarray,
    *,
    learn_weight: bool,
    learn_noise: bool,
) -> WiringState: ...
def search(
    problem: SharedRegression,
    edges: Sequence[Edges],
    law: Law,
    starts: np.ndarray,
    *,
    learn_weight: bool,
    learn_noise: bool,
) -> State:
    """Return the local optimum reached from doubly stochastic starts (J, m, m), and its scales.

    The ``num_evaluations`` of the state include the gradients of the matchings.
    """
    perms, spent = _match_each(problem, edges, law, starts)
    if problem.num_subjects > 1:
        spent += _match_jointly(problem, edges, law, starts, perms)
    state = state_of(problem, edges, perms, law)
    state.num_evaluations += spent
    state.learn_scales(weight=learn_weight, noise=learn_noise)
    ascend(state, edges)
    state.learn_scales(weight=learn_weight, noise=learn_noise)
    return state


def _lone_scores(
    problem: SharedRegression, edges: Sequence[Edges], law: Law, subject: int
) -> PairScores:
    """Return the pair scores of a subject under the prior of the weights."""
    if isinstance(law, Wiring):
        return wiring.lone_scores(problem, edges, law, subject)
    return pair_scores(edges[subject], prior_beliefs(problem, law), problem.prior[subject])


def _match_each(
    problem: SharedRegression, edges: Sequence[Edges], law: Law, starts: np.ndarray
) -> tuple[np.ndarray, int]:
    """Match each subject on its own; return permutations (J, m) and the number of gradients."""
    found, spent = [], 0
    for j in range(problem.num_subjects):
        scores = _lone_scores(problem, edges, law, j)
        perm, steps = frank_wolfe(scores, starts[j], problem.mask[j])
        found.append(climb(scores, perm, problem.mask[j]))
        spent += steps
    return np.stack(found), spent


def _match_jointly(
    problem: SharedRegression,
    edges: Sequence[Edges],
    law: Law,
    starts: np.ndarray,
    perms: np.ndarray,
) -> int:
    """Match each subject, in place, given the others' beliefs; return the number of gradients.

    The subject that fits worst goes first. Each is matched from its start and from its permutation.
    """
    spent = 0
    for _ in range(_MAX_SWEEPS):
        fits = cavity_scores(problem, edges, law, perms)
        order = np.argsort([scores.value(perm) for scores, perm in zip(fits, perms, strict=True)])
        changed = False
        for j in order:
            [scores] = cavity_scores(problem, edges, law, perms, [j])
            tried = []
            for start in (starts[j], perms[j]):
                perm, steps = frank_wolfe(scores, start, problem.mask[j])
                tried.append(climb(scores, perm, problem.mask[j]))
                spent += steps
            best = max(tried, key=scores.value)
            if scores.value(best) > scores.value(perms[j]) + _LEAST_GAIN:
                perms[j], changed = best, True
        if not changed:
            break
    return spent


def cavity_scores(
    problem: SharedRegression,
    edges: Sequence[Edges],
    law: Law,
    perms: np.ndarray,
    subjects: Iterable[int] | None = None,
) -> list[PairScores]:
    """Return the pair scores of subjects (all by default) given the weights' posterior from others.

    The others have the permutations ``perms``, (J, m).
    """
    if problem.num_subjects == 1:
        return [_lone_scores(problem, edges, law, 0)]
    wanted = range(problem.num_subjects) if subjects is None else subjects
    if isinstance(law, Wiring):
        return [wiring.cavity_scores(problem, edges, law, perms, j) for j in wanted]
    sums, found = problem.by_label(np.argsort(perms, axis=1)), []
    for j in wanted:
        others = np.arange(problem.num_subjects) != j
        cavity = problem.pool(Sums(*(part[others] for part in sums)))
        beliefs = posterior_beliefs(problem, cavity, law)
        found.append(pair_scores(edges[j], beliefs, problem.prior[j]))
    return found


def plausible_moves(
    state: State, edges: Sequence[Edges], scores: Sequence[PairScores] | None = None
) -> tuple[Moves, np.ndarray]:
    """Return the moves that are worth an exact evaluation, best first, and their scores.

    Swaps of two labels in one subject are scored by its pair scores given the others. With several
    subjects there are also exchanges of two labels in all of them, scored by the sum of the pair
    scores under the prior. ``scores`` are the `cavity_scores` of the state, if they are known.
    """
    problem, perms = state.problem, state.perms
    moves, scored = [], []
    for j, of_subject in enumerate(scores or cavity_scores(problem, edges, state.scales, perms)):
        gains = _by_label(of_subject, perms[j], problem.mask[j], problem.recorded[j])
        a, b = np.nonzero(np.triu(gains > _SWAP_FLOOR, 1))
        moves.append(np.column_stack([np.full(len(a), j), a, b]))
        scored.append(gains[a, b])
    if problem.num_subjects > 1:
        total = np.zeros((problem.size, problem.size))
        some = np.zeros(total.shape, bool)
        for j in range(problem.num_subjects):
            unconditional = _lone_scores(problem, edges, state.scales, j)
            gains = _by_label(unconditional, perms[j], problem.mask[j], problem.recorded[j])
            total += np.where(np.isfinite(gains), gains, 0.0)
            some |= np.isfinite(gains)
        a, b = np.nonzero(np.triu(some & (total > _RELABEL_FLOOR), 1))
        moves.append(np.column_stack([np.full(len(a), -1), a, b]))
        scored.append(total[a, b])
    exchanges, gains = np.concatenate(moves), np.concatenate(scored)
    order = np.argsort(-gains, kind="stable")[:_MAX_MOVES]
    return Moves.single(exchanges[order]), gains[order]


def _by_label(
    scores: PairScores, perm: np.ndarray, mask: np.ndarray, recorded: np.ndarray
) -> np.ndarray:
    """Return (m, m) gains of exchanging two labels of a subject, -inf for those not to try.

    These are exchanges that the mask forbids, and those of two rows without a recording.
    """
    allowed = mask[:, perm]
    allowed = allowed & allowed.T & (recorded | recorded[:, None])
    gains = np.where(allowed, scores.swap_gains(perm), -np.inf)
    rows = np.argsort(perm)
    return gains[rows[:, None], rows]


def ascend(state: State, edges: Sequence[Edges]) -> None:
    """Take moves that raise the exact evidence until none does or too many have been tried."""
    # The scores of a single subject do not depend on its permutation.
    alone = state.problem.num_subjects == 1
    scores = cavity_scores(state.problem, edges, state.scales, state.perms) if alone else None
    enough = state.num_evaluations + _MAX_EVALUATIONS
    while state.num_evaluations < enough:
        moves, scored = plausible_moves(state, edges, scores)
        moves = Moves.single(
            moves.exchanges[(scored > _ASCENT_FLOOR) | (moves.exchanges[:, 0] < 0)]
        )
        gains = state.walk(moves, np.arange(moves.num), np.full(moves.num, _LEAST_GAIN))
        state.refresh()
        if not (gains > _LEAST_GAIN).any():
            break


def rematch_blocks(
    state: State, edges: Sequence[Edges], rng: np.random.Generator, num_blocks: int
) -> None:
    """Improve a state, in place, by matching random blocks of rows anew.

    A better optimum often differs from the end of the swaps by longer cycles among rows that share
    labels, while no single swap gains anything. Frank-Wolfe steps on such rows alone, from a random
    relaxed matching, find these cycles at little cost (large neighbourhood search, Shaw 1998). A
    cycle is taken if it raises the exact evidence.
    """
    problem = state.problem
    open_rows = [np.flatnonzero(mask.sum(axis=-1) > 1) for mask in problem.mask]
    subjects = [j for j, rows in enumerate(open_rows) if len(rows) > 1]
    if not subjects:
        return
    scores: PairScores | None = None
    for _ in range(num_blocks):
        j = int(rng.choice(subjects))
        rows = _block(problem.mask[j], open_rows[j], rng)
        perms = state.perms
        if scores is None or problem.num_subjects > 1:
            (scores,) = cavity_scores(problem, edges, state.scales, perms, [j])
        found = perms.copy()
        found[j, rows], num_gradients = _rematch(scores, perms[j], rows, problem.mask[j], rng)
        state.num_evaluations += num_gradients
        if (found != perms).any():
            take_over(state, differences([found], perms))
    ascend(state, edges)


def take_over(state: State, cycles: Moves) -> None:
    """Take the cycles that raise the exact evidence, in place."""
    state.walk(cycles, np.arange(cycles.num), np.full(cycles.num, _LEAST_GAIN))
    state.refresh()


def _block(mask: np.ndarray, open_rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the rows that share most labels with a random one, ties broken at random."""
    shared = mask[open_rows] @ mask[rng.choice(open_rows)].astype(float)
    order = np.argsort(-shared - rng.random(len(shared)))
    return np.sort(open_rows[order[: rng.choice(_SIZES)]])


def _rematch(
    scores: PairScores,
    perm: np.ndarray,
    rows: np.ndarray,
    mask: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, int]:
    """Permute the labels of some rows; return the new labels and the number of gradients."""
    labels = perm[rows]
    part = scores.restricted(perm, rows)
    allowed = mask[np.ix_(rows, labels)]
    corners = random_assignments(_CORNERS, allowed.shape, allowed, rng)
    start = (corners[..., None] == np.arange(len(rows))).mean(axis=0)
    place, num_gradients = frank_wolfe(part, start, allowed)
    return labels[climb(part, place, allowed)], num_gradients
