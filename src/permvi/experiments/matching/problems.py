"""The problems: noisy, shuffled copies of standard normal points in the plane."""

from typing import NamedTuple

import numpy as np

from permvi import permutations
from permvi.models import PointMatching

SIGMAS = (0.1, 0.25, 0.5, 0.75)
"""The paper's noise levels."""

NUM_POINTS = 6
"""The paper's number of points."""

STREAMS = {"evaluation": 0, "pilot": 1}
"""Random streams: of the problems of the evaluation, and of those that options are chosen on."""


class Problem(NamedTuple):
    """A problem and its solution."""

    model: PointMatching  # the model, with the paper's density of relaxed matrices
    truth: np.ndarray  # (n,) the centre of each observation; only scores of accuracy read it


def draw(n: int, sigma: float, seed: int, repetition: int, stream: str = "evaluation") -> Problem:
    """Draw the problem of a repetition, independent of all other draws."""
    entropy = [seed, STREAMS[stream], n, round(1000 * sigma), repetition]
    rng = np.random.default_rng(entropy)
    centers = rng.normal(size=(n, 2))
    truth = rng.permutation(n)
    observations = centers[truth] + sigma * rng.normal(size=(n, 2))
    return Problem(PointMatching(observations, centers, sigma, relaxation="mean"), truth)


def scores(model: PointMatching) -> np.ndarray:
    """Return (n, n) log densities of pairs in float64, whatever precision JAX uses."""
    y, c = (np.asarray(part, np.float64) for part in (model.observations, model.centers))
    squares = ((y[:, None] - c[None]) ** 2).sum(-1)
    return -0.5 * squares / float(np.asarray(model.scale)) ** 2


class Exact:
    """The posterior over all n! matchings of a small problem, by enumeration."""

    def __init__(self, problem: Problem) -> None:
        table = scores(problem.model)
        self.perms = permutations.enumerate_permutations(len(table))
        log_p = table[np.arange(len(table)), self.perms].sum(axis=1)
        log_p -= log_p.max()
        p = np.exp(log_p)
        self.probabilities = p / p.sum()
        self.marginals = marginals_of(self.perms, self.probabilities)


def marginals_of(perms: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return (n, n) marginals from the probabilities (num,) of matchings (num, n)."""
    n = perms.shape[1]
    return np.stack([np.bincount(perms[:, i], probabilities, n) for i in range(n)])
