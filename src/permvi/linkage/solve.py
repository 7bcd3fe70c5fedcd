r"""Solve independent groups of candidate pairs: exactly where possible, by chains elsewhere.

The probability of a linking x is :math:`p(x) \propto \prod_{e \in x} e^{w_e}` over all sets of
pairs that the rule allows, where :math:`w_e` is the log odds of pair e judged by itself. A record
that stays unmatched has weight 1, so a pair without competitors has its own probability
:math:`1 / (1 + e^{-w_e})`.
"""

from typing import Any, NamedTuple

import numpy as np

from permvi.posterior.diagnostics import judge

ONE_TO_ONE, ONE_TO_MANY, MANY_TO_ONE, DEDUPE = RULES = (
    "one-to-one",
    "one-to-many",
    "many-to-one",
    "dedupe",
)
VERDICTS = ("trust", "check", "do not trust")
# The most subsets to keep, and the most steps of one sum, for one group.
_MAX_STATES = 2**21
_MAX_WORK = 5e7
# The most steps for a group that is solved again and again.
_EASY_WORK = 1e6
# The mean error of a record at which the chains of method "linear" end. The worst probability of a
# component of 200 records is then off by less than 0.01 (results/linkage).
_LINEAR_TOLERANCE = 0.0015
# Chains over matchings of general graphs: ladders, sweeps in a batch, the most sweeps of a ladder,
# the work in steps that all of them may take, the mean error of a record at which they end, and the
# largest difference between two halves of them.
_NUM_CHAINS = 4
_BATCH = 500
_MAX_SWEEPS = 256_000
_CHAIN_WORK = 2e9
_TOLERANCE = 0.002
_WORST = 0.01
# The hottest copy sees log weights of at most about this; neighbours differ by this factor.
_HOTTEST = 1.5
_RATIO = 0.6
# The most pairs for which the best linking of a general graph is proven.
_MAX_PROVEN = 20_000


class Task(NamedTuple):
    """Several groups, which share neither records nor pairs.

    Attributes:
        number: The number of the task.
        rule: One of `RULES`.
        groups: (C,) the numbers of the groups.
        edge_ends: (C+1,) where the pairs of each group begin.
        num_left: (C,) the number of left records of each group, which come first.
        num_vertices: (C,) the number of all records of each group.
        tails: (E,) the left record of each pair, from 0 in each group; any type of integer.
        heads: (E,) the right record of each pair.
        weights: (E,) natural log odds, possibly -inf.
        seed: The seed of the run.
    """

    number: int
    rule: str
    groups: np.ndarray
    edge_ends: np.ndarray
    num_left: np.ndarray
    num_vertices: np.ndarray
    tails: np.ndarray
    heads: np.ndarray
    weights: np.ndarray
    seed: int


class Answer(NamedTuple):
    """What is inferred about the groups of a task.

    Attributes:
        p: (E,) probabilities of the pairs under the rule.
        best: (E,) whether a pair is in the most probable linking.
        log_evidence: (C,) the log of the sum of all weights.
        variance: (C,) the variance of the number of matches.
        verdict: (C,) places in `VERDICTS`.
        error: (C,) expected error of a record's probabilities, zero where exact.
        exact: (C,) whether the group was solved exactly.
    """

    p: np.ndarray
    best: np.ndarray
    log_evidence: np.ndarray
    variance: np.ndarray
    verdict: np.ndarray
    error: np.ndarray
    exact: np.ndarray


def solve(task: Task) -> Answer:
    """Solve all groups of a task; the same task has the same answer on every machine."""
    task = _unpacked(task)
    if task.rule in (ONE_TO_MANY, MANY_TO_ONE):
        return _solve_exclusive(task)
    # Imported here because it loads numba.
    from permvi.linkage.matching_kernels import solve_graphs

    arrays = task.edge_ends, task.num_vertices, task.tails, task.heads, task.weights
    p, best, log_z, variance, solved = solve_graphs(*arrays, _MAX_STATES, _MAX_WORK)
    count = len(task.groups)
    verdict, error = np.zeros(count, np.int8), np.zeros(count)
    exact = solved.copy()
    for c in np.flatnonzero(~solved):
        found = _solve_hard(task, int(c))
        lo, hi = task.edge_ends[c], task.edge_ends[c + 1]
        p[lo:hi], best[lo:hi] = found.p, found.best
        log_z[c], variance[c] = found.log_evidence, found.variance
        verdict[c], error[c], exact[c] = found.verdict, found.error, found.exact
    return Answer(p, best, log_z, variance, verdict, error, exact)


