r"""Belief propagation for the permanent (Chertkov et al. 2008; Huang and Jebara 2009).

Every row and every column is a factor that lets exactly one of its entries be one. In logarithms
of odds, the messages from rows and from columns to the entries are

.. math:: u_{ij} = -\log \sum_{k \ne j} e^{s_{ik} + v_{ik}}, \qquad
          v_{ij} = -\log \sum_{k \ne i} e^{s_{kj} + u_{kj}},

and the log odds of an entry being one are :math:`s_{ij} + u_{ij} + v_{ij}`. The Bethe free energy
is convex on the Birkhoff polytope (Vontobel 2013), so where this settles it has found its minimum.
The minimum may be a vertex; then the messages grow for ever and the odds tend to zero or infinity.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from permvi import _checks

# Messages are kept below this: an entry that is alone in its row has infinite odds.
_LARGEST = 1e5


class BeliefResult(NamedTuple):
    """Where belief propagation ended; all leaves have the batch shape in front.

    Attributes:
        log_odds: (..., n, n) log odds of the entries; -inf where a pair is forbidden.
        error: The largest difference of a row or column sum of the beliefs from one.
        num_steps: How many steps were taken.
        converged: Whether the error and the last change of a belief were within the tolerance.
    """

    log_odds: jax.Array
    error: jax.Array
    num_steps: jax.Array
    converged: jax.Array


class _Messages(NamedTuple):
    u: jax.Array
    v: jax.Array
    beliefs: jax.Array
    change: jax.Array
    error: jax.Array
    steps: jax.Array


def propagate_beliefs(
    scores: ArrayLike,
    damping: ArrayLike = 0.2,
    tol: float | None = None,
    max_steps: ArrayLike = 2000,
) -> BeliefResult:
    """Pass messages between rows and columns until the beliefs settle.

    Args:
        scores: (..., n, n) log weights, -inf where a pair is forbidden. Every pair that is not
            must be in some perfect matching.
        damping: The part of the old message that stays, in [0, 1).
        tol: Largest change of a belief, and largest difference of a row sum from one, at the end;
            by default 100 eps of the dtype, and 1e-9 at least.
        max_steps: Largest number of updates of all messages.

    Returns:
        The log odds, and how it went.
    """
    log_weights = _checks.floating("scores", scores)
    n = _checks.square("scores", log_weights)
    if tol is None:
        tol = max(1e-9, 100 * float(jnp.finfo(log_weights.dtype).eps))
    flat = log_weights.reshape(-1, n, n)
    numbers = (jnp.asarray(value, flat.dtype) for value in (damping, tol, max_steps))
    result = _propagate(flat, *numbers)
    batch = log_weights.shape[:-2]
    return jax.tree.map(lambda leaf: leaf.reshape(batch + leaf.shape[1:]), result)


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None, None, None))
def _propagate(
    scores: jax.Array, damping: jax.Array, tol: jax.Array, max_steps: jax.Array
) -> BeliefResult:
    def unfinished(state: _Messages) -> jax.Array:
        settled = (state.change <= tol) & (state.error <= tol)
        return (state.steps < max_steps) & ~settled

    def step(state: _Messages) -> _Messages:
        u = damping * state.u + (1 - damping) * _message(scores + state.v, axis=1)
        v = damping * state.v + (1 - damping) * _message(scores + u, axis=0)
        beliefs = jax.nn.sigmoid(scores + u + v)
        change = jnp.max(jnp.abs(beliefs - state.beliefs))
        sums = (jnp.sum(beliefs, axis) for axis in (0, 1))
        error = functools.reduce(jnp.maximum, (jnp.max(jnp.abs(each - 1)) for each in sums))
        return _Messages(u, v, beliefs, change, error, state.steps + 1)

    zeros, far = jnp.zeros_like(scores), jnp.full((), jnp.inf, scores.dtype)
    end: Any = lax.while_loop(
        unfinished, step, _Messages(zeros, zeros, zeros, far, far, jnp.zeros((), int))
    )
    converged = (end.change <= tol) & (end.error <= tol)
    return BeliefResult(scores + end.u + end.v, end.error, end.steps, converged)


def _message(log_weights: jax.Array, axis: int) -> jax.Array:
    """Minus the log of the sum over all other entries along an axis."""
    best = jnp.argmax(log_weights, axis=axis)
    is_best = jax.nn.one_hot(best, log_weights.shape[axis], axis=axis, dtype=bool)
    total = logsumexp(log_weights, axis=axis, keepdims=True)
    # Taking the largest term off the total would cancel, so its rest is summed anew.
    rest = logsumexp(jnp.where(is_best, -jnp.inf, log_weights), axis=axis, keepdims=True)
    share = jnp.where(is_best, 0.0, jnp.exp(log_weights - total))
    others = jnp.where(is_best, rest, total + jnp.log1p(-share))
    return -jnp.clip(others, -_LARGEST, _LARGEST)
