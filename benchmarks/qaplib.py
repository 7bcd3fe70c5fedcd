"""Compare quadratic assignment with SciPy's FAQ: the cost reached and the time taken.

permvi follows FAQ with tabu search, which takes longer and finds better solutions. So there are
two more comparisons: with SciPy's FAQ restarted for the same time, and of FAQ alone in both.

The instances are those of QAPLIB (Burkard, Karisch and Rendl 1997) in ``qaplib/`` of the data
folder (``$PERMVI_DATA``, or ``shared/data`` beside the checkout). If there are none, a random
instance whose optimum is found by enumeration is used instead. Both solvers get the same number of
restarts.

``python -m benchmarks.qaplib --out results/qaplib`` searches all instances, and others of the same
kinds that it draws, with several seeds: cost, CPU time, and how many restarts agree. The latter are
compared with the best that any seed or a search of ten times the budget finds. Rows are written
after each instance, and a later run goes on where this one ended.
"""

import argparse
import csv
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import quadratic_assignment

from permvi.experiments.results import write_rows
from permvi.inference.map import MapOptions, Quadratic, solve_quadratic
from permvi.inference.map.result import RESTARTS, Polish, num_best
from permvi.inference.map.search import default_budget

NAMES = (
    "bur26a", "chr12c", "esc16a", "had12", "kra30a", "nug12", "nug20", "rou12", "tai12a", "tai20a",
    "sko42",
)  # fmt: skip
WANTED = {
    f"qaplib {name} cost / optimum vs SciPy FAQ{more}": 1.0
    for name in NAMES
    for more in ("", " for as long")
}


class Instance(NamedTuple):
    """A problem: minimise ``sum_ik A[i, k] B[perm[i], perm[k]]``."""

    name: str
    A: np.ndarray
    B: np.ndarray
    optimum: float


def rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """Measure costs in units of the optimum, and seconds, for each instance."""
    instances = [random_instance()] if quick else list(_all_instances())
    # Compile before anything is timed.
    _ours(random_instance())
    return [row for instance in instances for row in _rows_of(instance)]


def read_instance(folder: Path, name: str) -> Instance:
    """Read an instance from ``NAME.dat`` (n, A, B) and ``NAME.sln`` (n, optimum, permutation).

    Raises:
        ValueError: A file does not have as many numbers as its first number implies.
    """
    numbers = _numbers(folder / f"{name}.dat")
    n = int(numbers[0])
    if len(numbers) != 1 + 2 * n * n:
        raise ValueError(f"{name}.dat must hold {1 + 2 * n * n} numbers, got {len(numbers)}.")
    solution = _numbers(folder / f"{name}.sln")
    if len(solution) != n + 2 or solution[0] != n:
        raise ValueError(f"{name}.sln must hold {n}, the optimum and {n} numbers, got others.")
    A, B = numbers[1:].reshape(2, n, n)
    return Instance(name, A, B, float(solution[1]))


def data_folder() -> Path:
    """Return the folder in which instances are looked for."""
    given = os.environ.get("PERMVI_DATA")
    base = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    return base / "qaplib"


def random_instance(size: int = 6) -> Instance:
    """Return a small instance of random integers with its optimum."""
    A, B = np.random.default_rng(0).integers(1, 50, size=(2, size, size)).astype(np.float64)
    perms = np.array(list(itertools.permutations(range(size))))
    costs = (A * B[perms[:, :, None], perms[:, None, :]]).sum(axis=(1, 2))
    return Instance(f"random N={size}", A, B, float(costs.min()))


def _numbers(path: Path) -> np.ndarray:
    return np.array(path.read_text().replace(",", " ").split(), dtype=np.float64)


def _all_instances() -> Iterator[Instance]:
    folder = data_folder()
    present = [name for name in NAMES if (folder / f"{name}.dat").is_file()]
    missing = len(NAMES) - len(present)
    if missing:
        print(f"{missing} QAPLIB instances skipped: they are not in {folder}", file=sys.stderr)
    if not present:
        yield random_instance()
    for name in present:
        yield read_instance(folder, name)


