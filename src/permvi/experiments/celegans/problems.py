"""Simulated worms of a setting, and what inference gets to see of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from permvi.experiments._worms import Worms, candidates, move_edges, simulate_worms
from permvi.experiments.celegans.network import Network, network
from permvi.experiments.celegans.settings import GRIDS, NO_POSITIONS, Setting
from permvi.models import SharedDynamics

# Simulations that methods are judged on; settings were chosen on others.
_STREAM = 2018
_WRONG_EDGES_STREAM = 2019

_UNOBSERVED = 0.2
_WRONG_EDGES = 0.1
_SATURATION = 1.0


class Problem(NamedTuple):
    """Worms and the model of what is seen of them.

    Attributes:
        graph: The connectome, as far as it is known.
        worms: With the truth, at which only `permvi.experiments.celegans.scoring` looks.
        model: What inference gets.
    """

    graph: Network
    worms: Worms
    model: SharedDynamics


def draw(config: Mapping[str, Any]) -> Problem:
    """The worms of a task; those of tasks that differ in tolerance or method are the same worms."""
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
    """All that inference gets: recordings, positions and known neurons, not the truth."""
    mask, known = None, worms.known
    if setting.tolerance < NO_POSITIONS:
        mask = candidates(worms.positions, graph.positions, setting.tolerance)
    if setting.worms == 1:
        mask, known = None if mask is None else mask[0], known[0]
    return SharedDynamics(list(worms.recordings), graph.adjacency, mask=mask, known=known)
