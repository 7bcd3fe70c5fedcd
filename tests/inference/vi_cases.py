"""Matching problems for variational inference, with their exact marginals by enumeration."""

import itertools

import jax.numpy as jnp
import numpy as np

from permvi.problem.problem import Problem


def linear_density(data, X):
    return jnp.sum(data["scores"] * X, axis=(-2, -1))


def linear_density_of(data, perm):
    rows = jnp.arange(perm.shape[-1])
    return jnp.sum(data["scores"][rows, perm], axis=-1)


def gaussian_density(data, X):
    """The paper's relaxed likelihood, N(y | X c, sigma^2)."""
    residuals = data["y"] - X @ data["c"]
    return -0.5 * jnp.sum(residuals**2, axis=(-2, -1)) / data["sigma"] ** 2


def problem(data, log_density, shape, **changes):
    fields = {
        "mask": None,
        "scores": None,
        "constant": 0.0,
        "row_unmatched": None,
        "col_unmatched": None,
        "latents": {},
        "log_density_of": linear_density_of,
        "num_sites": 1,
        "traceable": True,
    }
    fields.update(changes)
    return Problem(data=data, log_density=log_density, shape=shape, **fields)


def linear_problem(scores, **changes):
    scores = np.asarray(scores)
    return problem({"scores": scores}, linear_density, scores.shape[-2:], **changes)


def matching_batch(num, sigma, seed, n=6, density=linear_density):
    """A batch of the matching task's problems and (num, n, n) exact marginals."""
    rng = np.random.default_rng(seed)
    c = rng.normal(size=(num, n, 2))
    shuffle = np.argsort(rng.random((num, n)), axis=1)
    y = np.take_along_axis(c, shuffle[..., None], axis=1) + sigma * rng.normal(size=(num, n, 2))
    scores = -((y[:, :, None] - c[:, None]) ** 2).sum(-1) / (2 * sigma**2)
    if density is linear_density:
        data = {"scores": scores}
    else:
        data = {"y": y, "c": c, "sigma": np.full(num, sigma)}
    return problem(data, density, (n, n)), np.stack([exact_marginals(s) for s in scores])


def exact_marginals(scores, mask=None):
    """(n, m) marginals for n <= m by listing all injective maps."""
    n, m = scores.shape
    maps = np.array(list(itertools.permutations(range(m), n)))
    rows = np.arange(n)
    if mask is not None:
        maps = maps[mask[rows, maps].all(axis=1)]
    log_weights = scores[rows, maps].sum(axis=1)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return np.stack([[weights[maps[:, i] == j].sum() for j in range(m)] for i in rows])


def map_error(marginals):
    """Mean absolute error of the one-hot most probable permutation, for each problem."""
    n = marginals.shape[-1]
    perms = np.array(list(itertools.permutations(range(n))))
    errors = []
    for each in marginals:
        best = perms[each[np.arange(n), perms].sum(axis=1).argmax()]
        errors.append(np.abs(np.eye(n)[best] - each).mean())
    return np.array(errors)