def _unpacked(task: Task) -> Task:
    """Return a task whose records have the one type that the kernels are compiled for."""
    return task._replace(tails=task.tails.astype(np.int32), heads=task.heads.astype(np.int32))


def is_easy(task: Task) -> bool:
    """Return whether all groups of a task can be solved exactly at once."""
    task = _unpacked(task)
    if task.rule in (ONE_TO_MANY, MANY_TO_ONE):
        return True
    from permvi.linkage.matching_kernels import solve_graphs

    arrays = task.edge_ends, task.num_vertices, task.tails, task.heads, task.weights
    return bool(solve_graphs(*arrays, _MAX_STATES, _EASY_WORK)[4].all())


def _solve_exclusive(task: Task) -> Answer:
    """Solve rules that are exclusive on one side: each such record chooses by itself."""
    ends = task.heads if task.rule == ONE_TO_MANY else task.tails
    sizes = task.num_vertices
    group = np.repeat(np.arange(len(sizes)), np.diff(task.edge_ends))
    record = (np.cumsum(sizes) - sizes)[group] + ends
    num = int(sizes.sum())
    top = np.zeros(num)
    np.maximum.at(top, record, task.weights)
    shifted = np.exp(task.weights - top[record])
    total = np.exp(-top) + np.bincount(record, shifted, num)
    p = shifted / total[record]
    # The first of equally good pairs, if it is better than none.
    at_top = np.flatnonzero((task.weights == top[record]) & (task.weights > 0))
    best = np.zeros(len(p), bool)
    best[at_top[np.unique(record[at_top], return_index=True)[1]]] = True
    matched = np.bincount(record, p, num)
    of_group = np.repeat(np.arange(len(sizes)), sizes)
    count = len(sizes)
    return Answer(
        p,
        best,
        np.bincount(of_group, top + np.log(total), count),
        np.bincount(of_group, matched * (1.0 - matched), count),
        np.zeros(count, np.int8),
        np.zeros(count),
        np.ones(count, bool),
    )


class _One(NamedTuple):
    """The answer for one group, with the fields of `Answer`."""

    p: np.ndarray
    best: np.ndarray
    log_evidence: float
    variance: float
    verdict: int
    error: float
    exact: bool


def _solve_hard(task: Task, c: int) -> _One:
    """Solve a group that is too entangled for sums over frontiers."""
    part = slice(task.edge_ends[c], task.edge_ends[c + 1])
    tails, heads = task.tails[part].astype(np.int64), task.heads[part].astype(np.int64)
    weights = task.weights[part]
    # Of the group and not of the task, so that the answer does not depend on how groups are packed.
    seed = int(np.random.SeedSequence([task.seed, int(task.groups[c])]).generate_state(1)[0])
    kept = weights > -np.inf
    solver = _solve_bipartite if task.rule == ONE_TO_ONE else _solve_general
    found = solver(
        tails[kept],
        heads[kept],
        weights[kept],
        (int(task.num_left[c]), int(task.num_vertices[c])),
        seed,
    )
    p, best = np.zeros(len(weights)), np.zeros(len(weights), bool)
    p[kept], best[kept] = found.p, found.best
    return found._replace(p=p, best=best)


def _solve_bipartite(
    tails: np.ndarray, heads: np.ndarray, weights: np.ndarray, sizes: tuple[int, int], seed: int
) -> _One:
    """Solve a group of two tables with method "linear"."""
    from permvi.inference.linear import Candidates, LinearOptions, solve_linear

    n, m = sizes[0], sizes[1] - sizes[0]
    cols = heads - n
    order = np.lexsort((cols, tails))
    problem = Candidates(tails[order], cols[order], weights[order], np.zeros(n), np.zeros(m))
    found = solve_linear(problem, LinearOptions(tolerance=_LINEAR_TOLERANCE), seed)
    p, best = np.empty(len(weights)), np.empty(len(weights), bool)
    p[order] = found.pairs
    best[order] = found.mode[problem.rows] == problem.cols
    counts = (found.draws >= 0).sum(axis=1)
    if found.exact:
        verdict = 0
    else:
        judged = judge(
            sampling_error_by_row=found.sampling_error,
            disagreement_by_row=found.disagreement,
            converged=found.finished,
        )
        verdict = VERDICTS.index(judged.verdict)
    error = max(found.proven_error, float(np.mean(found.sampling_error)))
    return _One(p, best, found.log_evidence, float(counts.var()), verdict, error, bool(found.exact))


