"""Large neighbourhoods: some rows of a subject are matched anew, all others staying as they are."""

from collections.abc import Sequence

import numpy as np

from permvi.inference.collapsed.edges import Edges
from permvi.inference.collapsed.matching import PairScores, climb, frank_wolfe
from permvi.inference.collapsed.moves import Moves, differences
from permvi.inference.collapsed.search import ascend, cavity_scores
from permvi.inference.collapsed.state import State
from permvi.inference.map.starts import random_matchings

# Rows of a block: larger ones reach further, smaller ones cost less.
_SIZES = (30, 60, 100)
MEAN_SIZE = sum(_SIZES) // len(_SIZES)
# The random matchings whose mean is a start.
_CORNERS = 8
_LEAST_GAIN = 1e-9


def rematch_blocks(
    state: State, edges: Sequence[Edges], rng: np.random.Generator, num_blocks: int
) -> None:
    """Improve a state, in place, by matching random blocks of rows anew.

    A better optimum often differs from where swaps end by longer cycles among rows that have labels
    in common, none of whose swaps gains anything. Frank-Wolfe steps on such rows alone, from a
    random relaxed matching of theirs, find these at little cost (Shaw 1998 calls this large
    neighbourhood search). What they change is taken over cycle by cycle where the exact evidence
    rises.

    Args:
        state: What to improve.
        edges: Estimates of all subjects.
        rng: The source of randomness.
        num_blocks: How many blocks to try.
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
    """Rows that share labels with a random one, ties broken at random."""
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
    """New labels of some rows among those that they have, and the number of gradients."""
    labels = perm[rows]
    part = scores.restricted(perm, rows)
    allowed = mask[np.ix_(rows, labels)]
    corners = random_matchings(_CORNERS, allowed.shape, allowed, rng)
    start = (corners[..., None] == np.arange(len(rows))).mean(axis=0)
    place, num_gradients = frank_wolfe(part, start, allowed)
    return labels[climb(part, place, allowed)], num_gradients
