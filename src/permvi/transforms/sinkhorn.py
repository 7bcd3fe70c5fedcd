r"""Sinkhorn scaling in logarithms (paper, sections 2.1 and 3.2).

Alternately normalising the rows and columns of a positive matrix :math:`e^{L}` converges to a
doubly stochastic matrix :math:`M_{ij} = e^{L_{ij} + f_i + g_j}`. After a fixed number of steps, as
in the paper, columns sum to one but rows only nearly; `marginal_error` measures the difference.

With a mask, forbidden entries are zero throughout. Entries that are allowed but in no perfect
matching decay only as fast as one over the number of steps, so outside ``jit`` they are removed
from the mask first; inside ``jit`` prune the mask yourself with `permvi.assignment.prune_mask`.
A traced mask that leaves a row or a column empty gives NaN.
"""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from permvi import _checks, assignment


class SinkhornResult(NamedTuple):
    """A scaled matrix and whether the scaling converged; all leaves have the batch shape in front.

    ``error`` is the largest difference of a row or column sum from one.
    """

    matrix: jax.Array
    error: jax.Array
    num_steps: jax.Array
    converged: jax.Array


def sinkhorn(log_m: ArrayLike, num_steps: int = 10, mask: ArrayLike | None = None) -> jax.Array:
    """Scale exp(log_m) by a fixed number of row and column normalisations.

    Args:
        log_m: (..., n, n) floats.
        num_steps: Number of times that rows and then columns are normalised.
        mask: Booleans that broadcast against ``log_m``, True where entries may be positive.

    Returns:
        (..., n, n) matrices near the Birkhoff polytope; columns sum to one up to rounding.
    """
    return jnp.exp(log_sinkhorn(log_m, num_steps, mask))


def log_sinkhorn(log_m: ArrayLike, num_steps: int = 10, mask: ArrayLike | None = None) -> jax.Array:
    """The logarithm of `sinkhorn`, finite wherever the mask allows; -inf elsewhere."""
    num_steps = _checks.whole("num_steps", num_steps)
    return _log_scaled(_prepare(log_m, mask), num_steps)


@functools.partial(jax.jit, static_argnames="num_steps")
def _log_scaled(log_m: jax.Array, num_steps: int) -> jax.Array:
    """Normalise rows and columns this many times."""

    def step(g: jax.Array, _: None) -> tuple[jax.Array, None]:
        return _step(log_m, g)[1], None

    g = jnp.zeros_like(log_m[..., 0, :])
    g, _ = lax.scan(step, g, length=num_steps - 1)
    f, g = _step(log_m, g)
    return log_m + f[..., :, None] + g[..., None, :]


def sinkhorn_until(
    log_m: ArrayLike,
    tol: float | None = None,
    max_steps: int = 1000,
    mask: ArrayLike | None = None,
    *,
    gradient: Literal["implicit", "unrolled"] = "implicit",
) -> SinkhornResult:
    r"""Scale exp(log_m) until all rows and columns sum to one within a tolerance.

    Args:
        log_m: (..., n, n) floats.
        tol: Largest allowed difference of a sum from one; by default 16 n eps of the dtype.
        max_steps: Largest number of row and column normalisations.
        mask: As in `sinkhorn`.
        gradient: "implicit" differentiates the equations that the limit satisfies, at the cost of
            an n by n eigendecomposition. It is the gradient of the limit, so it is correct only if
            the scaling has converged. "unrolled" differentiates the steps, and always takes the
            time and memory of ``max_steps`` steps.

    Returns:
        The matrix with its error, the number of steps and whether it converged.
    """
    log_m = _prepare(log_m, mask)
    n = log_m.shape[-1]
    if tol is None:
        tol = 16 * n * float(jnp.finfo(log_m.dtype).eps)
    if not tol > 0:
        raise ValueError(f"tol must be positive, got {tol}.")
    _checks.whole("max_steps", max_steps)
    if gradient not in ("implicit", "unrolled"):
        raise ValueError(f"gradient must be 'implicit' or 'unrolled', got {gradient!r}.")
    return _until(log_m, float(tol), int(max_steps), gradient)


