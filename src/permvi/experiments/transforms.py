r"""Figure 1 of the paper: what each transform does to a cloud of points.

Four transforms of three items, with the settings of the paper's text, or of the authors' script
where the text is silent (panel a):

    =====  ==========================  ==============================================  ====
    panel  transform                   input                                           tau
    =====  ==========================  ==============================================  ====
    a      Gumbel-softmax              psi ~ Gumbel(0, 1) in R^3                       1
    b      stick-breaking (simplex)    psi ~ N(0, 4 I), shown as beta = sigmoid(psi)   1
    c      stick-breaking (Birkhoff)   mu = 0, nu = 2, shown as B = sigmoid(Psi)       1
    d      rounding (Birkhoff)         Psi = M + 0.4 Z, M = Sinkhorn(all 1/3)          0.5
    =====  ==========================  ==============================================  ====

The paper writes :math:`V = 0.4^2` for panel d. Its equation :math:`\Psi = M + V \odot Z` makes V a
standard deviation, here 0.16. But it writes a square, calls such parameters variances elsewhere,
and the script multiplies the noise by 0.4. We read it as a variance, that is a standard deviation
of 0.4, with which the cloud fills the hexagon and the hole is visible.

The measurement beside the picture is ``vertex_distance``, the Euclidean (Frobenius) distance of X
to the nearest one-hot vector or permutation matrix. It is measured at several temperatures with the
same draws. All four transforms approach the vertices as the temperature falls.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from permvi import _figures, assignment, transforms
from permvi.experiments import _transforms_figure as figure1
from permvi.experiments.results import Measurement, Result, summary_row, write_result
from permvi.experiments.runner import Finished, Row, Study, Task

TEMPERATURES = (1.0, 0.5, 0.25, 0.1)
NUM_SHOWN = 1000
_NUM_MEASURED = {"smoke": NUM_SHOWN, "paper": 100_000}
_PLACES = ("input_x", "input_y", "x", "y")


class _Case(NamedTuple):
    """A panel: how its input is drawn, transformed and shown."""

    panel: str
    method: str
    temperature: float
    scale: float
    law: str
    draw: Callable[[jax.Array, int], jax.Array]
    transform: Callable[[jax.Array, jax.Array], jax.Array]
    nearest_vertex: Callable[[jax.Array], jax.Array]
    show_input: Callable[[np.ndarray], np.ndarray]
    show_output: Callable[[np.ndarray], np.ndarray]


def _logistic(psi: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-psi))


def _around_barycentre(rng_key: jax.Array, count: int) -> jax.Array:
    M = transforms.sinkhorn(jnp.log(jnp.full((3, 3), 1 / 3)))
    return M + 0.4 * jax.random.normal(rng_key, (count, 3, 3))


CASES = (
    _Case(
        panel="a",
        method="gumbel_softmax",
        temperature=1.0,
        scale=1.0,
        law=r"$\psi_n \sim \mathrm{Gumbel}(0, 1)$,  $\tau = 1$",
        draw=lambda rng_key, count: jax.random.gumbel(rng_key, (count, 3)),
        transform=transforms.simplex.gumbel_softmax,
        nearest_vertex=transforms.simplex.round_to_vertex,
        show_input=figure1.of_simplex,
        show_output=figure1.of_simplex,
    ),
    _Case(
        panel="b",
        method="simplex_stick_breaking",
        temperature=1.0,
        scale=2.0,
        law=r"$\beta = \sigma(\psi/\tau)$,  $\psi \sim \mathcal{N}(0, 4I)$,  $\tau = 1$",
        draw=lambda rng_key, count: 2 * jax.random.normal(rng_key, (count, 2)),
        transform=lambda psi, tau: transforms.simplex.stick_breaking(psi, tau)[0],
        nearest_vertex=transforms.simplex.round_to_vertex,
        show_input=_logistic,
        show_output=figure1.of_simplex,
    ),
    _Case(
        panel="c",
        method="stick_breaking",
        temperature=1.0,
        scale=2.0,
        law=r"$B = \sigma(\Psi/\tau)$,  $\mu = 0$,  $\nu = 2$,  $\tau = 1$",
        draw=lambda rng_key, count: 2 * jax.random.normal(rng_key, (count, 2, 2)),
        transform=lambda psi, tau: transforms.stick_breaking(psi, tau)[0],
        nearest_vertex=assignment.nearest_permutation,
        show_input=lambda psi: figure1.of_hypercube(_logistic(psi)),
        show_output=figure1.of_birkhoff,
    ),
    _Case(
        panel="d",
        method="rounding",
        temperature=0.5,
        scale=0.4,
        law=r"$\Psi = \frac{1}{3}\mathbf{1}\mathbf{1}^T + 0.4\, Z$,  $\tau = 0.5$",
        draw=_around_barycentre,
        transform=lambda psi, tau: transforms.rounding(psi, tau)[0],
        nearest_vertex=assignment.nearest_permutation,
        show_input=figure1.of_birkhoff,
        show_output=figure1.of_birkhoff,
    ),
)


def tasks(size: str, seed: int) -> list[Task]:
    """Return one task for each panel."""
    common = {"seed": seed, "num": _NUM_MEASURED[size]}
    return [Task(case.method, {"index": index, **common}) for index, case in enumerate(CASES)]


def run_task(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """Return the points of a panel, and the distances of its images to the vertices."""
    del scratch
    case = CASES[config["index"]]
    rng_key = jax.random.fold_in(jax.random.key(config["seed"]), config["index"])
    psi = case.draw(rng_key, config["num"])
    rows: list[Row] = []
    for temperature in TEMPERATURES:
        X, distances = map(np.asarray, _measure(case, psi, temperature))
        rows.append({"temperature": temperature, **Measurement.of(distances)._asdict()})
        if temperature == case.temperature:
            rows += _points(case, np.asarray(psi[:NUM_SHOWN]), X[:NUM_SHOWN], distances)
    return rows


def finish(folder: Path, size: str, seed: int, finished: list[Finished]) -> Result:
    """Draw Figure 1 and summarise the distances."""
    del size, seed
    summary: list[dict[str, Any]] = []
    clouds: dict[str, figure1.Cloud] = {}
    points: list[Row] = []
    for case, (_, rows, seconds) in zip(CASES, finished, strict=True):
        own = [row for row in rows if "panel" in row]
        places = np.array([[row[name] for name in _PLACES] for row in own])
        clouds[case.panel] = figure1.Cloud(places[:, :2], places[:, 2:], case.law)
        points += own
        for row in rows:
            if "panel" not in row:
                summary.append(_summary_row(case, row, seconds / len(TEMPERATURES)))
    with _figures.styled():
        figure = figure1.draw(clouds, hole=1 - CASES[-1].temperature)
    return write_result(folder, points, summary, {"figure1": figure})


STUDY = Study("transforms", tasks, run_task, finish)


@functools.partial(jax.jit, static_argnums=0)
def _measure(case: _Case, psi: jax.Array, temperature: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return X and its distances to the nearest vertices."""
    X = case.transform(psi, temperature)
    offset = X - case.nearest_vertex(X)
    return X, jnp.linalg.norm(offset.reshape(len(offset), -1), axis=-1)


def _points(
    case: _Case, psi: np.ndarray, X: np.ndarray, distances: np.ndarray
) -> list[dict[str, Any]]:
    """Return the points to show, to seven digits."""
    places = case.show_input(psi.astype(float)), case.show_output(X.astype(float))
    columns = np.column_stack([*places, distances[: len(X)]])
    return [
        {"panel": case.panel}
        | {
            name: float(f"{value:.7g}")
            for name, value in zip((*_PLACES, "vertex_distance"), row, strict=True)
        }
        for row in columns
    ]


def _summary_row(case: _Case, row: Row, seconds: float) -> dict[str, Any]:
    setting: dict[str, Any] = {"n": 3, "scale": case.scale, "temperature": row["temperature"]}
    if row["temperature"] == case.temperature:
        setting["panel"] = case.panel
    measured = Measurement(row["mean"], row["sem"], row["n"])
    return summary_row(
        "transforms", case.method, setting, "vertex_distance", measured, seconds=seconds
    )
