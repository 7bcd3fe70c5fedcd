r"""Flat pictures of the simplex, the hypercube and the Birkhoff polytope of three items.

**Birkhoff polytope.** The 3x3 doubly-stochastic matrices have four dimensions. The six permutation
matrices P are two triangles, the even ones and the odd ones, each with the all-1/3 matrix as its
centre: two matrices of the same kind have no 1 in common, two of different kinds have one. Put the
even ones on a triangle in the plane and the odd ones on the opposite triangle, so that together
they are the corners p_P of a regular hexagon of radius 1. Then

.. math:: f(X) = \tfrac13 \sum_P \langle X, P \rangle \, p_P

is linear and sends each P to its corner: the inner product of P with itself is 3, with its own kind
0 and with the other kind 1, and the corners of each kind add up to zero. Two facts make the picture
easy to read. White noise of standard deviation s in the nine entries is white noise of standard
deviation s in the plane. And among all permutation matrices the nearest P has the greatest inner
product with X, which puts f(X) on P's side of the centre; so rounding with temperature t gives
``f(X) . p_P >= 1 - t``, and the middle of the hexagon is empty.
"""

import itertools

import numpy as np

from permvi import permutations


def _on_circle(degrees: list[float]) -> np.ndarray:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


TRIANGLE = _on_circle([90, 210, 330])

PERMUTATIONS = permutations.enumerate_permutations(3)
# In lexicographic order; the even ones are 012, 120 and 201.
HEXAGON = _on_circle([90, 30, 150, 210, 330, 270])
_MATRICES = np.eye(3)[PERMUTATIONS]

# Four edge directions 45 degrees apart make the outline of the 4-cube a regular octagon. This
# length gives it the radius 1.
_EDGES = _on_circle([22.5, 67.5, 112.5, 157.5]) / (np.cos(np.pi / 8) + np.sin(np.pi / 8))


# The corners of the 4-cube on the octagon: up from zero on the right, one entry of B at a time, and
# down again on the left.
OCTAGON = np.concatenate([np.tri(4, k=-1), 1 - np.tri(4, k=-1)]).reshape(8, 2, 2)


def of_simplex(x: np.ndarray) -> np.ndarray:
    """R^3 seen along its diagonal, one-hot vectors on ``TRIANGLE``: (..., 3) -> (..., 2)."""
    return x @ TRIANGLE


def of_birkhoff(X: np.ndarray) -> np.ndarray:
    """3x3 matrices, permutation matrices on ``HEXAGON``: (..., 3, 3) -> (..., 2)."""
    return np.einsum("...ij,pij,pk->...k", X, _MATRICES, HEXAGON) / 3


def of_hypercube(B: np.ndarray) -> np.ndarray:
    """Points of [0, 1]^(2x2), inside an octagon around the origin: (..., 2, 2) -> (..., 2)."""
    return (B.reshape(*B.shape[:-2], 4) - 0.5) @ _EDGES


def hypercube_edges() -> np.ndarray:
    """Ends of the 32 edges of the 4-cube in the picture: (32, 2, 2)."""
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=4))).reshape(-1, 2, 2)
    pairs = [(a, b) for a, b in itertools.combinations(corners, 2) if np.abs(a - b).sum() == 1]
    return of_hypercube(np.array(pairs))
