"""True marginals of large linear matching problems, by thousands of chains on an accelerator.

``python -m benchmarks.linear_truth_device run --out FOLDER`` computes the truths of ``GROUPS``, one
compressed file for each group. It needs NumPy, SciPy and ``nvcc``; with ``--compiler c++`` chains
run on the CPU. ``keep FILE ...`` puts truths where `benchmarks.linear_truth.truth` finds them.

A chain moves a hole. In a complete matching a random row gives up its column. A row h without a
column takes column j with probability ``q_hj = g_hj / sum_j g_hj``, where g are the weights
relative to an unused column; if row k held j, it is now the one without. The matching is complete
again when a row takes a free column, or stays unmatched where it may. With weight
``sum_j g_hj / n`` times that of the other pairs for the states without row h, each move and its
reverse balance, so complete matchings are visited in proportion to their weights. Marginals are
shares of these visits.

Half of the chains start from the best matching, half from the best of scores with Gumbel noise. The
mean total variation between the halves is the uncertainty.
"""

import argparse
import ctypes
import io
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.linear_problems import Problem, limits, problem_of, start

Task = tuple[str, int, int]  # family, size and seed

_POINTS = tuple(f"{kind}-{sigma}" for kind in ("plane", "space") for sigma in (0.1, 0.2, 0.3, 0.5))
_TABLES = ("gaussian-2", "gaussian-5", "cauchy")
_HARD = ("plane-0.4", "space-0.4", "partial-0.4")
_FLAT = ("plane-0.5", "space-0.5", "plane-0.3", "gaussian-2")
# In order of importance.
GROUPS: dict[str, tuple[Task, ...]] = {
    "plane-1000": tuple((family, 1000, 61) for family in _POINTS[:4]),
    "space-1000": tuple((family, 1000, 61) for family in _POINTS[4:]),
    "tables-1000": tuple((family, 1000, 61) for family in _TABLES[1:]),
    "gaussian-1000": (("gaussian-2", 1000, 61),),
    # The step limits of flat tables were chosen on seed 61.
    "flat-1000": tuple((family, 1000, 71) for family in _FLAT),
    "partial-1000": (("partial", 1000, 61), ("space-0.3", 1000, 0), ("partial", 1000, 0)),
    "all-300": (
        *((family, 300, 61) for family in (*_POINTS, *_TABLES, "partial", *_HARD)),
        ("space-0.3", 300, 0), ("partial", 300, 0),
    ),
    "all-100": (
        *((family, 100, 61) for family in (*_POINTS, *_TABLES, *_HARD[:2])),
        ("partial", 109, 61), ("partial-0.4", 109, 61), ("partial", 100, 0),
    ),
    "all-60": (
        *((family, n, 61) for n in (60, 30) for family in (*_POINTS, *_TABLES, "partial", *_HARD)),
        ("partial", 40, 0), ("partial", 24, 0),
    ),
}  # fmt: skip
_STARTS = 7
# A problem ends early when the halves differ by less than this share of the error allowed.
_ENOUGH = 0.03
_SOURCE = Path(__file__).with_suffix(".cu")


class Machine(NamedTuple):
    """What chains run on: flags of its compiler, how many, and seconds up to a number of items."""

    flags: tuple[str, ...]
    chains: int
    seconds: dict[int, float]


_MACHINES = {
    "nvcc": Machine(
        ("-arch=native", "-Xcompiler", "-fPIC"), 65_536, {60: 1, 150: 1.5, 300: 3, 10**9: 20}
    ),
    "c++": Machine(("-xc++", "-fPIC"), 256, {60: 8, 150: 14, 300: 20, 10**9: 60}),
}


class Visits(NamedTuple):
    """How often each half of the chains saw each pair in complete matchings."""

    counts: np.ndarray  # (2, n, m + 1), the last column for unmatched rows
    loops: float  # complete matchings per chain

    def marginals(self) -> np.ndarray:
        """Return the (n, m + 1) shares of both halves together."""
        both = self.counts.sum(0).astype(float)
        return both / both.sum(1, keepdims=True)

    def gap(self) -> float:
        """Return the mean total variation of a row between the halves, 1 without any visit."""
        sums = self.counts.sum(2, keepdims=True)
        if not sums.all():
            return 1.0
        shares = self.counts / sums
        return float(0.5 * np.abs(shares[0] - shares[1]).sum(1).mean())


