"""The tables of docs/choosing.md: every method on five small problems, next to the exact answer.

``python -m benchmarks.choosing`` runs `permvi.compare` with default settings, rewrites the blocks
of the page between the comments ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``, and writes
``summary.json``, ``rows.csv`` and ``README.md`` to ``results/choosing``. The problems have fixed
seeds and were chosen for their difficulty, the mask also so that it leaves a few hundred matchings.
"""

import argparse
import dataclasses
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import permvi as pv
from permvi._compare import Compared
from permvi._files import atomic
from permvi._tables import markdown_table
from permvi.experiments.results import summary_row, write_rows, write_summary

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "choosing.md"
OUT = ROOT / "results" / "choosing"
COMMAND = "python -m benchmarks.choosing"

METRICS = (
    "tv_mean", "tv_max", "hellinger", "hellinger_of_draws", "log_evidence_error", "ess_per_draw",
    "evaluations", "seconds_again",
)  # fmt: skip
# What takes hardly any time to compile, to see that everything runs.
QUICK_METHODS = ("exact", "mcmc", "map", "sinkhorn")
QUICK_OPTIONS: Mapping[str, Mapping[str, Any]] = {"mcmc": {"num_steps": 100, "proposal": "none"}}


class Target(NamedTuple):
    """A problem of the tables.

    Attributes:
        name: What it is called.
        text: What there is to know about it.
        model: The model.
    """

    name: str
    text: str
    model: Any


@dataclasses.dataclass(frozen=True)
class Measured(Compared):
    """A row of a comparison and what was measured beside it.

    Attributes:
        hellinger_of_draws: Hellinger distance of the weighted draws, where ``hellinger`` is that of
            the family that they were drawn from.
        seconds_again: How long a second fit took, for which everything was compiled.
    """

    hellinger_of_draws: float | None = None
    seconds_again: float | None = None


def targets(*, quick: bool = False) -> list[Target]:
    """The problems; tiny ones if ``quick``."""
    sizes = (4, 4, 4, 4, 4) if quick else (6, 16, 8, 10, 7)
    points, ties, graphs, masked, jobs = sizes
    return [
        Target(
            f"Points, {points} items",
            f"{points} points in the plane, each observed once with noise .5: one broad mode.",
            point_matching(points, 0.5, seed=0),
        ),
        Target(
            f"Near ties, {ties} items",
            f"{ties} points with noise .25: every pair is nearly settled or nearly a tie, so that "
            "many matchings are about as good as the best one.",
            point_matching(ties, 0.25, seed=0),
        ),
        Target(
            f"Graphs, {graphs} items",
            f"A symmetric Gaussian {graphs} by {graphs} matrix and a shuffled copy of it with "
            "noise 1.5: a quadratic density with several modes far apart.",
            graph_matching(graphs, 1.5, 0.3, seed=3),
        ),
        Target(
            f"Masked, {masked} items",
            f"Normal scores for {masked} items, where a sparse mask allows at most four labels for "
            "each.",
            masked_matching(masked, seed=0),
        ),
        Target(
            f"Black box, {jobs} items",
            f"The order of {jobs} jobs on one machine, weighted by their tardiness: a NumPy "
            "function of the permutation, neither linear nor differentiable.",
            job_order(jobs, seed=0),
        ),
    ]


def point_matching(n: int, noise: float, seed: int) -> pv.models.PointMatching:
    """Noisy points in an unknown order."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n, 2))
    observations = centers[rng.permutation(n)] + noise * rng.normal(size=(n, 2))
    return pv.models.PointMatching(observations, centers, scale=noise)


def graph_matching(n: int, noise: float, scale: float, seed: int) -> pv.models.GraphMatching:
    """A graph and a noisy copy of it in an unknown order."""
    rng = np.random.default_rng(seed)
    reference = _symmetric(rng, n)
    perm = rng.permutation(n)
    observed = reference[np.ix_(perm, perm)] + noise * _symmetric(rng, n)
    return pv.models.GraphMatching(observed, reference, scale=scale)


def masked_matching(n: int, seed: int) -> pv.models.LinearMatching:
    """Scores under a mask of four random permutations."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((n, n), bool)
    for _ in range(4):
        mask[np.arange(n), rng.permutation(n)] = True
    return pv.models.LinearMatching(1.5 * rng.normal(size=(n, n)), mask=mask)


def job_order(n: int, seed: int) -> pv.models.CallableModel:
    """Jobs with lengths, weights and due dates; ``perm[i]`` is the place of job i."""
    rng = np.random.default_rng(seed)
    lengths, weights = rng.integers(1, 10, n), rng.integers(1, 5, n)
    due = rng.uniform(0.2, 0.9, n) * lengths.sum()

    def log_density(perm: np.ndarray) -> float:
        order = np.argsort(perm)
        late = np.maximum(np.cumsum(lengths[order]) - due[order], 0.0)
        return -0.1 * float((weights[order] * late).sum())

    return pv.models.CallableModel(log_density, n, "perm", jax=False)


def run(out: Path, page: Path, *, quick: bool = False) -> None:
    """Compare, write the results and rewrite the page."""
    found = [(target, measure(target.model, quick=quick)) for target in targets(quick=quick)]
    out.mkdir(parents=True, exist_ok=True)
    write_summary(out, list(_summary(found)))
    names = [field.name for field in dataclasses.fields(Measured)]
    write_rows(
        out,
        (
            {"target": target.name} | {name: getattr(row, name) for name in names}
            for target, rows in found
            for row in rows
        ),
    )
    _write(out / "README.md", readme(quick=quick))
    text = page.read_text(encoding="utf-8")
    text = replace_block(text, "methods", method_table())
    blocks = [section(target, rows) for target, rows in found]
    _write(page, replace_block(text, "tables", "\n\n".join(blocks)))


