"""The demonstration: a few methods on one small matching problem, next to the exact answer.

Seven towns were surveyed twice. The second survey has positions but no names, and some towns lie
closer together than the survey's error. Which position is which town?
"""

import dataclasses
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from permvi import _figures, metrics, plots
from permvi._fit import FitWarning, fit
from permvi.experiments.results import Progress
from permvi.models import PointMatching
from permvi.posterior import Posterior

TOWNS = ("Ayr", "Bude", "Cork", "Deal", "Ely", "Fife", "Goole")
# Kilometres east and north.
CENTERS = np.array(
    [[0.4, 3.1], [1.0, 2.7], [2.9, 3.4], [3.3, 1.0], [2.7, 0.7], [3.4, 0.4], [0.7, 0.5]]
)
ERROR = 0.2
METHODS = ("exact", "sequential", "mcmc", "rounding", "stick_breaking", "bethe", "sinkhorn", "map")
"""The methods, the exact one first: one of each kind, since all of them would take minutes."""


class Comparison(NamedTuple):
    """One method on the problem."""

    method: str
    posterior: Posterior
    total_variation: float  # total variation from the exact marginals, averaged over items


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """What the demonstration found, and the files it wrote."""

    model: PointMatching
    truth: np.ndarray  # (n,) the town of each position
    comparisons: list[Comparison]  # the methods, the exact one first
    files: list[Path]  # the figures, the saved posterior and the report

    @property
    def exact(self) -> Posterior:
        """The exact posterior."""
        return self.comparisons[0].posterior


def problem(seed: int = 0) -> tuple[PointMatching, np.ndarray]:
    """Return the survey without names, and the town of each of its positions."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(len(TOWNS))
    observations = CENTERS[truth] + ERROR * rng.standard_normal(CENTERS.shape)
    labels = ([f"#{k + 1}" for k in range(len(TOWNS))], TOWNS)
    return PointMatching(observations, CENTERS, scale=ERROR, labels=labels), truth


def run(folder: Path, *, seed: int, progress: Progress) -> Demonstration:
    """Fit the problem, draw it, save the exact posterior and write a report of it.

    The existing ``folder`` gets the figures, ``report.html`` and ``fit.nc``. ``progress`` is called
    with the current step, the number of finished steps and their total.
    """
    model, truth = problem(seed)
    comparisons: list[Comparison] = []
    for index, name in enumerate(METHODS):
        progress(name, index, len(METHODS) + 1)
        # The table has a column for the verdict.
        with warnings.catch_warnings(action="ignore", category=FitWarning):
            posterior = fit(model, name, seed)
        exact = comparisons[0].posterior if comparisons else posterior
        error = metrics.total_variation_per_row(posterior.marginals, exact.marginals).mean()
        comparisons.append(Comparison(name, posterior, float(error)))
    progress("figures", len(METHODS), len(METHODS) + 1)
    files = _draw(folder, model, comparisons)
    saved = folder / "fit.nc"
    exact = comparisons[0].posterior
    exact.save(saved)
    page = exact.report(folder / "report.html", title="Which town is it?")
    return Demonstration(model, truth, comparisons, [*files, saved, page])


def _draw(folder: Path, model: PointMatching, comparisons: list[Comparison]) -> list[Path]:
    exact = comparisons[0].posterior
    figures: dict[str, Any] = {
        "marginals": plots.marginals(exact),
        "points": plots.point_matching(exact, model.observations, model.centers),
        "top_matchings": plots.top_matchings(exact),
    }
    for comparison in comparisons:
        if comparison.posterior.diagnostics.elbo_trace is not None:
            figures[f"elbo_{comparison.method}"] = plots.elbo_trace(comparison.posterior)
    paths = []
    for name, ax in figures.items():
        paths += _figures.save(ax.figure, folder, name, formats=("png",), dpi=200)
    return paths
