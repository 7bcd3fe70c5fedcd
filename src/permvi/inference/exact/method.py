"""Method "exact": subset programme for linear models, a list of all matchings for others."""

import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from permvi.inference.exact import quadrature
from permvi.inference.exact.blocks import decompose
from permvi.inference.exact.enumeration import MAX_MATCHINGS, count_bound, list_matchings
from permvi.inference.exact.laws import ExactLaw, TabularLaw
from permvi.inference.exact.subset_dp import cost_estimate
from permvi.inference.method import Context, Method, MethodInfo
from permvi.posterior import DrawsLaw, Posterior, diagnose
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem
from permvi.problem.sites import Layout
from permvi.problem.unmatched import LogWeights, grounded, tables_by_site

_MAX_SIZE = 22
# What "auto" calls affordable.
_AFFORDABLE_SECONDS = 10.0
_AFFORDABLE_BYTES = 2**30
_AFFORDABLE_CALLS = 50_000
# A scale is integrated out over about so many values, each a problem of its own.
_GRID_SIZE = 80
_NUM_DRAWS = 2000
# Tables code each matching in this many bits.
_CODE_BITS = 62


def run(prepared: Prepared, context: Context) -> Posterior:
    """The exact posterior.

    Raises:
        ValueError: The problem is too large, or nothing is feasible.
    """
    max_size = context.options.get("max_size", _MAX_SIZE)
    latents = prepared.problem.latents
    if latents:
        return _with_latent(prepared, context, latents, max_size)
    if prepared.linear is not None:
        law = ExactLaw(**prepared.linear.arguments(), max_size=max_size)
        return Posterior.from_exact(law.solved())
    perms = list_all(prepared.problem)
    values = log_densities(prepared.problem, perms)
    return tabulated(prepared, perms, values, num_evaluations=len(perms))


def affordable(prepared: Prepared) -> bool:
    """Whether "auto" should compute exactly: within seconds and a gigabyte, by estimates."""
    latents = prepared.problem.latents
    budget = 1.0 / _GRID_SIZE if latents else 1.0
    if latents and quadrature.refusal(latents) is not None:
        return False
    linear = prepared.linear
    if latents and hasattr(prepared.model, "pair_scores"):
        linear = prepared.linear_with(
            np.zeros(Layout(prepared.model.num_sites, *prepared.model.shape).table_shape)
        )
    if linear is not None:
        return _programme_is_affordable(linear.arguments(), prepared.problem.num_sites, budget)
    limit = MAX_MATCHINGS if prepared.problem.traceable else _AFFORDABLE_CALLS
    return count_all(prepared.problem) <= limit * budget


def count_all(problem: Problem) -> int:
    """An upper bound on the number of matchings of all sites."""
    return math.prod(count_bound(allowed) for allowed in np.isfinite(grounded(problem)))


def list_all(problem: Problem) -> np.ndarray:
    """All matchings of a problem: (count, n), or (count, S, n) for all combinations of sites.

    Raises:
        ValueError: There are too many.
    """
    tables = np.isfinite(grounded(problem))
    if len(tables) == 1:
        return list_matchings(tables[0])
    count = count_all(problem)
    if count > MAX_MATCHINGS:
        raise ValueError(
            f"enumeration takes at most {MAX_MATCHINGS:,} matchings, got {len(tables)} sites with "
            f"up to {count:.3g} together; use an approximate method."
        )
    lists = [list_matchings(table) for table in tables]
    chosen = np.array(list(itertools.product(*(range(len(matchings)) for matchings in lists))))
    parts = [matchings[chosen[:, s]] for s, matchings in enumerate(lists)]
    return np.stack(parts, axis=1)


def _programme_is_affordable(arguments: Mapping[str, Any], num_sites: int, budget: float) -> bool:
    seconds = 0.0
    for table in tables_by_site(arguments, num_sites):
        for block in decompose(LogWeights(table)).blocks:
            if min(len(block.rows), len(block.cols)) > _MAX_SIZE:
                return False
            memory, needed = cost_estimate(block.table)
            seconds += needed
            if memory > _AFFORDABLE_BYTES:
                return False
    return seconds <= _AFFORDABLE_SECONDS * budget


