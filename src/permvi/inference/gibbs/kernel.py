r"""A NumPyro kernel for models with permutations among their latent variables.

One step moves each permutation given all else, see `permvi.inference.mcmc.informed`, and then lets
NUTS or HMC move the continuous sites given the permutations. Both leave the posterior invariant.

**Annealing.** In the first part of the warm-up the likelihood is raised to a power :math:`\beta`
that grows to one, so that permutations and continuous sites find each other before either has
settled. Nothing of it is left after the warm-up.

**Tempering.** With several temperatures, replicas of the whole state follow
:math:`p(z, x)\, p(y \mid z, x)^{\beta_k}`, with a step size and mass matrix each. Neighbours trade
states by the Metropolis rule (Geyer 1991), which leaves their product invariant. The draws are
those of :math:`\beta_0 = 1`.
"""

import copy
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import HMC, MCMC
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key

from permvi import _checks
from permvi.inference.gibbs.result import SiteSummary, posterior_of, summarise
from permvi.inference.gibbs.sites import Perms, find_sites, given, move_all, run_given
from permvi.posterior import Posterior

# The share of the warm-up in which the likelihood is annealed, and the power that it begins with.
_ANNEALED = 0.4
_FIRST_POWER = 0.01


class PermutationGibbsState(NamedTuple):
    """The state of a chain.

    Attributes:
        z: Values of all latent sites: integers (..., n) for permutations, unconstrained values for
            the others.
        diverging: Whether the last trajectory of the inner kernel diverged.
        hmc_state: The state of the inner kernel, with an axis over temperatures in front.
        perms: The permutations, with an axis over temperatures in front.
        rng_key: A random key.
    """

    z: dict[str, jax.Array]
    diverging: jax.Array
    hmc_state: Any
    perms: Perms
    rng_key: jax.Array


