"""Try to make "auto" trust a wrong answer about graphs, on problems whose answer is known.

``python -m benchmarks.graph_traps --seed 1 --out results/graphs/traps`` fits

* graphs matched with one all of whose nodes are alike (Petersen's graph, a cube, Paley graphs,
  directed and weighted circulants), or with copies of one (edges, directed triangles, cycles):
  every row is uniform, at any scale, however many modes there are;
* copies of a weighted graph, and circulants, with scores that tilt their arrangements, at scales at
  which hardly anything else has any probability;
* a graph of 5 nodes in one of 30, against enumeration.

The error is the mean total variation of a row. Rows are written after each problem, and a later run
goes on where this one ended.
"""

import argparse
import csv
import itertools
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

import permvi as pv
from permvi.experiments.results import write_rows

_ALIKE_SCALES = (0.4, 1.0, 4.0)
_COPIES_SCALES = (1.0, 5.0)
_DEEP = 6.0
_DEEPER = 40.0


class Trap(NamedTuple):
    """A problem and its marginals (n, m), or None where enumeration tells them."""

    name: str
    model: pv.models.GraphMatching
    marginals: np.ndarray | None


def graph_where(n: int, linked: Any) -> np.ndarray:
    """Return the graph (n, n) with an edge from i to j where ``linked(i, j)``."""
    return np.array([[float(i != j and linked(i, j)) for j in range(n)] for i in range(n)])


def alike() -> Iterator[tuple[str, np.ndarray]]:
    """Yield graphs with symmetries that take any node to any other one."""
    pairs = list(itertools.combinations(range(5), 2))
    yield "Petersen", graph_where(10, lambda i, j: not set(pairs[i]) & set(pairs[j]))
    yield "cube", graph_where(16, lambda i, j: (i ^ j).bit_count() == 1)
    for q in (13, 17):
        squares = {x * x % q for x in range(1, q)}
        yield f"Paley {q}", graph_where(q, lambda i, j, q=q, s=squares: (i - j) % q in s)


def circulant(weights: np.ndarray) -> np.ndarray:
    """Return a graph in which the edge from i to j has the weight of j - i."""
    n = len(weights)
    graph = weights[(np.arange(n) - np.arange(n)[:, None]) % n]
    np.fill_diagonal(graph, 0.0)
    return graph


def weighted(n: int, rng: np.random.Generator, *, directed: bool) -> np.ndarray:
    """Return a graph with normal weights, four edges in five."""
    graph = (rng.random((n, n)) < 0.8) * rng.normal(size=(n, n))
    np.fill_diagonal(graph, 0.0)
    return graph if directed else graph + graph.T


def tilted(
    name: str,
    graph: np.ndarray,
    group: np.ndarray,
    scale: float,
    noise: float,
    rng: np.random.Generator,
) -> Trap:
    """Return a graph matched with itself; scores weigh its automorphisms, ``group`` (k, n)."""
    n = len(graph)
    order, scores = rng.permutation(n), noise * rng.normal(size=(n, n))
    model = pv.models.GraphMatching(graph[np.ix_(order, order)], graph, scale, scores)
    perms = group[:, order]
    values = scores[np.arange(n), perms].sum(axis=1)
    weights = np.exp(values - values.max())
    truth = np.einsum("k,kij->ij", weights / weights.sum(), np.eye(n)[perms])
    return Trap(name, model, truth)


