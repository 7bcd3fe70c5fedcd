"""Integer facts about permutations: two representations, the group operations, four distances.

A permutation of n items is an integer vector with ``perm[i] = j`` when item i is mapped to item j,
which is the 0/1 matrix with ``X[i, j] = 1``. Every function takes any leading batch shape and works
under ``jit``, ``vmap`` and outside both. Outside ``jit``, ``to_matrix`` and ``from_matrix`` check
that their input is a permutation; inside it nothing is checked.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi import _checks

MAX_ENUMERATION = 9


def identity(n: int) -> jax.Array:
    """The permutation (0, 1, ..., n-1)."""
    return jnp.arange(_checks.whole("n", n))


def is_permutation(perm: ArrayLike) -> jax.Array:
    """Whether each vector of a (..., n) integer array holds 0, ..., n-1 once each; shape (...)."""
    perm = _vector("perm", perm)
    return jnp.all(jnp.sort(perm, axis=-1) == jnp.arange(perm.shape[-1]), axis=-1)


def to_matrix(perm: ArrayLike, dtype: jax.typing.DTypeLike = float) -> jax.Array:
    """The 0/1 matrices X with ``X[i, perm[i]] = 1``: (..., n) -> (..., n, n)."""
    perm = _vector("perm", perm)
    if _checks.is_concrete(perm) and not bool(jnp.all(is_permutation(perm))):
        raise ValueError(
            f"perm must hold each of 0 to {perm.shape[-1] - 1} once, got {_first_bad(perm)}."
        )
    return jax.nn.one_hot(perm, perm.shape[-1], dtype=jax.dtypes.canonicalize_dtype(dtype))


def from_matrix(matrix: ArrayLike) -> jax.Array:
    """The index vectors of 0/1 permutation matrices: (..., n, n) -> (..., n)."""
    matrix = jnp.asarray(matrix)
    _checks.square("matrix", matrix)
    if _checks.is_concrete(matrix):
        binary = jnp.all((matrix == 0) | (matrix == 1))
        sums = jnp.all(matrix.sum(-1) == 1) & jnp.all(matrix.sum(-2) == 1)
        if not bool(binary & sums):
            raise ValueError(
                "matrix must be a permutation matrix (zeros and ones, one 1 in each row and "
                "column), got something else; assignment.nearest_permutation rounds to one."
            )
    return jnp.argmax(matrix, axis=-1)


def inverse(perm: ArrayLike) -> jax.Array:
    """The permutation q with ``q[perm[i]] = i``."""
    return jnp.argsort(_vector("perm", perm), axis=-1)


def compose(first: ArrayLike, second: ArrayLike) -> jax.Array:
    """Apply ``first``, then ``second``: ``result[i] = second[first[i]]``.

    As matrices this is ``to_matrix(first) @ to_matrix(second)``. Batch shapes broadcast.
    """
    first, second = _pair("first", first, "second", second)
    return jnp.take_along_axis(second, first, axis=-1)


def enumerate_permutations(n: int) -> np.ndarray:
    """All n! permutations of n <= 9 items in lexicographic order, as a NumPy (n!, n) array."""
    if not 1 <= n <= MAX_ENUMERATION:
        raise ValueError(
            f"n must be between 1 and {MAX_ENUMERATION} to enumerate all n! permutations, got {n}."
        )
    return np.array(list(itertools.permutations(range(n))), dtype=np.int32)


def hamming(a: ArrayLike, b: ArrayLike) -> jax.Array:
    """The number of items that a and b map differently."""
    a, b = _pair("a", a, "b", b)
    return jnp.sum(a != b, axis=-1)


def footrule(a: ArrayLike, b: ArrayLike) -> jax.Array:
    """Spearman's footrule ``sum_i |a[i] - b[i]|``, the distance of the paper's Mallows rows."""
    a, b = _pair("a", a, "b", b)
    return jnp.sum(jnp.abs(a - b), axis=-1)


def kendall(a: ArrayLike, b: ArrayLike) -> jax.Array:
    """Kendall's tau distance: the number of pairs i < k that a and b order differently."""
    a, b = _pair("a", a, "b", b)
    before_a = a[..., :, None] < a[..., None, :]
    before_b = b[..., :, None] < b[..., None, :]
    # Every discordant pair is counted twice, as (i, k) and as (k, i).
    return jnp.sum(before_a != before_b, axis=(-2, -1)) // 2


def cayley(a: ArrayLike, b: ArrayLike) -> jax.Array:
    """Cayley's distance: the least number of transpositions, n minus the cycles of ``b a^-1``."""
    a, b = _pair("a", a, "b", b)
    n = a.shape[-1]
    step = compose(inverse(a), b)
    # Pointer doubling: after k rounds leader[i] is the least of the 2^k items that follow i.
    leader = jnp.broadcast_to(jnp.arange(n, dtype=step.dtype), step.shape)
    for _ in range(max(n - 1, 1).bit_length()):
        leader = jnp.minimum(leader, jnp.take_along_axis(leader, step, axis=-1))
        step = jnp.take_along_axis(step, step, axis=-1)
    num_cycles = jnp.sum(leader == jnp.arange(n), axis=-1)
    return n - num_cycles


def _vector(name: str, value: ArrayLike) -> jax.Array:
    array = _checks.integer(name, value)
    if array.ndim < 1 or array.shape[-1] < 1:
        raise ValueError(f"{name} must have shape (..., n) with n >= 1, got shape {array.shape}.")
    return array


def _pair(
    first_name: str, first: ArrayLike, second_name: str, second: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    a, b = _vector(first_name, first), _vector(second_name, second)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"{first_name} and {second_name} must permute the same number of items, "
            f"got {a.shape[-1]} and {b.shape[-1]}."
        )
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    return jnp.broadcast_to(a, shape), jnp.broadcast_to(b, shape)


def _first_bad(perm: jax.Array) -> list[int]:
    rows = np.asarray(perm).reshape(-1, perm.shape[-1])
    bad = next(row for row in rows if sorted(row) != list(range(len(row))))
    return [int(j) for j in bad]
