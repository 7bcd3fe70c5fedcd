r"""The two graphs whose match a function is, from its second derivatives or from swaps.

What two swaps change together beyond what each changes alone is a second difference: with rows i,
k and p, q in columns j, l and s, t it is :math:`(e_i - e_k)^\top M (e_p - e_q)`, where M is the
slice of the second derivatives for :math:`u = e_j - e_l` and :math:`v = e_s - e_t`.
"""

from collections.abc import Callable

import numpy as np

from permvi._jax import jax, jnp
from permvi.inference.map import Quadratic

# How often rows and columns are split at random to look at derivatives: in two for second ones,
# each seen by an eighth of the splits, in three for higher ones, seen by 1 in 120. Below the second
# number, in units of the largest, they are rounding.
_NUM_SPLITS, _NOTHING = 512, 1e-4
# The most rows whose edges are looked for.
_MAX_ROWS = 300
# Edges that differ by less, in units of the largest, are equal, if the first and the last of many
# in a row are at most so many times as far apart.
_SAME, _WIDEST = 1e-6, 16
_OTHER = "the function must be linear or quadratic as the match of two graphs, got another one."
# Entries of matrices that are made at once, and how many matrices at least.
_AT_ONCE, _FEWEST = 1 << 24, 16


def derivatives(
    function: Callable[[jax.Array], jax.Array], shape: tuple[int, int], rng: np.random.Generator
) -> tuple[Quadratic, np.ndarray]:
    """Return the edges, zero if there are none, and the gradient at zero.

    Pairs with one row or one column in common are in no matching together, so that only derivatives
    for different rows and different columns count.

    Raises:
        ValueError: There are higher derivatives that count, or second ones that are not those of
            two graphs of a moderate size.
    """
    n, m = shape
    zero = np.zeros((1, n, m))
    gradient = jax.grad(function)
    at_zero = np.asarray(gradient(jnp.asarray(zero[0])), np.float64)

    @jax.jit
    def hessian(points: jax.Array, directions: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):
            return jax.lax.map(
                lambda pair: jax.jvp(gradient, (pair[0],), (pair[1],))[1], (points, directions)
            )

    def times(rows: np.ndarray, cols: np.ndarray, points: np.ndarray = zero) -> np.ndarray:
        """Return the Hessian at points times rows (k, n) by cols (k, m): (k, n, m)."""
        given = _outer(rows, cols)
        at = np.broadcast_to(points, given.shape)
        return np.asarray(hessian(jnp.asarray(at), jnp.asarray(given)), np.float64)

    num = at_most(_NUM_SPLITS, n, m)
    rows, cols = (rng.integers(3, size=(num, 1, size)) == np.arange(3)[:, None] for size in shape)
    x, y = (rng.normal(size=part.shape) * part for part in (rows, cols))
    there = times(x[:, 1], y[:, 1], _outer(x[:, 2], y[:, 2]))
    change = (there - times(x[:, 1], y[:, 1])) * _outer(rows[:, 0], cols[:, 0])
    if np.abs(change).max() > _NOTHING * np.abs(there).max():
        raise ValueError(_OTHER)
    # Vectors on a part of the rows or columns, and on the other one.
    p, q = _split(n, num, rng)
    u, v = _split(m, num, rng)
    blocks = times(q, v) * _outer(p != 0, u != 0)
    largest = np.abs(blocks).max()
    if largest == 0 or not np.isfinite(largest):
        return no_edges(n, m), at_zero
    if n != m or n > _MAX_ROWS:
        raise ValueError(_OTHER)
    eye, s = np.eye(n), np.abs(blocks).max(axis=(1, 2)).argmax()
    A = np.einsum("kij,j->ik", times(eye, np.repeat(v[s : s + 1], n, 0)), u[s])
    B = np.einsum("lij,i->jl", times(np.repeat(q[s : s + 1], n, 0), eye), p[s])
    edges = _graphs(A, B, u[s], v[s])
    expected = _both_ways(edges or no_edges(n, m), q, v)
    apart = np.abs(expected * _outer(p != 0, u != 0) - blocks).max()
    if edges is None or apart > _NOTHING * largest:
        raise ValueError(_OTHER)
    return edges, at_zero


def by_swaps(
    at: Callable[[np.ndarray], np.ndarray],
    rows: np.ndarray,
    columns: np.ndarray,
    rng: np.random.Generator,
    error: float,
) -> Quadratic | None:
    """Return edges from what pairs of swaps change, in about 8 n^2 values, or None.

    Args:
        at: The function, of permutations (num, n).
        rows: (4,) rows i, k, p and q whose swaps (i, k) and (p, q) do not add up.
        columns: (n,) the permutation that they start from.
        rng: The source of randomness.
        error: What rounding may do to a value of the function.
    """
    size = len(columns)

    def slices(fixed: np.ndarray, *, turned: bool) -> np.ndarray:
        """Return the slice for four fixed columns, or rows if ``turned``, (n, n)."""

        def differences(moved: np.ndarray) -> np.ndarray:
            """Return second differences (k,) for rows, or columns if ``turned``, (k, 4)."""
            perms = np.argsort(rng.random((len(moved), size)), axis=1)
            for place in range(4):
                perms = with_pair(perms, moved[:, place], np.full(len(moved), fixed[place]))
            perms = with_both_swaps(perms, *moved.T)
            return second_differences(at(np.argsort(perms, axis=1) if turned else perms))

        return _without_margins(_from_minors(differences, size))

    A = slices(columns[rows], turned=False)
    B = slices(rows, turned=True)
    eye = np.eye(size)
    ends = eye[columns[rows]]
    return _graphs(A, B, ends[0] - ends[1], ends[2] - ends[3], error)


