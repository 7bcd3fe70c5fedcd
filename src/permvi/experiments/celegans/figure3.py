"""Figure 3: the connectome, weights on a part of it, positions, and simulated activity."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from permvi import _figures
from permvi._figures import CLOUD, INK, PALETTE
from permvi.experiments._worms import simulate_worms
from permvi.experiments.celegans.network import Network

_NUM_WEIGHTS = 14
_NUM_TRACES = 8
_NUM_STEPS = 200


def draw(graph: Network, seed: int) -> Figure:
    """The four panels, of one simulation."""
    worms = simulate_worms(
        graph.adjacency,
        graph.positions,
        np.random.default_rng(seed),
        num_steps=_NUM_STEPS,
        num_known=0,
    )
    with _figures.styled():
        figure = Figure(figsize=(7.6, 6.4), layout="constrained")
        axes = figure.subplots(2, 2)
        _connectome(axes[0, 0], graph)
        _weights(figure, axes[0, 1], graph, worms.weights)
        _positions(axes[1, 0], graph.positions)
        _traces(axes[1, 1], worms.recordings[0], graph, worms.truth[0])
    return figure


def _connectome(ax: Axes, graph: Network) -> None:
    place = np.argsort(np.argsort(graph.positions, kind="stable"))
    rows, columns = np.nonzero(graph.adjacency)
    ax.plot(place[columns], place[rows], ".", color=INK, ms=max(1.2, 200 / len(place)), mew=0)
    edges = int(graph.adjacency.sum()) // 2
    ax.set_title(f"(a) {len(place)} neurons, {edges} edges", loc="left")
    ax.set(xlabel="neuron, from head to tail", ylabel="neuron, from head to tail")
    ax.set(xlim=(-1, len(place)), ylim=(len(place), -1), aspect="equal")


def _weights(figure: Figure, ax: Axes, graph: Network, weights: np.ndarray) -> None:
    """Of the neuron with most partners and those of its partners that have most."""
    degrees = graph.adjacency.sum(axis=1)
    hub = int(np.argmax(degrees))
    partners = np.flatnonzero(graph.adjacency[hub])
    ranked = partners[np.argsort(-degrees[partners], kind="stable")]
    chosen = np.sort(np.append(ranked[: _NUM_WEIGHTS - 1], hub))
    part = weights[np.ix_(chosen, chosen)]
    limit = np.abs(part).max()
    image = ax.imshow(part, cmap="RdBu_r", vmin=-limit, vmax=limit)
    names = [graph.names[index] for index in chosen]
    ax.set_xticks(range(len(chosen)), names, rotation=90, fontsize=6)
    ax.set_yticks(range(len(chosen)), names, fontsize=6)
    ax.set_title(f"(b) weights W of {len(chosen)} neurons", loc="left")
    figure.colorbar(image, ax=ax, shrink=0.8)


def _positions(ax: Axes, positions: np.ndarray) -> None:
    ax.hist(positions, bins=50, range=(0, 1), color=CLOUD)
    ax.set(xlabel="position along the body, 0: head, 1: tail", ylabel="neurons", xlim=(0, 1))
    ax.set_title("(c) positions", loc="left")


def _traces(ax: Axes, recording: np.ndarray, graph: Network, truth: np.ndarray) -> None:
    """Activity of the neurons with most partners."""
    order = np.argsort(-graph.adjacency.sum(axis=1)[truth], kind="stable")[:_NUM_TRACES]
    step = 4 * recording[:, order].std()
    for place, neuron in enumerate(order):
        colour = PALETTE[place % 2]
        ax.plot(recording[:, neuron] - place * step, color=colour, lw=0.7)
    names = [graph.names[truth[neuron]] for neuron in order]
    ax.set_yticks(-step * np.arange(len(order)), names, fontsize=6)
    ax.set(xlabel="time step", xlim=(0, len(recording)))
    ax.set_title("(d) simulated activity", loc="left")
