"""Measure graph matching by "auto": the mode, the marginals, the evidence and the CPU time.

``python -m benchmarks.graphs --out results/graphs`` writes a row for each problem, and goes on
where an earlier run ended. There are six parts:

* ``modes``: a graph and a shuffled copy with some pairs of nodes flipped, with and without known
  pairs. Modes are compared with the best of 30 starts of SciPy's FAQ, with `map` and with the
  planted matching.
* ``marginals``: marginals of such graphs with 20 nodes against tempered chains of 1e8 swaps in all,
  which share no code with permvi. Two runs tell how far to believe them.
* ``symmetric``: graphs with automorphisms, against shorter chains, averaged over automorphisms.
* ``large``: as ``modes``, for 1,000 nodes, without FAQ, which would take ten minutes.
* ``leaves``: half of the nodes are leaves, and edges count so much that only leaves of one node are
  exchanged; marginals and evidence are those of small linear tables, or factorials.
* ``small``: up to 9 nodes, by `quadratic`, against enumeration.

The error is the mean total variation of a row.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from scipy.optimize import quadratic_assignment

import permvi as pv
from permvi._tables import text_table
from permvi.experiments.results import write_rows
from permvi.inference.map import solve_quadratic
from permvi.inference.quadratic.form import square_form
from permvi.problem.prepare import prepare

Row = dict[str, Any]
SEED = 1_700  # of the problems; none of them was used for tuning
_FAQ_STARTS = 30
_ENUMERATED = 9
# Swaps of a reference, and of one for symmetric graphs, whose automorphisms help.
_REFERENCE = 100_000_000
_SHORT_REFERENCE = 20_000_000
# The least share of the time with each number of rows as planted, and the rounds that see to it.
_LEAST_SHARE = 0.02
_ROUNDS = 12


class Case(NamedTuple):
    """A problem, with the planted matching (n,) or the automorphisms (k, n) if there are any."""

    name: str
    model: pv.models.GraphMatching
    planted: np.ndarray | None = None
    automorphisms: np.ndarray | None = None


def random_graphs(n: int, p: float, flipped: float, seed: int, num_known: int = 0) -> Case:
    """Return an Erdos-Renyi graph and a shuffled copy, some of its pairs of nodes flipped."""
    rng = np.random.default_rng([SEED, seed, n, round(100 * p), round(100 * flipped)])
    edges = np.triu(rng.random((n, n)) < p, 1).astype(float)
    copy = np.abs(edges - np.triu(rng.random((n, n)) < flipped, 1))
    order = rng.permutation(n)
    seen = (copy + copy.T)[np.ix_(order, order)]
    known = np.where(np.arange(n) < num_known, order, -1) if num_known else None
    model = pv.models.GraphMatching(seen, edges + edges.T, 0.5, known=known)
    more = f", {num_known} known" if num_known else ""
    return Case(f"N={n} p={p:g} {flipped:.0%} flipped{more}, seed {seed}", model, order)


class Leaves(NamedTuple):
    """A problem whose nodes of one class are exchanged and no others, and its exact answer."""

    name: str
    model: pv.models.GraphMatching
    marginals: np.ndarray
    log_evidence: float


def leaves(n: int, noise: float, seed: int, scale: float = 5.0) -> Leaves:
    """Return a random graph and leaves at random nodes of it, matched with a shuffled copy.

    Every pair has a score, normal with standard deviation ``noise``, so that leaves of one node are
    a linear problem of their own. An edge at a wrong place costs ``2 scale`` nats.
    """
    rng = np.random.default_rng([SEED, seed, n, round(100 * noise)])
    half = n // 2
    B = np.zeros((n, n))
    B[:half, :half] = np.triu(rng.random((half, half)) < min(0.3, 25 / half), 1)
    parents = rng.integers(0, half, n - half)
    B[parents, np.arange(half, n)] = 1.0
    B += B.T
    order, scores = rng.permutation(n), noise * rng.normal(size=(n, n))
    model = pv.models.GraphMatching(B[np.ix_(order, order)], B, scale, scores)
    rows, classes = np.argsort(order), np.append(np.arange(half), half + parents)
    marginals, evidence = np.zeros((n, n)), scale * float((B**2).sum())
    for each in np.unique(classes):
        cols = np.flatnonzero(classes == each)
        table = np.ix_(rows[cols], cols)
        group = pv.fit(pv.models.LinearMatching(scores[table]), "exact")
        marginals[table] = group.marginals
        evidence += float(group.log_evidence)
    return Leaves(f"N={n} noise={noise:g}, seed {seed}", model, marginals, evidence)


def _shuffled(name: str, G: np.ndarray, scale: float, group: np.ndarray, seed: int) -> Case:
    """Match a graph with itself; ``group`` (k, n) holds all of its automorphisms."""
    rng = np.random.default_rng([SEED, seed])
    order = rng.permutation(len(G))
    model = pv.models.GraphMatching(G[np.ix_(order, order)], G, scale)
    return Case(name, model, None, group)


def cycle(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the cycle of n nodes and its 2 n automorphisms."""
    turned = np.roll(np.eye(n), 1, axis=0)
    nodes = np.arange(n)
    group = [(sign * nodes + shift) % n for sign in (1, -1) for shift in range(n)]
    return turned + turned.T, np.array(group)


