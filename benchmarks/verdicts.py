"""Ask of every method how often its verdict is right, on problems whose answer is known.

``python -m benchmarks.verdicts --out results/verdicts`` fits points, tables, graphs, functions and
problems with two modes, at scales from 1e-3 to 1e3, by all methods that take them, and compares
marginals with those of enumeration or of the subset programme. With ``--large`` it fits problems of
12 to 20 items and points of unknown noise instead; the truth of graphs then comes from the tempered
chains of `benchmarks.graphs`, which share no code with permvi, and that of mixtures from tables.
Rows are written after each problem, and a later run goes on where this one ended. All problems of a
kind have one of few shapes, so that most of the time is spent on fits and not on compilers.
"""

import argparse
import csv
import shlex
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import permvi as pv
from benchmarks.graphs import reference
from benchmarks.run import machine
from permvi.experiments.results import Table, write_rows, write_tables
from permvi.inference import registry

Row = dict[str, Any]
SEED = 880_000  # the first seed of problems; none of them was used for tuning
# An answer is wrong if the mean error of a row is above the first, and good up to the second.
WRONG, GOOD = 0.05, 0.02
_SCALES = (1e-3, 1e-1, 1.0, 10.0, 1e3)


class Case(NamedTuple):
    """A problem: its kind, the factor of its scores, and the model."""

    kind: str
    scale: float
    model: Any


