r"""Method "vmf": a von Mises-Fisher distribution fitted to a density over permutations.

The *rounded* law is fitted: draw a point of the sphere and take the nearest permutation, an
assignment of O(n^3). Its probabilities are those of cones on the sphere and have no closed form, so
there is no ELBO. Moments are matched instead: for linear models the marginals of belief
propagation, which takes no evaluations; for others those of some thousand permutations, weighted by
their densities. The density :math:`\exp(\kappa \langle \mu, x(X) \rangle)` at the permutations
themselves can be any linear log density. But von Mises-Fisher distributions are tractable because
they integrate over the sphere where the posterior has a sum, and that spreads them. One direction
and one concentration cannot follow a posterior with several modes. The method is for comparison.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from permvi._checks import whole
from permvi.inference.map import MapOptions, solve_density
from permvi.inference.method import Context, Method, MethodInfo
from permvi.inference.scaling import propagate_beliefs, square_problem
from permvi.inference.verdict.audit import audited_draws
from permvi.inference.vmf.sphere import VonMisesFisher, centre, embed, nearest_permutations
from permvi.posterior import Posterior
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import Prepared

LogDensity = Callable[[np.ndarray], np.ndarray]
"""(num, n) permutations -> (num,) log densities on the host."""

# Signal-to-noise ratios of a matrix entry in the first round of draws.
_SIGNALS = (0.0, 1.0, 2.0, 3.0, 4.0)
# The largest concentration per dimension; draws are then within two degrees of the mean.
_LARGEST = 1e3
# Shorter means have no direction.
_NO_DIRECTION = 1e-9
# The tolerance for the log of the concentration.
_TOLERANCE = 0.01


class VmfFit(NamedTuple):
    """A fitted distribution.

    Attributes:
        law: The distribution on the sphere.
        resultant: The length of the target's mean, from 0 (uniform) to 1 (a single permutation).
        rounded_resultant: The length of the rounded law's mean along the mean direction.
        num_evaluations: The number of densities evaluated.
    """

    law: VonMisesFisher
    resultant: float
    rounded_resultant: float
    num_evaluations: int


def fit_to_marginals(
    marginals: np.ndarray,
    rng: np.random.Generator,
    num_draws: int = 1000,
    kappa: float | None = None,
) -> VmfFit:
    r"""Match the moments of the rounded law with given marginals.

    With P the marginals and :math:`x(P) = r \mu`, the direction is :math:`\mu`, and :math:`\kappa`
    is such that the rounded law has :math:`E \langle \mu, x \rangle = r`, by a root search on draws
    with common random numbers. Other moments are not matched.

    Args:
        marginals: (n, n) roughly doubly stochastic.
        rng: The source of randomness.
        num_draws: Draws for each step of the root search, O(n^3) each.
        kappa: The concentration, or None to fit it.
    """
    n = len(marginals)
    mean = centre(marginals) / math.sqrt(max(n - 1, 1))
    resultant = min(float(np.linalg.norm(mean)), 1.0)
    if resultant < _NO_DIRECTION:
        mean, resultant = embed(np.arange(n)), 0.0
    direction = mean / max(float(np.linalg.norm(mean)), _NO_DIRECTION)
    if kappa is None and resultant > 0:
        kappa = _matching_kappa(direction, resultant, num_draws, rng)
    law = VonMisesFisher(direction, kappa or 0.0)
    rounded = _rounded_resultant(law, law.sample(num_draws, rng))
    return VmfFit(law, resultant, rounded, 0)


def fit_to_density(
    log_density: LogDensity,
    start: np.ndarray,
    rng: np.random.Generator,
    num_draws: int = 1000,
    num_rounds: int = 4,
    kappa: float | None = None,
) -> VmfFit:
    r"""Match the moments of the rounded law with those of a density on the permutations seen.

    In each round, permutations are drawn around the present mean direction at several
    concentrations. All distinct ones seen so far, weighted by their densities, represent the
    target. The fit is too certain if the draws miss much of the posterior.

    Args:
        log_density: The log density of permutations.
        start: (n,) a probable permutation.
        rng: The source of randomness.
        num_draws: Draws in each round, and for each step of the root search.
        num_rounds: The number of rounds.
        kappa: The concentration, or None to fit it.

    Raises:
        ValueError: All densities seen are zero.
    """
    n = len(start)
    # Banerjee et al. (2005): the approximate concentration of a mean of a given length.
    lengths = [min(signal / math.sqrt(max(n - 1, 1)), 0.95) for signal in _SIGNALS]
    kappas = [length * ((n - 1) ** 2 - length**2) / (1 - length**2) for length in lengths]
    direction = embed(start)
    perms = start[None].astype(np.int64)
    log_p = log_density(perms)
    for _ in range(num_rounds):
        share = math.ceil(num_draws / len(kappas))
        points = [VonMisesFisher(direction, each).sample(share, rng) for each in kappas]
        drawn = nearest_permutations(np.concatenate(points))
        perms, log_p = _with_new(perms, log_p, drawn, log_density)
        found = fit_to_marginals(_weighted_mean(perms, log_p), rng, num_draws, kappa)
        direction = found.law.mean
        kappas = [scale * found.law.kappa for scale in (0.25, 0.5, 1.0, 2.0)]
    return found._replace(num_evaluations=len(perms))


def _with_new(
    perms: np.ndarray, log_p: np.ndarray, drawn: np.ndarray, log_density: LogDensity
) -> tuple[np.ndarray, np.ndarray]:
    """Return all distinct permutations and their densities, evaluating only new ones."""
    union, first = np.unique(np.concatenate([perms, drawn]), axis=0, return_index=True)
    new = union[first >= len(perms)]
    if not len(new):
        return perms, log_p
    return np.concatenate([perms, new]), np.concatenate([log_p, log_density(new)])


def _weighted_mean(perms: np.ndarray, log_p: np.ndarray) -> np.ndarray:
    """Return the marginals (n, n) of permutations weighted by their densities."""
    largest = log_p.max()
    if largest == -np.inf:
        raise ValueError(
            "the log density must be finite for some permutation, got -inf for all of "
            f"{len(perms)} tried."
        )
    weights = np.exp(log_p - largest)
    return np.tensordot(weights / weights.sum(), np.eye(perms.shape[1])[perms], axes=1)


def _rounded_resultant(law: VonMisesFisher, points: np.ndarray) -> float:
    """Return the mean inner product of the rounded points with the mean direction."""
    return float(np.tensordot(embed(nearest_permutations(points)), law.mean).mean())


def _matching_kappa(
    direction: np.ndarray, target: float, num: int, rng: np.random.Generator
) -> float:
    """Return the concentration whose rounded law has this mean along the direction."""
    seed = int(rng.integers(2**32))
    dim = (len(direction) - 1) ** 2
    tangents = VonMisesFisher(direction, 0.0).tangents(num, rng)

    def excess(log_kappa: float) -> float:
        law = VonMisesFisher(direction, math.exp(log_kappa))
        heights = law.heights(num, np.random.default_rng(seed))
        return _rounded_resultant(law, law.points(heights, tangents)) - target

    low, high = math.log(1e-3), math.log(_LARGEST * dim)
    if excess(low) >= 0:
        return 0.0
    if excess(high) <= 0:
        return math.exp(high)
    return math.exp(brentq(excess, low, high, xtol=_TOLERANCE))


_NUM_DRAWS = 2000
_NUM_ROUNDS = 4
_DRAWS_PER_ROUND = 1000
# The search for the first permutation.
_SEARCH = MapOptions(num_restarts=4, polish="swap")
_ADVICE = "try method='auto' or 'sequential'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem.

    Options: ``kappa``, the concentration, fitted by default; ``num_draws`` of the posterior;
    ``num_rounds`` of the fit to a density that is not linear, each with 1000 draws.
    """
    options = context.options
    num_draws = whole("num_draws", options.get("num_draws", _NUM_DRAWS))
    num_rounds = whole("num_rounds", options.get("num_rounds", _NUM_ROUNDS))
    kappa = options.get("kappa")
    if kappa is not None and not (np.ndim(kappa) == 0 and 0 <= kappa < np.inf):
        raise ValueError(f"kappa must be a finite number of at least 0, got {kappa!r:.60}.")
    rng = np.random.default_rng(context.seed)
    found = _fit(prepared, rng, num_rounds, None if kappa is None else float(kappa))
    draws = nearest_permutations(found.law.sample(num_draws, rng))
    posterior = Posterior.from_draws(
        prepared.restore(draws), shape=prepared.model.shape, num_evaluations=found.num_evaluations
    )
    extras = {
        "kappa": np.array(found.law.kappa),
        "mean_direction": found.law.mean,
        "resultant": np.array(found.resultant),
        "rounded_resultant": np.array(found.rounded_resultant),
    }
    return audited_draws(prepared, posterior, draws, _ADVICE, {"extras": extras})


def _fit(
    prepared: Prepared, rng: np.random.Generator, num_rounds: int, kappa: float | None
) -> VmfFit:
    problem = prepared.problem
    if problem.scores is not None:
        scores = square_problem(np.asarray(problem.scores, np.float64)).scores
        beliefs = expit(np.asarray(propagate_beliefs(scores).log_odds, np.float64))
        return fit_to_marginals(beliefs, rng, _DRAWS_PER_ROUND, kappa)
    density = functools.partial(log_densities, problem)
    start = solve_density(problem, density, _SEARCH, rng)
    found = fit_to_density(density, start.perm, rng, _DRAWS_PER_ROUND, num_rounds, kappa)
    return found._replace(num_evaluations=start.num_evaluations + found.num_evaluations)


METHODS = {
    "vmf": Method(
        MethodInfo(
            name="vmf",
            needs="any density on permutations",
            gives="draws of a von Mises-Fisher distribution, rounded; a bound on the evidence",
            masks=False,
            partial=False,
            cost="O(n^3) per draw; no evaluations if linear",
            reference="Plis et al. 2011",
        ),
        options=("kappa", "num_draws", "num_rounds"),
        run=run,
        sites=False,
        square=True,
    ),
}
