r"""A mean field of soft permutations, for many problems of one shape in one compiled call.

Each subject's permutation is replaced by a doubly stochastic matrix :math:`P_j`, the weights by
independent normal beliefs. Steps of softassign (Gold and Rangarajan 1996) on the edge by edge log
evidence :math:`f_j` of `matching.pair_scores`,

.. math::
    P_j \leftarrow (1 - \gamma) P_j
    + \gamma \, \mathrm{Sinkhorn}(\nabla f_j(P_j) / T) ,

are those of a damped mean field at temperature T. In the first half of the steps all beliefs are
the prior. In the second half those of subject j come from all others: with :math:`z_i` the
estimates of subject i, label pair (a, b) has mean :math:`m_i = P_i^\top z_i P_i` and variance
:math:`P_i^\top z_i^2 P_i - m_i^2 + s_i^2`, the moments of a mixture. The beliefs are the product
of these normal densities and the prior.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi import _threads, transforms
from permvi._checks import whole
from permvi.inference.dynamics.matching import Edges, estimate_edges
from permvi.inference.dynamics.regression import Scales, SharedRegression

# The step size; full steps may oscillate.
_STEP = 0.7
_SINKHORN_STEPS = 15
# The mean of a pair does not matter if its expected number of recordings is below this.
_HARDLY_RECORDED = 1e-6


@dataclass(frozen=True)
class SoftassignOptions:
    """Settings of the mean field.

    Attributes:
        num_steps: Number of steps; subjects learn from each other in the second half.
        temperature: Temperature of the evidence. A mean field counts evidence several times over:
            at 1 it is far too sure and keeps the first matching that it leans to. Lower it for
            short recordings, where nothing becomes definite at the default.
    """

    num_steps: int = 50
    temperature: float = 4.0

    def __post_init__(self) -> None:
        whole("num_steps", self.num_steps)
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a positive number, got {self.temperature!r}.")


class SoftProblem(NamedTuple):
    """The arrays of a problem that the steps use, with or without a leading axis of problems.

    Attributes:
        z: (J, m, m) estimates of the weights between each subject's rows.
        error: (J,) the standard errors of the estimates.
        recorded: (J, m, m) ones where both rows are recorded, else zeros; the diagonal is zero.
        support: (m, m) ones where an edge may be, else zeros; the diagonal is zero.
        weight: () prior variance of the weights.
        mask: (J, m, m) booleans, pruned.
        prior: (J, m, m) log weights of pairs.
    """

    z: Any
    error: Any
    recorded: Any
    support: Any
    weight: Any
    mask: Any
    prior: Any


class SoftassignResult(NamedTuple):
    """The end of the steps.

    Attributes:
        matrices: (J, m, m) soft permutations; their columns sum to one, their rows nearly so.
        change: The largest change of an entry in the last step.
        mean: (m, m) means of the weights given all subjects, zero off the support.
        variance: (m, m) variances of the weights, zero off the support.
        num_evaluations: The number of gradients of a subject's log evidence.
    """

    matrices: np.ndarray
    change: float
    mean: np.ndarray
    variance: np.ndarray
    num_evaluations: int


_DEFAULT = SoftassignOptions()


def run_softassign(
    problems: Sequence[SharedRegression],
    scales: Sequence[Scales],
    options: SoftassignOptions = _DEFAULT,
) -> list[SoftassignResult]:
    """Compute soft permutations of problems of one shape in one compiled call.

    Args:
        problems: Statistics and constraints; all have the same numbers of subjects and labels.
        scales: The variances of each problem, which stay fixed.
        options: Settings.
    """
    with _threads.pool(len(problems)) as pool:
        parts = list(pool.map(soft_problem, problems, scales))
    batch = SoftProblem(*(np.stack(arrays) for arrays in zip(*parts, strict=True)))
    complete = all(problem.complete for problem in problems)
    found = iterate(batch, options.temperature, num_steps=options.num_steps, complete=complete)
    spent = options.num_steps * problems[0].num_subjects
    matrices, change, mean, variance = (np.asarray(part, np.float64) for part in found)
    return [
        SoftassignResult(matrices[k], float(change[k]), mean[k], variance[k], spent)
        for k in range(len(problems))
    ]


def soft_problem(problem: SharedRegression, scales: Scales) -> SoftProblem:
    """Return the arrays of one problem, on the host."""
    edges = [estimate_edges(problem, j, scales) for j in range(problem.num_subjects)]
    dtype = jnp.result_type(float)
    support = problem.support.astype(dtype)
    np.fill_diagonal(support, 0.0)
    return SoftProblem(
        z=np.stack([each.z for each in edges], dtype=dtype),
        error=np.array([each.s for each in edges], dtype),
        recorded=np.stack([_off_diagonal(each) for each in edges], dtype=dtype),
        support=support,
        weight=np.array(scales.weight, dtype),
        mask=problem.mask,
        prior=problem.prior.astype(dtype),
    )


def _off_diagonal(edges: Edges) -> np.ndarray:
    recorded = edges.recorded.copy()
    np.fill_diagonal(recorded, 0.0)
    return recorded


@functools.partial(jax.jit, static_argnames=("num_steps", "complete"))
def iterate(
    batch: SoftProblem, temperature: ArrayLike, *, num_steps: int, complete: bool
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Take the steps for F problems, given as arrays (F, ...).

    ``complete`` tells whether all rows are recorded, which saves a term.

    Returns:
        All fields of `SoftassignResult` but the last, (F, ...) each.
    """
    solve = functools.partial(_iterate, num_steps=num_steps, complete=complete)
    return jax.vmap(solve, in_axes=(0, None))(batch, temperature)