def points(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return noisy, shuffled copies of points; a large scale means little noise."""
    centers = rng.normal(size=(n, 2))
    sigma = min(0.5 / np.sqrt(scale), 3.0)
    observed = centers[rng.permutation(n)] + sigma * rng.normal(size=(n, 2))
    return pv.models.PointMatching(observed, centers, sigma)


def table(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return normal scores."""
    return pv.models.LinearMatching(2 * scale * rng.normal(size=(n, n)))


def cycle(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return two modes that differ in every row, one up to five times as likely."""
    eye, tilt = np.eye(n), rng.uniform(0, np.log(5)) / n
    scores = 12 * max(scale, 0.1) * (eye + np.roll(eye, 1, 1)) - tilt * np.roll(eye, 1, 1)
    rows, cols = rng.permutation(n), rng.permutation(n)
    return pv.models.LinearMatching(scores[np.ix_(rows, cols)])


def graph(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return a graph and a shuffled copy of it with some edges flipped."""
    upper = np.triu(rng.random((n, n)) < 0.4, 1)
    first = (upper | upper.T).astype(float)
    flips = np.triu(rng.random((n, n)) < 0.05, 1)
    perm = rng.permutation(n)
    second = np.abs(first - (flips | flips.T))[np.ix_(perm, perm)]
    return pv.models.GraphMatching(second, first, scale=0.5 / np.sqrt(scale))


def copies(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return two copies of one weighted graph, which may be exchanged."""
    half = rng.normal(size=(n // 2, n // 2))
    half = half + half.T
    zero = np.zeros_like(half)
    whole = np.block([[half, zero], [zero, half]])
    return pv.models.GraphMatching(whole, whole, scale=1.0 / np.sqrt(scale))


def function(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return a JAX function with a large constant and a term that is not linear."""
    scores, pairs = jnp.asarray(rng.normal(size=(2, n, n)))
    shift = float(rng.choice([0.0, 1e4]))

    def log_density(X: Any) -> Any:
        return shift + scale * (jnp.sum(scores * X) + 0.5 * jnp.sum(pairs * X) ** 2)

    return pv.models.CallableModel(log_density, n)


def mixture(scale: float, n: int, rng: np.random.Generator, *, on_host: bool = False) -> Any:
    """Return a JAX function with two modes that share few pairs, one up to four times as likely."""
    scores = 2 * scale * rng.normal(size=(2, n, n))
    evidences = [_exact(part).log_evidence for part in scores]
    shift = evidences[0] - evidences[1] + rng.uniform(0, np.log(4))
    xp: Any = np if on_host else jnp
    first, second = xp.asarray(scores)
    rows = xp.arange(n)

    def log_density(perm: Any) -> Any:
        return xp.logaddexp(first[rows, perm].sum(), second[rows, perm].sum() + shift)

    model = pv.models.CallableModel(log_density, n, input="perm", jax=not on_host)
    # Each part is a table, whose marginals are known.
    weights = np.exp([0.0, shift + evidences[1] - evidences[0]])
    parts = np.array([_exact(part).marginals for part in scores])
    model.truth = np.einsum("k,kij->ij", weights / weights.sum(), parts)
    return model


def python_mixture(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return the same in plain Python, which takes microseconds a call."""
    return mixture(scale, n, rng, on_host=True)


def _exact(scores: np.ndarray) -> pv.Posterior:
    return pv.fit(pv.models.LinearMatching(scores), "exact")


def order(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return a NumPy function of the permutation: weighted tardiness of jobs in this order."""
    hours, due, weight = rng.exponential(size=(3, n))

    def log_density(perm: np.ndarray) -> float:
        ends = np.cumsum(hours[perm])
        return -scale * float((weight[perm] * np.maximum(ends - n / 2 * due[perm], 0)).sum())

    return pv.models.CallableModel(log_density, n, input="perm", jax=False)


# The kinds, each with the sizes whose answers are known exactly.
KINDS = {
    points: (8, 14), table: (8, 14), cycle: (8, 14), graph: (8,), copies: (8,),
    function: (6, 8), order: (6, 8),
}  # fmt: skip


def unknown_noise(scale: float, n: int, rng: np.random.Generator) -> Any:
    """Return points whose noise is to be inferred."""
    model = points(scale, n, rng)
    return pv.models.PointMatching(model.observations, model.centers, scale=None)


LARGE_KINDS = {
    points: (20,), table: (20,), cycle: (20,), graph: (20,), copies: (16,), unknown_noise: (8, 14),
    mixture: (12, 16, 20), python_mixture: (12, 16),
}  # fmt: skip
# Swaps of the chains that tell the truth of large graphs.
_CHAINS = 20_000_000


def truth_of(model: Any) -> np.ndarray:
    """Return the true marginals (n, n)."""
    if hasattr(model, "truth"):
        return model.truth
    if not isinstance(model, pv.models.GraphMatching) or model.shape[0] <= 8:
        return pv.fit(model, "exact").marginals
    nodes, half = np.arange(model.shape[0]), model.shape[0] // 2
    B = np.asarray(model.B)
    group = None
    if np.array_equal(B[:half, :half], B[half:, half:]):
        # Two copies may be exchanged.
        group = np.stack([nodes, np.roll(nodes, half)])
    found, apart = reference(model, _CHAINS, group)
    if apart > WRONG / 2:
        raise ValueError(f"chains that tell the truth must agree, got {apart:.3f} between them.")
    return found


def cases(repeats: int, first: int = SEED, *, large: bool = False) -> Iterator[tuple[int, Case]]:
    """Return the problems with their seeds: every kind, size and scale, ``repeats`` times."""
    for repeat in range(repeats):
        for kind, sizes in (LARGE_KINDS if large else KINDS).items():
            for n in sizes:
                for scale in _SCALES:
                    rng = np.random.default_rng((first + repeat, n, round(1e6 * scale)))
                    name = f"{kind.__name__} {n}"
                    yield repeat, Case(name, scale, kind(scale, n, rng))


def measured(case: Case, seed: int, methods: Sequence[str]) -> Iterator[Row]:
    """Fit a problem by all methods that take it and compare with the truth."""
    try:
        truth = truth_of(case.model)
    except ValueError as error:
        print(f"{case.kind}, {case.scale:g}: {error}", file=sys.stderr)
        return
    for method in methods:
        start = time.process_time()
        try:
            found = pv.fit(case.model, method, seed=seed)
        except ValueError:
            continue
        by_row = pv.metrics.total_variation_per_row(found.marginals, truth)
        yield {
            "kind": case.kind, "scale": case.scale, "seed": seed, "method": method,
            "error": float(by_row.mean()), "verdict": found.diagnostics.verdict,
            "cpu_s": time.process_time() - start,
        }  # fmt: skip


def summary(rows: Sequence[Row], by: str) -> Table:
    """Count by method or kind how often trusted answers are wrong and good ones not trusted."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row[by]), []).append(row)
    if by == "method":
        groups["all"] = list(rows)
    lines = []
    for name, group in groups.items():
        errors = np.array([float(row["error"]) for row in group])
        trusted = np.array([row["verdict"] == "trust" for row in group])
        good, wrong = errors <= GOOD, errors > WRONG
        lines.append(
            [
                name,
                str(len(group)),
                str(trusted.sum()),
                str((trusted & wrong).sum()),
                f"{errors[trusted].max():.3f}" if trusted.any() else "",
                str(good.sum()),
                f"{(good & ~trusted).sum() / max(good.sum(), 1):.1%}",
            ]
        )
    columns = [by, ">fits", ">trusted", ">trusted and wrong", ">worst trusted", ">good"]
    return Table(f"Verdicts by {by}", [*columns, ">good, not trusted"], lines)


_README = """# Verdicts

`rows.csv` and `tables.md` are the output of

```console
$ python -m benchmarks.verdicts {arguments}
```

on {machine}. An answer is wrong if the mean over rows of the total variation to the true marginals
is above {wrong}, and good if it is at most {good}.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for rows.csv and tables.md")
    parser.add_argument("--repeats", type=int, default=3, help="problems of a kind, size and scale")
    parser.add_argument("--first", type=int, default=SEED, help="the first seed of problems")
    parser.add_argument("--large", action="store_true", help="larger problems")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no problem after this")
    parser.add_argument("--kinds", nargs="+", default=[""], help="beginnings of their names")
    parser.add_argument("--methods", nargs="+", help="names of methods, all by default")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pv.FitWarning)
    methods = given.methods or ["auto", *registry.names_for()]
    given.out.mkdir(parents=True, exist_ok=True)
    path, rows = given.out / "rows.csv", []
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(row["kind"], float(row["scale"]), int(row["seed"]), row["method"]) for row in rows}
    last, end = None, time.monotonic() + given.seconds
    for seed, case in cases(given.repeats, given.first, large=given.large):
        if time.monotonic() > end:
            break
        if last is not None and case.kind != last:
            # Thousands of compiled functions in one process exhaust its memory maps.
            jax.clear_caches()
        last = case.kind
        wanted = [m for m in methods if (case.kind, case.scale, seed, m) not in done]
        if wanted and case.kind.startswith(tuple(given.kinds)):
            rows += measured(case, seed, wanted)
            write_rows(given.out, rows)
    write_tables(given.out, [summary(rows, "method"), summary(rows, "kind")])
    said = shlex.join(sys.argv[1:] if arguments is None else arguments)
    text = _README.format(arguments=said, machine=machine(), wrong=WRONG, good=GOOD)
    (given.out / "README.md").write_text(text, encoding="utf-8")
    print((given.out / "tables.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
