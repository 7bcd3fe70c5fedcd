"""Simulated worms of a setting, on the connectome or a small stand-in, and the model of them."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from permvi.datasets import celegans
from permvi.experiments._worms import Worms, candidates, move_edges, simulate_worms
from permvi.experiments.celegans.settings import GRIDS, NO_POSITIONS, Setting
from permvi.models import SharedDynamics

STAND_IN_SIZE = 40
"""Number of neurons of the stand-in."""

# The connectome's somas lie in the head, along the body and in the tail in these proportions, and
# its degrees are about as uneven as weights of a gamma distribution with this shape.
_REGIONS = ((0.07, 0.22, 0.6), (0.22, 0.78, 0.26), (0.78, 0.83, 0.14))
_DEGREE_SHAPE = 2.0
_MEAN_DEGREE = 7.0

# Random streams of the evaluation. Options of the methods were chosen on other simulations.
_STREAM = 2018
_WRONG_EDGES_STREAM = 2019

_UNOBSERVED = 0.2
_WRONG_EDGES = 0.1
_SATURATION = 1.0


class Network(NamedTuple):
    """A graph of neurons along a worm."""

    names: tuple[str, ...]  # (m,) names of the neurons
    adjacency: np.ndarray  # (m, m) booleans, symmetric, without loops
    positions: np.ndarray  # (m,) positions along the body, multiples of 0.01


@cache
def network(kind: str) -> Network:
    """Return the graph "connectome" (279 neurons, needs the data) or "stand_in" (40, no data)."""
    if kind == "stand_in":
        return _stand_in()
    found = celegans()
    return Network(found.names, found.adjacency, found.positions)


def _stand_in() -> Network:
    """Return a fixed random graph with uneven degrees and crowded ends (Chung and Lu 2002)."""
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


class Problem(NamedTuple):
    """Worms and the model of their recordings."""

    graph: Network  # the connectome that inference is given
    # The worms with their true identities, which only `permvi.experiments.celegans.scoring` reads.
    worms: Worms
    model: SharedDynamics  # all that inference is given


def draw(config: Mapping[str, Any]) -> Problem:
    """Simulate the worms of a task. Tasks that differ in tolerance or method share their worms."""
    graph, setting = network(GRIDS[config["size"]].network), Setting.of(config["setting"])
    simulation = config["seed"], config["repetition"]
    worms = simulate_worms(
        graph.adjacency,
        graph.positions,
        np.random.default_rng([_STREAM, *simulation]),
        num_worms=setting.worms,
        num_steps=setting.T,
        num_known=setting.known,
        num_recorded=_num_recorded(graph, setting),
        saturation=_SATURATION if setting.variant == "nonlinear" else None,
    )
    if setting.variant == "wrong_edges":
        rng = np.random.default_rng([_WRONG_EDGES_STREAM, *simulation])
        graph = graph._replace(adjacency=move_edges(graph.adjacency, _WRONG_EDGES, rng))
    return Problem(graph, worms, model_of(worms, graph, setting))


def _num_recorded(graph: Network, setting: Setting) -> int | None:
    unobserved = setting.variant == "unobserved"
    return round((1 - _UNOBSERVED) * len(graph.positions)) if unobserved else None


def model_of(worms: Worms, graph: Network, setting: Setting) -> SharedDynamics:
    """Build the model from recordings, positions and known neurons, without the truth."""
    mask, known = None, worms.known
    if setting.tolerance < NO_POSITIONS:
        mask = candidates(worms.positions, graph.positions, setting.tolerance)
    if setting.worms == 1:
        mask, known = None if mask is None else mask[0], known[0]
    return SharedDynamics(list(worms.recordings), graph.adjacency, mask=mask, known=known)
