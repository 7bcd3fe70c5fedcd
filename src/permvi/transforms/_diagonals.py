"""Anti-diagonals of a square matrix as rows, and segments of a sweep over them."""

import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

# Smaller matrices are swept in one segment: each takes about 0.3 s to compile.
LARGE = 192
# How many rows of a small matrix fill the vector registers of a CPU.
LANES = 16


class Segment(NamedTuple):
    """Anti-diagonals ``start`` to ``stop``, whose cells are in rows ``low`` to ``high``."""

    start: int
    stop: int
    low: int
    high: int


def segments(K: int, rows: int, width: int) -> list[Segment]:
    """Cut the anti-diagonals of a (K, K) matrix into segments that leave out idle rows.

    The ``rows`` swept include idle ones after the last row of the matrix. In a segment ``width``
    rows begin or end; K makes one segment.
    """
    begun = range(width, K, width)
    cuts = [0, *begun, *(K - 1 + ended for ended in begun), 2 * K - 1]
    return [
        Segment(start, stop, max(0, start - K + 1), min(rows, stop))
        for start, stop in itertools.pairwise(cuts)
    ]


def with_idle_rows(matrix: jax.Array, lanes: int) -> jax.Array:
    """Append rows of zeros to a (K, K) matrix until their number is a multiple of ``lanes``.

    A few single rows at the end of a loop take a CPU as long as all the others. Nothing that
    happens in idle rows reaches the rows above them. Tiny matrices stay as they are.
    """
    K = matrix.shape[0]
    rows = lanes * math.ceil(K / lanes)
    return jnp.pad(matrix, ((0, rows - K if rows < 2 * K else 0), (0, 0)))


def skew(matrix: jax.Array) -> jax.Array:
    """Anti-diagonals as rows: out[s, m] = matrix[m, s - m], zero outside.

    (rows, K) -> (2K-1, rows), where rows from K on must be zero.
    """
    rows, K = matrix.shape
    # Rows padded to length 2K and read with stride 2K-1 slide one place to the right each.
    flat = jnp.pad(matrix, ((0, 0), (0, K))).reshape(-1)
    return flat[: rows * (2 * K - 1)].reshape(rows, 2 * K - 1).T


def unskew(diagonals: jax.Array) -> jax.Array:
    """The inverse of ``skew`` on the entries inside: (2K-1, K) -> (K, K)."""
    K = diagonals.shape[1]
    flat = jnp.pad(diagonals.T.reshape(-1), (0, K))
    return flat.reshape(K, 2 * K)[:, :K]
