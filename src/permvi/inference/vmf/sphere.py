r"""Permutations as points of a sphere, and von Mises-Fisher distributions on it.

All permutation matrices of n items have the same distance :math:`\sqrt{n - 1}` to their barycentre,
the matrix of equal entries. So

.. math:: x(X) = (X - 1/n) / \sqrt{n - 1}

is a point of the unit sphere in the :math:`d = (n-1)^2` dimensions of the matrices whose rows and
columns sum to zero (Plis, McCracken, Lane and Calhoun 2011). Points are stored as (n, n) matrices
with the inner product of their entries. A point is rounded to the permutation at the smallest
angle, which is a linear assignment.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln, ive, logsumexp

from permvi import assignment

# Below this the scaled Bessel function loses digits, and its series is summed in log space.
_SMALLEST_BESSEL = 1e-280


def embed(perms: np.ndarray) -> np.ndarray:
    """Return the points (..., n, n) of permutations (..., n) on the unit sphere; zero if n = 1."""
    n = perms.shape[-1]
    return (np.eye(n)[perms] - 1 / n) / math.sqrt(max(n - 1, 1))


def nearest_permutations(points: np.ndarray) -> np.ndarray:
    """Return the permutations (..., n) at the smallest angle to points (..., n, n)."""
    return np.asarray(assignment.solve(points, backend="host"), dtype=np.int64)


def centre(matrices: np.ndarray) -> np.ndarray:
    """Return the nearest centred matrices: (..., n, n) without their row and column means."""
    rows = matrices - matrices.mean(axis=-1, keepdims=True)
    return rows - rows.mean(axis=-2, keepdims=True)


@dataclass(frozen=True, eq=False)
class VonMisesFisher:
    r"""The distribution with density :math:`C_d(\kappa) \exp(\kappa \langle \mu, y \rangle)`.

    .. math:: C_d(\kappa) = \kappa^{d/2 - 1} / ((2 \pi)^{d/2} I_{d/2-1}(\kappa))

    is its normaliser on the unit sphere of :math:`d = (n-1)^2` dimensions, which has two points if
    n = 2 and none if n = 1.

    Attributes:
        mean: (n, n) the mean direction :math:`\mu`, centred and of norm one.
        kappa: The concentration, at least zero.
    """

    mean: np.ndarray
    kappa: float

    @property
    def dim(self) -> int:
        """The number of dimensions d."""
        return (len(self.mean) - 1) ** 2

    @property
    def log_normalizer(self) -> float:
        r""":math:`\log C_d(\kappa)`; with :math:`\kappa = 0`, minus the log area of the sphere."""
        half = self.dim / 2
        area = math.log(2) + half * math.log(math.pi) - math.lgamma(half)
        # Without its leading power the Bessel function is finite at zero.
        return -area - _log_bessel(half - 1, self.kappa)

    @property
    def mean_resultant(self) -> float:
        r""":math:`E \langle \mu, y \rangle = I_{d/2}(\kappa) / I_{d/2-1}(\kappa)`."""
        order = self.dim / 2
        ratio = _log_bessel(order, self.kappa) - _log_bessel(order - 1, self.kappa)
        return self.kappa / self.dim * math.exp(ratio)

    def log_prob(self, points: np.ndarray) -> np.ndarray:
        """Return log densities (...) of centred points (..., n, n) of norm one."""
        return self.log_normalizer + self.kappa * (self.mean * points).sum(axis=(-2, -1))

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        r"""Return (num, n, n) independent points :math:`w \mu + \sqrt{1 - w^2}\, v`.

        v is uniform on the sphere around :math:`\mu`; w comes from Wood's (1994) rejection sampler.
        No basis of the d dimensions is needed, so a draw costs O(n^2).
        """
        return self.points(self.heights(num, rng), self.tangents(num, rng))

    def heights(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (num,) inner products w with the mean: ~ exp(kappa w) (1 - w^2)^((d - 3) / 2)."""
        dim, kappa = self.dim, self.kappa
        if dim <= 1:
            # Two points, one of which is the mean; or none at all.
            return np.where(rng.random(num) < expit(2 * kappa), 1.0, -1.0)
        spread = dim - 1
        b = spread / (2 * kappa + math.hypot(2 * kappa, spread))
        top = (1 - b) / (1 + b)
        bound = kappa * top + spread * math.log1p(-(top**2))
        kept: list[np.ndarray] = []
        missing = num
        while missing > 0:
            z = rng.beta(spread / 2, spread / 2, size=2 * missing)
            w = (1 - (1 + b) * z) / (1 - (1 - b) * z)
            log_ratio = kappa * w + spread * np.log1p(-top * w) - bound
            kept.append(w[np.log1p(-rng.random(len(w))) <= log_ratio][:missing])
            missing -= len(kept[-1])
        return np.concatenate(kept)

    def tangents(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Draw (num, n, n) uniform directions v orthogonal to the mean; zero if there are none."""
        n = len(self.mean)
        if n <= 2:
            return np.zeros((num, n, n))
        noise = centre(rng.normal(size=(num, n, n)))
        noise -= np.tensordot(noise, self.mean)[:, None, None] * self.mean
        return noise / np.linalg.norm(noise, axis=(1, 2), keepdims=True)

    def points(self, heights: np.ndarray, tangents: np.ndarray) -> np.ndarray:
        """Return (num, n, n) the points of these heights in these directions from the mean."""
        w = heights[:, None, None]
        return w * self.mean + np.sqrt(1 - w**2) * tangents


def _log_bessel(order: float, kappa: float) -> float:
    r"""Return :math:`\log [\Gamma(\nu + 1) (2 / \kappa)^\nu I_\nu(\kappa)]`, zero at kappa zero.

    The Bessel function itself underflows if the order is large and :math:`\kappa` is not. Then its
    series :math:`\sum_k (\kappa/2)^{2k} / (k!\, (\nu + 1)_k)` is short.
    """
    scaled = ive(order, kappa)
    if kappa > 1 and scaled > _SMALLEST_BESSEL:
        return math.log(scaled) + kappa + math.lgamma(order + 1) - order * math.log(kappa / 2)
    if kappa == 0:
        return 0.0
    largest = (math.hypot(order, kappa) - order) / 2
    k = np.arange(int(largest + 20 * math.sqrt(largest + 1) + 40))
    log_terms = 2 * k * math.log(kappa / 2) - gammaln(k + 1) - gammaln(order + k + 1)
    return float(logsumexp(log_terms) + gammaln(order + 1))