def tabulated(
    prepared: Prepared, perms: np.ndarray, values: np.ndarray, **fields: Any
) -> Posterior:
    """The posterior of all matchings of the reduced problem and their log densities."""
    if not (values > -np.inf).any():
        raise ValueError("the log density must be finite for some matching, got -inf for all.")
    full = prepared.restore(perms)
    n, m = prepared.model.shape
    joined = Layout(prepared.model.num_sites, n, m).joined_shape
    if joined[0] * math.log2(joined[1] + 1) <= _CODE_BITS:
        return Posterior.from_exact(TabularLaw(full, values, m), **fields)
    # Too wide for a table: weighted draws know everything but log_prob of any matching.
    total = float(np.logaddexp.reduce(values))
    return Posterior.from_draws(
        full,
        values,
        shape=prepared.model.shape,
        log_evidence=total,
        log_evidence_kind="exact",
        diagnostics=diagnose(exact=True),
        **fields,
    )


def _with_latent(
    prepared: Prepared, context: Context, latents: Mapping[str, Any], max_size: int
) -> Posterior:
    """One more latent variable, integrated out on a grid."""
    refused = quadrature.refusal(latents)
    if refused is not None:
        raise ValueError(refused)
    name, prior = next(iter(latents.items()))
    rng = np.random.default_rng(context.seed)
    if hasattr(prepared.model, "pair_scores"):
        return _mixture_of_laws(prepared, name, prior, rng, max_size)
    return _mixture_of_tables(prepared, name, prior, rng)


def _mixture_of_laws(
    prepared: Prepared, name: str, prior: Any, rng: np.random.Generator, max_size: int
) -> Posterior:
    """Linear given the latent: an exact law for every value of it."""

    @functools.lru_cache(maxsize=quadrature.POINTS)
    def law_given(value: float) -> ExactLaw:
        scores = prepared.model.pair_scores(np.float64(value))
        return ExactLaw(**prepared.linear_with(scores).arguments(), max_size=max_size)

    grid = quadrature.integrate(prior, lambda value: law_given(value).result.log_evidence)
    laws = [law_given(value) for value in grid.values.tolist()]
    counts = rng.multinomial(_NUM_DRAWS, grid.posterior)
    latents = {name: grid.latent(np.repeat(np.arange(len(laws)), counts), rng)}
    if count_all(prepared.problem) <= _AFFORDABLE_CALLS:
        perms = list_all(prepared.problem)
        full = prepared.restore(perms)
        log_joint = grid.log_weights + grid.log_likelihoods
        values = [law.log_prob(full) + term for law, term in zip(laws, log_joint, strict=True)]
        total = np.logaddexp.reduce(values)
        return tabulated(prepared, perms, total, latents=latents, num_evaluations=len(laws))
    draws = [law.sample(num, rng) for law, num in zip(laws, counts, strict=True) if num]
    summaries = [law.summary() for law in laws]
    mixed: dict[str, Any] = {
        field: sum(
            weight * getattr(part, field)
            for weight, part in zip(grid.posterior, summaries, strict=True)
        )
        for field in ("marginals", "p_unmatched_rows", "p_unmatched_cols")
    }
    law = DrawsLaw(np.concatenate(draws))
    return Posterior(
        law=law,
        **mixed,
        mode=law.top(1)[0][0],
        log_evidence=grid.log_evidence,
        log_evidence_kind="exact",
        latents=latents,
        diagnostics=diagnose(exact=True),
        num_evaluations=len(laws),
    )


def _mixture_of_tables(
    prepared: Prepared, name: str, prior: Any, rng: np.random.Generator
) -> Posterior:
    """Any density: all matchings for every value of the latent."""
    problem = prepared.problem
    perms = list_all(problem)

    @functools.lru_cache(maxsize=quadrature.POINTS)
    def values_given(value: float) -> np.ndarray:
        return log_densities(problem, perms, **{name: np.asarray(value)})

    grid = quadrature.integrate(
        prior, lambda value: float(np.logaddexp.reduce(values_given(value)))
    )
    total = np.full(len(perms), -np.inf)
    for value, log_weight in zip(grid.values.tolist(), grid.log_weights, strict=True):
        total = np.logaddexp(total, values_given(value) + log_weight)
    cells = rng.choice(len(grid.values), size=_NUM_DRAWS, p=grid.posterior)
    latents = {name: grid.latent(cells, rng)}
    evaluations = len(perms) * len(grid.values)
    return tabulated(prepared, perms, total, latents=latents, num_evaluations=evaluations)


METHODS = {
    "exact": Method(
        MethodInfo(
            name="exact",
            needs="linear scores (blocks up to 22 items), or any density up to 9 items",
            gives="everything, exactly",
            masks=True,
            partial=True,
            cost="O(2^n n) per block, or n! evaluations",
            reference="Ryser 1963; Bellman 1962",
        ),
        options=("max_size",),
        run=run,
        latents=True,
    ),
}
