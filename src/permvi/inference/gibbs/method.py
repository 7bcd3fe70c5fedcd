"""Method "gibbs" for models with other latents: permutations by informed moves, the rest by NUTS.

The model becomes a NumPyro model with a `permvi.distributions.Permutation` and the priors of its
latents, and `PermutationGibbs` samples all of them together.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import NUTS

from permvi._checks import whole
from permvi._programmes import light_jit
from permvi.distributions import Permutation
from permvi.inference.gibbs.kernel import PermutationGibbs, PermutationGibbsState
from permvi.inference.gibbs.result import posterior_of
from permvi.inference.method import Context, Method, MethodInfo, option_names
from permvi.inference.verdict.precision import judged_rounding
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
    config = _Config(options.num_warmup, options.num_temperatures, _Fixed(problem))
    varying = dataclasses.replace(problem, latents={}, mask=None)
    part = -(-options.num_samples // _NUM_PARTS)
    total = options.num_warmup + _NUM_PARTS * part
    context.step(0, total)
    states = _start(config, varying, jax.random.split(context.rng_key, options.num_chains))
    states, _ = _advance(config, options.num_warmup, varying, states)
    parts: list[dict[str, np.ndarray]] = []
    while True:
        context.step(options.num_warmup + len(parts) * part, total)
        states, draws = _advance(config, part, varying, states)
        parts.append(jax.tree.map(np.asarray, draws))
        posterior = _posterior(prepared, parts)
        if len(parts) == _NUM_PARTS or _is_enough(posterior):
            context.step(total, total)
            return judged_rounding(prepared, posterior, evaluates_latents=True)


class _Fixed:
    """The priors and the mask of a problem, as constants of its programmes.

    NumPyro looks at the bounds of supports, so that they cannot be arguments. Equal ones make equal
    programmes, so that a second fit compiles nothing.
    """

    def __init__(self, problem: Problem) -> None:
        self.latents, self.mask = problem.latents, problem.mask
        leaves, structure = jax.tree.flatten((self.latents, self.mask))
        arrays = [np.asarray(leaf) for leaf in leaves]
        self._key = structure, tuple((a.shape, a.dtype.str, a.tobytes()) for a in arrays)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fixed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class _Config(NamedTuple):
    """The static part of a run; other values compile anew."""

    num_warmup: int
    num_temperatures: int
    fixed: _Fixed


@functools.partial(light_jit, static_argnums=0)
def _start(config: _Config, problem: Problem, rng_keys: jax.Array) -> PermutationGibbsState:
    """Return the states of the chains before the first step, one for each key."""
    return _kernel(config).init(rng_keys, config.num_warmup, None, (config.fixed, problem), None)


@functools.partial(light_jit, static_argnums=(0, 1))
def _advance(
    config: _Config, num: int, problem: Problem, states: PermutationGibbsState
) -> tuple[PermutationGibbsState, dict[str, jax.Array]]:
    """Make steps; return the states and the draws (chains, num, ...) of all latents by name."""
    kernel, arguments = _kernel(config), (config.fixed, problem)

    def start(rng_keys: jax.Array) -> PermutationGibbsState:
        return kernel.init(rng_keys, config.num_warmup, None, arguments, None)

    # The kernel learns in `init` what the model is like; shapes are enough for that.
    jax.eval_shape(start, states.rng_key)
    constrain = jax.vmap(kernel.postprocess_fn(arguments, None))

    def step(states: PermutationGibbsState, _: None) -> tuple[PermutationGibbsState, Any]:
        states = kernel.sample(states, arguments, None)
        return states, constrain(states.z)

    states, draws = jax.lax.scan(step, states, length=num)
    return states, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), draws)


def _kernel(config: _Config) -> PermutationGibbs:
    return PermutationGibbs(NUTS(_model), num_temperatures=config.num_temperatures)


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


def _model(fixed: _Fixed, problem: Problem) -> None:
    """The NumPyro model; rows that stand for a surplus of columns count for nothing."""
    n, m = problem.shape
    latents = {name: numpyro.sample(name, prior) for name, prior in fixed.latents.items()}
    mask = None
    if fixed.mask is not None:
        allowed = np.broadcast_to(np.asarray(fixed.mask), problem.layout.table_shape)
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
