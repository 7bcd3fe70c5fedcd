"""Method "gibbs" for models with other latents: permutations by informed moves, the rest by NUTS.

The model becomes a NumPyro model with a `permvi.distributions.Permutation` and the priors of its
latents, and `PermutationGibbs` samples all of them together.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import MCMC, NUTS

from permvi._checks import whole
from permvi.distributions import Permutation
from permvi.inference.gibbs.kernel import PermutationGibbs, latent_draws
from permvi.inference.gibbs.result import posterior_of
from permvi.inference.method import Context, Method, MethodInfo, option_names
from permvi.posterior import Posterior
from permvi.posterior.diagnostics import DISAGREEMENT_CHECK, R_HAT_CHECK
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem

_SITE = "permutation"
# Informed moves look at about a thousand densities each, and a step makes n / 4 of them.
_MAX_SIZE = 64
# Samples are taken in parts, until chains agree and the mean sampling error of a row is this small.
_NUM_PARTS = 4
_TOLERANCE = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class GibbsOptions:
    """Options of method "gibbs".

    Attributes:
        num_warmup: Steps of each chain that adapt NUTS and anneal the likelihood.
        num_samples: The most steps after it; a quarter of them may be enough.
        num_chains: Number of chains, which run side by side.
        num_temperatures: Replicas of each chain, see `PermutationGibbs`.
    """

    num_warmup: int = 500
    num_samples: int = 4000
    num_chains: int = 4
    num_temperatures: int = 1

    def __post_init__(self) -> None:
        for name in option_names(GibbsOptions):
            whole(name, getattr(self, name))


def suits(prepared: Prepared) -> bool:
    """Return whether a model has continuous latents and is of a size that chains can afford."""
    problem = prepared.problem
    small = problem.num_sites * max(problem.shape) <= _MAX_SIZE
    return small and not problem.is_partial and _refusal(problem) is None


def run(prepared: Prepared, context: Context) -> Posterior:
    """Run the chains of one problem; options are those of `GibbsOptions`.

    Raises:
        ValueError: There are no other latents, or one that is discrete, or no JAX function.
    """
    options, problem = GibbsOptions(**context.options), prepared.problem
    refused = _refusal(problem)
    if refused is not None:
        raise ValueError(refused)
    kernel = PermutationGibbs(NUTS(_model), num_temperatures=options.num_temperatures)
    part = -(-options.num_samples // _NUM_PARTS)
    mcmc = MCMC(
        kernel,
        num_warmup=options.num_warmup,
        num_samples=part,
        num_chains=options.num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    total = options.num_warmup + _NUM_PARTS * part
    context.step(0, total)
    mcmc.warmup(context.rng_key, problem)
    parts: list[dict[str, np.ndarray]] = []
    while True:
        context.step(options.num_warmup + len(parts) * part, total)
        mcmc.run(mcmc.last_state.rng_key, problem)
        parts.append(latent_draws(mcmc))
        posterior = _posterior(prepared, parts)
        if len(parts) == _NUM_PARTS or _is_enough(posterior):
            context.step(total, total)
            return posterior
        mcmc.post_warmup_state = mcmc.last_state


def _refusal(problem: Problem) -> str | None:
    """Return why chains cannot sample a model, or None if they can."""
    if not problem.latents:
        return "model must have other latents for method 'gibbs', got none; try method='mcmc'."
    if not problem.traceable:
        return "model must be a JAX function for method 'gibbs', got a function on the host."
    discrete = [name for name, prior in problem.latents.items() if prior.support.is_discrete]
    if discrete:
        return f"latents must be continuous for method 'gibbs', got the discrete {discrete}."
    return None


def _model(problem: Problem) -> None:
    """The NumPyro model; rows that stand for a surplus of columns count for nothing."""
    n, m = problem.shape
    latents = {name: numpyro.sample(name, prior) for name, prior in problem.latents.items()}
    mask = None
    if problem.mask is not None:
        allowed = problem.table_mask
        surplus = np.ones((*allowed.shape[:-2], m - n, m), bool)
        mask = np.concatenate([allowed, surplus], axis=-2)
    sites = problem.layout.event_shape[:-1]
    perm = numpyro.sample(_SITE, Permutation(m, mask).expand(sites).to_event(len(sites)))
    value = problem.log_density_of(problem.data, perm[..., :n], **latents)
    numpyro.factor("log_density", jnp.asarray(value))


def _posterior(prepared: Prepared, parts: list[dict[str, np.ndarray]]) -> Posterior:
    """Return the posterior of the draws of all parts."""
    draws = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    perms = draws[_SITE][..., : prepared.problem.shape[0]]
    restored = prepared.restore(perms.reshape(-1, *perms.shape[2:]))
    draws[_SITE] = restored.reshape(*perms.shape[:2], *restored.shape[1:])
    return posterior_of(draws, [_SITE], _SITE, shape=prepared.model.shape, labels=prepared.labels)


def _is_enough(posterior: Posterior) -> bool:
    """Return whether chains agree and have been run for long enough."""
    found: Any = posterior.diagnostics
    apart = found.disagreement_by_row
    agree = found.r_hat <= R_HAT_CHECK and (apart is None or apart.max() <= DISAGREEMENT_CHECK)
    return agree and found.sampling_error_by_row.mean() <= _TOLERANCE


METHODS = {
    "gibbs": Method(
        MethodInfo(
            name="gibbs",
            needs="a JAX function with other, continuous latents",
            gives="draws of permutations and latents together",
            masks=True,
            partial=False,
            cost="about 1,000 evaluations per move, n / 4 moves and a trajectory per step",
            reference="Hoffman and Gelman 2014; Zanella 2020",
        ),
        options=option_names(GibbsOptions),
        run=run,
        latents=True,
    ),
}
