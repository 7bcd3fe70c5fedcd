"""The graphs that worms are simulated on: the connectome, and a small stand-in without data."""

from functools import cache
from typing import NamedTuple

import numpy as np

from permvi.datasets import celegans

STAND_IN_SIZE = 40
"""Neurons of the stand-in."""

# The connectome's somas lie in the head, along the body and in the tail in these proportions, and
# its degrees are about as uneven as weights of a gamma distribution with this shape.
_REGIONS = ((0.07, 0.22, 0.6), (0.22, 0.78, 0.26), (0.78, 0.83, 0.14))
_DEGREE_SHAPE = 2.0
_MEAN_DEGREE = 7.0


class Network(NamedTuple):
    """A graph of neurons along a worm.

    Attributes:
        names: (m,) of the neurons.
        adjacency: (m, m) booleans, symmetric, no loops.
        positions: (m,) along the body, multiples of 0.01.
    """

    names: tuple[str, ...]
    adjacency: np.ndarray
    positions: np.ndarray


@cache
def network(kind: str) -> Network:
    """The graph "connectome" (279 neurons, needs the data) or "stand_in" (40, needs nothing)."""
    if kind == "stand_in":
        return _stand_in()
    found = celegans()
    return Network(found.names, found.adjacency, found.positions)


def _stand_in() -> Network:
    """A random graph, always the same, with uneven degrees and crowded ends (Chung and Lu 2002)."""
    rng = np.random.default_rng(40)
    m = STAND_IN_SIZE
    starts, ends, shares = np.transpose(_REGIONS)
    region = rng.choice(len(shares), m, p=shares)
    positions = np.sort(np.round(rng.uniform(starts[region], ends[region]), 2))
    weights = rng.gamma(_DEGREE_SHAPE, size=m)
    weights *= _MEAN_DEGREE / weights.mean()
    linked = rng.random((m, m)) < np.minimum(1, np.outer(weights, weights) / weights.sum())
    upper = np.triu(linked, 1)
    names = tuple(f"N{index + 1:02d}" for index in range(m))
    return Network(names, upper | upper.T, positions)
