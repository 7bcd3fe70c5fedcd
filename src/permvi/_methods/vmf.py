"""Method "vmf": a von Mises-Fisher distribution on the sphere around all permutations.

Draws are points of the sphere (Plis et al. 2011), each turned into the nearest permutation by an
assignment of O(n^3). The mean direction and the concentration match moments of the target, see
`permvi.inference.vmf.target`: for linear models the marginals that belief propagation finds, which
takes no evaluations; for others those of some thousand permutations, weighted by their densities.
One direction and one number cannot follow a posterior with several modes, and nothing is known of
the probability of a single permutation. It is here to be compared with.
"""

import numpy as np
from scipy.special import expit

from permvi._methods.audit import audited_draws
from permvi._methods.context import Context
from permvi._methods.density import log_densities
from permvi._methods.refusals import (
    refuse_latents,
    refuse_mask,
    refuse_partial,
    refuse_rectangular,
    refuse_sites,
)
from permvi._task import Task
from permvi.inference.exact.problem import positive_int
from permvi.inference.map import MapOptions, solve_density
from permvi.inference.scaling import propagate_beliefs, square_problem
from permvi.inference.vmf import VmfFit, fit_to_density, fit_to_marginals, nearest_permutations
from permvi.posterior import Posterior

OPTIONS = ("kappa", "num_draws", "num_rounds")

_NUM_DRAWS = 2000
_NUM_ROUNDS = 4
_DRAWS_PER_ROUND = 1000
# For the permutation to start from.
_SEARCH = MapOptions(num_restarts=4, polish="swap")
_ADVICE = "try method='sequential' or 'exact'"


def run(task: Task, context: Context) -> Posterior:
    """Fit one problem.

    Options are ``kappa`` (the concentration, fitted by default), ``num_draws`` (of the posterior)
    and ``num_rounds`` (of the fit to a density that is not linear, each with 1000 draws).
    """
    for refuse in (
        refuse_mask, refuse_partial, refuse_latents, refuse_sites, refuse_rectangular
    ):  # fmt: skip
        refuse(task, context.method)
    options = context.options
    num_draws = positive_int("num_draws", options.get("num_draws", _NUM_DRAWS))
    num_rounds = positive_int("num_rounds", options.get("num_rounds", _NUM_ROUNDS))
    kappa = options.get("kappa")
    if kappa is not None and not (np.ndim(kappa) == 0 and 0 <= kappa < np.inf):
        raise ValueError(f"kappa must be a finite number of at least 0, got {kappa!r:.60}.")
    rng = np.random.default_rng(context.seed)
    found = _fit(task, rng, num_rounds, None if kappa is None else float(kappa))
    draws = nearest_permutations(found.law.sample(num_draws, rng))
    posterior = Posterior.from_draws(
        task.restore(draws), shape=task.model.shape, num_evaluations=found.num_evaluations
    )
    extras = {
        "kappa": np.array(found.law.kappa),
        "mean_direction": found.law.mean,
        "resultant": np.array(found.resultant),
        "rounded_resultant": np.array(found.rounded_resultant),
    }
    return audited_draws(task, posterior, draws, _ADVICE, {"extras": extras})


def _fit(task: Task, rng: np.random.Generator, num_rounds: int, kappa: float | None) -> VmfFit:
    problem = task.problem
    if problem.scores is not None:
        scores = square_problem(np.asarray(problem.scores, np.float64)).scores
        beliefs = expit(np.asarray(propagate_beliefs(scores).log_odds, np.float64))
        return fit_to_marginals(beliefs, rng, _DRAWS_PER_ROUND, kappa)

    def density(perms: np.ndarray) -> np.ndarray:
        return log_densities(problem, perms)

    start = solve_density(problem, density, _SEARCH, rng)
    found = fit_to_density(density, start.perm, rng, _DRAWS_PER_ROUND, num_rounds, kappa)
    return found._replace(num_evaluations=start.num_evaluations + found.num_evaluations)
