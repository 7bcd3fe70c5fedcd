"""Simulated recordings of worms that share their dynamics, each with its neurons shuffled."""

from typing import NamedTuple

import numpy as np

# W is divided by this times its spectral radius, so that activity neither dies nor explodes.
_STABILITY = 1.1


class Worms(NamedTuple):
    """Simulated recordings, and the truth behind them.

    Attributes:
        recordings: (J, T, n) activity of each worm's neurons, in an order of its own.
        positions: (J, n) their positions along the body.
        known: (J, n) identities that are given, -1 for others.
        truth: (J, n) all identities, for scoring alone.
        weights: (m, m) the dynamics W, for scoring alone.
    """

    recordings: np.ndarray
    positions: np.ndarray
    known: np.ndarray
    truth: np.ndarray
    weights: np.ndarray


def antisymmetric_weights(adjacency: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(m, m) normal weights on the graph's edges, antisymmetric, of spectral radius 1 / 1.1."""
    upper = np.triu(np.where(adjacency, rng.normal(size=adjacency.shape), 0.0), 1)
    weights = upper - upper.T
    return weights / (_STABILITY * np.abs(np.linalg.eigvals(weights)).max())


def simulate_worms(
    adjacency: np.ndarray,
    positions: np.ndarray,
    rng: np.random.Generator,
    *,
    num_worms: int = 1,
    num_steps: int = 1000,
    num_known: int = 25,
    num_recorded: int | None = None,
    saturation: float | None = None,
) -> Worms:
    r"""Worms with :math:`y_t = W y_{t-1} + \epsilon_t`, unit noise, neurons in random order.

    Args:
        adjacency: (m, m) the symmetric connectome.
        positions: (m,) of its neurons.
        rng: The source of randomness.
        num_worms: J.
        num_steps: T.
        num_known: How many neurons of each worm are known: a random choice of its own, as in the
            authors' published code (the paper does not say).
        num_recorded: n, a random choice in each worm; all by default.
        saturation: The most that a neuron's input can do, c in
            :math:`y_t = c \tanh(W y_{t-1} / c) + \epsilon_t`; linear by default.
    """
    m = len(adjacency)
    weights = antisymmetric_weights(adjacency, rng)
    recordings, truth, known = [], [], []
    for _ in range(num_worms):
        activity = np.empty((num_steps, m))
        activity[0] = rng.normal(size=m)
        for t in range(1, num_steps):
            drive = weights @ activity[t - 1]
            if saturation is not None:
                drive = saturation * np.tanh(drive / saturation)
            activity[t] = drive + rng.normal(size=m)
        identities = rng.permutation(m)[:num_recorded]
        markers = rng.choice(identities, num_known, replace=False)
        truth.append(identities)
        known.append(np.where(np.isin(identities, markers), identities, -1))
        recordings.append(activity[:, identities])
    identities = np.stack(truth)
    return Worms(np.stack(recordings), positions[identities], np.stack(known), identities, weights)


def move_edges(adjacency: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """(m, m) a symmetric graph of which a share of the edges has gone to random other places.

    Args:
        adjacency: (m, m) booleans, symmetric, without loops.
        share: Which part of the edges is moved.
        rng: The source of randomness.
    """
    a, b = np.triu_indices(len(adjacency), 1)
    edges = adjacency[a, b].copy()
    present, absent = np.flatnonzero(edges), np.flatnonzero(~edges)
    num = round(share * len(present))
    edges[rng.choice(present, num, replace=False)] = False
    edges[rng.choice(absent, num, replace=False)] = True
    moved = np.zeros_like(adjacency)
    moved[a, b] = moved[b, a] = edges
    return moved


def candidates(observed: np.ndarray, canonical: np.ndarray, tolerance: float) -> np.ndarray:
    """(..., n, m) which neurons are near enough: IEEE ``abs(a - b) < tolerance`` on float64.

    Positions are multiples of 0.01, so that rounding decides about ties; this is the paper's rule.

    Args:
        observed: (..., n) positions of recorded neurons.
        canonical: (m,) those of the connectome.
        tolerance: In body lengths; infinity allows everything.
    """
    return np.abs(observed[..., :, None] - canonical) < tolerance
