r"""Linear matching problems as permanents of square matrices, bounds and belief propagation.

With more columns than rows, m - n rows of zero scores take the columns that are left over. Every
matching of the n rows then belongs to (m - n)! permutations of equal weight, so

.. math:: \sum_x e^{\langle S, x \rangle} = \mathrm{per}(e^{\tilde S}) / |m - n|!,

and the marginals of the corner are those of the problem. If rows and columns may stay unmatched,
the square has n + m rows and every partial matching belongs to m! permutations of its own weight,
see `permvi.problem.unmatched.complete`. Scores are reduced by the prices of the best matching (see
`permvi._assignment.duality`): none is positive, the best matching has log weight zero, and nothing
overflows in float32.

**Bounds**, in float64 on the host. With :math:`A = e^S` and doubly stochastic P, let

.. math:: H(P) = \sum_{ij} P_{ij} (S_{ij} - \log P_{ij}).

Its maximum over P is the log capacity of A, attained by the Sinkhorn scaling of A, and

* :math:`\log \mathrm{per}\, A \le \max_P H(P)`, since the permanent of a doubly stochastic matrix
  is at most one;
* :math:`\log \mathrm{per}\, A \ge H(P) + \log c` with :math:`c = n!/n^n` (van der Waerden's
  conjecture; Egorychev 1981, Falikman 1981), and a larger c if columns have few entries
  (Gurvits 2008);
* :math:`\log \mathrm{per}\, A \ge H(P) + \sum_{ij} (1 - P_{ij}) \log (1 - P_{ij})`, minus the Bethe
  free energy of P (Schrijver 1998; Gurvits 2011), whose largest value over P is at most
  :math:`\frac n2 \log 2` too small (Anari and Rezaei 2019).

Both lower bounds hold for *every* doubly stochastic P: stopping an iteration early makes them
worse, never wrong. Below, scores and P are (n, n), -inf and zero where a pair is forbidden.

**Belief propagation** (Chertkov et al. 2008; Huang and Jebara 2009). Every row and every column is
a factor that requires exactly one of its entries to be one. On the scale of log odds, the messages
from rows and from columns to the entries are

.. math:: u_{ij} = -\log \sum_{k \ne j} e^{s_{ik} + v_{ik}}, \qquad
          v_{ij} = -\log \sum_{k \ne i} e^{s_{kj} + u_{kj}},

and the log odds of an entry being one are :math:`s_{ij} + u_{ij} + v_{ij}`. The Bethe free energy
is convex on the Birkhoff polytope (Vontobel 2013), so a fixed point is its minimum. If the minimum
is a vertex, the messages grow without bound and the odds tend to zero or infinity.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from scipy.special import xlog1py, xlogy

from permvi import _checks, assignment
from permvi._programmes import jit
from permvi.inference.exact.blocks import decompose
from permvi.problem.unmatched import build_weights, complete, may_be_partial

# Matchings worse than the best by this log weight underflow in float64.
_NEGLIGIBLE = -1e4
# The largest absolute value of a message, since the only entry of a row has infinite odds.
_LARGEST = 1e5


class SquareProblem(NamedTuple):
    """A reduced square problem.

    Attributes:
        scores: (N, N) log weights, at most zero up to rounding; -inf for pairs that no matching
            of non-negligible weight uses.
        shape: (n, m). N is the larger of the two, or their sum if items may stay unmatched.
        best: (n,) the best matching, -1 for rows that are left over.
        offset: ``log sum_x exp(<S, x>) = offset + log per(exp(scores))``.
        best_log_weight: The log weight of the best matching.
        settled: Whether it is the only matching of non-negligible weight.
    """

    scores: np.ndarray
    shape: tuple[int, int]
    best: np.ndarray
    offset: float
    best_log_weight: float
    settled: bool


def square_problem(
    scores: np.ndarray,
    mask: np.ndarray | None = None,
    row_unmatched: np.ndarray | None = None,
    col_unmatched: np.ndarray | None = None,
) -> SquareProblem:
    """Make a problem square and reduce its scores; arguments and errors are as in `solve_exact`."""
    n, m = scores.shape
    partial = may_be_partial(row_unmatched, col_unmatched)
    if partial:
        weights = build_weights(scores, mask, None, row_unmatched, col_unmatched)
        padded, copies = complete(weights.table), m
    else:
        size = max(n, m)
        padding = ((0, size - n), (0, size - m))
        allowed = scores if mask is None else np.where(mask, scores, -np.inf)
        padded, copies = np.pad(np.asarray(allowed, dtype=np.float64), padding), abs(n - m)
    size = len(padded)
    found = decompose(build_weights(padded))
    reduced = found.reduced.table[:size, :size]
    matters = assignment.prune_mask(reduced >= _NEGLIGIBLE)
    choices = matters[:n].sum(axis=1) if n <= m or partial else matters[:, :m].sum(axis=0)
    best = found.best[:n]
    return SquareProblem(
        scores=np.where(matters, reduced, -np.inf),
        shape=(n, m),
        best=np.where(best < m, best, -1),
        offset=found.best_log_weight - math.lgamma(copies + 1),
        best_log_weight=found.best_log_weight,
        settled=bool((choices == 1).all()),
    )


def log_capacity(scores: np.ndarray, P: np.ndarray) -> float:
    """Return ``H(P)``: the log capacity of exp(scores) if P is its Sinkhorn scaling, else less."""
    used = P > 0
    return float(P[used] @ scores[used] - xlogy(P, P).sum())


def log_bethe(scores: np.ndarray, P: np.ndarray) -> float:
    """Return minus the Bethe free energy of P, a lower bound on the log permanent."""
    rest = np.clip(1.0 - P, 0.0, 1.0)
    return log_capacity(scores, P) + float(xlog1py(rest, -np.minimum(P, 1.0)).sum())


def log_permanent_floor(support: np.ndarray) -> float:
    r"""Return a lower bound on the log permanent of doubly stochastic matrices with a support.

    It is :math:`\sum_k \log g(\min(k, c_k))` with :math:`g(k) = (1 - 1/k)^{k-1}` and
    :math:`c_1 \ge c_2 \ge \dots` the numbers of entries in the columns, or in the rows if that is
    more (Gurvits 2008). For full columns it is :math:`\log n!/n^n`.
    """
    places = np.arange(1, len(support) + 1)
    totals = []
    for axis in (0, 1):
        counts = np.sort(support.sum(axis=axis))[::-1]
        k = np.minimum(places, counts)
        totals.append(xlog1py(k - 1, -1.0 / np.maximum(k, 1)).sum())
    return float(max(totals))


class BeliefResult(NamedTuple):
    """The result of belief propagation; all arrays have the batch shape in front.

    Attributes:
        log_odds: (..., n, n) log odds of the entries, -inf where a pair is forbidden.
        error: The largest difference of a row or column sum of the beliefs from one.
        num_steps: The number of steps.
        converged: Whether the error and the last change of a belief were within the tolerance.
    """

    log_odds: jax.Array
    error: jax.Array
    num_steps: jax.Array
    converged: jax.Array


class _State(NamedTuple):
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
    """Pass messages between rows and columns until the beliefs converge.

    Args:
        scores: (..., n, n) log weights, -inf where a pair is forbidden. Every other pair must be in
            some perfect matching.
        damping: The share of the old message that is kept, in [0, 1).
        tol: The tolerance for the last change of a belief and for the difference of row sums from
            one; by default 100 eps of the dtype, and at least 1e-9.
        max_steps: The largest number of updates of all messages.
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