def _rows_of(instance: Instance) -> list[dict[str, Any]]:
    (ours, seconds), (_, of_faq) = (_timed(_ours, instance, polish) for polish in ("tabu", "none"))
    theirs, their_seconds = _timed(_scipy, instance)
    for_as_long = _scipy(instance, seconds)
    best = instance.optimum
    measured = {
        "cost / optimum vs SciPy FAQ": (ours / best, theirs / best, "optimum"),
        "cost / optimum vs SciPy FAQ for as long": (ours / best, for_as_long / best, "optimum"),
        "seconds vs SciPy FAQ": (seconds, their_seconds, "s"),
        "seconds of FAQ alone vs SciPy FAQ": (of_faq, their_seconds, "s"),
    }
    return [
        {
            "name": f"qaplib {instance.name} {what}",
            "value": value,
            "unit": unit,
            "reference": reference,
            "ratio": reference / value,
            "device": "cpu",
        }
        for what, (value, reference, unit) in measured.items()
    ]


def _timed(function: Callable[..., float], *arguments: Any) -> tuple[float, float]:
    start = time.perf_counter()
    value = function(*arguments)
    return value, time.perf_counter() - start


def _ours(instance: Instance, polish: Polish = "tabu") -> float:
    problem = Quadratic(-instance.A, instance.B, np.zeros_like(instance.A))
    return _cost(instance, solve_quadratic(problem, options=MapOptions(polish=polish)).perm)


def _scipy(instance: Instance, seconds: float = 0.0) -> float:
    """Return the best cost of as many restarts as permvi has, or more within ``seconds``."""
    rng, end = np.random.default_rng(0), time.perf_counter() + seconds
    best = np.inf
    for restart in itertools.count():
        if restart >= RESTARTS and time.perf_counter() > end:
            break
        options = {"rng": rng, "P0": "randomized" if restart else "barycenter"}
        found = quadratic_assignment(instance.A, instance.B, method="faq", options=options)
        best = min(best, _cost(instance, found.col_ind))
    return best


def _cost(instance: Instance, perm: np.ndarray) -> float:
    return float((instance.A * instance.B[np.ix_(perm, perm)]).sum())


def _symmetric(table: np.ndarray) -> np.ndarray:
    upper = np.triu(table, 1)
    return (upper + upper.T).astype(np.float64)


def tree_instance(n: int, seed: int, reach: int, draw: int) -> Instance:
    """Return flows along a tree and random distances, as Christofides and Benavent's (chr).

    A node hangs from one of the ``reach`` nodes before it: 1 makes a path, many a bushy tree.
    """
    rng = np.random.default_rng([draw, 1, n, seed, reach])
    A = np.zeros((n, n))
    for i in range(1, n):
        j = int(rng.integers(max(0, i - reach), i))
        A[i, j] = A[j, i] = rng.integers(1, 100)
    B = _symmetric(rng.integers(0, 100, size=(n, n)))
    order = rng.permutation(n)
    return Instance(f"tree{n}, {reach} near, {seed}", A[np.ix_(order, order)], B, np.nan)


def grid_instance(height: int, width: int, seed: int, density: float, draw: int) -> Instance:
    """Return random flows and distances in a grid, as Nugent's, Skorin-Kapov's and Wilhelm's."""
    n = height * width
    rng = np.random.default_rng([draw, 2, n, seed])
    places = np.stack(np.unravel_index(np.arange(n), (height, width)), axis=1)
    B = np.abs(places[:, None] - places).sum(axis=-1).astype(np.float64)
    A = _symmetric(rng.integers(1, 11, size=(n, n)) * (rng.random((n, n)) < density))
    return Instance(f"grid{n}, density {density:g}, {seed}", A, B, np.nan)


def uniform_instance(n: int, seed: int, draw: int) -> Instance:
    """Return uniform flows and distances, as Taillard's of kind a and Roucairol's."""
    rng = np.random.default_rng([draw, 3, n, seed])
    A, B = (_symmetric(rng.integers(0, 100, size=(n, n))) for _ in range(2))
    return Instance(f"uniform{n}, {seed}", A, B, np.nan)


