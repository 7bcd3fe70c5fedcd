"""Variational inference: from a problem to draws of permutations."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers

from permvi import assignment
from permvi._programmes import light_jit
from permvi.inference.interruptible import side_by_side
from permvi.inference.method import StepProgress, fold_key, split_key, split_keys
from permvi.inference.optimise import Optimised, optimise
from permvi.inference.vi.objective import (
    SITE,
    Config,
    Numbers,
    advance_fits,
    last_stage,
    relaxed_guide,
    split_options,
    start_fits,
)
from permvi.inference.vi.options import VIOptions
from permvi.inference.vi.relaxed_problem import RelaxedProblem, relax
from permvi.problem.problem import Problem


class LatentDraws(NamedTuple):
    """Draws (num_draws, ...) of a latent variable, with their mean and standard deviation."""

    draws: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True, eq=False)
class VIResult:
    """A fitted relaxed family, as draws of permutations.

    Attributes:
        family: "stick_breaking" or "rounding".
        options: The settings of the fit.
        draws: (num_draws, n) or (num_draws, S, n) relaxed draws of the best restart, rounded by
            linear assignment; -1 for unmatched rows.
        latents: Draws of the other latents, one for each draw of permutations.
        elbo_trace: (restarts, steps) estimates of the relaxed ELBO, which bounds the evidence of
            the relaxed model, not of the discrete one.
        best_restart: The restart with the highest smoothed ELBO at the end.
        converged: Whether the smoothed ELBO of the best restart had stopped rising.
        interrupted: Whether the user stopped the fit.
        marginals: (restarts, n, m) or (restarts, S, n, m) matching frequencies of each restart;
            how far they agree says how far to trust the fit.
        vertex_distance: Mean over draws of the root mean square distance, over rows, between the
            relaxed matrix and its permutation.
        num_evaluations: How often the log density was evaluated.
        params: Unconstrained variational parameters of each restart.
        relaxed_draws: (num_draws, N, N) or (num_draws, S, N, N) with N = max(n, m), if kept.
    """

    family: str
    options: VIOptions
    draws: np.ndarray
    latents: dict[str, LatentDraws]
    elbo_trace: np.ndarray
    best_restart: int
    converged: bool
    interrupted: bool
    marginals: np.ndarray
    vertex_distance: float
    num_evaluations: int
    params: dict[str, np.ndarray]
    relaxed_draws: np.ndarray | None = None

    @property
    def num_steps(self) -> int:
        """The number of steps taken, fewer than asked for after an early stop."""
        return int(self.elbo_trace.shape[1])


# Relaxed draws are made and rounded this many numbers at a time: 160 MB in float64.
_NUMBERS_AT_ONCE = 20_000_000


class Drawn(NamedTuple):
    """Draws from every fit; all leaves have the shape (problems, restarts, draws, ...)."""

    perms: np.ndarray  # (..., S, n), -1 for unmatched rows
    distance: np.ndarray  # (..., S) root mean square distance of X from its permutation, over rows
    latents: dict[str, np.ndarray]
    relaxed: np.ndarray | None  # (..., S, N, N), or None if they are not kept

    def marginals(self, num_cols: int) -> np.ndarray:
        """Return matching frequencies (problems, restarts, S, n, m)."""
        columns = [(self.perms == j).mean(axis=2) for j in range(num_cols)]
        return np.stack(columns, axis=-1)


def draw_permutations(
    problems: RelaxedProblem,
    params: dict[str, jax.Array],
    config: Config,
    numbers: Numbers,
    rng_key: jax.Array,
    num_draws: int,
    *,
    keep_relaxed: bool,
) -> Drawn:
    """Sample every fit (problems, restarts) at its final temperature and round the samples."""
    fits = jax.tree.leaves(params)[0].shape[:2]
    per_draw = fits[0] * fits[1] * problems.num_sites * problems.size**2
    num = min(num_draws, max(1, _NUMBERS_AT_ONCE // per_draw))
    parts = []
    for part in range(-(-num_draws // num)):
        keys = split_keys(fold_key(rng_key, part), fits)
        draw = functools.partial(_draw_relaxed, config, problems, numbers)
        halves = _halves((params, keys))
        values = _joined(_at_once([functools.partial(draw, *half, num) for half in halves]))
        X = values.pop(SITE)
        perms, distance = _round(X, problems)
        parts.append(Drawn(perms, distance, values, X if keep_relaxed else None))
    return jax.tree.map(lambda *each: np.concatenate(each, axis=2)[:, :, :num_draws], *parts)


def _round(X: np.ndarray, problems: RelaxedProblem) -> tuple[np.ndarray, np.ndarray]:
    mask = None if problems.mask is None else np.asarray(problems.mask)
    if mask is not None:
        # (problems, [S,] N, N): add axes for restarts, draws and, where missing, sites.
        mask = mask[:, None, None] if mask.ndim == 4 else mask[:, None, None, None]
    n, m = problems.shape
    perms = np.asarray(assignment.solve(X, mask))
    chosen = np.take_along_axis(X, perms[..., None], axis=-1)[..., 0]
    # |X - P|^2 = |X|^2 - 2 <X, P> + N, which rounding errors can make negative.
    squares = (X**2).sum(axis=(-2, -1)) - 2 * chosen.sum(axis=-1) + X.shape[-1]
    distance = np.sqrt(np.maximum(squares, 0) / X.shape[-1])
    perms = perms[..., :n]
    return np.where(perms < m, perms, -1), distance


@functools.partial(light_jit, static_argnames=("config", "num"))
def _draw_relaxed(
    config: Config,
    problems: RelaxedProblem,
    numbers: Numbers,
    params: dict[str, jax.Array],
    keys: jax.Array,
    num: int,
) -> dict[str, jax.Array]:
    """Draw all sites by name, (problems, restarts, num, ...)."""

    def one(problem: RelaxedProblem, values: dict[str, jax.Array], key: jax.Array) -> Any:
        guide = handlers.substitute(relaxed_guide, values)
        trace = handlers.trace(handlers.seed(guide, key)).get_trace(
            problem, numbers, last_stage(numbers), config=config
        )
        return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}

    # From the inside: draws, restarts, problems.
    many = jax.vmap(one, in_axes=(None, None, 0))
    many = jax.vmap(jax.vmap(many, in_axes=(None, 0, 0)))
    return many(problems, params, jax.vmap(jax.vmap(lambda key: jax.random.split(key, num)))(keys))


def run_vi(
    problem: Problem,
    rng_key: jax.Array,
    family: str = "rounding",
    options: VIOptions | None = None,
    on_progress: StepProgress | None = None,
) -> VIResult:
    """Fit a relaxed family to a problem and draw permutations from it.

    Maximises the relaxed ELBO (paper, section 3 and supplement B) from several random starts at
    once, then rounds draws of the best fit. The same key gives the same result bit for bit. Ctrl-C
    ends the optimisation and returns the fit so far.

    Args:
        problem: What to infer; it may have several sites and other latents.
        rng_key: A JAX random key.
        family: "rounding", or "stick_breaking", which refuses masks.
        options: Settings; by default ``VIOptions.calibrated(family)``.
        on_progress: Called as ``on_progress(step, total, elbo)`` after every chunk of steps, with
            the best mean ELBO of the chunk.

    Raises:
        ValueError: The family cannot treat the problem or the options.
    """
    stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], problem)
    return run_vi_batch(stacked, rng_key, family, options, on_progress)[0]


def run_vi_batch(
    problems: Problem,
    rng_key: jax.Array,
    family: str = "rounding",
    options: VIOptions | None = None,
    on_progress: StepProgress | None = None,
) -> list[VIResult]:
    """Fit many problems of one shape at once.

    Args:
        problems: A problem all of whose leaves (data, mask, priors of latents) have an axis over
            problems in front.
        rng_key: A JAX random key.
        family: "rounding" or "stick_breaking".
        options: As in `run_vi`. With ``patience`` the fit stops when all problems have settled.
        on_progress: As in `run_vi`, with the mean over problems of their best ELBOs.

    Returns:
        One result for each problem.
    """
    options = VIOptions.calibrated(family) if options is None else options
    options.check_family(family)
    relaxed = relax(problems, family)
    num_problems = _num_problems(relaxed)
    config, numbers = split_options(family, options)
    key_fit, key_draw = split_key(rng_key, 2)
    keys = split_keys(key_fit, (num_problems, options.num_restarts))
    moves = config.temperature_schedule != "constant" or numbers.tempering < 1
    fit = optimise(
        lambda halves, first, _: _advance(config, relaxed, numbers, halves, first),
        [start_fits(config, relaxed, numbers, half) for half in _halves(keys)],
        int(numbers.num_steps),
        config.chunk_length,
        on_progress,
        patience=options.patience,
        moving_until=float(numbers.anneal_steps) if moves else 0.0,
        interruptible=True,
    )
    # The optimiser's own state comes with the parameters, all of them unconstrained.
    params = _joined([half.optim_state[1][0] for half in fit.state])
    drawn = draw_permutations(
        relaxed,
        params,
        config,
        numbers,
        key_draw,
        options.num_draws,
        keep_relaxed=options.keep_relaxed,
    )
    marginals = drawn.marginals(relaxed.shape[1])
    return [_result(b, family, options, fit, params, drawn, marginals) for b in range(num_problems)]


def _halves(fits: Any) -> list[Any]:
    """Split fits (problems, restarts, ...) by restarts into two halves, for two cores.

    Other devices have better uses for larger arrays, and halves of two sizes would compile twice.
    """
    restarts = jax.tree.leaves(fits)[0].shape[1]
    if restarts % 2 or jax.default_backend() != "cpu":
        return [fits]
    cuts = slice(restarts // 2), slice(restarts // 2, None)
    return [jax.tree.map(lambda leaf, cut=cut: leaf[:, cut], fits) for cut in cuts]


def _advance(
    config: Config, problems: RelaxedProblem, numbers: Numbers, halves: list[Any], first: int
) -> tuple[list[Any], tuple[np.ndarray]]:
    """Take a chunk of steps with both halves; return their states and the ELBOs of all restarts."""
    advance = functools.partial(advance_fits, config, problems, numbers)
    ended = _at_once([functools.partial(advance, half, first) for half in halves])
    return [state for state, _ in ended], _joined([elbos for _, elbos in ended])


def _at_once(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run tasks side by side until they have ended; JAX would return before that."""

    def wait_for(task: Callable[[], Any]) -> Any:
        return jax.block_until_ready(task())

    return side_by_side([functools.partial(wait_for, task) for task in tasks])