def compiled(compiler: str) -> ctypes.CDLL:
    """Compile the loops with ``nvcc`` or ``c++`` and load them."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "chains.so")
        options = ["-O3", "-std=c++14", "-shared", *_MACHINES[compiler].flags]
        subprocess.run([compiler, *options, str(_SOURCE), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.begin_chains.restype = ctypes.c_void_p
    return loaded


def visits(
    problem: Problem,
    loaded: ctypes.CDLL,
    seconds: float,
    chains: int,
    clock: Callable[[], float] = time.monotonic,
) -> Visits:
    """Run chains for so many seconds of a clock, the first quarter of which is not counted."""
    weights, unused = problem.grounded()
    n, m = len(weights), len(unused) - 1
    choices = np.ascontiguousarray(_choices(weights, unused))
    keep, other = np.empty((n, m + 1), np.uint32), np.empty((n, m + 1), np.int32)
    loaded.alias_tables(n, m + 1, _address(choices), _address(keep), _address(other))
    starts = np.array([start(weights, unused, seed or None) for seed in range(_STARTS)], np.int32)
    tables = _address(keep), _address(other), _address(starts)
    state = loaded.begin_chains(n, m + 1, chains, *tables, _STARTS, ctypes.c_uint64(n))
    if not state:
        raise RuntimeError("the chains could not be started: no memory or no device.")
    handle = ctypes.c_void_p(state)
    counts, loops = np.zeros((2, n, m + 1), np.uint64), np.zeros(chains, np.int32)
    begin, moves, before, counted = clock(), 20 * n, 0.0, False
    try:
        while True:
            if loaded.advance_chains(handle, ctypes.c_int64(moves), int(counted)):
                raise RuntimeError("the chains failed.")
            spent = clock() - begin
            if not counted and spent < seconds / 4:
                continue
            loaded.read_chains(handle, _address(counts), _address(loops))
            found = Visits(counts.astype(np.int64), float(loops.mean()) - before)
            if not counted:
                counted, before = True, float(loops.mean())
            elif spent >= seconds or (
                spent >= seconds / 2 and found.gap() <= _ENOUGH * limits(n)[0]
            ):
                return found
    finally:
        loaded.end_chains(handle)


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _choices(weights: np.ndarray, unused: np.ndarray) -> np.ndarray:
    """Return (n, m + 1) weights by which a row without a column chooses one.

    Where all columns are used, factors of columns change nothing but the time it takes. Prices of
    the best matching, then Sinkhorn's factors make all columns equally wanted.
    """
    gains = weights - np.where(np.isfinite(unused), unused, 0.0)
    if np.isfinite(unused[:-1]).any():
        return np.exp(gains - gains.max(1, keepdims=True))
    table = gains[:, :-1]
    n, best = len(table), start(weights, unused, None)
    held = table[np.arange(n), best]
    prices = np.zeros(n)
    for _ in range(n):
        # What row i would gain at column j must not exceed what it has.
        raised = np.maximum(prices, (table + (prices[best] - held)[:, None]).max(0))
        if (raised <= prices + 1e-9).all():
            break
        prices = raised
    shares = np.exp(table - prices + (prices[best] - held)[:, None])
    cols = np.ones(n)
    for _ in range(300):
        cols = 1.0 / (shares.T @ (1.0 / (shares @ cols)))
    return np.column_stack([shares * cols, np.zeros(n)])


def run(out: Path, most_seconds: float, groups: dict[str, tuple[Task, ...]], compiler: str) -> None:
    """Compute truths in order of importance until the time is over; write a file for each group."""
    begin = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    loaded, machine = compiled(compiler), _MACHINES[compiler]
    for name, tasks in groups.items():
        kept: dict[str, Any] = {}
        for task in tasks:
            if time.monotonic() - begin > most_seconds:
                print("no time left for", task, flush=True)
                continue
            since, problem = time.monotonic(), problem_of(*task)
            seconds = next(s for n, s in machine.seconds.items() if task[1] <= n)
            found = visits(problem, loaded, seconds, machine.chains)
            label = ":".join(map(str, task))
            kept[f"{label}:counts"] = found.counts.sum(0)
            kept[f"{label}:gap"] = found.gap()
            kept[f"{label}:check"] = problem.scores[:, ::7].sum(1)
            print(
                label, f"gap {found.gap():.5f}", f"loops {found.loops:.1f}",
                f"{time.monotonic() - since:.1f} s", flush=True,
            )  # fmt: skip
        if kept:
            file = io.BytesIO()
            np.savez_compressed(file, **kept)
            (out / f"{name}.npz").write_bytes(file.getvalue())


def keep(files: Sequence[Path]) -> Iterator[str]:
    """Put truths where `benchmarks.linear_truth.truth` finds them."""
    from benchmarks.linear_truth import Truth, store

    for path in files:
        with np.load(path) as found:
            for name in found.files:
                label, _, what = name.rpartition(":")
                if what != "counts":
                    continue
                family, n, seed = label.split(":")
                problem = problem_of(family, int(n), int(seed))
                np.testing.assert_allclose(problem.scores[:, ::7].sum(1), found[f"{label}:check"])
                counts = found[name].astype(float)
                visited = counts.sum(1, keepdims=True)
                gap = float(found[f"{label}:gap"]) if visited.all() else 1.0
                shares = counts / np.maximum(visited, 1.0)
                true = Truth(shares[:, :-1], shares[:, -1], None, "worms", gap)
                store(problem, true)
                yield f"{label} {gap:.5f} {'usable' if true.usable() else 'refused'}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help=run.__doc__)
    running.add_argument("--out", type=Path, required=True, help="folder for the files")
    running.add_argument("--seconds", type=float, default=450, help="no problem begins later")
    running.add_argument("--groups", nargs="+", default=list(GROUPS), help="names of groups")
    running.add_argument(
        "--tasks", nargs="+", metavar="FAMILY:SIZE:SEED", help="these problems in place of groups"
    )
    running.add_argument("--compiler", choices=list(_MACHINES), default="nvcc")
    keeping = commands.add_parser("keep", help=keep.__doc__)
    keeping.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        groups = {name: GROUPS[name] for name in given.groups}
        if given.tasks:
            parts = (task.split(":") for task in given.tasks)
            groups = {"tasks": tuple((name, int(n), int(seed)) for name, n, seed in parts)}
        run(given.out, given.seconds, groups, given.compiler)
    else:
        print("\n".join(keep(given.files)))


if __name__ == "__main__":
    main()