def clustered_instance(n: int, seed: int, draw: int) -> Instance:
    """Return clustered places and directed flows of many magnitudes, as Taillard's of kind b."""
    rng = np.random.default_rng([draw, 4, n, seed])
    centres = rng.uniform(0, 1000, size=(max(2, n // 7), 2))
    places = centres[rng.integers(len(centres), size=n)] + 30 * rng.normal(size=(n, 2))
    B = np.rint(np.linalg.norm(places[:, None] - places, axis=-1))
    A = np.floor(10 ** rng.uniform(-10, 5, size=(n, n)))
    np.fill_diagonal(A, 0)
    return Instance(f"clustered{n}, {seed}", A, B, np.nan)


# Makes the drawn instances; none of them was used for tuning.
_DRAWN = 1717


def drawn_instances(draw: int = _DRAWN) -> Iterator[Instance]:
    """Yield instances of the kinds of QAPLIB with 18 to 50 places, others for each ``draw``."""
    trees = (18, 0, 1), (20, 1, 3), (22, 2, 2), (25, 3, 4), (25, 4, 1), (25, 5, 25)
    grids = (5, 6, 0, 0.5), (7, 7, 1, 0.6), (5, 10, 2, 0.9), (5, 10, 3, 0.3)
    found = [
        *(tree_instance(*tree, draw) for tree in trees),
        *(grid_instance(*grid, draw) for grid in grids),
        *(uniform_instance(*size, draw) for size in ((30, 0), (50, 1))),
        *(clustered_instance(*size, draw) for size in ((35, 0), (50, 1))),
    ]
    more = "" if draw == _DRAWN else f", draw {draw}"
    return (instance._replace(name=instance.name + more) for instance in found)


def searched(instance: Instance, seed: int) -> dict[str, Any]:
    """Return the row of one search.

    It "may be trusted" where the verdict of "map" is not lowered for its search. Whether the
    verdict then is "trust" depends on the posterior around the matching, which is not looked at.
    """
    problem = Quadratic(-instance.A, instance.B, np.zeros_like(instance.A))
    start = time.process_time()
    found = solve_quadratic(problem, rng=np.random.default_rng(seed))
    return {
        "instance": instance.name, "n": len(instance.A), "seed": seed,
        "cost": _cost(instance, found.perm), "reference": instance.optimum, "gap": "",
        "may_be_trusted": found.optimal or found.agreed,
        "at_best": num_best(found.restart_values, float(found.value or 0.0)),
        "restarts": len(found.restart_values),
        "cpu_s": round(time.process_time() - start, 1),
    }  # fmt: skip


def long_search(instance: Instance) -> float:
    """Return the cost that a search of ten times the budget finds."""
    problem = Quadratic(-instance.A, instance.B, np.zeros_like(instance.A))
    rng = np.random.default_rng(_DRAWN)
    budget = 10 * default_budget(len(instance.A))
    return _cost(instance, solve_quadratic(problem, rng=rng, budget=budget).perm)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for rows.csv")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of names")
    parser.add_argument("--draw", type=int, default=_DRAWN, help="which instances are drawn")
    parser.add_argument("--long", action="store_true", help="search longer for drawn instances")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no search after this")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    end, path, rows = time.monotonic() + given.seconds, given.out / "rows.csv", []
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(row["instance"], int(row["seed"])) for row in rows}
    for instance in (*_all_instances(), *drawn_instances(given.draw)):
        if not instance.name.startswith(tuple(given.only)):
            continue
        for seed in given.seeds:
            if (instance.name, seed) not in done and time.monotonic() < end:
                rows.append(searched(instance, seed))
                print(rows[-1], flush=True)
        mine = [row for row in rows if row["instance"] == instance.name]
        if np.isnan(instance.optimum) and mine:
            best = np.nanmin([float(row[key]) for row in mine for key in ("cost", "reference")])
            if given.long and time.monotonic() < end:
                best = min(best, long_search(instance))
            for row in mine:
                row["reference"] = best
        for row in mine:
            row["gap"] = f"{float(row['cost']) / float(row['reference']) - 1:.3%}"
        write_rows(given.out, rows)


if __name__ == "__main__":
    main()
