"""Method "mallows": a Mallows model around the best matching, and the law of such a model.

This is a baseline of the paper's matching study. Its probabilities are exact and it is easy to draw
from, but it depends on the data only through the centre and the dispersion.
"""

import dataclasses
import functools
import heapq
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from permvi import assignment, permutations
from permvi._checks import one_of, whole
from permvi.distributions import Mallows
from permvi.distributions._mallows import DISTANCES, log_normalizer
from permvi.distributions.mallows import Distance
from permvi.inference.mallows import draw_by_swaps, draw_exactly, fit_theta
from permvi.inference.map import solve_density
from permvi.inference.method import Context, Method, MethodInfo
from permvi.inference.verdict.audit import audited_draws
from permvi.posterior import Posterior
from permvi.posterior.laws import register_law
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import Prepared

Sampler = Literal["exact", "mcmc"]


@register_law
class MallowsLaw:
    """A Mallows model of the rows and columns without a known pair, in their order.

    Args:
        centre: (n,) the most probable permutation, known pairs included.
        theta: The dispersion.
        distance: The distance between permutations.
        known: (n,) known columns, -1 where unknown; by default none is known.
        sampler: "exact", or "mcmc" for chains of swaps.
        num_steps: Steps of each chain.
    """

    kind: ClassVar[str] = "mallows"

    def __init__(
        self,
        centre: ArrayLike,
        theta: float,
        distance: Distance = "footrule",
        *,
        known: ArrayLike | None = None,
        sampler: Sampler = "exact",
        num_steps: int = 1000,
    ) -> None:
        self.centre = np.array(centre, dtype=np.int64)
        n = len(self.centre)
        self.theta, self.distance, self.num_steps = float(theta), distance, int(num_steps)
        self.sampler = one_of("sampler", sampler, ("exact", "mcmc"))
        self.known = np.full(n, -1) if known is None else np.array(known, dtype=np.int64)
        self._rows = np.flatnonzero(self.known < 0)
        self._cols = np.setdiff1d(np.arange(n), self.known)
        self._free_centre = np.searchsorted(self._cols, self.centre[self._rows])

    @property
    def entropy(self) -> float:
        r"""The entropy in nats: :math:`\log Z - \theta\, d \log Z / d\theta`, by differences."""
        n, step = len(self._rows), 1e-5
        ends = np.array([max(self.theta - step, 0.0), self.theta + step])
        low, high = log_normalizer(ends, n, self.distance, np)
        slope = (high - low) / (ends[1] - ends[0])
        return max(0.0, self._log_normalizer - self.theta * float(slope))

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Return independent draws, exact or by chains."""
        law = Mallows(jnp.asarray(self._free_centre), self.theta, self.distance)
        key = jax.random.key(int(rng.integers(2**32)))
        exact = self.sampler == "exact"
        draws = (
            draw_exactly(law, key, num) if exact else draw_by_swaps(law, key, num, self.num_steps)
        )
        perms = np.tile(self.known, (num, 1))
        perms[:, self._rows] = self._cols[np.asarray(draws)]
        return perms

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Return exact log probabilities, -inf for non-permutations and broken known pairs."""
        flat = perms.reshape(-1, perms.shape[-1])
        n = flat.shape[1]
        valid = (np.sort(flat, axis=1) == np.arange(n)).all(axis=1)
        valid &= ((flat == self.known) | (self.known < 0)).all(axis=1)
        found = np.full(len(flat), -np.inf)
        free = np.searchsorted(self._cols, flat[valid][:, self._rows])
        if len(free):
            d = np.asarray(getattr(permutations, self.distance)(free, self._free_centre))
            found[valid] = -self.theta * d.astype(np.float64) - self._log_normalizer
        return found.reshape(perms.shape[:-1])

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k most probable permutations, exactly, and their probabilities.

        Under all four distances, every permutation but the centre is one swap away from one nearer
        to the centre. A best-first search along swaps therefore finds them in order.
        """
        start = tuple(self.centre.tolist())
        heap, seen = [(0.0, start)], {start}
        found: list[tuple[int, ...]] = []
        while heap and len(found) < k:
            _, perm = heapq.heappop(heap)
            found.append(perm)
            around = self._swapped(np.array(perm))
            for other, log_prob in zip(around.tolist(), self.log_prob(around), strict=True):
                if tuple(other) not in seen:
                    seen.add(tuple(other))
                    heapq.heappush(heap, (-float(log_prob), tuple(other)))
        perms = np.array(found)
        return perms, np.exp(self.log_prob(perms))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters as arrays."""
        names = ("centre", "theta", "distance", "known", "sampler", "num_steps")
        return {name: np.array(getattr(self, name)) for name in names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the law from ``to_arrays``."""
        names = ("theta", "distance", "sampler", "num_steps")
        scalars: dict[str, Any] = {name: np.asarray(arrays[name]).item() for name in names}
        return cls(arrays["centre"], known=arrays["known"], **scalars)

    @property
    def _log_normalizer(self) -> float:
        return float(log_normalizer(self.theta, len(self._rows), self.distance, np))

    def _swapped(self, perm: np.ndarray) -> np.ndarray:
        """Return all swaps of two free rows."""
        first, second = np.triu_indices(len(self._rows), 1)
        i, j, pairs = self._rows[first], self._rows[second], np.arange(len(first))
        around = np.tile(perm, (len(first), 1))
        around[pairs, i], around[pairs, j] = perm[j], perm[i]
        return around


_NUM_DRAWS = 2000
_ADVICE = "try method='auto' or 'sequential'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem; ``theta`` maximises the discrete ELBO unless it is given."""
    options = context.options
    distance: Any = one_of("distance", options.get("distance", "footrule"), DISTANCES)
    num_draws = whole("num_draws", options.get("num_draws", _NUM_DRAWS))
    n = prepared.problem.shape[0]
    num_steps = whole("num_steps", options.get("num_steps", 10 * n * n))
    centre, evaluations = _centre(prepared, context)
    theta, extras = options.get("theta"), {}
    density = functools.partial(log_densities, prepared.problem)
    if theta is None:
        found = fit_theta(density, centre, distance, context.rng_key)
        theta, evaluations = found.theta, evaluations + found.num_evaluations
        extras["elbo"] = np.array(found.elbo)
    elif not (np.ndim(theta) == 0 and 0 <= theta < np.inf):
        raise ValueError(f"theta must be a finite number of at least 0, got {theta!r:.60}.")
    law = MallowsLaw(
        prepared.restore(centre),
        theta,
        distance,
        known=None if prepared.reduction is None else np.asarray(prepared.reduction.settled),
        sampler=options.get("sampler", "exact"),
        num_steps=num_steps,
    )
    draws = law.sample(num_draws, np.random.default_rng(context.seed))
    reduced = draws if prepared.reduction is None else _reduced(prepared, draws)
    extras["theta"] = np.array(theta)
    posterior = Posterior.from_draws(draws, shape=prepared.model.shape, num_evaluations=evaluations)
    posterior = audited_draws(prepared, posterior, reduced, _ADVICE, {"extras": extras})
    return dataclasses.replace(posterior, law=law)


def _centre(prepared: Prepared, context: Context) -> tuple[np.ndarray, int]:
    """Return the centre in the reduced problem, and the number of densities evaluated for it."""
    given = context.options.get("centre")
    if given is not None:
        centre = np.asarray(given)
        if centre.shape != (prepared.model.shape[0],) or centre.dtype.kind not in "iu":
            raise ValueError(
                f"centre must be {prepared.model.shape[0]} integers, got dtype {centre.dtype} and "
                f"shape {centre.shape}."
            )
        if sorted(centre.tolist()) != list(range(len(centre))):
            raise ValueError(f"centre must be a permutation, got {centre.tolist()!r:.60}.")
        return (centre if prepared.reduction is None else _reduced(prepared, centre[None])[0]), 0
    if prepared.problem.scores is not None:
        return np.asarray(assignment.solve(np.asarray(prepared.problem.scores, np.float64))), 0
    density = functools.partial(log_densities, prepared.problem)
    rng = np.random.default_rng(context.seed)
    found = solve_density(prepared.problem, density, rng=rng)
    return found.perm, found.num_evaluations


def _reduced(prepared: Prepared, perms: np.ndarray) -> np.ndarray:
    """Return matchings (num, n) of the whole problem as matchings of the reduced one."""
    reduction: Any = prepared.reduction
    settled = np.asarray(reduction.settled)
    if not ((perms == settled) | (settled < 0)).all():
        raise ValueError("centre must agree with the known pairs, got one that does not.")
    return np.asarray(reduction.col_place)[perms[:, np.asarray(reduction.free_rows)]]


METHODS = {
    "mallows": Method(
        MethodInfo(
            name="mallows",
            needs="any density on permutations",
            gives="draws and exact probabilities of a Mallows model around the best matching",
            masks=False,
            partial=False,
            cost="O(n^2) per draw, or a chain",
            reference="Mallows 1957; Diaconis 1988",
        ),
        options=("theta", "distance", "centre", "sampler", "num_draws", "num_steps"),
        run=run,
        sites=False,
        square=True,
    ),
}
