"""The relaxed ELBO as a NumPyro model and guide, and the compiled steps that maximise it."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.infer import ELBO, SVI
from numpyro.infer.svi import SVIState
from numpyro.infer.util import log_density

from permvi._programmes import light_jit
from permvi.distributions import VertexPrior
from permvi.inference.vi.families import FAMILIES, bounded_scale
from permvi.inference.vi.optimisers import SCHEDULES, exponential, shared_adam
from permvi.inference.vi.options import VIOptions
from permvi.inference.vi.relaxed_problem import RelaxedProblem

# The scale of a latent at the start: in units of a normal prior, else in unconstrained space.
_INITIAL_SCALE = 0.1


def latent_start(prior: Any, rng_key: jax.Array, spread: jax.Array) -> jax.Array:
    """Return where the location of a latent starts.

    Normal priors start at their mean, spread like the permutations; others at the median of a few
    draws.
    """
    if _normal(prior) is None:
        middle = jnp.median(prior.sample(rng_key, (15,)), axis=0)
        return dist.biject_to(prior.support).inv(middle)
    return spread * jax.random.normal(rng_key, prior.shape(), spread.dtype)


def latent_start_scale(loc: jax.Array) -> jax.Array:
    """Return the real parameter of the scale at the start."""
    return jnp.full(jnp.shape(loc), jnp.log(jnp.expm1(_INITIAL_SCALE)))


def latent_guide(prior: Any, loc: jax.Array, raw_scale: jax.Array) -> Any:
    """Return the variational distribution of a latent: a normal in unconstrained space.

    With a normal prior its real parameters are in units of the prior, so that a step of Adam means
    the same for latents of any size.
    """
    transform = dist.biject_to(prior.support)
    scale = jax.nn.softplus(raw_scale)
    normal = _normal(prior)
    if normal is not None:
        loc, scale = normal.loc + normal.scale * loc, normal.scale * scale
    base = dist.Normal(loc, scale).to_event(transform.domain.event_dim)
    return dist.TransformedDistribution(base, transform)


def _normal(prior: Any) -> Any:
    """Return a normal prior, perhaps of several entries, without its event axes; else None."""
    inner = prior.base_dist if isinstance(prior, dist.Independent) else prior
    return inner if isinstance(inner, dist.Normal) else None


SITE = "permutation"
"""The name of the permutation-valued site."""


class Config(NamedTuple):
    """The static part of the options; other values compile anew."""

    family: str
    temperature_schedule: str
    learning_rate_schedule: str
    optimiser: str
    num_samples: int
    chunk_length: int


class Numbers(NamedTuple):
    """The traced part of the options; other values compile nothing."""

    num_steps: jax.Array
    anneal_steps: jax.Array
    temperature_start: jax.Array
    temperature: jax.Array
    tempering: jax.Array
    learning_rate: jax.Array
    learning_rate_end: jax.Array
    latent_rate: jax.Array
    prior_width: jax.Array
    scale_lower: jax.Array
    scale_upper: jax.Array
    start_spread: jax.Array


def split_options(family: str, options: VIOptions) -> tuple[Config, Numbers]:
    """Split the options into their static and their traced part."""
    count, length = options.chunks
    schedules = options.temperature_schedule, options.learning_rate_schedule
    config = Config(family, *schedules, options.optimiser, options.num_samples, length)
    num_steps = count * length
    values = (
        num_steps,
        num_steps * options.anneal_fraction,
        options.temperature_start,
        options.temperature,
        options.tempering,
        options.learning_rate,
        options.learning_rate_end,
        options.latent_rate,
        options.prior_width,
        *options.scale_bounds,
        options.start_spread,
    )
    return config, Numbers(*(jax.device_put(np.asarray(value, float)) for value in values))


class Stage(NamedTuple):
    """The values of a step: the family's temperature and the power of the log density."""

    temperature: jax.Array
    power: jax.Array


def stage_at(step: jax.Array, config: Config, numbers: Numbers) -> Stage:
    """Return the stage of a step."""
    fraction = jnp.clip(step / numbers.anneal_steps, 0, 1)
    schedule = SCHEDULES[config.temperature_schedule]
    return Stage(
        schedule(fraction, numbers.temperature_start, numbers.temperature),
        exponential(fraction, numbers.tempering, 1.0),
    )


def last_stage(numbers: Numbers) -> Stage:
    """Return the stage at the end of the fit."""
    return Stage(numbers.temperature, jnp.ones(()))


def make_svi(config: Config, numbers: Numbers) -> SVI:
    """Return NumPyro's SVI; call it where it is used, since ``numbers`` may be traced."""

    def learning_rate(count: jax.Array) -> jax.Array:
        schedule = SCHEDULES[config.learning_rate_schedule]
        start, end = numbers.learning_rate, numbers.learning_rate_end
        if config.learning_rate_schedule == "constant":
            end = start
        return schedule(jnp.clip(count / numbers.num_steps, 0, 1), start, end)

    def latent_rate(count: jax.Array) -> jax.Array:
        return numbers.latent_rate * learning_rate(count)

    def kinds(params: dict[str, jax.Array]) -> dict[str, str]:
        return {name: _kind(name) for name in params}

    if config.optimiser == "mirror":
        location, latent = shared_adam(learning_rate, 2), shared_adam(latent_rate, None)
    else:
        location, latent = optax.adam(learning_rate), optax.adam(latent_rate)
    rules = {"location": location, "latent": latent, "scale": optax.adam(learning_rate)}
    adam = optax.partition(rules, kinds)
    elbo = _OrderedELBO(num_particles=config.num_samples)
    return SVI(relaxed_model, relaxed_guide, adam, elbo, config=config)


