"""Small problems of shared dynamics, for the tests of the collapsed method."""

from dataclasses import fields

import numpy as np

from permvi import assignment
from permvi.experiments._worms import candidates, simulate_worms
from permvi.inference.dynamics import Scales, SharedRegression
from permvi.models import SharedDynamics

SCALES = {"weight_scale": 0.4, "noise_scale": 0.8}


def graph(rng, m, density):
    """A symmetric graph without loops."""
    upper = np.triu(rng.random((m, m)) < density, 1)
    return upper | upper.T


def model_of(rng, m=7, sizes=(7, 7), steps=15, **settings):
    """A model of noise on a directed graph: any permutation is about as good as any other."""
    support = rng.random((m, m)) < 0.6
    np.fill_diagonal(support, val=False)
    recordings = [rng.normal(size=(steps, n)) for n in sizes]
    return SharedDynamics(recordings, support, **{**SCALES, **settings})


def regression(model, mask=None, prior=None):
    """The statistics of a model as the engine takes them, perhaps with other constraints."""
    given = model.shared_regression()
    if mask is not None:
        given["mask"] = assignment.prune_mask(mask)
    if prior is not None:
        given["prior"] = prior
    return SharedRegression(**{f.name: given[f.name] for f in fields(SharedRegression)})


def scales_of(model):
    return Scales(float(model.weight_scale) ** 2, float(model.noise_scale) ** 2)


def random_perms(rng, J, m):
    return np.stack([rng.permutation(m) for _ in range(J)])


def worms(seed, *, num_worms=2, num_steps=600, num_known=5, m=40, **settings):
    """Simulated worms with a sub-network's worth of neurons, and their connectome."""
    rng = np.random.default_rng(seed)
    adjacency = graph(rng, m, 0.15)
    positions = np.round(np.sort(rng.random(m)), 2)
    found = simulate_worms(
        adjacency,
        positions,
        rng,
        num_worms=num_worms,
        num_steps=num_steps,
        num_known=num_known,
        **settings,
    )
    return found, adjacency, positions


def model_of_worms(found, adjacency, positions, tolerance=0.15):
    """What inference may see of worms: not the truth."""
    mask, known = candidates(found.positions, positions, tolerance), found.known
    if len(found.recordings) == 1:
        mask, known = mask[0], known[0]
    return SharedDynamics(list(found.recordings), adjacency, mask=mask, known=known)