class PermutationGibbs(MCMCKernel):
    """MCMC for NumPyro models with permutation-valued and continuous latent sites.

    Permutation-valued are latent sites with a `permvi.distributions.Permutation`, a ``Mallows``, a
    ``PlackettLuce`` of all places, or a ``PermutationPrior``, whose value in the model is then a
    0/1 matrix. Each element of a plate is a permutation of its own, and masks and known pairs are
    respected. The samples of all of them are integers (..., n).

    Args:
        inner_kernel: ``NUTS(model)`` or ``HMC(model)``, for all other sites.
        num_moves: Moves of each permutation in a step of the kernel. By default one for up to 5
            items, which then draws from the exact conditional distribution, and else n / 4, but at
            least 3.
        num_temperatures: Number of replicas; more than one help if the posterior has modes that are
            far apart, at as many times the cost.
        hottest: The power of the likelihood in the hottest replica; those between are spaced
            evenly on a log scale.

    Examples:
        >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, permvi
        >>> from numpyro.infer import MCMC, NUTS
        >>> def model(seen):
        ...     shift = numpyro.sample("shift", dist.Normal(0, 1))
        ...     X = numpyro.sample("X", permvi.distributions.Permutation(3))
        ...     centres = jnp.array([0.0, 2.0, 5.0])
        ...     numpyro.sample("seen", dist.Normal(centres[X] + shift, 0.1), obs=seen)
        >>> kernel = PermutationGibbs(NUTS(model))
        >>> mcmc = MCMC(kernel, num_warmup=200, num_samples=200, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), jnp.array([5.3, 0.3, 2.3]))
        >>> kernel.posterior(mcmc, "X").mode.tolist()
        [2, 0, 1]
    """

    sample_field = "z"

    def __init__(
        self,
        inner_kernel: HMC,
        *,
        num_moves: int | None = None,
        num_temperatures: int = 1,
        hottest: float = 0.1,
    ) -> None:
        if not isinstance(inner_kernel, HMC) or inner_kernel.model is None:
            raise TypeError(
                f"inner_kernel must be NUTS(model) or HMC(model), got {inner_kernel!r:.60}."
            )
        self._model = inner_kernel.model
        self._inner = copy.copy(inner_kernel)
        self._inner._model = functools.partial(run_given, self._model)
        self._num_moves = None if num_moves is None else _checks.whole("num_moves", num_moves)
        count = _checks.whole("num_temperatures", num_temperatures)
        self._powers = _checks.positive_number("hottest", hottest, 1.0) ** np.linspace(0, 1, count)
        self._num_warmup = 0
        self._names: tuple[str, ...] = ()

    @property
    def model(self) -> Any:
        """The model."""
        return self._model

    @property
    def default_fields(self) -> tuple[str, ...]:
        """The fields of the state that MCMC collects."""
        return ("z", "diverging")

    def get_diagnostics_str(self, state: PermutationGibbsState) -> str:
        """Describe the last trajectory of the inner kernel."""
        return self._inner.get_diagnostics_str(_first(state.hmc_state))

    def init(
        self,
        rng_key: jax.Array,
        num_warmup: int,
        init_params: Any,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> PermutationGibbsState:
        """Start at random permutations; ``init_params`` may hold values of any latent sites."""
        self._num_warmup = num_warmup
        start = functools.partial(self._start, args=model_args, kwargs=dict(model_kwargs or {}))
        if is_prng_key(rng_key):
            return start(rng_key, init_params)
        # Compiled as a whole, since one operation after the other would take longer to compile.
        return jax.jit(jax.vmap(start))(rng_key, init_params)

    def sample(
        self,
        state: PermutationGibbsState,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> PermutationGibbsState:
        """Move all permutations and then all other sites."""
        step = functools.partial(self._step, args=model_args, kwargs=dict(model_kwargs or {}))
        return step(state) if is_prng_key(state.rng_key) else jax.vmap(step)(state)

    def postprocess_fn(self, model_args: Any, model_kwargs: Any) -> Any:
        """Return the map from ``state.z`` to constrained values and deterministic sites."""
        sites = find_sites(self._model, model_args, dict(model_kwargs or {}))

        def constrain(z: dict[str, jax.Array]) -> dict[str, jax.Array]:
            perms = {name: z[name] for name in sites}
            others = {name: value for name, value in z.items() if name not in sites}
            kwargs = given(dict(model_kwargs or {}), sites, perms, 1.0)
            return {**self._inner.postprocess_fn(model_args, kwargs)(others), **perms}

        return constrain

    def summary(self, mcmc: MCMC) -> dict[str, SiteSummary]:
        """Return R-hat and effective sample size of each latent site of a run."""
        return summarise(latent_draws(mcmc), self._names)

    def posterior(self, mcmc: MCMC, site: str | None = None, **fields: Any) -> Posterior:
        """Return the draws of one permutation-valued site as a posterior, with a verdict.

        The permutations of a plate are the sites of the posterior, and all other latents of the
        model are in its ``latents``. The verdict compares chains with each other, so it takes
        several chains to be "trust".

        Args:
            mcmc: A run with this kernel.
            site: Name of the site; may be left out if there is only one.
            **fields: Other fields of `Posterior`, such as ``labels``.
        """
        return posterior_of(latent_draws(mcmc), self._names, site, **fields)

    def _start(
        self, rng_key: jax.Array, init_params: Any, *, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PermutationGibbsState:
        """Start one chain."""
        sites = find_sites(self._model, args, kwargs)
        self._names = tuple(sites)
        others = dict(init_params or {})
        fixed = {name: others.pop(name) for name in sites if name in others}
        count = len(self._powers)
        rng_key, perm_key, inner_key = jax.random.split(rng_key, 3)

        def start(power: jax.Array, perm_key: jax.Array, inner_key: jax.Array) -> Any:
            perms = {
                name: fixed[name] if name in fixed else site.draw(jax.random.fold_in(perm_key, k))
                for k, (name, site) in enumerate(sites.items())
            }
            conditional = given(kwargs, sites, perms, power * _FIRST_POWER)
            inner = self._inner.init(inner_key, self._num_warmup, others or None, args, conditional)
            return inner, perms

        keys = (jax.random.split(key, count) for key in (perm_key, inner_key))
        hmc, perms = _over_replicas(start)(jnp.asarray(self._powers), *keys)
        return _state(hmc, perms, rng_key)

    def _step(
        self, state: PermutationGibbsState, *, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PermutationGibbsState:
        """Make one step of one chain, at all temperatures."""
        sites = find_sites(self._model, args, kwargs)
        rng_key, move_key, trade_key = jax.random.split(state.rng_key, 3)
        index = state.hmc_state.i[0]
        powers = jnp.asarray(self._powers, float) * _annealed(index, self._num_warmup)

        def potential(z: Any, perms: Perms, power: jax.Array) -> jax.Array:
            conditional = given(kwargs, sites, perms, power)
            return self._inner._potential_fn_gen(*args, **conditional)(z)

        def move(hmc: Any, perms: Perms, power: jax.Array, key: jax.Array) -> Any:
            def log_density(perms: Perms) -> jax.Array:
                return -potential(hmc.z, perms, power)

            perms = move_all(log_density, sites, perms, key, self._num_moves)
            energy, gradient = self._differentiate(lambda z: potential(z, perms, power), hmc.z)
            hmc = hmc._replace(potential_energy=energy, z_grad=gradient)
            return self._inner.sample(hmc, args, given(kwargs, sites, perms, power)), perms

        keys = jax.random.split(move_key, len(powers))
        hmc, perms = _over_replicas(move)(state.hmc_state, state.perms, powers, keys)
        if len(powers) > 1:
            hmc, perms = _trade(jax.vmap(potential), hmc, perms, powers, index, trade_key)
        return _state(hmc, perms, rng_key)

    def _differentiate(self, function: Any, z: Any) -> tuple[jax.Array, Any]:
        if self._inner._forward_mode_differentiation:
            return function(z), jax.jacfwd(function)(z)
        return jax.value_and_grad(function)(z)


def _trade(
    energies: Any, hmc: Any, perms: Perms, powers: jax.Array, index: jax.Array, rng_key: jax.Array
) -> tuple[Any, Perms]:
    """Let neighbouring temperatures trade states, even and odd pairs in turn."""
    count = len(powers)
    place = jnp.arange(count)
    partner = place + jnp.where((place + index) % 2 == 0, 1, -1)
    partner = jnp.where((partner < 0) | (partner >= count), place, partner)
    own = hmc.potential_energy
    # The energy of each state at its partner's temperature.
    there = energies(hmc.z, perms, powers[partner])
    gain = own + own[partner] - there - there[partner]
    log_u = jnp.log(jax.random.uniform(rng_key, (count,)))[jnp.minimum(place, partner)]
    source = jnp.where(log_u < gain, partner, place)
    moved = jax.tree.map(lambda leaf: leaf[source], (hmc.z, perms))
    energy = jnp.where(source == place, own, there[partner])
    return hmc._replace(z=moved[0], potential_energy=energy), moved[1]


def _annealed(index: jax.Array, num_warmup: int) -> jax.Array:
    """Return the power of the likelihood in step ``index``: one, except early in the warm-up."""
    length = _ANNEALED * num_warmup
    if length < 1:
        return jnp.ones(())
    return jnp.minimum(1.0, _FIRST_POWER ** (1.0 - index / length))


def _state(hmc: Any, perms: Perms, rng_key: jax.Array) -> PermutationGibbsState:
    cold, cold_perms = _first(hmc), _first(perms)
    return PermutationGibbsState({**cold.z, **cold_perms}, cold.diverging, hmc, perms, rng_key)


def _over_replicas(function: Any) -> Any:
    """Return ``jax.vmap`` of a function, which for one replica is quicker to compile."""

    def call(*trees: Any) -> Any:
        if len(jax.tree.leaves(trees)[0]) > 1:
            return jax.vmap(function)(*trees)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*_first(trees)))

    return call


def _first(tree: Any) -> Any:
    """Return the part of the coldest replica."""
    return jax.tree.map(lambda leaf: leaf[0], tree)


def latent_draws(mcmc: MCMC) -> dict[str, np.ndarray]:
    """Return the draws (chains, num, ...) of all latent sites of a run."""
    latent, samples = mcmc.last_state.z, mcmc.get_samples(group_by_chain=True)
    return {name: np.asarray(draws) for name, draws in samples.items() if name in latent}
