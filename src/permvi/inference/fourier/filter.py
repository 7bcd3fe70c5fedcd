"""Which track is whom? A filter on Fourier coefficients for tracks that mix and are identified."""

import copy
import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import whole
from permvi.inference.fourier.transform import Coefficients, multiply, project, to_marginals
from permvi.inference.fourier.young import irrep, partitions

# Coefficients times tracks, and tuples of tracks, that are still affordable.
_MAX_COEFFICIENTS = 1_000_000
_MAX_TUPLES = 1000
# Of the largest likelihood; less is a rounding error.
_IMPOSSIBLE = 1e-12


class IdentityFilter:
    r"""A band-limited distribution over who is where: ``perm[i] = j`` if track i is identity j.

    It knows the probabilities of one track (order 1), of two tracks (order 2), ..., or of all of
    them (order n - 1, where everything is exact), as Fourier coefficients on the symmetric group
    (Kondor, Howard and Jebara 2007; Huang, Guestrin and Guibas 2009). Methods return a new filter.

    *Prediction*, tracks being exchanged at random, is exact at every order: it keeps the band
    limit. *Observation* of a track's identity is not: the posterior's marginals of order s depend
    on the prior's of order s + 1, which a filter of order s takes for those of a function without
    coefficients beyond s. That function may be negative, and so may be the result; it is then
    replaced by the nearest valid marginals. The error is small where the distribution is spread
    out and large where it is concentrated.

    Cost: with :math:`d \sim n^s / s!` the largest dimension, a prediction takes O(n d^2) for each
    exchange, an observation O(n d^3), and the projection after it O(n^{2s} d) for each step.

    Args:
        n: How many tracks, at least 2.
        order: The band limit s, from 1 to n - 1 (larger ones count as n - 1).
        start: (n,) the identities of all tracks where they are known; by default nothing is.

    Attributes:
        n: How many tracks.
        order: The band limit.
        coefficients: (d, d) Fourier coefficients by partition.
        log_evidence: Log probability of all observations so far, as the filter sees it.
    """

    def __init__(self, n: int, order: int = 1, start: ArrayLike | None = None) -> None:
        if whole("n", n) < 2:
            raise ValueError(f"n must be at least 2, got {n}.")
        self.n, self.order = n, min(whole("order", order), n - 1)
        self.log_evidence = 0.0
        _refuse_large(self.n, self.order)
        kept = [irrep(partition) for partition in partitions(self.n, self.order)]
        if start is None:
            # The uniform distribution: only the trivial representation sees it.
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
        """(n, n) the probability that track i is identity j; rows and columns sum to one."""
        return self.tuple_marginals(1)

    def tuple_marginals(self, order: int) -> np.ndarray:
        """(N, N) the probability that several tracks have several identities.

        Args:
            order: How many at once, up to the band limit; rows and columns are in the order of
                `permvi.inference.fourier.tuples`.
        """
        if not 1 <= whole("order", order) <= self.order:
            raise ValueError(f"order must be at most the band limit {self.order}, got {order}.")
        return to_marginals(self.coefficients, order)

    def predict(self, perms: ArrayLike, probs: ArrayLike) -> "IdentityFilter":
        """After the tracks were permuted at random: track i now is what track ``perms[k, i]`` was.

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
        """After two tracks came close and may have been exchanged, with this probability."""
        pair = [_track(name, t, self.n) for name, t in (("first", first), ("second", second))]
        exchanged = np.arange(self.n)
        exchanged[pair] = pair[::-1]
        share = _probability(probability)
        return self.predict([np.arange(self.n), exchanged], [1 - share, share])

    def mix(self, probability: float) -> "IdentityFilter":
        """After two tracks, any two of them, were exchanged with this probability."""
        share = _probability(probability)
        found = {
            partition: (1 - share + share * irrep(partition).mean_transposition) * matrix
            for partition, matrix in self.coefficients.items()
        }
        return self._with(found, self.log_evidence)

    def observe(self, track: int, likelihood: ArrayLike) -> "IdentityFilter":
        """After evidence of a track's identity.

        Args:
            track: The track.
            likelihood: (n,) the probability of what was seen, for each identity of the track.

        Raises:
            ValueError: What was seen has probability zero.
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
        """The same filter in another state."""
        other = copy.copy(self)
        vars(other).pop("marginals", None)
        other.coefficients, other.log_evidence = coefficients, log_evidence
        return other


def _refuse_large(n: int, order: int) -> None:
    # From above, without listing tableaux, which may take for ever.
    num_tuples = math.perm(n, order)
    full = order == n - 1
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