def _iterate(
    problem: SoftProblem, temperature: ArrayLike, *, num_steps: int, complete: bool
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    nothing = jnp.zeros_like(problem.z)
    prior = nothing, jnp.broadcast_to(problem.weight * problem.support, nothing.shape)

    def step(P: jax.Array, beliefs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        gradient = _gradient(problem, P, *beliefs, complete=complete)
        soft = transforms.sinkhorn(gradient / temperature, _SINKHORN_STEPS, problem.mask)
        moved = P + _STEP * (soft - P)
        return moved, jnp.max(jnp.abs(moved - P))

    def alone(P: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return step(P, prior)

    def together(P: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return step(P, _cavity_beliefs(problem, P))

    P = transforms.sinkhorn(nothing, _SINKHORN_STEPS, problem.mask)
    P, changes = jax.lax.scan(alone, P, length=num_steps - num_steps // 2)
    # A single subject has no others to learn from.
    later = alone if len(problem.z) == 1 else together
    P, more = jax.lax.scan(later, P, length=num_steps // 2)
    mean, variance = _product(problem, *(part.sum(axis=0) for part in _messages(problem, P)))
    return P, jnp.concatenate([changes, more])[-1], mean, variance


def _gradient(
    problem: SoftProblem, P: jax.Array, mean: jax.Array, variance: jax.Array, *, complete: bool
) -> jax.Array:
    """Return the gradient (J, m, m) of all subjects' log evidence, given beliefs (J, m, m)."""
    square = problem.error[:, None, None] ** 2
    precision = 1 / (variance + square)
    terms = [(problem.z**2, 0.5 * (1 / square - precision)), (problem.z, mean * precision)]
    if not complete:
        constant = 0.5 * jnp.log(square * precision) - 0.5 * mean**2 * precision
        terms.append((problem.recorded, constant))
    total = problem.prior
    for A, B in terms:
        B = B * problem.support
        total = total + _multiply(A, P, B.mT) + _multiply(A.mT, P, B)
    return total


def _messages(problem: SoftProblem, P: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return each subject's messages about the weights: precisions, and precisions times means."""
    share = jnp.clip(_multiply(P.mT, problem.recorded, P), 0, 1)
    safe = jnp.maximum(share, _HARDLY_RECORDED)
    mean = _multiply(P.mT, problem.z, P) / safe
    spread = _multiply(P.mT, problem.z**2, P) / safe - mean**2
    precision = share / (jnp.maximum(spread, 0) + problem.error[:, None, None] ** 2)
    return precision, precision * mean


def _cavity_beliefs(problem: SoftProblem, P: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (J, m, m) means and variances of the weights given all subjects but one."""
    return _product(problem, *(part.sum(axis=0) - part for part in _messages(problem, P)))


def _product(
    problem: SoftProblem, precision: jax.Array, weighted: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return means and variances of the prior times messages, zero off the support."""
    variance = problem.support / (precision + 1 / problem.weight)
    return weighted * variance, variance


def _multiply(*matrices: jax.Array) -> jax.Array:
    """Multiply matrices at full precision; less, as on accelerators, would blur the edges."""
    return functools.reduce(functools.partial(jnp.matmul, precision="highest"), matrices)