def _solve_general(
    tails: np.ndarray, heads: np.ndarray, weights: np.ndarray, sizes: tuple[int, int], seed: int
) -> _One:
    """Sample the matchings of a group within one table."""
    from permvi.linkage.chain_kernels import run_chain

    n, num_pairs = sizes[1], len(weights)
    hottest = min(1.0, _HOTTEST / max(float(np.abs(weights).max()), 1e-9))
    levels = 1 + int(np.ceil(np.log(hottest) / np.log(_RATIO))) if hottest < 1 else 1
    betas = np.geomspace(1.0, hottest, levels) if levels > 1 else np.ones(1)
    rng = np.random.default_rng(seed)
    holds = [np.full((levels, n), -1, np.int64) for _ in range(_NUM_CHAINS)]
    sums: list[list[np.ndarray]] = [[] for _ in range(_NUM_CHAINS)]
    moments = np.zeros(2)
    best, highest = np.zeros(num_pairs, bool), 0.0
    most = min(_MAX_SWEEPS, int(_CHAIN_WORK / (num_pairs * levels * _NUM_CHAINS)))
    sweeps, done = _BATCH, 0
    finished = False
    while True:
        for chain in range(_NUM_CHAINS):
            found, seen = np.zeros(num_pairs), np.zeros(num_pairs, bool)
            count, squares, value = run_chain(
                tails,
                heads,
                weights,
                betas,
                holds[chain],
                sweeps,
                rng,
                found,
                seen,
            )
            sums[chain].append(found / sweeps)
            moments += (count / sweeps, squares / sweeps)
            if value > highest:
                best, highest = seen, value
        done += sweeps
        # The first half warms the chains up: a batch is as long as all before it.
        means = np.array([found[-1] for found in sums])
        error, disagreement = _errors(means, tails, heads, n)
        small = error.mean() <= _TOLERANCE and disagreement.max() <= _WORST
        finished = bool(small) and len(sums[0]) > 2
        if finished or done + sweeps > most:
            break
        moments[:] = 0.0
        sweeps = done
    moments /= _NUM_CHAINS
    judged = judge(
        sampling_error_by_row=error, disagreement_by_row=disagreement, converged=finished
    )
    if num_pairs <= _MAX_PROVEN:
        best = _best_matching(tails, heads, weights, n)
    variance = max(float(moments[1] - moments[0] ** 2), 0.0)
    return _One(
        means.mean(axis=0),
        best,
        np.nan,
        variance,
        VERDICTS.index(judged.verdict),
        float(error.mean()),
        exact=False,
    )


def _errors(
    means: np.ndarray, tails: np.ndarray, heads: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (n,) the sampling error of each record, and how far two halves of the chains differ.

    Both are total variations of what a record is matched with, staying alone included, for
    independent chains with means (J, E).
    """
    matched = np.stack([np.bincount(tails, p, n) + np.bincount(heads, p, n) for p in means])

    def total_variation(pairs: np.ndarray, alone: np.ndarray) -> np.ndarray:
        return 0.5 * (np.bincount(tails, pairs, n) + np.bincount(heads, pairs, n) + alone)

    # The mean of |x| for a standard normal x.
    mean_size = np.sqrt(2.0 / np.pi)
    spread = [mean_size * x.std(axis=0, ddof=1) / np.sqrt(len(x)) for x in (means, matched)]
    half = len(means) // 2
    apart = [np.abs(x[:half].mean(axis=0) - x[half:].mean(axis=0)) for x in (means, matched)]
    return total_variation(*spread), total_variation(*apart)


def _best_matching(tails: np.ndarray, heads: np.ndarray, weights: np.ndarray, n: int) -> np.ndarray:
    """Return (E,) the matching of largest weight of a general graph, by integer programming."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    useful = np.flatnonzero(weights > 0)
    best = np.zeros(len(weights), bool)
    if not len(useful):
        return best
    rows = np.concatenate([tails[useful], heads[useful]])
    cols = np.tile(np.arange(len(useful)), 2)
    table = coo_array((np.ones(len(rows)), (rows, cols)), shape=(n, len(useful)))
    options: dict[str, Any] = {"mip_rel_gap": 0.0}
    found = milp(
        -weights[useful],
        integrality=np.ones(len(useful)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(table.tocsr(), ub=np.ones(n)),
        options=options,
    )
    best[useful] = found.x > 0.5
    return best
