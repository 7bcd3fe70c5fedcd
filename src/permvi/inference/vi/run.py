"""Variational inference from a problem to draws of permutations."""

import jax
import numpy as np

from permvi.inference.problem import Problem
from permvi.inference.vi.draws import Drawn, draw_permutations
from permvi.inference.vi.loop import Optimised, Progress, optimise
from permvi.inference.vi.objective import split_options
from permvi.inference.vi.options import VIOptions
from permvi.inference.vi.prepare import RelaxedProblem, prepare
from permvi.inference.vi.result import LatentDraws, VIResult


def run_vi(
    problem: Problem,
    rng_key: jax.Array,
    family: str = "rounding",
    options: VIOptions | None = None,
    on_progress: Progress | None = None,
) -> VIResult:
    """Fit a relaxed family to a problem and draw permutations from it.

    Maximises the relaxed ELBO (paper, section 3 and supplement B) with Adam from several random
    starts at once, then rounds draws of the best fit to permutations. The same key gives the same
    result bit for bit. Ctrl-C ends the optimisation and returns the fit so far.

    Args:
        problem: What to infer; it may have several sites and other latents.
        rng_key: A JAX random key.
        family: "rounding", or "stick_breaking", which refuses masks.
        options: Settings; by default ``VIOptions.calibrated(family)``.
        on_progress: Called as ``on_progress(step, total, elbo)`` after every chunk of steps, with
            the best mean ELBO of the chunk.

    Raises:
        ValueError: The problem or the options are not for this family.
    """
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], problem)
    return run_vi_batch(stacked, rng_key, family, options, on_progress)[0]


def run_vi_batch(
    problems: Problem,
    rng_key: jax.Array,
    family: str = "rounding",
    options: VIOptions | None = None,
    on_progress: Progress | None = None,
) -> list[VIResult]:
    """Fit many problems of one shape at once.

    Args:
        problems: One problem all of whose leaves (data, mask, priors of latents) have an additional
            axis in front, over problems.
        rng_key: As in `run_vi`.
        family: As in `run_vi`.
        options: As in `run_vi`. With ``patience`` the fit stops when all problems have settled.
        on_progress: As in `run_vi`, with the mean over problems of their best ELBOs.

    Returns:
        One result for each problem.
    """
    options = VIOptions.calibrated(family) if options is None else options
    options.check_family(family)
    relaxed = prepare(problems, family)
    num_problems = _num_problems(relaxed)
    config, numbers = split_options(family, options)
    key_fit, key_draw = jax.random.split(rng_key)
    keys = jax.random.split(key_fit, (num_problems, options.num_restarts))
    fit = optimise(relaxed, keys, config, numbers, options.patience, on_progress)
    drawn = draw_permutations(
        relaxed,
        fit.params,
        config,
        numbers,
        key_draw,
        options.num_draws,
        keep_relaxed=options.keep_relaxed,
    )
    marginals = drawn.marginals(relaxed.shape[1])
    return [_result(b, family, options, fit, drawn, marginals) for b in range(num_problems)]


def _num_problems(problems: RelaxedProblem) -> int:
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(problems)}
    if not sizes:
        # All data is in the density itself.
        return 1
    if len(sizes) != 1 or sizes == {()}:
        raise ValueError(
            "problems must have one batch axis in front of all leaves, got the leading axes "
            f"{sorted(sizes)}."
        )
    return int(sizes.pop()[0])


def _result(
    b: int, family: str, options: VIOptions, fit: Optimised, drawn: Drawn, marginals: np.ndarray
) -> VIResult:
    best = int(np.argmax(fit.final_elbo[b]))
    if not np.isfinite(fit.final_elbo[b, best]):
        raise ValueError(
            f"log_density must be finite on relaxed matrices for {family}, got an ELBO of "
            f"{fit.elbo_trace[b, best, -1]} from every restart."
        )

    def site(values: np.ndarray) -> np.ndarray:
        """Without the axis of sites, the second, if there is only one."""
        return values[:, 0] if values.shape[1] == 1 else values

    num_restarts, num_steps = fit.elbo_trace.shape[1:]
    latents = {}
    for name, values in drawn.latents.items():
        draws = values[b, best]
        latents[name] = LatentDraws(draws, draws.mean(axis=0), draws.std(axis=0))
    return VIResult(
        family=family,
        options=options,
        draws=site(drawn.perms[b, best]),
        latents=latents,
        elbo_trace=fit.elbo_trace[b],
        best_restart=best,
        converged=bool(fit.settled[b, best]),
        interrupted=fit.interrupted,
        marginals=site(marginals[b]),
        vertex_distance=float(drawn.distance[b, best].mean()),
        num_evaluations=num_restarts * num_steps * options.num_samples,
        params={name: np.asarray(value[b]) for name, value in fit.params.items()},
        relaxed_draws=None if drawn.relaxed is None else site(drawn.relaxed[b, best]),
    )
