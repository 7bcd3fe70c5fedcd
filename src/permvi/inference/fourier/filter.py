"""A filter for the identities of tracks that mix and are observed, on Fourier coefficients."""

import copy
import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import whole
from permvi.inference.fourier.transform import Coefficients, multiply, project, to_marginals
from permvi.inference.fourier.young import irrep, partitions

# The largest affordable numbers of coefficients times tracks, and of tuples of tracks.
_MAX_COEFFICIENTS = 1_000_000
_MAX_TUPLES = 1000
# A smaller fraction of the largest likelihood is a rounding error.
_IMPOSSIBLE = 1e-12


class IdentityFilter:
    r"""A band-limited distribution over identities: ``perm[i] = j`` if track i has identity j.

    The filter stores the joint probabilities of the identities of one track (order 1), of two
    tracks (order 2), ..., or of all (order n - 1, which is exact), as Fourier coefficients on the
    symmetric group (Kondor, Howard and Jebara 2007; Huang, Guestrin and Guibas 2009). Methods
    return a new filter.

    *Prediction*, a random exchange of tracks, is exact at every order, since it keeps the band
    limit. *Observation* of a track's identity is not: the posterior marginals of order s depend on
    the prior marginals of order s + 1, and a filter of order s takes all coefficients beyond s to
    be zero. The result may have negative entries; it is then replaced by the nearest valid
    marginals. The error is small for spread-out distributions and large for concentrated ones.

    Cost: with :math:`d \sim n^s / s!` the largest dimension, a prediction takes O(n d^2) for each
    exchange, an observation O(n d^3), and the projection after it O(n^{2s} d) for each step.

    Args:
        n: The number of tracks, at least 2.
        order: The band limit s, from 1 to n - 1 (larger values mean n - 1).
        start: (n,) the identities of all tracks, if they are known; uniform by default.

    Attributes:
        coefficients: (d, d) Fourier coefficients by partition.
        log_evidence: The filter's log probability of all observations so far.
    """

    def __init__(self, n: int, order: int = 1, start: ArrayLike | None = None) -> None:
        if whole("n", n) < 2:
            raise ValueError(f"n must be at least 2, got {n}.")
        self.n, self.order = n, min(whole("order", order), n - 1)
        self.log_evidence = 0.0
        _refuse_large(self.n, self.order)
        kept = [irrep(partition) for partition in partitions(self.n, self.order)]
        if start is None:
            # The uniform distribution has only the coefficient of the trivial representation.
            self.coefficients = {each.partition: np.zeros((each.dim, each.dim)) for each in kept}
            self.coefficients[(n,)] = np.ones((1, 1))
        else:
            perm = _permutation("start", start, n)
            self.coefficients = {each.partition: each.matrix(perm) for each in kept}

    @property
    def is_exact(self) -> bool:
        """Whether there is no band limit."""
        return self.order == self.n - 1

    @cached_property
    def marginals(self) -> np.ndarray:
        """The probabilities (n, n) that track i has identity j; rows and columns sum to one."""
        return self.tuple_marginals(1)

    def tuple_marginals(self, order: int) -> np.ndarray:
        """Return (N, N) the joint probabilities of the identities of ``order`` tracks.

        The order is at most the band limit. Rows and columns are in the order of
        `permvi.inference.fourier.tuples`.
        """
        if not 1 <= whole("order", order) <= self.order:
            raise ValueError(f"order must be at most the band limit {self.order}, got {order}.")
        return to_marginals(self.coefficients, order)

    def predict(self, perms: ArrayLike, probs: ArrayLike) -> "IdentityFilter":
        """Permute the tracks at random: track i now is what track ``perms[k, i]`` was.

        Args:
            perms: (K, n) permutations of the tracks.
            probs: (K,) their probabilities.
        """
        moves = [_permutation("perms", perm, self.n) for perm in np.atleast_2d(np.asarray(perms))]
        weights = np.asarray(probs, dtype=np.float64)
        if weights.shape != (len(moves),) or not (weights >= 0).all():
            raise ValueError(
                f"probs must be {len(moves)} probabilities, one for each of perms, got "
                f"{weights.tolist()!r:.60}."
            )
        if not math.isclose(weights.sum(), 1.0, abs_tol=1e-6):
            raise ValueError(f"probs must sum to one, got {weights.sum():.9g}.")
        found = {}
        for partition, matrix in self.coefficients.items():
            moved = [irrep(partition).right(matrix, perm) for perm in moves]
            found[partition] = np.tensordot(weights / weights.sum(), np.stack(moved), axes=1)
        return self._with(found, self.log_evidence)

    def swap(self, first: int, second: int, probability: float) -> "IdentityFilter":
        """Exchange two given tracks with this probability."""
        pair = [_track(name, t, self.n) for name, t in (("first", first), ("second", second))]
        exchanged = np.arange(self.n)
        exchanged[pair] = pair[::-1]
        share = _probability(probability)
        return self.predict([np.arange(self.n), exchanged], [1 - share, share])

    def mix(self, probability: float) -> "IdentityFilter":
        """Exchange two tracks, any two alike, with this probability."""
        share = _probability(probability)
        found = {
            partition: (1 - share + share * irrep(partition).mean_transposition) * matrix
            for partition, matrix in self.coefficients.items()
        }
        return self._with(found, self.log_evidence)

    def observe(self, track: int, likelihood: ArrayLike) -> "IdentityFilter":
        """Condition on an observation of a track.

        Args:
            track: The track.
            likelihood: (n,) the probability of the observation given each identity of the track.

        Raises:
            ValueError: The observation has probability zero.
        """
        item = _track("track", track, self.n)
        values = np.asarray(likelihood, dtype=np.float64)
        if values.shape != (self.n,) or not ((values >= 0) & np.isfinite(values)).all():
            raise ValueError(
                f"likelihood must be {self.n} finite numbers of at least 0, got "
                f"{values.tolist()!r:.60}."
            )
        products = multiply(self.coefficients, item, values)
        evidence = float(products[(self.n,)][0, 0])
        if evidence <= _IMPOSSIBLE * values.max():
            raise ValueError(
                f"likelihood must be positive for an identity that track {track} may have, got "
                f"{values.tolist()!r:.60}."
            )
        found = {partition: matrix / evidence for partition, matrix in products.items()}
        if not self.is_exact:
            found = project(found, self.order).coefficients
        return self._with(found, self.log_evidence + math.log(evidence))

    def _with(self, coefficients: Coefficients, log_evidence: float) -> "IdentityFilter":
        """Return the filter in another state."""
        other = copy.copy(self)
        vars(other).pop("marginals", None)
        other.coefficients, other.log_evidence = coefficients, log_evidence
        return other


def _refuse_large(n: int, order: int) -> None:
    # An upper bound, since listing tableaux may take too long.
    num_tuples, full = math.perm(n, order), order == n - 1
    num_coefficients = math.factorial(n) if full else num_tuples**2 / math.factorial(order)
    if n * num_coefficients > _MAX_COEFFICIENTS or (num_tuples > _MAX_TUPLES and not full):
        raise ValueError(
            f"order must be lower for {n} tracks, got {order}: order 1 takes up to 100 of them, "
            "order 2 up to 18, and all orders up to 7."
        )


def _permutation(name: str, value: ArrayLike, n: int) -> np.ndarray:
    array = np.asarray(value)
    if sorted(array.ravel().tolist()) != list(range(n)) or array.shape != (n,):
        raise ValueError(f"{name} must hold each of 0 to {n - 1} once, got {value!r:.60}.")
    return array.astype(np.int64)


def _track(name: str, value: int, n: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < n:
        raise ValueError(f"{name} must be a track from 0 to {n - 1}, got {value!r:.60}.")
    return int(value)


def _probability(value: float) -> float:
    if not (np.ndim(value) == 0 and 0 <= value <= 1):
        raise ValueError(f"probability must be in [0, 1], got {value!r:.60}.")
    return float(value)