def measure(model: Any, *, quick: bool = False) -> list[Measured]:
    """Every method, twice: what comes out is the same, how long it takes is not."""
    given: dict[str, Any] = {"methods": QUICK_METHODS, "options": QUICK_OPTIONS} if quick else {}
    comparison, again = (pv.compare(model, **given) for _ in range(2))
    rows = []
    for row, second in zip(comparison, again, strict=True):
        found = comparison.posteriors.get(row.method)
        weighted = row.hellinger is not None and found is not None and found.law.kind == "family"
        distance = hellinger_of_draws(found, comparison.exact) if weighted else None
        rows.append(
            Measured(**vars(row), hellinger_of_draws=distance, seconds_again=second.seconds)
        )
    return rows


def hellinger_of_draws(found: Any, exact: Any) -> float:
    """Hellinger distance between weighted draws and the exact posterior."""
    matchings = found.top(1_000_000)
    q = np.array([matching.probability for matching in matchings])
    p = np.exp(exact.log_prob(np.array([matching.perm for matching in matchings])))
    return float(np.sqrt(max(0.0, 1.0 - np.sqrt(p * q).sum())))


def method_table() -> str:
    """What `permvi.methods` says, as Markdown."""
    header = ["method", "needs", "gives", "masks", "partial", "cost"]
    return markdown_table(
        header,
        [
            [
                f"`{info.name}`",
                info.needs,
                info.gives,
                "yes" if info.masks else "no",
                "yes" if info.partial else "no",
                info.cost,
            ]
            for info in pv.methods()
        ],
    )


def section(target: Target, measured: Sequence[Measured]) -> str:
    """A heading, what the problem is, its table and who refused it."""
    header = [
        "method", "error of a row", "worst row", "Hellinger", "log evidence", "verdict", "ESS",
        "evaluations", "seconds", "again",
    ]  # fmt: skip
    rows = [_cells(row) for row in measured if not row.refused]
    lines = [f"### {target.name}", "", target.text, "", markdown_table(header, rows)]
    refused = [f"`{row.method}`" for row in measured if row.refused]
    if refused:
        lines += ["", f"Refused by {', '.join(refused)}."]
    return "\n".join(lines)


def _cells(row: Measured) -> list[str]:
    hellinger = format_number(row.hellinger, 3)
    if row.hellinger_of_draws is not None:
        hellinger += f" / {format_number(row.hellinger_of_draws, 3)}"
    return [
        f"`{row.method}`",
        format_number(row.tv_mean, 4),
        format_number(row.tv_max, 4),
        hellinger,
        format_number(row.log_evidence_error, 3, sign="+"),
        row.verdict or "",
        format_number(row.ess_per_draw, 2),
        "" if row.evaluations is None else f"{row.evaluations:,}",
        format_number(row.seconds, 1),
        format_number(row.seconds_again, 1),
    ]


def format_number(value: float | None, digits: int, sign: str = "") -> str:
    """A number with so many digits; nothing for None, and "<" for what would round to zero."""
    if value is None:
        return ""
    if round(value, digits) == 0:
        return "0" if abs(value) < 1e-6 else f"< {10.0**-digits:.{digits}f}"
    return f"{value:{sign}.{digits}f}"


def replace_block(text: str, name: str, content: str) -> str:
    """The text with other content between two comments.

    Raises:
        ValueError: The comments are not there, once each.
    """
    marks = [f"<!-- {name}:{end} -->" for end in ("begin", "end")]
    if any(text.count(mark) != 1 for mark in marks):
        raise ValueError(f"page must have {marks[0]} and {marks[1]} once each, got others.")
    before, rest = text.split(marks[0])
    after = rest.split(marks[1])[1]
    return f"{before}{marks[0]}\n\n{content}\n\n{marks[1]}{after}"


def readme(*, quick: bool = False) -> str:
    """How the results came about."""
    names = ("permvi", "jax", "numpyro", "optax", "numpy", "scipy", "numba")
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    where = f"{os.cpu_count()} {platform.machine()} cores under {platform.system()}"
    return f"""# Methods side by side

`summary.json` and `rows.csv`, and the tables of `docs/choosing.md`, are the output of

```console
$ {COMMAND}{" --quick" if quick else ""}
```

with Python {platform.python_version()}, {packages},
on {where}, without an accelerator and not alone on the machine.

`summary.json` has a row for each problem, method and metric; `rows.csv` has the verdicts, too, and
why a method refused a problem. `tv_mean` and `tv_max` are the mean and the largest total
variation between the rows of a method's marginals and the exact ones, `hellinger` is the distance
between whole distributions (up to 8 items), `log_evidence_error` is the method's log evidence minus
the exact one. `hellinger` of `sequential` and `stick_breaking_discrete` is that of the fitted
family, `hellinger_of_draws` that of its weighted draws. Each is one fit of one problem with seed 0:
the tables illustrate, they do not rank. `seconds` include compilation, `seconds_again` are those of
a second fit, without it.
"""


def _summary(found: Iterable[tuple[Target, Sequence[Measured]]]) -> Iterable[dict[str, Any]]:
    for target, rows in found:
        for row in rows:
            for metric in METRICS:
                value = getattr(row, metric)
                if value is not None:
                    yield summary_row(
                        "choosing",
                        row.method,
                        {"target": target.name},
                        metric,
                        [value],
                        seconds=row.seconds or 0.0,
                    )


def _symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    half = rng.normal(size=(n, n))
    return (half + half.T) / np.sqrt(2)


def _write(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny problems and few methods")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    parser.add_argument("--page", type=Path, default=PAGE, help="page with the tables")
    given = parser.parse_args(arguments)
    run(given.out, given.page, quick=given.quick)


if __name__ == "__main__":
    main()
