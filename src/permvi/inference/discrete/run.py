"""From a problem to a fitted family and a weighted set of matchings."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from permvi._programmes import light_jit
from permvi.inference.discrete import correction as corrections
from permvi.inference.discrete.correction import Corrected, log_probs, missed_mass, search_modes
from permvi.inference.discrete.family import Family, draw_many
from permvi.inference.discrete.options import DiscreteOptions, Recipe, resolve
from permvi.inference.discrete.structure import build_structure
from permvi.inference.discrete.training import Trained, train, train_batch
from permvi.inference.discrete.warm_start import (
    find_table,
    initial_family,
    log_marginals,
    uniform_family,
)
from permvi.inference.discrete.without_replacement import draw_distinct
from permvi.inference.method import StepProgress, split_key, stack
from permvi.problem.evaluation import Evaluate, Evaluations, as_perms, codes
from permvi.problem.problem import Problem

# The largest share of the evaluations that the search for a linear approximation may take.
_PROBE_SHARE = 0.25
# Random matchings that set the first temperature.
_NUM_SCALE_PROBES = 64
_DRAWS_UNIT = 500
# The most climbs of a search for modes.
_MAX_CLIMBS = 32


class DiscreteResult(NamedTuple):
    """A fitted family, its weighted draws, and all matchings that were evaluated.

    ``missed_mass`` is the share of the posterior that a search has found where the family has
    hardly any probability; None without a search.
    """

    family: Family
    weighted: Corrected  # with equal weights if there is no correction
    missed_mass: float | None
    elbo_trace: np.ndarray  # (steps,) the discrete ELBO
    seen: Evaluations
    linear: bool  # whether a linear function explains the density
    recipe: Recipe


class _Start(NamedTuple):
    family: Family
    seen: Evaluations
    beta: float
    linear: bool
    recipe: Recipe


def run_discrete(
    problem: Problem,
    rng_key: jax.Array,
    evaluate: Evaluate,
    kind: str | None = None,
    options: DiscreteOptions | None = None,
    marginals: np.ndarray | None = None,
    on_progress: StepProgress | None = None,
) -> DiscreteResult:
    """Fit a row-by-row family to a problem without other latents, and weight its draws.

    ``evaluate`` is the log density of choices (num, S, n) on the host. ``kind`` names the
    conditionals, unless the options do. Training starts at log ``marginals`` (S, n, C), if given.
    """
    key_start, key_train, key_draw = split_key(rng_key, 3)
    start = _start(problem, key_start, evaluate, kind, options or DiscreteOptions(), marginals)
    trained = _train(problem, start, key_train, evaluate, on_progress)
    return _finish(problem, start, trained, key_draw)


def fit_family(
    problem: Problem, rng_key: jax.Array, evaluate: Evaluate, options: DiscreteOptions
) -> tuple[Family, Evaluations]:
    """Fit a family as `run_discrete` does, without draws, and return what was evaluated for it."""
    key_start, key_train, _ = split_key(rng_key, 3)
    start = _start(problem, key_start, evaluate, None, options, None)
    trained = _train(problem, start, key_train, evaluate, None)
    return trained.family, _all_seen(start, trained)


def _train(
    problem: Problem,
    start: _Start,
    rng_key: jax.Array,
    evaluate: Evaluate,
    on_progress: StepProgress | None,
) -> Trained:
    on_host = None if problem.traceable else evaluate
    return train(
        problem, start.family, rng_key, start.recipe.training, start.beta, on_progress, on_host
    )


def run_discrete_batch(
    problems: Sequence[Problem],
    rng_key: jax.Array,
    evaluates: Sequence[Evaluate],
    kind: str | None = None,
    options: DiscreteOptions | None = None,
    on_progress: StepProgress | None = None,
) -> list[DiscreteResult]:
    """`run_discrete` for linear problems of one shape, trained in one vmapped call."""
    keys = [split_key(key, 3) for key in split_key(rng_key, len(problems))]
    starts = [
        _start(problem, key[0], evaluate, kind, options or DiscreteOptions(), None)
        for problem, key, evaluate in zip(problems, keys, evaluates, strict=True)
    ]
    trained = train_batch(
        stack(problems),
        stack([start.family for start in starts]),
        jnp.stack([key[1] for key in keys]),
        starts[0].recipe.training,
        jnp.array([start.beta for start in starts]),
        on_progress,
    )
    # On the host, where it costs nothing to take a problem out of the batch.
    trained = jax.device_get(trained)
    return [
        _finish(problem, start, jax.tree.map(lambda leaf: leaf[b], trained), keys[b][2])  # noqa: B023
        for b, (problem, start) in enumerate(zip(problems, starts, strict=True))
    ]


def _start(
    problem: Problem,
    rng_key: jax.Array,
    evaluate: Evaluate,
    kind: str | None,
    options: DiscreteOptions,
    marginals: np.ndarray | None,
) -> _Start:
    structure = build_structure(problem)
    num_rows = structure.num_sites * structure.shape[0]
    key_rng, key_probe = split_key(rng_key, 2)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key_rng)))
    seen = Evaluations(evaluate, structure.shape[1])
    uniform = uniform_family(structure)
    probe_keys = iter(split_key(key_probe, 4))

    def probe(num: int) -> tuple[np.ndarray, np.ndarray]:
        choices = np.asarray(_draw_many(uniform, next(probe_keys), num))
        return choices, seen.look_up(choices)

    if marginals is None and options.warm_start != "none":
        budget = resolve(options, kind, num_rows, linear=True).max_evaluations
        table = find_table(problem, structure, probe, int(_PROBE_SHARE * budget))
        marginals = None if table is None else log_marginals(structure, table)
    linear = marginals is not None
    recipe = resolve(options, kind, num_rows, linear=linear)
    beta = 1.0
    if recipe.training.tempered_until > 0:
        values = probe(_NUM_SCALE_PROBES)[1]
        spread = np.std(values[values > -np.inf]) if (values > -np.inf).any() else 1.0
        beta = float(min(1.0, 1.0 / max(spread, 1e-12)))
    family = initial_family(structure, recipe.kind, recipe.num_components, rng, marginals)
    return _Start(family, seen, beta, linear, recipe)


def _finish(
    problem: Problem, start: _Start, trained: Trained, rng_key: jax.Array
) -> DiscreteResult:
    seen, recipe = _all_seen(start, trained), start.recipe
    key_search, key_draw = split_key(rng_key, 2)
    found = None
    if recipe.search_evaluations > 0:
        uniform = uniform_family(start.family.structure)
        random_choices = np.asarray(_draw_many(uniform, key_search, _MAX_CLIMBS))
        found = search_modes(problem, seen, random_choices, recipe.search_evaluations)
    weight = {"swor": _distinct, "ht": _with_replacement, "snis": _plain, "none": _equal}
    weighted = weight[recipe.correction](problem, trained.family, key_draw, seen, recipe)
    trace = np.asarray(trained.elbo_trace, np.float64)
    missed = None if found is None else missed_mass(trained.family, seen, found, weighted)
    return DiscreteResult(trained.family, weighted, missed, trace, seen, start.linear, recipe)


def _all_seen(start: _Start, trained: Trained) -> Evaluations:
    """Return all evaluations so far, of a family that training has not ruined."""
    seen = start.seen
    if any(np.isnan(leaf).any() for leaf in jax.tree.leaves(trained.family)):
        raise ValueError(
            "log_density must differ by less between matchings in float32, got a family that is no "
            "number after training; enable JAX's float64."
        )
    if len(trained.choices):
        seen.add(np.asarray(trained.choices), np.asarray(trained.log_densities, np.float64))
    return seen


def _distinct(
    problem: Problem, family: Family, rng_key: jax.Array, seen: Evaluations, recipe: Recipe
) -> Corrected:
    num = _affordable_draws(recipe, seen)
    drawn = jax.tree.map(np.asarray, _draw_distinct(family, rng_key, num))
    there = drawn.log_q > -np.inf
    choices, log_q, log_inclusion = (part[there] for part in drawn)
    return _horvitz_thompson(problem, seen, choices, log_q, log_inclusion)


def _with_replacement(
    problem: Problem, family: Family, rng_key: jax.Array, seen: Evaluations, recipe: Recipe
) -> Corrected:
    draws = np.asarray(_draw_many(family, rng_key, recipe.num_draws))
    _, first = np.unique(codes(draws, family.structure.shape[1]), return_index=True)
    first.sort()
    # As many draws as the budget of evaluations allows.
    new = np.cumsum(~seen.contains(draws[first]))
    beyond = first[new > max(1, recipe.max_evaluations - seen.num_evaluations)]
    num = len(draws) if len(beyond) == 0 else int(beyond[0])
    choices = draws[first[first < num]]
    log_q = log_probs(family, choices)
    log_inclusion = corrections.log_inclusion_with_replacement(log_q, num)
    return _horvitz_thompson(problem, seen, choices, log_q, log_inclusion)


def _affordable_draws(recipe: Recipe, seen: Evaluations) -> int:
    """Return how many draws the budget allows, in few sizes, since each one is compiled."""
    left = recipe.max_evaluations - seen.num_evaluations
    return min(recipe.num_draws, max(_DRAWS_UNIT, left // _DRAWS_UNIT * _DRAWS_UNIT))


def _horvitz_thompson(
    problem: Problem,
    seen: Evaluations,
    choices: np.ndarray,
    log_q: np.ndarray,
    log_inclusion: np.ndarray,
) -> Corrected:
    """Weight new matchings by their inclusion probabilities; those seen before count in full."""
    before, known = seen.ordered() if len(seen) else (choices[:0], log_q[:0])
    new = ~seen.contains(choices)
    log_p = seen.look_up(choices)
    ess = corrections.effective_share(log_p, log_q, log_inclusion)
    return corrections.horvitz_thompson(
        np.asarray(as_perms(np.concatenate([before, choices[new]]), problem)),
        np.concatenate([known, log_p[new]]),
        np.concatenate([np.zeros(len(known)), log_inclusion[new]]),
        ess,
    )


def _plain(
    problem: Problem, family: Family, rng_key: jax.Array, seen: Evaluations, recipe: Recipe
) -> Corrected:
    num = _affordable_draws(recipe, seen)
    draws = np.asarray(_draw_many(family, rng_key, num))
    log_q = log_probs(family, draws)
    return corrections.self_normalised(
        np.asarray(as_perms(draws, problem)), seen.look_up(draws), log_q
    )


def _equal(
    problem: Problem, family: Family, rng_key: jax.Array, seen: Evaluations, recipe: Recipe
) -> Corrected:
    weighted = _plain(problem, family, rng_key, seen, recipe)
    num = len(weighted.perms)
    return weighted._replace(log_weights=np.zeros(num), variances=np.full(num, 1.0 / num**2))


_draw_many = light_jit(draw_many, static_argnums=2)
_draw_distinct = light_jit(draw_distinct, static_argnums=2)