def _from_minors(differences: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray:
    """Return (n, n) entries off the diagonal, up to a constant for each row and each column.

    Row 0 and column 1 are zero, and so are entries (1, 2) and (2, 0), which those leave open.
    """
    M = np.zeros((size, size))
    later = np.arange(2, size)
    i, p = (index.ravel() for index in np.meshgrid(later, later, indexing="ij"))
    i, p = i[i != p], p[i != p]
    M[i, p] = differences(np.stack([i, 0 * i, p, 0 * i + 1], axis=1))
    rest = later[1:]
    one, zero, two = np.ones_like(rest), np.zeros_like(rest), np.full_like(rest, 2)
    M[1, rest] = differences(np.stack([one, zero, rest, two], axis=1))
    M[rest, 0] = differences(np.stack([rest, two, zero, one], axis=1))
    last = differences(np.array([[1, 3, 0, 4]]))[0]
    M[1, 0] = last + M[1, 4] + M[3, 0] - M[3, 4]
    return M


def _without_margins(M: np.ndarray) -> np.ndarray:
    """Return (n, n) entries whose rows and columns sum to zero, the diagonal left out.

    Constants of rows and columns belong to the scores of single pairs.
    """
    n = len(M)
    off = ~np.eye(n, dtype=bool)
    places = np.nonzero(off)
    design = np.zeros((len(places[0]), 2 * n))
    at = np.arange(len(design))
    design[at, places[0]] = design[at, n + places[1]] = 1.0
    constants = np.linalg.lstsq(design.T @ design, design.T @ M[off], rcond=None)[0]
    return (M - constants[:n, None] - constants[n:]) * off


def second_differences(values: np.ndarray) -> np.ndarray:
    """Return (k,) what two swaps change beyond each, from values (4 k,) of `with_both_swaps`."""
    none, one, other, both = np.split(values, 4)
    return none - one - other + both


def swapped(perms: np.ndarray, i: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return matchings (num, n) whose rows i (num,) and k (num,) have swapped their columns."""
    result, at = perms.copy(), np.arange(len(perms))
    result[at, i], result[at, k] = perms[at, k], perms[at, i]
    return result


def with_both_swaps(
    perms: np.ndarray, i: np.ndarray, k: np.ndarray, p: np.ndarray, q: np.ndarray
) -> np.ndarray:
    """Return matchings (num, n), then those with rows i and k swapped, with p and q, with both."""
    one = swapped(perms, i, k)
    return np.concatenate([perms, one, swapped(perms, p, q), swapped(one, p, q)])


def with_pair(perms: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return permutations (num, n) with the pairs (rows, cols), (num,) each, by a swap."""
    return swapped(perms, rows, np.argmax(perms == cols[:, None], axis=1))


def _outer(rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return the products (k, n, m) of rows (k, n) and cols (k, m)."""
    return rows[:, :, None] * cols[:, None, :]


def no_edges(n: int, m: int) -> Quadratic:
    """Return the form that is zero everywhere."""
    return Quadratic(np.zeros((n, n)), np.zeros((m, m)), np.zeros((n, m)))


def _graphs(
    A: np.ndarray, B: np.ndarray, u: np.ndarray, v: np.ndarray, error: float = 0.0
) -> Quadratic | None:
    r"""Return the edges of a function, given two slices of its second derivatives.

    These are :math:`H_{(ij)(kl)} = a S_{ik} S'_{jl} + b T_{ik} T'_{jl}` for :math:`i \ne k` and
    :math:`j \ne l`, with S symmetric and T antisymmetric. ``A`` (n, n) is their sum with ``u v'``
    over j and l, and ``B`` a like sum over i and k, both off by about ``error``. Return None if one
    slice vanishes.
    """
    n = len(A)
    errors = [2 * error / np.abs(array).max(initial=np.finfo(float).tiny) for array in (A, B)]
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
    A, B = (array / np.abs(array).max() for array in (A, B))
    A, B = (merged(array, max(_SAME, apart)) for array, apart in zip((A, B), errors, strict=True))
    return Quadratic(size * A, B, np.zeros((n, n)))


def merged(array: np.ndarray, apart: float) -> np.ndarray:
    """Return an array in which numbers that are nearly equal are equal.

    Rounding must not break ties, since modes and symmetries of graphs depend on them. Of sorted
    numbers, those less than ``apart`` from the next one are replaced by their mean, if the first
    and the last of them are not further from each other than the width of a few steps.
    """
    values, places = np.unique(array, return_inverse=True)
    first = np.flatnonzero(np.diff(values, prepend=-np.inf) > apart)
    count = np.diff(first, append=len(values))
    near = values[first + count - 1] - values[first] <= _WIDEST * apart
    means = np.add.reduceat(values, first) / count
    means[np.abs(means) < apart] = 0.0
    return np.where(np.repeat(near, count), np.repeat(means, count), values)[places]


def _both_ways(edges: Quadratic, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return second derivatives of edges times rows (k, n) by cols (k, n): (k, n, n)."""
    out = _outer(rows @ edges.A.T, cols @ edges.B.T)
    return out + _outer(rows @ edges.A, cols @ edges.B)


def _split(size: int, num: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return random vectors (num, size), zero on half of all places, and on the others."""
    halves = np.argsort(rng.random((num, size)), axis=1) < size // 2
    vectors = rng.normal(size=(2, num, size))
    return vectors[0] * halves, vectors[1] * ~halves


def at_most(num: int, n: int, m: int) -> int:
    """Return how many matrices (n, m) to make at once, up to ``num``."""
    return int(np.clip(_AT_ONCE // (n * m), _FEWEST, num))
