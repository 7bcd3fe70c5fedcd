"""True marginals of linear matching problems, by programmes that are independent of the engines.

Small blocks are solved by the subset programme, banded tables and rings by a frontier programme,
the two modes of a long cycle by another one, and the rest by six independent chains of swaps.
`benchmarks.linear_truth_device` brings truths of the rest from an accelerator.
"""

import hashlib
import io
import math
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from scipy.special import logsumexp

from benchmarks.linear_problems import EXACT_SIZE, Problem, limits, start
from permvi._files import write_bytes
from permvi.inference.exact import solve_exact

CACHE = Path(__file__).parents[1] / "build" / "linear_truth"
_SWAPS = 60_000_000
_MAX_ROUNDS = 6
# The most rows in the background of a cycle.
_MOST_ALONE = 80
_VERSION = 1


class Truth(NamedTuple):
    """True marginals, as far as known."""

    marginals: np.ndarray
    unmatched: np.ndarray
    log_evidence: float | None  # None if only chains know the marginals
    source: str
    # Mean total variation between two halves of the chains, or probability of a background.
    uncertainty: float

    def usable(self) -> bool:
        """Return whether the truth is certain enough to judge an answer by."""
        return self.uncertainty <= limits(len(self.marginals))[0] / 3


def truth(problem: Problem, cache: Path | None = None) -> Truth:
    """Return the true marginals; those of chains and frontiers are kept on disk."""
    path = _place(problem, cache)
    if path.is_file():
        with np.load(io.BytesIO(path.read_bytes())) as kept:
            evidence = float(kept["log_evidence"])
            return Truth(
                kept["marginals"], kept["unmatched"], None if np.isnan(evidence) else evidence,
                str(kept["source"]), float(kept["uncertainty"]),
            )  # fmt: skip
    found = _compute(problem)
    store(problem, found, cache)
    return found