@functools.partial(jax.jit, static_argnames=("tol", "max_steps", "gradient"))
def _until(log_m: jax.Array, tol: float, max_steps: int, gradient: str) -> SinkhornResult:
    """Scale until the error is at most ``tol``, with either kind of gradient."""
    n = log_m.shape[-1]
    flat = log_m.reshape(-1, n, n)
    if gradient == "implicit":
        g, num_steps = jax.vmap(lambda one: _iterate(one, tol, max_steps))(lax.stop_gradient(flat))
        matrix = jax.vmap(_limit)(flat, g)
    else:
        g, num_steps = jax.vmap(lambda one: _iterate_unrolled(one, tol, max_steps))(flat)
        matrix = jax.vmap(_scaled)(flat, g)
    error = lax.stop_gradient(marginal_error(matrix))
    result = SinkhornResult(matrix, error, num_steps, error <= tol)
    return jax.tree.map(lambda leaf: leaf.reshape(log_m.shape[:-2] + leaf.shape[1:]), result)


def marginal_error(matrix: ArrayLike) -> jax.Array:
    """The largest difference from one of a row or column sum: (..., n, n) -> (...)."""
    matrix = _checks.floating("matrix", matrix)
    _checks.square("matrix", matrix)
    errors = [jnp.max(jnp.abs(jnp.sum(matrix, axis) - 1), axis=-1) for axis in (-1, -2)]
    return jnp.maximum(*errors)


def _prepare(log_m: ArrayLike, mask: ArrayLike | None) -> jax.Array:
    """Check the arguments and put -inf where the mask forbids."""
    log_m = _checks.floating("log_m", log_m)
    _checks.square("log_m", log_m)
    if mask is None:
        return log_m
    allowed = _checks.mask(mask, "log_m", log_m.shape)
    if _checks.is_concrete(allowed):
        allowed = jnp.asarray(assignment.prune_mask(allowed))
    return _masked(log_m, allowed)


@jax.jit
def _masked(log_m: jax.Array, allowed: jax.Array) -> jax.Array:
    """Put -inf where a mask forbids, NaN where it leaves a row or a column empty."""
    empty = ~(allowed.any(-1).all(-1) & allowed.any(-2).all(-1))
    log_m = jnp.where(empty[..., None, None], jnp.nan, log_m)
    return jnp.where(allowed | empty[..., None, None], log_m, -jnp.inf)


def _step(log_m: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Normalise rows, then columns; returns both log scalings."""
    f = -logsumexp(log_m + g[..., None, :], axis=-1)
    return f, -logsumexp(log_m + f[..., :, None], axis=-2)


def _scaled(log_m: jax.Array, g: jax.Array) -> jax.Array:
    f, g = _step(log_m, g)
    return jnp.exp(log_m + f[:, None] + g[None, :])


def _iterate(log_m: jax.Array, tol: float, max_steps: int) -> tuple[jax.Array, jax.Array]:
    """Column scalings one step before the end, and the number of steps including that one."""

    def unfinished(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        g, count = state
        return (count < max_steps) & ~(marginal_error(_scaled(log_m, g)) <= tol)

    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        g, count = state
        return _step(log_m, g)[1], count + 1

    return lax.while_loop(unfinished, step, (jnp.zeros_like(log_m[0]), jnp.array(1)))


def _iterate_unrolled(log_m: jax.Array, tol: float, max_steps: int) -> tuple[jax.Array, jax.Array]:
    """Run `_iterate` with a fixed number of steps, which do nothing after convergence."""

    def step(
        state: tuple[jax.Array, jax.Array], _: None
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        g, count = state
        done = marginal_error(_scaled(log_m, g)) <= tol
        return (jnp.where(done, g, _step(log_m, g)[1]), count + ~done), None

    start = (jnp.zeros_like(log_m[0]), jnp.array(1))
    return lax.scan(step, start, length=max_steps - 1)[0]


@jax.custom_jvp
def _limit(log_m: jax.Array, g: jax.Array) -> jax.Array:
    """The scaled matrix, differentiated as if it were the fixed point."""
    return _scaled(log_m, g)


@_limit.defjvp
def _limit_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    r"""dM = M (dL + df + dg) with zero row and column sums, solved for the scalings' tangents.

    Eliminating :math:`df = -(M \circ dL) 1 - M dg` leaves :math:`(I - M^T M) dg = ...`, singular
    along constants (one for each block of M). These do not change M, so any solution will do.
    """
    M = _limit(*primals)
    log_m_dot = jnp.where(M > 0, tangents[0], 0)
    rows, columns = jnp.sum(M * log_m_dot, axis=1), jnp.sum(M * log_m_dot, axis=0)
    gram = jnp.matmul(M.T, M, precision=lax.Precision.HIGHEST)
    solution = jnp.linalg.pinv(jnp.eye(M.shape[0], dtype=M.dtype) - gram, hermitian=True)
    g_dot = solution @ (M.T @ rows - columns)
    f_dot = -rows - M @ g_dot
    return M, M * (log_m_dot + f_dot[:, None] + g_dot[None, :])
