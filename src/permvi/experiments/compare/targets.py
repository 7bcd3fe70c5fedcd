"""The problems. Kinds and sizes were chosen so that the exact answer is affordable."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from permvi.models import CallableModel, GraphMatching, LinearMatching, PointMatching


class Target(NamedTuple):
    """A kind of problem.

    Attributes:
        name: What it is called.
        text: What there is to know about it.
        build: From a random generator to a model.
    """

    name: str
    text: str
    build: Callable[[np.random.Generator], Any]


_SIZES = {"smoke": (4, 4, 4, 4, 4), "paper": (6, 16, 8, 7, 10)}


def targets(size: str) -> list[Target]:
    """The five kinds; tiny ones at smoke size."""
    points, ties, graphs, jobs, masked = _SIZES[size]
    return [
        Target(
            f"Points, {points} items",
            f"{points} points in the plane, each observed once with noise .5: one broad mode.",
            lambda rng: point_matching(points, 0.5, rng),
        ),
        Target(
            f"Near ties, {ties} items",
            f"{ties} points with noise .25: every pair is nearly settled or nearly a tie, so that "
            "many matchings are about as good as the best one.",
            lambda rng: point_matching(ties, 0.25, rng),
        ),
        Target(
            f"Graphs, {graphs} items",
            f"A symmetric Gaussian {graphs} by {graphs} matrix and a shuffled copy of it with "
            "noise 1.5: a quadratic density with several modes far apart.",
            lambda rng: graph_matching(graphs, 1.5, 0.3, rng),
        ),
        Target(
            f"Ranking, {jobs} items",
            f"The order of {jobs} jobs on one machine, weighted by their tardiness: a NumPy "
            "function of the permutation, neither linear nor differentiable.",
            lambda rng: job_order(jobs, rng),
        ),
        Target(
            f"Masked, {masked} items",
            f"Normal scores for {masked} items, where a sparse mask allows at most four labels for "
            "each.",
            lambda rng: masked_matching(masked, rng),
        ),
    ]


def point_matching(n: int, noise: float, rng: np.random.Generator) -> PointMatching:
    """Noisy points in an unknown order."""
    centers = rng.normal(size=(n, 2))
    observations = centers[rng.permutation(n)] + noise * rng.normal(size=(n, 2))
    return PointMatching(observations, centers, scale=noise)


def graph_matching(n: int, noise: float, scale: float, rng: np.random.Generator) -> GraphMatching:
    """A graph and a noisy copy of it in an unknown order."""
    reference = _symmetric(rng, n)
    perm = rng.permutation(n)
    observed = reference[np.ix_(perm, perm)] + noise * _symmetric(rng, n)
    return GraphMatching(observed, reference, scale=scale)


def job_order(n: int, rng: np.random.Generator) -> CallableModel:
    """Jobs with lengths, weights and due dates; ``perm[i]`` is the place of job i."""
    lengths, weights = rng.integers(1, 10, n), rng.integers(1, 5, n)
    due = rng.uniform(0.2, 0.9, n) * lengths.sum()

    def log_density(perm: np.ndarray) -> float:
        order = np.argsort(perm)
        late = np.maximum(np.cumsum(lengths[order]) - due[order], 0.0)
        return -0.1 * float((weights[order] * late).sum())

    return CallableModel(log_density, n, "perm", jax=False)


def masked_matching(n: int, rng: np.random.Generator) -> LinearMatching:
    """Scores under a mask of four random permutations."""
    mask = np.zeros((n, n), bool)
    for _ in range(4):
        mask[np.arange(n), rng.permutation(n)] = True
    return LinearMatching(1.5 * rng.normal(size=(n, n)), mask=mask)


def _symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    half = rng.normal(size=(n, n))
    return (half + half.T) / np.sqrt(2)
