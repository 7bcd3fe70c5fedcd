"""Measure error, verdict, CPU seconds and memory of the methods for linear tables.

``python -m benchmarks.linear --out results/linear`` compares the default with the true marginals
of `benchmarks.linear_truth`, on problems of all families and sizes. Each fit is a fresh process:
for the default it is ``permvi match`` from a CSV file to the printed table, for other methods it
is ``pv.fit``. ``--modes``, ``--evidence``, ``--bounds`` and ``--large`` run the other parts.

Rows are written to ``rows.csv`` after each fit. Another run replaces rows of the same part, family,
size, method and seed, and keeps the others.
"""

import argparse
import csv
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import permvi as pv
from benchmarks.linear_problems import FAMILIES, MODES, SEED, points, problem_of
from benchmarks.linear_report import Row, summarise, tables
from benchmarks.linear_truth import Truth, truth
from benchmarks.run import machine
from permvi.experiments.results import write_rows, write_summary, write_tables

SIZES = (12, 24, 40, 100, 300, 1000)
_KEY = ("part", "family", "n", "method", "seed")
# Methods with compiled functions on disk, which are filled before the clock runs.
_COMPILED = ("auto", "linear", "sparse")
_MODE_SIZES = (14, 24, 40, 60)
_SMALL = (
    "plane-0.3", "plane-0.5", "space-0.5", "gaussian-2", "gaussian-5", "cauchy", "partial",
)  # fmt: skip
_BOUNDED = (*_SMALL, "plane-0.1", "banded-3", "cycle-5", "exchange", "three")


class Usage(NamedTuple):
    """What a process used and printed."""

    cpu: float  # user and system seconds
    wall: float
    peak: float  # GiB
    output: str
    failure: str  # empty if it ended well


def run_apart(
    task: Sequence[str], saved: Path | None, most_seconds: float, most_memory: float
) -> Usage:
    """Run `benchmarks.linear_child`; kill it above a number of CPU seconds or GiB."""
    start, peak, failure = time.perf_counter(), 0.0, ""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        usage, output = Path(folder, "usage"), Path(folder, "output")
        child = [sys.executable, "-m", "benchmarks.linear_child", str(usage), str(saved or "")]
        with output.open("wb") as printed:
            process = subprocess.Popen([*child, *task], stdout=printed, stderr=errors)
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            # The peak that wait4 reports would include this process at the time of the fork.
            peak = max(peak, _peak(process.pid))
            if not failure:
                if _cpu(process.pid) > most_seconds:
                    failure = f"over {most_seconds:g} s"
                elif peak > most_memory:
                    failure = f"over {most_memory:g} GiB"
                if failure:
                    os.kill(process.pid, 9)
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        cpu = ended[2].ru_utime + ended[2].ru_stime
        if usage.is_file():
            cpu, peak = json.loads(usage.read_text(encoding="utf-8"))
        if process.returncode and not failure:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            failure = f"failed: {(lines or ['no message'])[-1]:.200}"
        text = output.read_text(encoding="utf-8", errors="replace")
    return Usage(cpu, time.perf_counter() - start, peak, text, failure)


