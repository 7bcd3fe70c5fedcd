"""Compare quadratic assignment with SciPy's FAQ: the cost reached and the time taken.

permvi follows FAQ with tabu search, which takes longer and finds better solutions. So there are
two more comparisons: with SciPy's FAQ restarted for the same time, and of FAQ alone in both.

The instances are those of QAPLIB (Burkard, Karisch and Rendl 1997) in ``qaplib/`` of the data
folder (``$PERMVI_DATA``, or ``shared/data`` beside the checkout). If there are none, a random
instance whose optimum is found by enumeration is used instead. Both solvers get the same number of
restarts.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import quadratic_assignment

from permvi.inference.map import MapOptions, Quadratic, solve_quadratic
from permvi.inference.map.result import Polish

NAMES = (
    "bur26a", "chr12c", "esc16a", "had12", "kra30a", "nug12", "nug20", "rou12", "tai12a", "tai20a",
    "sko42",
)  # fmt: skip
NUM_RESTARTS = MapOptions().num_restarts
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
        if restart >= NUM_RESTARTS and time.perf_counter() > end:
            break
        options = {"rng": rng, "P0": "randomized" if restart else "barycenter"}
        found = quadratic_assignment(instance.A, instance.B, method="faq", options=options)
        best = min(best, _cost(instance, found.col_ind))
    return best


def _cost(instance: Instance, perm: np.ndarray) -> float:
    return float((instance.A * instance.B[np.ix_(perm, perm)]).sum())


if __name__ == "__main__":
    for row in rows():
        print(row)