@jit
@functools.partial(jax.vmap, in_axes=(0, None, None, None))
def _propagate(
    scores: jax.Array, damping: jax.Array, tol: jax.Array, max_steps: jax.Array
) -> BeliefResult:
    def unfinished(state: _State) -> jax.Array:
        settled = (state.change <= tol) & (state.error <= tol)
        return (state.steps < max_steps) & ~settled

    def step(state: _State) -> _State:
        u = damping * state.u + (1 - damping) * _message(scores + state.v, axis=1)
        v = damping * state.v + (1 - damping) * _message(scores + u, axis=0)
        beliefs = jax.nn.sigmoid(scores + u + v)
        change = jnp.max(jnp.abs(beliefs - state.beliefs))
        sums = (jnp.sum(beliefs, axis) for axis in (0, 1))
        error = functools.reduce(jnp.maximum, (jnp.max(jnp.abs(each - 1)) for each in sums))
        return _State(u, v, beliefs, change, error, state.steps + 1)

    zeros, far = jnp.zeros_like(scores), jnp.full((), jnp.inf, scores.dtype)
    end: Any = lax.while_loop(
        unfinished, step, _State(zeros, zeros, zeros, far, far, jnp.zeros((), int))
    )
    converged = (end.change <= tol) & (end.error <= tol)
    return BeliefResult(scores + end.u + end.v, end.error, end.steps, converged)


def _message(log_weights: jax.Array, axis: int) -> jax.Array:
    """Return minus the log of the sum over all other entries along an axis."""
    best = jnp.argmax(log_weights, axis=axis)
    is_best = jax.nn.one_hot(best, log_weights.shape[axis], axis=axis, dtype=bool)
    total = logsumexp(log_weights, axis=axis, keepdims=True)
    # Subtracting the largest term from the total would cancel, so the rest is summed afresh.
    rest = logsumexp(jnp.where(is_best, -jnp.inf, log_weights), axis=axis, keepdims=True)
    share = jnp.where(is_best, 0.0, jnp.exp(log_weights - total))
    others = jnp.where(is_best, rest, total + jnp.log1p(-share))
    return -jnp.clip(others, -_LARGEST, _LARGEST)