def _peak(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 2**20 if found else 0.0


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fit_apart(
    family: str, n: int, seed: int, method: str, given: argparse.Namespace
) -> tuple[Usage, pv.Posterior | None]:
    """Fit a problem in a fresh process and return what it used and found."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "fit.nc")
        if method == "auto":
            files = problem_of(family, n, seed).write(Path(folder, "table.csv"))
            task = ["match", *files, "--seed", str(seed)]
        else:
            task = ["fit", family, str(n), str(SEED + seed), method, str(seed)]
        usage = run_apart(task, saved, given.limit, given.memory)
        return usage, pv.Posterior.load(saved) if saved.is_file() else None


def compared(posterior: pv.Posterior, true: Truth) -> Row:
    """Compare marginals and evidence with the truth, unless that is too uncertain."""
    row: Row = {
        "verdict": posterior.diagnostics.verdict,
        "used": posterior.method,
        "truth": true.source if true.usable() else f"{true.source}, refused",
        "truth_uncertainty": true.uncertainty,
    }
    if not true.usable():
        return row
    by_row = pv.metrics.total_variation_per_row(
        posterior.marginals, true.marginals, posterior.p_unmatched_rows, true.unmatched
    )
    row |= {"error": float(by_row.mean()), "worst_row": float(by_row.max())}
    if true.log_evidence is not None and posterior.log_evidence is not None:
        error, se = posterior.log_evidence - true.log_evidence, posterior.log_evidence_se
        row |= {"evidence_kind": posterior.log_evidence_kind, "evidence_error": error}
        if se:
            row |= {"evidence_se": se, "z": error / se}
    return row


def accuracy(given: argparse.Namespace) -> Iterator[Row]:
    """Measure each method on each family, size and seed in fresh processes.

    A method that went beyond the limits or refused a problem is not run on larger problems of the
    family.
    """
    warm = set()
    beyond: dict[tuple[str, str], tuple[int, str]] = {
        (row["family"], row["method"]): (int(row["n"]), row["verdict"])
        for row in sorted(given.known, key=lambda row: -int(row["n"]))
        if row["part"] == "accuracy" and _final(row["verdict"])
    }
    for n in given.sizes or SIZES:
        for family in given.families:
            for seed in given.seeds or [0]:
                true = truth(problem_of(family, n, seed))
                for method in given.methods or ["auto"]:
                    row = _row("accuracy", family, len(true.marginals), method, seed)
                    smallest, reason = beyond.get((family, method), (math.inf, ""))
                    if row["n"] > smallest:
                        yield row | {"verdict": reason}
                        continue
                    stem = method, family.split("-")[0], n
                    if method in _COMPILED and stem not in warm and not given.warm:
                        fit_apart(family, n, seed, method, given)
                        warm.add(stem)
                    usage, posterior = fit_apart(family, n, seed, method, given)
                    row |= {"cpu_s": usage.cpu, "wall_s": usage.wall, "peak_gib": usage.peak}
                    if posterior is not None:
                        yield row | compared(posterior, true)
                        continue
                    if _final(usage.failure):
                        beyond[family, method] = row["n"], usage.failure
                    yield row | {"verdict": usage.failure}


def _final(verdict: str) -> bool:
    """Return whether a method that failed like this fails on larger problems, too."""
    return verdict.startswith(("over", "failed: ValueError"))


def modes(given: argparse.Namespace) -> Iterator[Row]:
    """Fit problems with two or three far modes, by default with twelve seeds each."""
    families = [family for family in given.families if family in MODES]
    for n in given.sizes or _MODE_SIZES:
        for family in families:
            for method in given.methods or ["auto"]:
                for seed in given.seeds or range(12):
                    yield _measured_here("modes", family, n, method, seed)


def evidence(given: argparse.Namespace) -> Iterator[Row]:
    """Fit 150 problems of 12 to 20 items and 50 banded tables by chains alone."""
    for seed in given.seeds or range(200):
        family, n = _SMALL[seed % len(_SMALL)], 12 + seed % 9
        if seed % 4 == 3:
            family, n = ("banded-3", "banded-5")[seed // 4 % 2], 30 + 270 * (seed // 4 % 50) // 49
        yield _measured_here("evidence", family, n, "linear", seed, max_size=0, max_states=0)


def bounds(given: argparse.Namespace) -> Iterator[Row]:
    """Compare the proven error with the true one for 500 problems of at most 14 items."""
    for seed in given.seeds or range(500):
        family, n = _BOUNDED[seed % len(_BOUNDED)], 4 + seed % 11
        yield _measured_here("bounds", family, n, "linear", seed, max_size=0)


def _row(part: str, family: str, n: int, method: str, seed: int) -> Row:
    return {"part": part, "family": family, "n": n, "method": method, "seed": seed}


def _measured_here(part: str, family: str, n: int, method: str, seed: int, **options: Any) -> Row:
    problem = problem_of(family, n, seed)
    true = truth(problem)
    row = _row(part, family, len(true.marginals), method, seed)
    start = time.process_time()
    try:
        posterior = pv.fit(problem.model(), method, seed=seed, **options)
    except (ValueError, MemoryError, RuntimeError) as error:
        return row | {"verdict": f"failed: {error!s:.200}"}
    row |= {"cpu_s": time.process_time() - start} | compared(posterior, true)
    proven = posterior.diagnostics.extras.get("proven_error")
    if part == "bounds" and proven is not None:
        row["proven"] = float(np.max(proven))
    return row


def _write_features(folder: Path, n: int, seed: int) -> list[str]:
    """Write n points of density 1 and noisy copies: about five are within three sigma."""
    rng, sigma = np.random.default_rng(SEED + seed), 0.42
    labels = rng.uniform(0, math.sqrt(n), size=(n, 2))
    items = labels[rng.permutation(n)] + sigma * rng.normal(size=(n, 2))
    paths = [folder / "items.csv", folder / "labels.csv"]
    for path, table, letter in zip(paths, (items, labels), "rc", strict=True):
        lines = [f"{letter}{k},{x:.6f},{y:.6f}" for k, (x, y) in enumerate(table)]
        path.write_text("\n".join(["name,x,y", *lines]) + "\n", encoding="utf-8")
    return [*map(str, paths), "--scale", str(sigma)]


def _write_pairs(folder: Path, n: int, seed: int) -> list[str]:
    """Write five candidates for each of n items, with a perfect matching among them."""
    rng = np.random.default_rng(SEED + seed)
    rows, cols = np.repeat(np.arange(n), 5), rng.integers(n, size=5 * n)
    cols[::5] = rng.permutation(n)
    codes = np.unique(rows * n + cols)
    scores = 2 * rng.normal(size=len(codes))
    lines = [f"r{k // n},c{k % n},{s:.6f}" for k, s in zip(codes.tolist(), scores, strict=True)]
    path = folder / "pairs.csv"
    path.write_text("\n".join(["item,label,score", *lines]) + "\n", encoding="utf-8")
    return [str(path), "--pairs"]


def _write_dense(folder: Path, n: int, seed: int) -> list[str]:
    return points(3, 0.2, n, SEED + seed).write(folder / "table.csv")


# Files, number of items, and the seconds and GiB allowed.
LARGE: dict[str, tuple[Callable[[Path, int, int], list[str]], int, float, float]] = {
    "dense": (_write_dense, 2000, 60, 2.5),
    "features": (_write_features, 3000, 20, 1.5),
    "many-features": (_write_features, 50_000, 300, 4.0),
    "pairs": (_write_pairs, 100_000, 180, math.inf),
}


def large(given: argparse.Namespace) -> Iterator[Row]:
    """Measure ``permvi match`` on large files; there is no truth to compare with."""
    for name, (write, n, seconds, memory) in LARGE.items():
        for seed in given.seeds or [0]:
            with tempfile.TemporaryDirectory() as folder:
                files = write(Path(folder), n, seed)
                task = ["match", *files, "--csv", str(Path(folder, "fit.csv"))]
                usage = run_apart(task, None, given.limit, given.memory)
            said = re.search(r"verdict: (trust|check|do not trust)", usage.output)
            yield _row("large", name, n, "auto", seed) | {
                "verdict": usage.failure or (said[1] if said else "none printed"),
                "cpu_s": usage.cpu, "wall_s": usage.wall, "peak_gib": usage.peak,
                "limit_s": seconds, "limit_gib": memory,
            }  # fmt: skip


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "accuracy": accuracy, "modes": modes, "evidence": evidence, "bounds": bounds, "large": large,
}  # fmt: skip


def write_readme(out: Path, arguments: list[str]) -> None:
    """Write what the files hold, the machine, and the commands that measured, the last one last."""
    path, command = out / "README.md", f"$ python -m benchmarks.linear {shlex.join(arguments)}"
    known = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    commands = [line for line in known if line.startswith("$ ") and line != command]
    told = "\n".join([*commands, command])
    path.write_text(_README.format(commands=told, machine=machine()), encoding="utf-8")


_README = """# Linear tables

`rows.csv`, `summary.json` and `tables.md` are the output of

```console
{commands}
```

on {machine}, next to other work.

- `error`: mean over rows of the total variation to the true marginals; `worst_row` is the largest.
- `truth`: the programme behind the true marginals. `truth_uncertainty` is the mean total variation
  between two halves of the chains, or the probability of a background that is spread evenly. A
  truth is refused if that is more than a third of the error allowed.
- `cpu_s`: for `auto` from the start of `permvi match` to its printed table, for other methods of a
  process that calls `pv.fit`. In the parts modes, evidence and bounds the fit alone.
- `z`: error of the log evidence divided by its stated standard error.
- `proven`: the error that an answer of the part bounds states as proven, for `worst_row`.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for rows.csv, summary.json and tables.md"
    )
    parser.add_argument("--families", nargs="+", default=[""], help="names, or how they begin")
    parser.add_argument("--sizes", nargs="+", type=int, help="numbers of items")
    parser.add_argument("--methods", nargs="+", help="names of methods; auto by default")
    parser.add_argument("--seeds", nargs="+", type=int, help="seeds of problems and fits")
    parser.add_argument("--limit", type=float, default=300, help="CPU seconds a process may use")
    parser.add_argument("--memory", type=float, default=8, help="GiB allowed for a process")
    parser.add_argument("--warm", action="store_true", help="the cache of numba is warm already")
    for part in list(PARTS)[1:]:
        parser.add_argument(f"--{part}", action="store_true", help=PARTS[part].__doc__)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pv.FitWarning)
    whole = set(given.families) & set(FAMILIES)
    begun = tuple(name for name in given.families if name not in whole)
    given.families = [name for name in FAMILIES if name in whole or name.startswith(begun)]
    given.out.mkdir(parents=True, exist_ok=True)
    path, rows = given.out / "rows.csv", {}
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = {tuple(row[name] for name in _KEY): row for row in csv.DictReader(file)}
    given.known = list(rows.values())
    chosen = [part for part in list(PARTS)[1:] if getattr(given, part)] or ["accuracy"]
    for part in chosen:
        for row in PARTS[part](given):
            rows[tuple(str(row[name]) for name in _KEY)] = row
            write_rows(given.out, rows.values())
            print(json.dumps(row), flush=True)
    measured = list(rows.values())
    write_summary(given.out, summarise(measured))
    write_tables(given.out, tables(measured))
    print((given.out / "tables.md").read_text(encoding="utf-8"))
    write_readme(given.out, [*sys.argv[1:]] if arguments is None else list(arguments))


if __name__ == "__main__":
    main()
