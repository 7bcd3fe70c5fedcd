"""The methods for models of shared dynamics, whose subjects share a latent: the weights.

Method "collapsed" integrates the weights out. "map" and "mcmc" treat them together with the
permutations. "rounding" and "naive" are the general methods with settings for hundreds of neurons.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from permvi.inference import registry
from permvi.inference.dynamics import collapsed_method, shared
from permvi.inference.dynamics.evidence import CollapsedState
from permvi.inference.dynamics.joint import alternate, run_gibbs
from permvi.inference.dynamics.matching import posterior_beliefs
from permvi.inference.map import MapOptions
from permvi.inference.map.method import is_the_only_one, search_diagnostics, starts_of
from permvi.inference.mcmc import MCMCOptions
from permvi.inference.mcmc.method import posterior_of
from permvi.inference.method import Context, Method, silent
from permvi.inference.verdict.audit import compared
from permvi.inference.vi import VIOptions
from permvi.inference.vi.method import run_with
from permvi.posterior import Latent, Posterior
from permvi.problem.prepare import Prepared

# The option for a function that is called with the state of a fit as it goes.
_OBSERVE = "observe"
# A restart of "map" takes seconds.
_RESTARTS = 4
# A step of "mcmc" is a sweep over all rows and all weights.
_CHAINS = {"num_chains": 4, "swaps_per_proposal": 10, "num_draws": 1000}
_ADVICE = "try more steps, or method='collapsed'"
_COMPARED_ADVICE = "use method='collapsed'"
# With hundreds of neurons and thousands of weights, one sample of the gradient is slow enough.
_NAIVE = {"num_steps": 200, "num_samples": 1, "num_restarts": 1, "num_draws": 100}


def run_map(prepared: Prepared, context: Context) -> Posterior:
    """Maximise the joint density of permutations and weights; see `alternate`.

    The options are those of method "map", with 4 restarts by default. ``max_iter`` limits the
    alternations, and so does ``max_evaluations``. The log evidence is that of the matching with the
    weights integrated out, and the weights have their posterior spread given the matching.
    ``observe`` is called with the best permutations, (1, n) or (1, J, n), and weights, (1, E),
    after every alternation.
    """
    settings = {"num_restarts": _RESTARTS, **context.options}
    observe = shared.observer(prepared, settings.pop(_OBSERVE, None))
    given = starts_of(prepared, settings.pop("start", None))
    problem, scales, *_ = shared.dynamics_of(prepared, context.method)
    starts = None if given is None else shared.inner(problem.mask, prepared.restore(given))
    rng = np.random.default_rng(context.seed)
    result = alternate(
        problem, scales, rng, MapOptions(**settings), starts=starts, observe=observe
    ).found
    state = CollapsedState(problem, result.perm, scales)
    beliefs, at = posterior_beliefs(problem, state.statistics, scales), np.nonzero(problem.support)
    alone = is_the_only_one(prepared)
    return Posterior.from_draws(
        shared.outer(prepared, result.perm)[None],
        shape=prepared.model.shape,
        latents={shared.LATENT: Latent(beliefs.mean[at], np.sqrt(beliefs.variance[at]))},
        log_evidence=state.log_evidence,
        log_evidence_kind="exact" if alone else "bound",
        diagnostics=search_diagnostics(result, alone=alone),
        num_evaluations=result.num_evaluations + 1,
    )


def run_mcmc(prepared: Prepared, context: Context) -> Posterior:
    """Sample permutations and weights from their joint posterior; see `run_gibbs`.

    The options are those of method "mcmc". A step is a sweep over all rows, with 10 swaps for each,
    and all weights. By default there are 4 chains of 400 steps and at most 1000 draws. ``observe``
    is called with the permutations, (C, n) or (C, J, n), and the weights, (C, E), of all chains
    after every record.
    """
    problem, scales, *_ = shared.dynamics_of(prepared, context.method)
    given = {**_CHAINS, **context.options}
    observe = shared.observer(prepared, given.pop(_OBSERVE, None))
    proposal = given.pop("proposal", "none")
    if proposal not in ("auto", "none"):
        raise ValueError(f"proposal must be 'none' for shared dynamics, got {proposal!r:.60}.")
    options = MCMCOptions(**given)
    if options.num_temperatures > 1:
        raise ValueError(
            f"num_temperatures must be 1 for shared dynamics, got {options.num_temperatures}."
        )
    rng, start, spent = np.random.default_rng(context.seed), None, 0
    if options.start == "map":
        found = alternate(problem, scales, rng, MapOptions(num_restarts=1)).found
        start, spent = found.perm, found.num_evaluations
    result = run_gibbs(
        problem, scales, rng, options, start=start, on_progress=context.step, observe=observe
    )
    chains = dataclasses.replace(
        result.chains,
        draws=shared.outer(prepared, result.chains.draws),
        mode=shared.outer(prepared, result.chains.mode),
    )
    # The draws include the known neurons, so there is nothing to put back.
    whole = dataclasses.replace(prepared, reduction=None)
    posterior = posterior_of(whole, chains, spent, options, _ADVICE)
    weights = Latent.from_draws(np.concatenate(result.weights))
    return dataclasses.replace(posterior, latents={shared.LATENT: weights})


def run_rounding(prepared: Prepared, context: Context) -> Posterior:
    """Fit relaxed permutations and weights with settings found on simulated worms.

    Relaxed fits are far too sure of themselves here, so "collapsed" decides how far to trust them.
    """
    options = VIOptions.dynamics().replace(**context.options)
    return _compared(prepared, run_with(options, prepared, context), context)


def run_naive(prepared: Prepared, context: Context) -> Posterior:
    """Fit independent rows and weights with few steps and samples."""
    options = {**_NAIVE, **context.options}
    found = registry.method("naive").run(prepared, context._replace(options=options))
    return _compared(prepared, found, context)


def _compared(prepared: Prepared, posterior: Posterior, context: Context) -> Posterior:
    """Judge a posterior by that of "collapsed"."""
    quiet = context._replace(method="collapsed", options={}, progress=silent)
    return compared(posterior, collapsed_method.run(prepared, quiet), _COMPARED_ADVICE)


def _variant(name: str, run: Callable[[Prepared, Context], Posterior], *options: str) -> Method:
    """Return a general method with another engine and further options."""
    general = registry.method(name)
    return dataclasses.replace(
        general, run=run, run_many=None, options=(*general.options, *options), latents=True
    )


METHODS = {
    **collapsed_method.METHODS,
    "map": _variant("map", run_map, _OBSERVE),
    "mcmc": _variant("mcmc", run_mcmc, _OBSERVE),
    "rounding": _variant("rounding", run_rounding),
    "naive": _variant("naive", run_naive),
}