class _OrderedELBO(ELBO):
    """NumPyro's ``Trace_ELBO``, with the sites in the order of the trace.

    NumPyro goes through a set of their names, whose order is another one in every process. Then so
    is the programme, and what one process has compiled is of no use to the next.
    """

    def loss(
        self,
        rng_key: jax.Array,
        param_map: dict[str, jax.Array],
        model: Any,
        guide: Any,
        *args: Any,
        **kwargs: Any,
    ) -> jax.Array:
        """Return the negative mean of the ELBOs of all particles."""

        def particle(key: jax.Array) -> jax.Array:
            model_key, guide_key = jax.random.split(key)
            seeded = handlers.seed(guide, guide_key)
            log_q, drawn = log_density(seeded, args, kwargs, param_map)
            replayed = handlers.replay(handlers.seed(model, model_key), drawn)
            log_p, _ = log_density(replayed, args, kwargs, param_map)
            return log_p - log_q

        if self.num_particles == 1:
            return -particle(rng_key)
        keys = jax.random.split(rng_key, self.num_particles)
        return -jnp.mean(jax.vmap(particle)(keys))


def _kind(name: str) -> str:
    if name.endswith("_raw_scale"):
        return "scale"
    return "location" if name == f"{SITE}_loc" else "latent"


def relaxed_model(
    problem: RelaxedProblem, numbers: Numbers, stage: Stage, *, config: Config
) -> None:
    """The relaxed joint density."""
    with numpyro.plate("sites", problem.num_sites):
        X = numpyro.sample(SITE, VertexPrior(problem.size, numbers.prior_width, problem.mask))
    latents = {name: numpyro.sample(name, prior) for name, prior in problem.latents.items()}
    numpyro.factor("log_density", stage.power * problem.value(X, **latents))


def relaxed_guide(
    problem: RelaxedProblem, numbers: Numbers, stage: Stage, *, config: Config
) -> None:
    """The variational distribution. All parameters are real, so that none needs a transform."""
    family = FAMILIES[config.family]
    mirrored = family.mirrored if config.optimiser == "mirror" else None
    distribution = mirrored or family.distribution
    size = problem.size - family.num_missing
    shape = (problem.num_sites, size, size)

    def start(key: jax.Array) -> jax.Array:
        return numbers.start_spread * jax.random.normal(key, shape, numbers.start_spread.dtype)

    loc = numpyro.param(f"{SITE}_loc", start)
    raw_scale = numpyro.param(f"{SITE}_raw_scale", jnp.zeros(shape))
    scale = bounded_scale(raw_scale, numbers.scale_lower, numbers.scale_upper)
    with numpyro.plate("sites", problem.num_sites):
        numpyro.sample(SITE, distribution(loc, scale, stage.temperature, problem.mask))
    for name, prior in problem.latents.items():
        start_latent = functools.partial(latent_start, prior, spread=numbers.start_spread)
        loc = numpyro.param(f"{name}_loc", start_latent)
        raw_scale = numpyro.param(f"{name}_raw_scale", latent_start_scale(loc))
        numpyro.sample(name, latent_guide(prior, loc, raw_scale))


def _over_problems_and_restarts(one: Callable[..., Any]) -> Callable[..., Any]:
    """Map ``one(problem, x)`` over problems (p, ...) and x (p, r, ...)."""
    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))


@functools.partial(light_jit, static_argnames="config")
def start_fits(config: Config, problems: RelaxedProblem, numbers: Numbers, keys: jax.Array) -> Any:
    """Return the states of SVI before the first step; ``keys`` are (problems, restarts)."""

    def one(problem: RelaxedProblem, key: jax.Array) -> SVIState:
        # As `SVI.init` does, which would also draw a permutation and evaluate the model.
        rng_key, _, guide_key = jax.random.split(key, 3)
        drawn = {SITE: jnp.zeros((problem.num_sites, problem.size, problem.size))}
        guide = handlers.substitute(handlers.seed(relaxed_guide, guide_key), drawn)
        stage = stage_at(jnp.zeros(()), config, numbers)
        trace = handlers.trace(guide).get_trace(problem, numbers, stage, config=config)
        params = {name: site["value"] for name, site in trace.items() if site["type"] == "param"}
        return SVIState(make_svi(config, numbers).optim.init(params), None, rng_key)

    return _over_problems_and_restarts(one)(problems, keys)


def _unchanged(params: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Return the parameters: all of them are real."""
    return params


@functools.partial(light_jit, static_argnames="config")
def advance_fits(
    config: Config, problems: RelaxedProblem, numbers: Numbers, states: Any, first: jax.Array
) -> tuple[Any, tuple[jax.Array]]:
    """Take a chunk of steps; return the states and the ELBOs (problems, restarts, steps)."""
    svi = make_svi(config, numbers)
    # SVI learns in `init` how parameters are constrained, which would trace everything once more.
    svi.constrain_fn = _unchanged

    def one(problem: RelaxedProblem, state: Any) -> tuple[Any, tuple[jax.Array]]:
        def step(state: Any, index: jax.Array) -> tuple[Any, tuple[jax.Array]]:
            stage = stage_at(index, config, numbers)
            state, loss = svi.stable_update(state, problem, numbers, stage)
            return state, (-loss,)

        return jax.lax.scan(step, state, first + jnp.arange(config.chunk_length))

    return _over_problems_and_restarts(one)(problems, states)