def _joined(halves: Sequence[Any]) -> Any:
    """Join what was computed of each half, along the axis of restarts."""
    return jax.tree.map(lambda *each: np.concatenate(each, axis=1), *halves)


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
    b: int,
    family: str,
    options: VIOptions,
    fit: Optimised,
    params: dict[str, jax.Array],
    drawn: Drawn,
    marginals: np.ndarray,
) -> VIResult:
    best, elbo_trace = int(fit.best[b]), fit.elbo_trace[b]
    if not np.isfinite(fit.final_elbo[b, best]):
        raise ValueError(
            f"log_density must be finite on relaxed matrices for {family}, got an ELBO of "
            f"{elbo_trace[best, -1]} from every restart."
        )

    def site(values: np.ndarray) -> np.ndarray:
        """Remove the axis of sites, the second one, if there is one site."""
        return values[:, 0] if values.shape[1] == 1 else values

    num_restarts, num_steps = elbo_trace.shape
    latents = {}
    for name, values in drawn.latents.items():
        draws = values[b, best]
        latents[name] = LatentDraws(draws, draws.mean(axis=0), draws.std(axis=0))
    return VIResult(
        family=family,
        options=options,
        draws=site(drawn.perms[b, best]),
        latents=latents,
        elbo_trace=elbo_trace,
        best_restart=best,
        converged=bool(fit.settled[b, best]),
        interrupted=fit.interrupted,
        marginals=site(marginals[b]),
        vertex_distance=float(drawn.distance[b, best].mean()),
        num_evaluations=num_restarts * num_steps * options.num_samples,
        params={name: np.asarray(value[b]) for name, value in params.items()},
        relaxed_draws=None if drawn.relaxed is None else site(drawn.relaxed[b, best]),
    )
