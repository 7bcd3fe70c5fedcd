"""A NumPyro guide for models that have permutation-valued sites among other latent variables."""

import math
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer import init_to_median
from numpyro.infer.autoguide import AutoGuide, AutoGuideList, AutoNormal

from permvi import _checks, assignment
from permvi.distributions import VertexPrior, birkhoff
from permvi.inference.verdict.guides import Weighted, judge_guide, weigh
from permvi.inference.vi.families import FAMILIES, Family
from permvi.inference.vi.options import VIOptions
from permvi.posterior import Diagnostics
from permvi.posterior.diagnostics import K_HAT_NOTE

# Draws that are weighed, at least.
_NUM_WEIGHTED = 4000


class AutoPermutation(AutoGuide):
    """A guide with relaxed permutations for permutation-valued sites and normals for all others.

    Permutation-valued sites are latent sites with the prior `permvi.distributions.PermutationPrior`
    and, with stick-breaking, those with the support `permvi.distributions.birkhoff`. In the model
    their values are real matrices. NumPyro's ``AutoNormal`` handles the other sites. Samples carry
    psi along, so that SVI never inverts a relaxed matrix.

    Args:
        model: A NumPyro model, which may have plates.
        family: "rounding", or "stick_breaking", which does not support masks.
        temperature: The temperature of the relaxation, at most 1 for rounding. By default that of
            `VIOptions.calibrated` for the family.
        scale_bounds: Bounds of the noise sd. By default those of `VIOptions.calibrated`.
        start_spread: Standard deviation of the random start around the matrix of equal entries.
        prefix: A prefix for the names of all parameters.
        init_loc_fn: The start of the other latents, as in NumPyro.
        create_plates: As in NumPyro.

    Examples:
        >>> import jax, jax.numpy as jnp, numpyro, permvi
        >>> from numpyro.infer import SVI, Trace_ELBO
        >>> def model(scores):
        ...     X = numpyro.sample("X", permvi.distributions.PermutationPrior(3))
        ...     numpyro.factor("match", jnp.sum(X * scores))
        >>> guide = AutoPermutation(model)
        >>> svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO(num_particles=4))
        >>> result = svi.run(jax.random.key(0), 200, 9 * jnp.eye(3), progress_bar=False)
        >>> guide.sample_posterior(jax.random.key(1), result.params)["X"].tolist()
        [0, 1, 2]
    """

    def __init__(
        self,
        model: Any,
        *,
        family: str = "rounding",
        temperature: float | None = None,
        scale_bounds: tuple[float, float] | None = None,
        start_spread: float = 0.1,
        prefix: str = "auto",
        init_loc_fn: Any = init_to_median,
        create_plates: Any = None,
    ) -> None:
        _checks.one_of("family", family, FAMILIES)
        given = {"temperature": temperature, "scale_bounds": scale_bounds}
        given = {name: value for name, value in given.items() if value is not None}
        options = VIOptions.calibrated(family).replace(start_spread=start_spread, **given)
        options.check_family(family)
        self._family, self._options = family, options
        self._parts: AutoGuideList | None = None
        super().__init__(model, prefix=prefix, init_loc_fn=init_loc_fn, create_plates=create_plates)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Sample all latent sites; the first call creates the parameters, as in NumPyro."""
        if self._parts is None:
            self._parts = self._compose(*args, **kwargs)
        result: dict[str, Any] = self._parts(*args, **kwargs)
        return result

    def sample_posterior(
        self,
        rng_key: jax.Array,
        params: dict[str, jax.Array],
        *args: Any,
        sample_shape: tuple[int, ...] = (),
        corrected: bool = False,
        **kwargs: Any,
    ) -> dict[str, jax.Array]:
        """Draw all latents: integers (..., n) for permutation sites, values for the others.

        Args:
            rng_key: A JAX random key.
            params: Those of ``SVI.get_params`` or ``SVI.run``.
            *args: Arguments of the model.
            sample_shape: The shape in front of the draws.
            corrected: Whether to resample draws by Pareto-smoothed importance weights, which takes
                the bias of the guide away.
            **kwargs: Keyword arguments of the model.

        Raises:
            ValueError: The guide was never run, or its draws cannot be corrected: their k-hat is
                above 0.7, or there are so many permutations that their probabilities are unknown.
        """
        if not corrected:
            return self._draw(rng_key, params, args, kwargs, sample_shape)
        draw_key, choice_key = jax.random.split(rng_key)
        num = max(_NUM_WEIGHTED, 4 * math.prod(sample_shape))
        draws = self._draw(draw_key, params, args, kwargs, (num,))
        weighted = self._weigh(params, draws, args, kwargs)
        if weighted is None or weighted.k_hat > K_HAT_NOTE:
            found = "unknown probabilities" if weighted is None else f"k-hat {weighted.k_hat:.2f}"
            raise ValueError(
                f"corrected draws need known probabilities and a k-hat of at most {K_HAT_NOTE}, "
                f"got {found}; use PermutationGibbs."
            )
        chosen = jax.random.categorical(choice_key, weighted.log_weights, shape=sample_shape)
        return {name: value[chosen] for name, value in draws.items()}

    def diagnose(
        self,
        rng_key: jax.Array,
        params: dict[str, jax.Array],
        *args: Any,
        num_samples: int = 1000,
        **kwargs: Any,
    ) -> Diagnostics:
        """Return the verdict on a fit.

        Draws of the guide are compared with chains of `PermutationGibbs` that do not know the
        guide: the marginals of permutations and the means of other latents have to agree. The
        importance weights of the draws give k-hat and the effective sample size per draw.

        Args:
            rng_key: A JAX random key.
            params: Those of ``SVI.get_params`` or ``SVI.run``.
            *args: Arguments of the model.
            num_samples: Draws of each of four chains.
            **kwargs: Keyword arguments of the model.
        """
        draw_key, chain_key = jax.random.split(rng_key)
        draws = self._draw(draw_key, params, args, kwargs, (_NUM_WEIGHTED,))
        weighted = self._weigh(params, draws, args, kwargs)
        return judge_guide(
            self.model, draws, weighted, self._permutations(), chain_key, num_samples, args, kwargs
        )

    def _draw(
        self,
        rng_key: jax.Array,
        params: dict[str, jax.Array],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        sample_shape: tuple[int, ...],
    ) -> dict[str, jax.Array]:
        if self._parts is None:
            raise ValueError("sample_posterior needs a fitted guide, got one that was never run.")
        result: dict[str, jax.Array] = {}
        for part, key in zip(self._parts, jax.random.split(rng_key, len(self._parts)), strict=True):
            draws = part.sample_posterior(key, params, *args, sample_shape=sample_shape, **kwargs)
            result.update(draws)
        return result

    def _permutations(self) -> set[str]:
        """Return the names of the permutation sites of a guide that was run."""
        return {name for name, _ in next(iter(self._parts or ()))._sites()}

    def _weigh(
        self,
        params: dict[str, jax.Array],
        draws: dict[str, jax.Array],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Weighted | None:
        others = list(self._parts or ())[1:]
        guide_of_others = others[0] if others else None
        names = self._permutations()
        return weigh(self.model, guide_of_others, params, draws, names, args, kwargs)

    def _compose(self, *args: Any, **kwargs: Any) -> AutoGuideList:
        """Find the permutation sites and compose the guides of both kinds of sites."""
        with handlers.block():
            model = handlers.seed(self.model, numpyro.prng_key())
            trace = handlers.trace(model).get_trace(*args, **kwargs)
        latent = {
            name: site["fn"]
            for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"]
        }
        found = {name for name, fn in latent.items() if _is_permutation(fn)}
        if not found:
            raise ValueError(
                "model must have a latent site with a PermutationPrior for AutoPermutation, got "
                f"the latent sites {sorted(latent)}."
            )
        names = ("prefix", "init_loc_fn", "create_plates")
        shared = {name: getattr(self, name) for name in names}
        parts = AutoGuideList(self.model, **shared)
        exposed = handlers.block(self.model, hide_fn=_all_but(found))
        parts.append(_PermutationSites(exposed, self._family, self._options, **shared))
        others = set(latent) - found
        if others:
            parts.append(AutoNormal(handlers.block(self.model, hide_fn=_all_but(others)), **shared))
        return parts


class _PermutationSites(AutoGuide):
    """The guide of a model all of whose latent sites are permutation-valued."""

    def __init__(self, model: Any, family: str, options: VIOptions, **shared: Any) -> None:
        self._family, self._options = family, options
        super().__init__(model, **shared)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if self.prototype_trace is None:
            self._setup_prototype(*args, **kwargs)
        plates = self._create_plates(*args, **kwargs)
        result = {}
        for name, site in self._sites():
            with ExitStack() as stack:
                for frame in site["cond_indep_stack"]:
                    stack.enter_context(plates[frame.name])
                shape = self._shape(site)
                loc = numpyro.param(self._name(name, "loc"), self._start(shape), event_dim=2)
                lower, upper = self._options.scale_bounds
                scale = numpyro.param(
                    self._name(name, "scale"),
                    jnp.full(shape, (lower + upper) / 2),
                    constraint=constraints.interval(lower, upper),
                    event_dim=2,
                )
                result[name] = numpyro.sample(name, self._distribution(name, site, loc, scale))
        return result

    def sample_posterior(
        self, rng_key: jax.Array, params: Any, *_: Any, sample_shape: Any = (), **__: Any
    ) -> dict[str, jax.Array]:
        """Return relaxed draws rounded to permutations, by site."""
        result = {}
        for index, (name, site) in enumerate(self._sites()):
            loc, scale = (params[self._name(name, kind)] for kind in ("loc", "scale"))
            relaxed = self._distribution(name, site, loc, scale)
            X = relaxed.sample(jax.random.fold_in(rng_key, index), sample_shape)
            result[name] = assignment.solve(X, _mask(site))
        return result

    def _sites(self) -> list[tuple[str, Any]]:
        trace: dict[str, Any] = self.prototype_trace or {}
        latent = (item for item in trace.items() if item[1]["type"] == "sample")
        return [(name, site) for name, site in latent if not site["is_observed"]]

    def _name(self, site: str, kind: str) -> str:
        return f"{site}_{self.prefix}_{kind}"

    def _shape(self, site: Any) -> tuple[int, ...]:
        """Return the shape of the parameters of one site, including its plates."""
        n = site["fn"].event_shape[-1] - FAMILIES[self._family].num_missing
        batch = list(site["fn"].batch_shape)
        for frame in site["cond_indep_stack"]:
            batch[frame.dim] = self._prototype_frame_full_sizes[frame.name]
        return (*batch, n, n)

    def _start(self, shape: tuple[int, ...]) -> Any:
        return lambda key: self._options.start_spread * jax.random.normal(key, shape)

    def _distribution(self, name: str, site: Any, loc: jax.Array, scale: jax.Array) -> Any:
        family: Family = FAMILIES[self._family]
        mask = _mask(site)
        if mask is not None and not family.masks:
            raise ValueError(
                f"site {name!r} must have no mask for {self._family}, got one; "
                "family='rounding' supports masks."
            )
        if not isinstance(_prior(site["fn"]), VertexPrior) and not family.inside_polytope:
            raise ValueError(
                f"site {name!r} must have a PermutationPrior for {self._family}, whose samples "
                "are not doubly stochastic, got a site with doubly-stochastic support."
            )
        return family.distribution(loc, scale, self._options.temperature, mask)


def _prior(fn: Any) -> Any:
    """Return the distribution inside the wrappers of plates and masks."""
    while not isinstance(fn, VertexPrior) and hasattr(fn, "base_dist") and fn.support != birkhoff:
        fn = fn.base_dist
    return fn


def _mask(site: Any) -> jax.Array | None:
    prior = _prior(site["fn"])
    return prior.mask if isinstance(prior, VertexPrior) else None


def _is_permutation(fn: Any) -> bool:
    prior = _prior(fn)
    return isinstance(prior, VertexPrior) or prior.support is birkhoff


def _all_but(exposed: set[str]) -> Any:
    """Return a ``hide_fn`` that hides all sites but plates and the exposed ones."""

    def hide(site: Any) -> bool:
        return site["type"] in ("sample", "deterministic") and site["name"] not in exposed

    return hide