def store(problem: Problem, found: Truth, cache: Path | None = None) -> None:
    """Keep a truth on disk, where `truth` finds it."""
    path = _place(problem, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    evidence = np.nan if found.log_evidence is None else found.log_evidence
    file = io.BytesIO()
    np.savez_compressed(file, **{**found._asdict(), "log_evidence": evidence})
    write_bytes(path, file.getvalue())


def _place(problem: Problem, cache: Path | None) -> Path:
    key = hashlib.sha256(repr((_VERSION, problem.oracle)).encode())
    for part in problem[:4]:
        key.update(b"none" if part is None else np.ascontiguousarray(part).tobytes())
    return (cache or CACHE) / f"{key.hexdigest()[:24]}.npz"


def _compute(problem: Problem) -> Truth:
    try:
        found = solve_exact(**problem.arguments(), max_size=EXACT_SIZE)
    except ValueError:
        return {"chains": chains, "frontier": frontier, "cycle": ring}[problem.oracle](problem)
    return Truth(found.marginals, found.p_unmatched_rows, found.log_evidence, "exact", 0.0)


def frontier(problem: Problem) -> Truth:
    """Sum over all perfect matchings row by row; a state is the set of used open columns.

    A column is open from the first to the last row that may take it, and then it must be used.
    """
    weights = problem.weights()
    n, order = len(weights), problem.row_order
    allowed = np.isfinite(weights[order])
    first, last = allowed.argmax(0), n - 1 - allowed[::-1].argmax(0)
    free, slot = list(range(n))[::-1], np.zeros(n, int)
    steps, log_evidence = [], 0.0
    for t, row in enumerate(order):
        for j in np.flatnonzero(first == t):
            slot[j] = free.pop()
        top = weights[row].max()
        pairs = [
            (int(j), 1 << int(slot[j]), math.exp(weights[row, j] - top))
            for j in np.flatnonzero(allowed[t])
        ]
        closing = np.flatnonzero(last == t)
        steps.append((row, pairs, sum(1 << int(slot[j]) for j in closing)))
        free += slot[closing].tolist()
        log_evidence += top
    layers: list[dict[int, float]] = [{0: 1.0}]
    for _, pairs, closing in steps:
        after: dict[int, float] = {}
        for used, mass in layers[-1].items():
            for _, bit, weight in pairs:
                state = used | bit
                if not used & bit and state & closing == closing:
                    state &= ~closing
                    after[state] = after.get(state, 0.0) + mass * weight
        total = math.fsum(after.values())
        log_evidence += math.log(total)
        layers.append({state: mass / total for state, mass in after.items()})
    marginals, ahead = np.zeros_like(weights), {0: 1.0}
    for (row, pairs, closing), layer in zip(steps[::-1], layers[-2::-1], strict=True):
        before: dict[int, float] = {}
        for used, mass in layer.items():
            for j, bit, weight in pairs:
                state = used | bit
                if not used & bit and state & closing == closing:
                    rest = weight * ahead.get(state & ~closing, 0.0)
                    before[used] = before.get(used, 0.0) + rest
                    marginals[row, j] += mass * rest
        largest = max(before.values())
        ahead = {state: mass / largest for state, mass in before.items()}
        marginals[row] /= marginals[row].sum()
    return Truth(marginals, np.zeros(n), log_evidence, "frontier", 0.0)


def ring(problem: Problem) -> Truth:
    r"""Sum over all matchings of a cycle, in which the other pairs weigh :math:`a_i b_j`.

    Pairs of the cycle that weigh w are split into :math:`w - a_i b_j` and a common background
    :math:`a b^T`. Rows and columns then are the vertices of a ring of 2n edges, where each is on an
    edge of the matching or alone, that is, in the background; k rows and k columns alone can be
    matched in k! ways. So the evidence is :math:`\sum_k k! [x^k] Z(x)`, where Z counts rows that
    are alone. The background of a row is spread evenly over the columns: its probability is
    the uncertainty.
    """
    back = np.ix_(problem.row_order, problem.col_order)
    table = problem.scores[back]
    n, i = len(table), np.arange(len(table))
    # Row i and columns i and i+1 are on the cycle, the others are not.
    b = table[0].copy()
    b[:2] = table[2, :2] - table[2, -1] + b[-1]
    a = table[i, (i + 3) % n] - b[(i + 3) % n]
    stay = np.expm1(table[i, i] - a - b)
    step = np.expm1(table[i, (i + 1) % n] - a - np.roll(b, -1))
    top = stay.max()
    # Around the ring: column 0, row 0, column 1, row 1 ..., each before its edge to the next one.
    edges = np.stack([stay, step], 1).ravel() / top
    alone = np.tile([1.0, 1.0 / top], n)
    factorials = np.array([math.factorial(k) for k in range(_MOST_ALONE + 1)], float)
    total, on_edge = 0.0, np.zeros(2 * n)
    for closing in (0, 1):
        before, after = _around(edges, alone, closing)
        total += before[-1, closing] @ factorials
        for v in range(2 * n):
            both = np.convolve(before[v + 1, 1], after[v + 1, 1])[: _MOST_ALONE + 1]
            on_edge[v] += both @ factorials
    of_cycle = on_edge.reshape(n, 2) / total
    in_background = 1.0 - of_cycle.sum(1)
    natural = np.repeat(in_background[:, None] / n, n, axis=1)
    natural[i, i] += of_cycle[:, 0]
    natural[i, (i + 1) % n] += of_cycle[:, 1]
    marginals = np.zeros_like(table)
    marginals[back] = natural
    log_evidence = math.log(total) + n * math.log(top) + a.sum() + b.sum()
    return Truth(marginals, np.zeros(n), log_evidence, "ring", float(in_background.mean()))


def _around(edges: np.ndarray, alone: np.ndarray, closing: int) -> tuple[np.ndarray, np.ndarray]:
    """Return polynomials of the vertices before, and from, each vertex, (2n + 1, 2, K + 1) twice.

    They are given whether the edge in between is in the matching, which weighs in the former, and
    that the last edge is or is not, as ``closing`` says. Every second vertex is a row.
    """
    size = len(edges)
    before, after = np.zeros((2, size + 1, 2, _MOST_ALONE + 1))
    before[0, closing, 0] = after[size, closing, 0] = 1.0

    def single(v: int, rest: np.ndarray) -> np.ndarray:
        return alone[v] * (np.append(0.0, rest[:-1]) if v % 2 else rest)

    for v in range(size):
        before[v + 1] = before[v, 1] + single(v, before[v, 0]), edges[v] * before[v, 0]
    for v in reversed(range(size)):
        after[v] = single(v, after[v + 1, 0]) + edges[v] * after[v + 1, 1], after[v + 1, 0]
    return before, after


def chains(problem: Problem, swaps: int = _SWAPS, rounds: int = _MAX_ROUNDS) -> Truth:
    """Run six independent chains of swaps until two halves of them agree, or for some rounds.

    Two start from the best matching and four from the best of scores with Gumbel noise.
    """
    weights, unused = problem.grounded()
    n, m = len(weights), len(unused) - 1
    proposal = _proposal(weights, unused)
    cumulated = np.cumsum(proposal, axis=1)
    cumulated /= cumulated[:, -1:]
    starts = [start(weights, unused, seed) for seed in (None, None, 1, 2, 3, 4)]
    held = []
    for perm in starts:
        holder = np.full(m + 1, -1)
        holder[perm] = np.arange(n)
        held.append(holder)
    times = np.zeros((6, n, m + 1))
    for round_ in range(rounds):
        for k in range(6):
            seed = 1000 * round_ + k
            burn = swaps // 10 if round_ == 0 else 0
            times[k] += _swap(
                weights, unused, proposal, cumulated, starts[k], held[k], swaps, burn, seed
            )
        shares = times / times.sum(2, keepdims=True)
        halves = shares[[0, 2, 4]].mean(0), shares[[1, 3, 5]].mean(0)
        mean = shares.mean(0)
        gap = float(0.5 * np.abs(halves[0] - halves[1]).sum(1).mean())
        if gap <= limits(n)[0] / 3:
            break
    return Truth(mean[:, :m], mean[:, m], None, "chains", gap)


def _proposal(weights: np.ndarray, unused: np.ndarray, steps: int = 200) -> np.ndarray:
    """Scale the weights to row and column sums of one; mix in a tenth of all allowed pairs."""
    u, v = np.zeros(len(weights)), np.zeros(len(unused))
    for _ in range(steps):
        u = -logsumexp(weights + v, axis=1)
        over = np.vstack([weights[:, :-1] + u[:, None], unused[:-1]])
        v[:-1] = -logsumexp(over, axis=0)
    scaled = np.exp(weights + u[:, None] + v)
    allowed = np.isfinite(weights)
    scaled /= scaled.sum(1, keepdims=True)
    return 0.9 * scaled + 0.1 * allowed / allowed.sum(1, keepdims=True)


@numba.njit(cache=True, nogil=True)
def _swap(weights, unused, proposal, cumulated, perm, holder, steps, burn, seed):
    """Return the time each row spent at each column; ``perm`` and ``holder`` move on."""
    np.random.seed(seed)  # noqa: NPY002
    n, m = len(weights), len(unused) - 1
    times, since = np.zeros((n, m + 1)), np.zeros(n, np.int64)
    for step in range(steps):
        if step == burn:
            times[:] = 0.0
            since[:] = step
        i, u = np.random.randint(n), np.random.random()  # noqa: NPY002
        j = min(np.searchsorted(cumulated[i], u, side="right"), m)
        a = perm[i]
        if j == a:
            continue
        k = holder[j] if j < m else -1
        if k < 0:
            gain = weights[i, j] - weights[i, a] + unused[a] - unused[j]
            there, back = proposal[i, j], proposal[i, a]
        else:
            gain = weights[i, j] + weights[k, a] - weights[i, a] - weights[k, j]
            there, back = proposal[i, j], proposal[k, j]
            if a < m:
                there, back = there + proposal[k, a], back + proposal[i, a]
        if np.random.random() * there >= math.exp(min(gain, 300.0)) * back:  # noqa: NPY002
            continue
        times[i, a] += step - since[i]
        since[i] = step
        perm[i], holder[j], holder[a] = j, i, k
        if k >= 0:
            times[k, j] += step - since[k]
            since[k] = step
            perm[k] = a
    for i in range(n):
        times[i, perm[i]] += steps - since[i]
    return times