def traps(seed: int) -> Iterator[Trap]:
    """Yield the problems."""
    rng = np.random.default_rng([1_700, 91, seed])
    found = list(alike())
    found += [(f"circulant {n}", circulant(rng.normal(size=n))) for n in (11, 20, 30)]
    for name, graph in found:
        n = len(graph)
        for scale in _ALIKE_SCALES:
            order = rng.permutation(n)
            model = pv.models.GraphMatching(graph[np.ix_(order, order)], graph, scale)
            yield Trap(f"{name}, scale {scale:g}", model, np.full((n, n), 1 / n))
    turned = np.roll(np.eye(5), 1, axis=0)
    parts = {
        "edges": 1 - np.eye(2),
        "triangles": np.roll(np.eye(3), 1, axis=0),
        "rings": turned + turned.T,
    }
    for name, part in parts.items():
        for num, scale in itertools.product((5, 6), _COPIES_SCALES):
            graph = np.kron(np.eye(num), part)
            n = len(graph)
            model = pv.models.GraphMatching(graph, graph, scale)
            yield Trap(f"{num} {name}, scale {scale:g}", model, np.full((n, n), 1 / n))
    for num, n in ((2, 5), (2, 10), (2, 15), (3, 8)):
        orders = itertools.permutations(range(num))
        nodes = np.arange(n)
        group = np.array([np.concatenate([nodes + n * k for k in each]) for each in orders])
        for noise, directed in itertools.product((0.1, 0.3), (False, True)):
            graph = np.kron(np.eye(num), weighted(n, rng, directed=directed))
            name = f"{num} copies of {n}{', directed' * directed}, scores {noise:g}"
            yield tilted(name, graph, group, _DEEP, noise, rng)
    for n, noise in itertools.product((10, 14, 20), (0.1, 0.5)):
        weights = (rng.random(n) < 0.5) + 0.3 * rng.random(n)
        group = (np.arange(n) + np.arange(n)[:, None]) % n
        name = f"turns of {n}, scores {noise:g}"
        yield tilted(name, circulant(weights), group, _DEEPER, noise, rng)
    for directed in (False, True):
        A, B = weighted(5, rng, directed=directed), 0.5 * weighted(30, rng, directed=directed)
        B[:5, :5], B[10:15, 10:15] = A, A
        model = pv.models.GraphMatching(A, B, 8.0, 0.2 * rng.normal(size=(5, 30)))
        yield Trap(f"5 among 30{', directed' * directed}", model, None)


def enumerated(model: pv.models.GraphMatching) -> np.ndarray:
    """Return the marginals (5, m) of a graph of five nodes."""
    A, B, C = (np.asarray(part, np.float64) for part in (model.A, model.B, model.linear_scores))
    top = _sums(float(model.scale) * A, B, C, -np.inf)[0]
    sums = _sums(float(model.scale) * A, B, C, top)[1]
    return sums / sums.sum(axis=1, keepdims=True)


@numba.njit
def _sums(A, B, C, top):
    """Return the largest value, and sums (5, m) of exp(value - top) unless that is infinite."""
    m = len(B)
    sums, best = np.zeros((5, m)), -np.inf
    perm = np.zeros(5, np.int64)
    for code in range(m**5):
        rest, new = code, True
        for i in range(5):
            perm[i], rest = rest % m, rest // m
            for k in range(i):
                new = new and perm[k] != perm[i]
        if not new:
            continue
        value = 0.0
        for i in range(5):
            value += C[i, perm[i]]
            for k in range(5):
                value += A[i, k] * B[perm[i], perm[k]]
        best = max(best, value)
        if np.isfinite(top):
            for i in range(5):
                sums[i, perm[i]] += np.exp(value - top)
    return best, sums


def measured(trap: Trap, seed: int) -> dict[str, Any]:
    """Return the row of a problem."""
    start = time.process_time()
    found = pv.fit(trap.model, seed=seed)
    seconds = time.process_time() - start
    stated = found.diagnostics.sampling_error_by_row
    truth = enumerated(trap.model) if trap.marginals is None else trap.marginals
    error = pv.metrics.total_variation_per_row(found.marginals, truth).mean()
    return {
        "problem": trap.name, "seed": seed, "method": found.method,
        "verdict": found.diagnostics.verdict, "error": round(float(error), 4),
        "stated": 0.0 if stated is None else round(float(stated.mean()), 4),
        "cpu_s": round(seconds, 1),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for rows.csv")
    parser.add_argument("--seed", type=int, required=True, help="of problems and fits")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no problem after this")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pv.FitWarning)
    given.out.mkdir(parents=True, exist_ok=True)
    path, rows = given.out / "rows.csv", []
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(row["problem"], int(row["seed"])) for row in rows}
    end = time.monotonic() + given.seconds
    for trap in traps(given.seed):
        wanted = any(part in trap.name for part in given.only)
        if wanted and (trap.name, given.seed) not in done and time.monotonic() < end:
            rows.append(measured(trap, given.seed))
            print(rows[-1], flush=True)
            write_rows(given.out, rows)


if __name__ == "__main__":
    main()
