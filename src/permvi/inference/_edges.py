"""The two graphs whose match a function is, from its second derivatives."""

from collections.abc import Callable

import numpy as np

from permvi._jax import jax, jnp
from permvi.inference.map import Quadratic

# How often rows and columns are split in two at random to look at second derivatives, each of which
# is seen by an eighth of the splits, and the share of the largest below which they are rounding.
_NUM_SPLITS, _NOTHING = 64, 1e-4
# The most rows whose edges are looked for.
_MAX_ROWS = 300
# Decimals that are kept of edges, in units of the largest.
_EDGE_DIGITS = 6
# Entries of matrices that are made at once, and how many matrices at least.
_AT_ONCE, _FEWEST = 1 << 24, 16


def derivatives(
    function: Callable[[jax.Array], jax.Array], shape: tuple[int, int], rng: np.random.Generator
) -> tuple[Quadratic | None, np.ndarray]:
    """Return the edges, zero if there are none, None if they are no graphs', and the gradient.

    Pairs with one row or one column in common are in no matching together, so that only second
    derivatives for two rows and two columns count.
    """
    n, m = shape
    zero = jnp.zeros((n, m))
    gradient = jax.grad(function)
    at_zero = np.asarray(gradient(zero), np.float64)

    @jax.jit
    def hessian(directions: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):
            return jax.lax.map(lambda V: jax.jvp(gradient, (zero,), (V,))[1], directions)

    def times(rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return the Hessian times rows (k, n) by cols (k, m): (k, n, m)."""
        given = rows[:, :, None] * cols[:, None, :]
        return np.asarray(hessian(jnp.asarray(given)), np.float64)

    num = at_most(_NUM_SPLITS, n, m)
    # Vectors on a part of the rows or columns, and on the other one.
    p, q = _split(n, num, rng)
    u, v = _split(m, num, rng)
    blocks = np.einsum("sij,si,sj->sij", times(q, v), p != 0, u != 0)
    if not np.isfinite(blocks).all():
        return None, at_zero
    largest = np.abs(blocks).max()
    if largest == 0:
        return no_edges(n, m), at_zero
    if n != m or n > _MAX_ROWS:
        return None, at_zero
    eye, s = np.eye(n), np.abs(blocks).max(axis=(1, 2)).argmax()
    A = np.einsum("kij,j->ik", times(eye, np.repeat(v[s : s + 1], n, 0)), u[s])
    B = np.einsum("lij,i->jl", times(np.repeat(q[s : s + 1], n, 0), eye), p[s])
    edges = _graphs(A, B, u[s], v[s])
    if edges is None:
        return None, at_zero
    expected = _both_ways(edges, q, v)
    apart = np.abs(np.einsum("sij,si,sj->sij", expected, p != 0, u != 0) - blocks).max()
    return (edges if apart <= _NOTHING * largest else None), at_zero


def no_edges(n: int, m: int) -> Quadratic:
    """Return the form that is zero everywhere."""
    return Quadratic(np.zeros((n, n)), np.zeros((m, m)), np.zeros((n, m)))


def _graphs(A: np.ndarray, B: np.ndarray, u: np.ndarray, v: np.ndarray) -> Quadratic | None:
    r"""Return the edges of a function, given two slices of its second derivatives.

    These are :math:`H_{(ij)(kl)} = a S_{ik} S'_{jl} + b T_{ik} T'_{jl}` for :math:`i \ne k` and
    :math:`j \ne l`, with S symmetric and T antisymmetric. ``A`` (n, n) is their sum with ``u v'``
    over j and l, and ``B`` a like sum over i and k. Return None if one slice vanishes.
    """
    n = len(A)
    off = ~np.eye(n, dtype=bool)
    A, B = A * off, B * off
    parts = []
    for sign in (1, -1):
        part, other = (A + sign * A.T) / 2, (B + sign * B.T) / 2
        if np.abs(part).max() <= _NOTHING * np.abs(A).max():
            parts.append((0 * A, 0 * B))
            continue
        along = u @ other @ v
        if along == 0:
            return None
        # Half of it, since each edge is met from both ends.
        parts.append((part, other / (2 * along)))
    A, B = (parts[0][k] + parts[1][k] for k in range(2))
    if not (A.any() and B.any()):
        return None
    size = np.abs(A).max() * np.abs(B).max()
    A, B = ((array / np.abs(array).max()).round(_EDGE_DIGITS) for array in (A, B))
    return Quadratic(size * A, B, np.zeros((n, n)))


def _both_ways(edges: Quadratic, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return second derivatives of edges times rows (k, n) by cols (k, n): (k, n, n)."""
    out = np.einsum("ki,kj->kij", rows @ edges.A.T, cols @ edges.B.T)
    return out + np.einsum("ki,kj->kij", rows @ edges.A, cols @ edges.B)


def _split(size: int, num: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return random vectors (num, size), zero on half of all places, and on the others."""
    halves = np.argsort(rng.random((num, size)), axis=1) < size // 2
    vectors = rng.normal(size=(2, num, size))
    return vectors[0] * halves, vectors[1] * ~halves


def at_most(num: int, n: int, m: int) -> int:
    """Return how many matrices (n, m) to make at once, up to ``num``."""
    return int(np.clip(_AT_ONCE // (n * m), _FEWEST, num))