def prism(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two cycles of n nodes joined rung by rung, and the 4 n automorphisms (n not 4)."""
    ring, group = cycle(n)
    G = np.kron(np.eye(2), ring) + np.kron(np.array([[0, 1], [1, 0]]), np.eye(n))
    both = [np.concatenate([g, g + n]) for g in group]
    return G, np.array(both + [np.roll(g, n) for g in both])


def copies(base: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``num`` copies of a graph without symmetries, which may be exchanged."""
    import itertools

    n = len(base)
    group = [
        np.concatenate([np.arange(n) + n * k for k in order])
        for order in itertools.permutations(range(num))
    ]
    return np.kron(np.eye(num), base), np.array(group)


def bipartite_double(base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bipartite double of a graph without symmetries, whose sides may be exchanged."""
    n = len(base)
    nodes = np.arange(2 * n)
    return np.kron(np.array([[0, 1], [1, 0]]), base), np.stack([nodes, (nodes + n) % (2 * n)])


def symmetric_graphs() -> Iterator[Case]:
    """Yield graphs with 2 to 48 automorphisms."""
    rng = np.random.default_rng(SEED)
    for n, scale in ((10, 1.0), (16, 1.5), (24, 2.0)):
        yield _shuffled(f"cycle of {n}", *_with(cycle(n), scale), seed=n)
    for n, scale in ((5, 1.0), (12, 1.5)):
        yield _shuffled(f"prism of {2 * n}", *_with(prism(n), scale), seed=n)
    for num, n in ((2, 8), (2, 12), (3, 6), (4, 5)):
        W = rng.normal(size=(n, n))
        name = f"{num} copies of {n}"
        yield _shuffled(name, *_with(copies(W + W.T, num), 0.4), seed=100 * num + n)
    for n in (7, 11):
        W = rng.normal(size=(n, n))
        name = f"bipartite double of {n}"
        yield _shuffled(name, *_with(bipartite_double(W + W.T), 0.4), seed=n)


def _with(found: tuple[np.ndarray, np.ndarray], scale: float) -> tuple[Any, float, Any]:
    return found[0], scale, found[1]


@numba.njit(nogil=True)
def _tempered(A, B, scale, betas, bias, centre, free, perms, num_sweeps, burn_in, rng):
    """Swap free rows at every level and exchange neighbours; look at the last level.

    Level k has the log density ``betas[k] f + bias[k, m]`` of a permutation that shares m rows with
    the centre. Return counts (n, n), weighted so that the bias of the last level does not show, and
    how often each level had m, (K, n+1).
    """
    K, n = perms.shape
    values, counts, seen = np.zeros(K), np.zeros((n, n)), np.zeros((K, n + 1))
    shared = np.zeros(K, np.int64)
    for k in range(K):
        for i in range(n):
            shared[k] += perms[k, i] == centre[i]
            for j in range(n):
                values[k] += scale * A[i, j] * B[perms[k, i], perms[k, j]]
    for sweep in range(num_sweeps):
        for k in range(K):
            perm = perms[k]
            for _ in range(free.size):
                u, v = free[rng.integers(0, free.size)], free[rng.integers(0, free.size)]
                if u == v:
                    continue
                a, b = perm[u], perm[v]
                # Edges are symmetric.
                gain = 0.0
                for i in range(n):
                    if i != u and i != v:
                        gain += (A[u, i] - A[v, i]) * (B[b, perm[i]] - B[a, perm[i]])
                gain += 0.5 * (A[u, u] - A[v, v]) * (B[b, b] - B[a, a])
                gain *= 2.0 * scale
                more = int(b == centre[u]) + int(a == centre[v])
                more -= int(a == centre[u]) + int(b == centre[v])
                now = shared[k]
                change = betas[k] * gain + bias[k, now + more] - bias[k, now]
                if change >= 0 or rng.random() < np.exp(change):
                    perm[u], perm[v] = b, a
                    values[k] += gain
                    shared[k] += more
        for k in range(sweep % 2, K - 1, 2):
            change = (betas[k] - betas[k + 1]) * (values[k + 1] - values[k])
            change += bias[k, shared[k + 1]] - bias[k, shared[k]]
            change += bias[k + 1, shared[k]] - bias[k + 1, shared[k + 1]]
            if change >= 0 or rng.random() < np.exp(change):
                values[k], values[k + 1] = values[k + 1], values[k]
                shared[k], shared[k + 1] = shared[k + 1], shared[k]
                for i in range(n):
                    perms[k, i], perms[k + 1, i] = perms[k + 1, i], perms[k, i]
        if sweep >= burn_in:
            for k in range(K):
                seen[k, shared[k]] += 1
            weight = np.exp(-bias[K - 1, shared[K - 1]])
            for i in range(n):
                counts[i, perms[K - 1, i]] += weight
    return counts, seen


def _raised(bias: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the bias (K, n+1) with which each number of shared rows has a share of _LEAST_SHARE.

    Numbers that were not seen under the present bias count as seen once.
    """
    log_share = np.log(np.maximum(seen, 1.0)) - bias
    log_share -= np.logaddexp.reduce(log_share, axis=1, keepdims=True)
    return np.maximum(np.log(_LEAST_SHARE) - log_share, 0.0)


def reference(
    model: Any,
    num_steps: int,
    automorphisms: np.ndarray | None = None,
    planted: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Return marginals (n, n) by two tempered runs, and how far they differ.

    One run starts at random permutations. The other one does, too, unless a ``planted`` matching is
    given: then it starts there, and all levels favour the numbers of rows shared with it that are
    rare, so that chains pass between the planted matching and the rest; weights take that bias out
    of the answer. A posterior does not change if an automorphism of the columns follows the
    matching, so averages over all ``automorphisms`` (k, n) are as right as the runs, however few
    modes they have seen.
    """
    A, B = (np.asarray(part, dtype=np.float64) for part in (model.A, model.B))
    n, runs = len(A), []
    known = np.full(n, -1) if model.known is None else np.asarray(model.known)
    rows, cols = np.flatnonzero(known < 0), np.setdiff1d(np.arange(n), known)
    centre = np.full(n, -1) if planted is None else planted
    # The first level is hot enough for chains to move freely.
    lowest = min(0.3, 0.15 / float(model.scale))
    num_levels = 8 + int(np.ceil(3 * np.log(0.3 / lowest)))
    betas = np.geomspace(lowest, 1.0, num_levels)
    num_sweeps = num_steps // (2 * len(rows) * num_levels)
    for seed in range(2):
        rng = np.random.default_rng([SEED, 31, seed])
        perms = np.tile(known, (num_levels, 1))
        for perm in perms:
            perm[rows] = rng.permutation(cols)
        if seed == 1 and planted is not None:
            perms[:] = planted
        bias, fixed = np.zeros((num_levels, n + 1)), (A, B, float(model.scale), betas)
        # A third of the swaps goes into the bias, of which each round knows more than the last.
        left, rounds = num_sweeps, 0 if planted is None else _ROUNDS
        for _ in range(rounds):
            part = num_sweeps // (3 * _ROUNDS)
            _, seen = _tempered(*fixed, bias, centre, rows, perms, part, part // 10, rng)
            bias, left = _raised(bias, seen), left - part
        counts, _ = _tempered(*fixed, bias, centre, rows, perms, left, left // 10, rng)
        found = counts / counts[0].sum()
        if automorphisms is not None:
            found = np.mean([found[:, g] for g in automorphisms], axis=0)
        runs.append(found)
    return (runs[0] + runs[1]) / 2, _distance(*runs)


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(0.5 * np.abs(one - other).sum(axis=1).mean())


def modes(sizes: Sequence[int], seed: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of problems, and functions that measure their modes."""
    for n in sizes:
        for p in (0.1, 0.3, 0.5):
            for flipped in (0.0, 0.05, 0.1):
                for known in (0, n // 10):
                    case = random_graphs(n, p, flipped, seed, known)
                    yield case.name, lambda case=case: _mode_row(case)


def large(seed: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of problems with 1,000 nodes, and functions that measure their modes."""
    for p, flipped, known in (
        (0.005, 0.0, 100), (0.01, 0.0, 0), (0.02, 0.002, 0), (0.1, 0.05, 0), (0.1, 0.1, 100),
        (0.3, 0.05, 0), (0.5, 0.1, 0),
    ):  # fmt: skip
        case = random_graphs(1000, p, flipped, seed, known)
        yield case.name, lambda case=case: _large_row(case)


def marginals(num_steps: int, seed: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of problems with 20 nodes, and functions that measure their marginals."""
    more = "" if num_steps == _REFERENCE else f", {num_steps:.0e} swaps"
    for p in (0.1, 0.3, 0.5):
        for flipped in (0.0, 0.05, 0.1):
            for known in (0, 2):
                case = random_graphs(20, p, flipped, seed, known)
                yield case.name + more, lambda case=case: _marginal_row(case, num_steps)


def symmetric() -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of graphs with automorphisms, and functions that measure their marginals."""
    for case in symmetric_graphs():
        yield case.name, lambda case=case: _marginal_row(case, _SHORT_REFERENCE)


def small(seeds: int = 12) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of problems that can be enumerated, and functions that compare with that."""
    for n in (6, 7, 8, _ENUMERATED):
        for p in (0.2, 0.5):
            for seed in range(seeds if n < _ENUMERATED else 2):
                case = random_graphs(n, p, 0.1, seed)
                yield case.name, lambda case=case, seed=seed: small_row(case, seed)


def leafy(seed: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of graphs with leaves, and functions that compare with exact answers."""
    for n in (50, 100, 200, 400, 1000):
        for noise in (0.0, 0.5, 1.5):
            case = leaves(n, noise, seed)
            yield case.name, lambda case=case: leaf_row(case)


def leaf_row(case: Leaves) -> Row:
    """Compare marginals and evidence by "auto" with the exact ones."""
    found, seconds = _timed(case.model, "auto", 0)
    off = float(found.log_evidence) - case.log_evidence
    return {
        "method": found.method, "verdict": found.diagnostics.verdict,
        "stated": round(_stated(found), 5), "modes": _num_modes(found),
        "error": round(_distance(found.marginals, case.marginals), 5),
        "evidence_off": round(off, 3), "evidence_se": round(float(found.log_evidence_se), 3),
        "cpu_s": round(seconds, 1),
    }  # fmt: skip


def _mode_row(case: Case) -> Row:
    found, seconds = _timed(case.model, "auto", 0)
    best = _density(case.model, found.mode)
    start = time.process_time()
    by_map = map_search(case.model, 0)
    map_seconds = time.process_time() - start
    return {
        "method": found.method, "verdict": found.diagnostics.verdict,
        "stated": round(_stated(found), 4), "modes": _num_modes(found),
        "minus_faq": round(best - _faq(case.model), 3),
        "minus_map": round(best - by_map, 3),
        "minus_planted": round(best - _density(case.model, case.planted), 3),
        "right": round(float((found.mode == case.planted).mean()), 3),
        "cpu_s": round(seconds, 1), "map_cpu_s": round(map_seconds, 1),
    }  # fmt: skip


def _large_row(case: Case) -> Row:
    found, seconds = _timed(case.model, "auto", 0)
    best = _density(case.model, found.mode)
    truth = _density(case.model, case.planted)
    return {
        "method": found.method, "verdict": found.diagnostics.verdict,
        "stated": round(_stated(found), 4), "modes": _num_modes(found),
        "minus_planted": round(best - truth, 3),
        "right": round(float((found.mode == case.planted).mean()), 3),
        "probability_of_planted": round(_mean_probability(found, case.planted), 4),
        "log_evidence": round(found.log_evidence, 2), "planted_alone": round(truth, 2),
        "cpu_s": round(seconds, 1),
    }  # fmt: skip


def _mean_probability(found: pv.Posterior, perm: np.ndarray) -> float:
    return float(found.marginals[np.arange(len(perm)), perm].mean())


def _marginal_row(case: Case, num_steps: int) -> Row:
    found, seconds = _timed(case.model, "auto", 0)
    truth, apart = reference(case.model, num_steps, case.automorphisms, case.planted)
    return {
        "method": found.method, "verdict": found.diagnostics.verdict,
        "stated": round(_stated(found), 4), "modes": _num_modes(found),
        "automorphisms": 1 if case.automorphisms is None else len(case.automorphisms),
        "error": round(_distance(found.marginals, truth), 4),
        "runs_apart": round(apart, 4), "cpu_s": round(seconds, 1),
    }  # fmt: skip


def small_row(case: Case, seed: int) -> Row:
    """Compare marginals and evidence by "quadratic" with enumeration."""
    found, seconds = _timed(case.model, "quadratic", seed)
    exact = pv.fit(case.model, "exact")
    z = (found.log_evidence - exact.log_evidence) / found.log_evidence_se
    return {
        "method": found.method, "verdict": found.diagnostics.verdict,
        "stated": round(_stated(found), 4), "modes": _num_modes(found),
        "error": round(_distance(found.marginals, exact.marginals), 4),
        "z": round(float(z), 3), "cpu_s": round(seconds, 1),
    }  # fmt: skip


def map_search(model: Any, seed: int) -> float:
    """Return the log density that method "map" finds, without its verdict."""
    square = square_form(prepare(model))[0]
    return float(solve_quadratic(square, rng=np.random.default_rng(seed)).value or 0.0)


def _stated(found: pv.Posterior) -> float:
    by_row = found.diagnostics.sampling_error_by_row
    return 0.0 if by_row is None else float(np.mean(by_row))


def _num_modes(found: pv.Posterior) -> int:
    return int(found.diagnostics.extras.get("num_modes", 0))


def _timed(model: Any, method: str, seed: int) -> tuple[pv.Posterior, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        found = pv.fit(model, method, seed=seed)
    return found, time.process_time() - start


def _density(model: Any, perm: np.ndarray) -> float:
    A, B, C = model.quadratic
    return float((A * B[np.ix_(perm, perm)]).sum() + C[np.arange(len(perm)), perm].sum())


def _faq(model: Any) -> float:
    """Return the best log density of SciPy's FAQ from the centre and from random starts."""
    A, B, _ = model.quadratic
    rng, best = np.random.default_rng(0), -np.inf
    known = np.full(len(A), -1) if model.known is None else np.asarray(model.known)
    pairs = np.stack([np.flatnonzero(known >= 0), known[known >= 0]], axis=1)
    for k in range(_FAQ_STARTS):
        options = {"maximize": True, "rng": rng, "P0": "randomized" if k else "barycenter"}
        found = quadratic_assignment(A, B, method="faq", options=options | {"partial_match": pairs})
        best = max(best, _density(model, found.col_ind))
    return best


PARTS = {
    "modes": modes, "large": large, "marginals": marginals, "symmetric": symmetric,
    "leaves": leafy, "small": small,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 50, 100], help="of modes")
    parser.add_argument("--steps", type=float, default=_REFERENCE, help="of chains of marginals")
    parser.add_argument("--seed", type=int, default=3, help="of random graphs")
    parser.add_argument("--only", default="", help="a part of the names of problems")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no problem after this")
    parser.add_argument("--out", type=Path, required=True, help="folder for PART/rows.csv")
    given = parser.parse_args(arguments)
    end = time.monotonic() + given.seconds
    for part in given.parts:
        arguments_of = {
            "modes": (given.sizes, given.seed),
            "large": (given.seed,),
            "marginals": (int(given.steps), given.seed),
            "leaves": (given.seed,),
        }
        problems = PARTS[part](*arguments_of.get(part, ()))
        folder = given.out / part
        folder.mkdir(parents=True, exist_ok=True)
        path, rows = folder / "rows.csv", []
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        done = {row["problem"] for row in rows}
        for name, measure in problems:
            if name in done or time.monotonic() > end or given.only not in name:
                continue
            rows.append({"problem": name, **measure()})
            print(rows[-1], flush=True)
            write_rows(folder, rows)
        if rows:
            print(text_table(list(rows[0]), [[str(x) for x in row.values()] for row in rows]))


if __name__ == "__main__":
    main()
