"""Simulated recordings of worms that share their dynamics, each with its neurons shuffled.

The constants at the top are the options of the methods that identify them.
"""

from typing import Any, NamedTuple

import numpy as np

from permvi._threads import single_threaded_blas

ROUNDING_ONE: dict[str, Any] = {"temperature": 1.0}
"""The paper's family, which rounds nothing before the end."""

ROUNDING: dict[str, Any] = {"temperature": 0.5}
"""Rounding with an assignment in every step, and a temperature that falls from 1."""

MCMC: dict[str, Any] = {
    "num_chains": 4,
    "num_steps": 400,
    "swaps_per_proposal": 10,
    "num_draws": 1000,
}

MAP: dict[str, Any] = {"num_restarts": 2}

# W is divided by this times its spectral radius, so that activity neither dies nor explodes.
_STABILITY = 1.1


class Worms(NamedTuple):
    """Simulated recordings, and the true identities and dynamics."""

    recordings: np.ndarray  # (J, T, n) activity of each worm's neurons, in an order of its own
    positions: np.ndarray  # (J, n) positions of the neurons along the body
    known: np.ndarray  # (J, n) identities that are given, -1 for others
    truth: np.ndarray  # (J, n) all identities, only for scoring
    weights: np.ndarray  # (m, m) the dynamics W, only for scoring


def antisymmetric_weights(adjacency: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw (m, m) antisymmetric normal weights on the edges, of spectral radius 1 / 1.1."""
    upper = np.triu(np.where(adjacency, rng.normal(size=adjacency.shape), 0.0), 1)
    weights = upper - upper.T
    return weights / (_STABILITY * np.abs(np.linalg.eigvals(weights)).max())


@single_threaded_blas()
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
    degrees: float | None = None,
    measurement_scale: float = 0.0,
) -> Worms:
    r"""Simulate :math:`y_t = W y_{t-1} + \epsilon_t` with unit noise, neurons in random order.

    The connectome ``adjacency`` is (m, m) and symmetric, ``positions`` (m,) are those of its
    neurons. Every worm has its own random choice of known neurons, as in the authors' published
    code (the paper does not say), and of ``num_recorded`` neurons (by default all). With
    ``saturation`` c the dynamics are :math:`y_t = c \tanh(W y_{t-1} / c) + \epsilon_t`. With
    ``degrees`` the noise has Student's t distribution. The recordings have further noise with
    standard deviation ``measurement_scale``.
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
            noise = rng.normal(size=m) if degrees is None else rng.standard_t(degrees, size=m)
            activity[t] = drive + noise
        if measurement_scale > 0:
            activity += measurement_scale * rng.normal(size=activity.shape)
        identities = rng.permutation(m)[:num_recorded]
        markers = rng.choice(identities, num_known, replace=False)
        truth.append(identities)
        known.append(np.where(np.isin(identities, markers), identities, -1))
        recordings.append(activity[:, identities])
    identities = np.stack(truth)
    return Worms(np.stack(recordings), positions[identities], np.stack(known), identities, weights)


def move_edges(adjacency: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Move a share of the edges of a symmetric (m, m) graph without loops to random places."""
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
    """Mark the pairs (..., n, m) that are near enough: ``abs(a - b) < tolerance`` in float64.

    The positions ``observed`` (..., n) and ``canonical`` (m,), in body lengths, are multiples of
    0.01, so rounding decides ties. This is the paper's rule.
    """
    return np.abs(observed[..., :, None] - canonical) < tolerance
