r"""Where training starts: at the Sinkhorn marginals of a linear approximation, if one fits.

With :math:`f(P) \approx \langle L, P \rangle`, look-ahead with :math:`A = B = \log
\mathrm{Sinkhorn}(e^L)` is close to the posterior before any training.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from permvi._programmes import jit, light_jit
from permvi.inference.discrete.family import Family
from permvi.inference.discrete.structure import Structure
from permvi.problem.problem import Problem
from permvi.transforms.sinkhorn import log_sinkhorn

# The least log marginal; training can learn smaller ones.
_LEAST = -60.0
_SINKHORN_STEPS = 100
# Scaling is slow where almost nothing is unmatched, and more accuracy does not help.
_SCALING_STEPS = 1000
_SCALED = 1e-6
# The share of the variance of log densities that a linear approximation has to explain.
_GOOD_FIT = 0.99
# Ridge, relative to the largest singular value squared: permutations are rank-deficient predictors.
_RIDGE = 1e-9
# The noise of logits that makes components differ.
_NOISE = 0.01
_LARGEST_STICK = 30.0


def linear_table(problem: Problem, structure: Structure) -> np.ndarray:
    """Return (S, n, C) log weights of choices of a linear problem, less those of unused columns."""
    (n, m), S = structure.shape, structure.num_sites
    table = np.zeros((S, n, structure.num_choices))
    table[..., :m] = np.asarray(problem.scores)
    if problem.is_partial:
        rows, cols = (np.where(np.isfinite(part), part, 0.0) for part in problem.unmatched)
        table[..., :m] -= np.broadcast_to(cols, (S, m))[:, None, :]
        if structure.ground:
            table[..., m] = np.broadcast_to(rows, (S, n))
    return table


def gradient_table(problem: Problem, structure: Structure) -> np.ndarray | None:
    """Return the gradient (S, n, C) of the density at the barycentre, None without one."""
    n, m = problem.shape
    if problem.log_density is None or not problem.traceable or structure.ground:
        return None
    centre = jnp.full((structure.num_sites, n, m), 1.0 / m)
    value = centre[0] if structure.num_sites == 1 else centre
    slope = np.asarray(_slope(problem, value), np.float64).reshape(structure.num_sites, n, m)
    return slope if np.isfinite(slope).all() else None


@jit
def _slope(problem: Problem, X: jax.Array) -> jax.Array:
    density: Any = problem.log_density
    return jax.grad(lambda X: jnp.sum(density(problem.data, X)))(X)


def regression_table(choices: np.ndarray, values: np.ndarray, num_choices: int) -> np.ndarray:
    """Return the linear function (S, n, C) that fits log densities of choices (num, S, n) best.

    Rows that choose nothing, -1, have no features.
    """
    features = _one_hot(choices, num_choices)
    centred = features - features.mean(axis=0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    # Nothing changes if there is only one choice.
    shrunk = s / (s**2 + _RIDGE * s[0] ** 2) if s[0] > 0 else s
    weights = vt.T @ (shrunk * (u.T @ (values - values.mean())))
    return weights.reshape(*choices.shape[1:], num_choices)


def explains(table: np.ndarray, choices: np.ndarray, values: np.ndarray) -> bool:
    """Return whether a linear function explains log densities that it was not fitted to."""
    if not np.isfinite(values).all():
        return False
    residual = values - _one_hot(choices, table.shape[-1]) @ table.ravel()
    return bool(residual.var() <= (1 - _GOOD_FIT) * values.var())


def find_table(
    problem: Problem,
    structure: Structure,
    probe: Callable[[int], tuple[np.ndarray, np.ndarray]],
    max_evaluations: int,
) -> np.ndarray | None:
    """Return a linear approximation (S, n, C) from scores, the gradient or regression, or None.

    ``probe(num)`` draws random choices (num, S, n) and evaluates them; a regression may take
    ``max_evaluations`` of them.
    """
    if problem.scores is not None:
        return linear_table(problem, structure)
    num_probes = 64
    held_out = probe(num_probes)
    table = gradient_table(problem, structure)
    if table is not None and explains(table, *held_out):
        return table
    (n, _), S, C = structure.shape, structure.num_sites, structure.num_choices
    num = 3 * S * n * C
    if num > max_evaluations or not np.isfinite(held_out[1]).all():
        return None
    choices, values = probe(num)
    if not np.isfinite(values).all():
        return None
    table = regression_table(choices, values, C)
    return table if explains(table, *held_out) else None


def log_marginals(structure: Structure, table: np.ndarray) -> np.ndarray:
    """Return log Sinkhorn marginals (S, n, C) of choices with log weights (S, n, C)."""
    (n, m), C = structure.shape, structure.num_choices
    edges = None if structure.edges is None else np.asarray(structure.edges)
    if edges is not None and structure.ground and edges.shape[-2] > n:
        sites = zip(table, edges, strict=True)
        return np.stack([_log_scaled(weights, allowed) for weights, allowed in sites])
    size = m if edges is None else edges.shape[-1]
    square = np.zeros((structure.num_sites, size, size))
    square[:, :n, :m] = table[..., :m]
    if structure.ground:
        square[:, :n, m:] = table[..., m:]
    found = np.asarray(_log_sinkhorn(square, edges), np.float64)
    result = found[:, :n, :C].copy()
    if structure.ground:
        result[..., m] = np.logaddexp.reduce(found[:, :n, m:], axis=-1)
    return np.clip(result, _LEAST, 0.0)


def _log_scaled(table: np.ndarray, edges: np.ndarray) -> np.ndarray:
    r"""Return log marginals (n, m+1) of one site whose rows and columns may both stay unmatched.

    They are the solution :math:`P_{ij} = x_i w_{ij} y_j` of

    .. math:: x_i \Big(r_i + \sum_j w_{ij} y_j\Big) = 1, \qquad
              y_j \Big(1 + \sum_i x_i w_{ij}\Big) = 1,

    with weights relative to unused columns. Sinkhorn scaling of the square with dummy rows and
    columns differs: unmatched rows choose between dummies that are all alike, so that matchings
    with fewer pairs count more often. The last column of ``table`` is for unmatched rows; ``edges``
    is that of one site.
    """
    n, m = table.shape[0], table.shape[1] - 1
    allowed = np.column_stack([edges[:n, :m], edges[:n, m:].any(axis=1)])
    logs = np.where(allowed, table, -np.inf)
    free = np.where(edges[n:, :m].any(axis=0), 0.0, -np.inf)
    y = np.zeros(m + 1)
    for _ in range(_SCALING_STEPS):
        x = -logsumexp(logs + y, axis=1, keepdims=True)
        before = y[:m].copy()
        y[:m] = -np.logaddexp(free, logsumexp(logs[:, :m] + x, axis=0))
        if np.abs(y[:m] - before).max() <= _SCALED:
            break
    found = logs + y
    return np.clip(found - logsumexp(found, axis=1, keepdims=True), _LEAST, 0.0)


@light_jit
def _log_sinkhorn(table: jax.Array, mask: jax.Array | None) -> jax.Array:
    return log_sinkhorn(table.astype(jnp.result_type(float)), _SINKHORN_STEPS, mask)


def initial_family(
    structure: Structure,
    kind: str,
    num_components: int,
    rng: np.random.Generator,
    log_marginals: np.ndarray | None = None,
) -> Family:
    """Return a family at log marginals (S, n, C), or near uniform, with random row orders."""
    (n, _), S, C = structure.shape, structure.num_sites, structure.num_choices
    shape = (num_components, S, n, C)
    orders = rng.permuted(np.tile(np.arange(n), (num_components, S, 1)), axis=-1)
    noise = _NOISE * rng.standard_normal(shape)
    if log_marginals is None:
        logits, later = noise, np.zeros(shape)
    else:
        # Certain rows come first: the others would hardly take their columns.
        entropy = -(np.exp(log_marginals) * log_marginals).sum(axis=-1)
        orders[0] = np.argsort(entropy, axis=-1, kind="stable")
        logits = later = np.tile(log_marginals, (num_components, 1, 1, 1))
    if kind == "stick_breaking":
        logits = noise + _sticks(orders, C) if log_marginals is None else _stick_logits(logits)
    params: Any = {"logits": logits, "later": later} if kind == "lookahead" else {"logits": logits}
    dtype = jnp.result_type(float)
    return Family(
        jax.tree.map(lambda value: np.asarray(value, dtype), params),
        np.zeros(num_components, dtype),
        np.asarray(orders, np.int32),
        structure,
        kind,
    )


def uniform_family(structure: Structure) -> Family:
    """Return a component of equal logits: uniform without a mask, positive everywhere with one."""
    (n, _), S, C = structure.shape, structure.num_sites, structure.num_choices
    dtype = jnp.result_type(float)
    orders = np.broadcast_to(np.arange(n, dtype=np.int32), (1, S, n))
    logits: Any = np.zeros((1, S, n, C), dtype)
    return Family({"logits": logits}, np.zeros(1, dtype), orders, structure, "plain")


def _sticks(orders: np.ndarray, num_choices: int) -> np.ndarray:
    """Return (K, S, n, C) logits of sticks that give the choices of a row about equal shares."""
    place = np.argsort(orders, axis=-1)[..., None]
    column = np.arange(num_choices)
    return -np.log(np.maximum(num_choices - 1 - np.maximum(place, column), 1))


def _stick_logits(log_marginals: np.ndarray) -> np.ndarray:
    """Return log odds of taking a choice rather than a later one, from (..., C) log marginals."""
    reverse = np.logaddexp.accumulate(log_marginals[..., ::-1], axis=-1)[..., ::-1]
    beyond = np.concatenate([reverse[..., 1:], np.full_like(reverse[..., :1], _LEAST)], axis=-1)
    return np.clip(log_marginals - beyond, -_LARGEST_STICK, _LARGEST_STICK)


def _one_hot(choices: np.ndarray, num_choices: int) -> np.ndarray:
    return np.eye(num_choices + 1)[choices, :-1].reshape(len(choices), -1)
