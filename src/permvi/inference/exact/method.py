"""Method "exact".

Linear models are solved by the subset programme, other models by listing all matchings. One scalar
latent variable is integrated out on a grid.
"""

import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from permvi.inference.exact import quadrature
from permvi.inference.exact.blocks import decompose
from permvi.inference.exact.enumeration import MAX_MATCHINGS, count_bound, list_matchings
from permvi.inference.exact.laws import ExactLaw, TabularLaw
from permvi.inference.exact.subset_dp import MAX_LABELS, cost_estimate
from permvi.inference.method import Context, Method, MethodInfo
from permvi.inference.verdict.precision import ROUNDING_CHECK, lowered
from permvi.posterior import DrawsLaw, Posterior, diagnose
from permvi.problem.evaluation import in_float64, log_densities, rounding_error
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem
from permvi.problem.sites import Layout
from permvi.problem.unmatched import LogWeights, grounded, tables_by_site

_MAX_SIZE = MAX_LABELS
# What method "auto" may spend on an exact solution.
_AFFORDABLE_SECONDS = 3.0
_AFFORDABLE_BYTES = 2**30
_AFFORDABLE_CALLS = 50_000
# Integrating out a latent variable solves the problem for about this many of its values.
_GRID_SIZE = 80
_NUM_DRAWS = 2000
# Tables encode a matching in at most this many bits.
_CODE_BITS = 62


def run(prepared: Prepared, context: Context) -> Posterior:
    """Return the exact posterior; raise if the problem is too large or infeasible."""
    max_size = context.options.get("max_size", _MAX_SIZE)
    latents = prepared.problem.latents
    if latents:
        refused = quadrature.refusal(latents)
        if refused is not None:
            raise ValueError(refused)
        name, prior = next(iter(latents.items()))
        rng = np.random.default_rng(context.seed)
        if prepared.is_linear_given_latents:
            return _mixture_of_laws(prepared, name, prior, rng, max_size)
        return _mixture_of_tables(prepared, name, prior, rng)
    if prepared.linear is not None:
        law = ExactLaw(**prepared.linear.arguments(), max_size=max_size)
        return Posterior.from_exact(law.solved())
    perms = list_all(prepared.problem)
    values = log_densities(prepared.problem, perms)
    error, count = rounding_error(prepared.problem, values), len(perms)
    if error > ROUNDING_CHECK:
        precise = in_float64(
            prepared.problem, perms, lambda: log_densities(prepared.problem, perms)
        )
        values, error = (values, error) if precise is None else (precise, 0.0)
        count *= 2
    return lowered(tabulated(prepared, perms, values, num_evaluations=count), error)


def affordable(prepared: Prepared) -> bool:
    """Return whether an exact solution is estimated to take seconds and at most a gigabyte."""
    if prepared.listed is not None:
        return False
    latents = prepared.problem.latents
    budget = 1.0 / _GRID_SIZE if latents else 1.0
    if latents and quadrature.refusal(latents) is not None:
        return False
    linear = prepared.linear
    if prepared.is_linear_given_latents:
        linear = prepared.linear_with(
            np.zeros(Layout(prepared.model.num_sites, *prepared.model.shape).table_shape)
        )
    if linear is not None:
        return _programme_is_affordable(linear.arguments(), prepared.problem.num_sites, budget)
    limit = MAX_MATCHINGS if prepared.problem.traceable else _AFFORDABLE_CALLS
    return count_all(prepared.problem) <= limit * budget


def count_all(problem: Problem) -> int:
    """Return an upper bound on the number of matchings of all sites together."""
    return math.prod(count_bound(allowed) for allowed in np.isfinite(grounded(problem)))


def list_all(problem: Problem) -> np.ndarray:
    """List all matchings of a problem: (count, n), or (count, S, n) for combinations of sites."""
    tables = np.isfinite(grounded(problem))
    if len(tables) == 1:
        return list_matchings(tables[0])
    count = count_all(problem)
    if count > MAX_MATCHINGS:
        raise ValueError(
            f"enumeration takes at most {MAX_MATCHINGS:,} matchings, got {len(tables)} sites with "
            f"up to {count:.3g} together; use method='sequential'."
        )
    lists = [list_matchings(table) for table in tables]
    chosen = np.array(list(itertools.product(*(range(len(matchings)) for matchings in lists))))
    return np.stack([matchings[chosen[:, s]] for s, matchings in enumerate(lists)], axis=1)


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
    """Return the posterior given all matchings of the reduced problem and their log densities."""
    if not (values > -np.inf).any():
        raise ValueError("the log density must be finite for some matching, got -inf for all.")
    full = prepared.restore(perms)
    n, m = prepared.model.shape
    joined = Layout(prepared.model.num_sites, n, m).joined_shape
    if joined[0] * math.log2(joined[1] + 1) <= _CODE_BITS:
        return Posterior.from_exact(TabularLaw(full, values, m), **fields)
    # Too wide for a table. Weighted draws give everything except log_prob of other matchings.
    return Posterior.from_draws(
        full,
        values,
        shape=prepared.model.shape,
        log_evidence=float(np.logaddexp.reduce(values)),
        log_evidence_kind="exact",
        diagnostics=diagnose(exact=True),
        **fields,
    )


def _mixture_of_laws(
    prepared: Prepared, name: str, prior: Any, rng: np.random.Generator, max_size: int
) -> Posterior:
    """Solve a model that is linear given the latent: one exact law for each of its values."""

    @functools.lru_cache(maxsize=quadrature.POINTS)
    def law_given(value: float) -> ExactLaw:
        scores = prepared.model.pair_scores(np.float64(value))
        return ExactLaw(**prepared.linear_with(scores).arguments(), max_size=max_size)

    axis = quadrature.Axis(prior)
    grid = quadrature.integrate(axis, lambda value: law_given(value).result.log_evidence)
    laws = [law_given(value) for value in grid.values.tolist()]
    counts = rng.multinomial(_NUM_DRAWS, grid.posterior)
    latents = {name: grid.latent(np.repeat(np.arange(len(laws)), counts), rng)}
    if count_all(prepared.problem) <= _AFFORDABLE_CALLS:
        perms = list_all(prepared.problem)
        full = prepared.restore(perms)
        log_joint = grid.log_weights + grid.log_likelihoods
        values = [law.log_prob(full) + term for law, term in zip(laws, log_joint, strict=True)]
        total = np.logaddexp.reduce(values)
        found = tabulated(prepared, perms, total, latents=latents, num_evaluations=len(laws))
        return quadrature.not_beyond(found, name, grid.values, grid.posterior)
    draws = [law.sample(num, rng) for law, num in zip(laws, counts, strict=True) if num]
    summaries = [law.summary() for law in laws]
    mixed: dict[str, Any] = {
        field: np.tensordot(grid.posterior, [getattr(part, field) for part in summaries], axes=1)
        for field in ("marginals", "p_unmatched_rows", "p_unmatched_cols")
    }
    law = DrawsLaw(np.concatenate(draws))
    found = Posterior(
        law=law,
        **mixed,
        mode=law.top(1)[0][0],
        log_evidence=grid.log_evidence,
        log_evidence_kind="exact",
        latents=latents,
        diagnostics=diagnose(exact=True),
        num_evaluations=len(laws),
    )
    return quadrature.not_beyond(found, name, grid.values, grid.posterior)


def _mixture_of_tables(
    prepared: Prepared, name: str, prior: Any, rng: np.random.Generator
) -> Posterior:
    """Solve a model with any density: list all matchings for each value of the latent."""
    problem = prepared.problem
    perms = list_all(problem)

    summed = _sum_over_latent(problem, perms, name, prior)
    error = rounding_error(problem, summed.at_mode)
    if error > ROUNDING_CHECK:
        precise = in_float64(problem, perms, lambda: _sum_over_latent(problem, perms, name, prior))
        summed, error = (summed, error) if precise is None else (precise, 0.0)
    grid = summed.grid
    cells = rng.choice(len(grid.values), size=_NUM_DRAWS, p=grid.posterior)
    latents = {name: grid.latent(cells, rng)}
    count = len(perms) * len(grid.values)
    found = tabulated(prepared, perms, summed.total, latents=latents, num_evaluations=count)
    found = quadrature.not_beyond(found, name, grid.values, grid.posterior)
    return lowered(found, error)


class _Summed(NamedTuple):
    """Log densities of matchings with a latent integrated out.

    Attributes:
        grid: The values of the latent.
        total: (num,) the log densities.
        at_mode: (num,) those given the most probable value.
    """

    grid: quadrature.Grid
    total: np.ndarray
    at_mode: np.ndarray


def _sum_over_latent(problem: Problem, perms: np.ndarray, name: str, prior: Any) -> _Summed:
    """Integrate one latent out of the densities of matchings (num, ...)."""

    @functools.lru_cache(maxsize=quadrature.POINTS)
    def values_given(value: float) -> np.ndarray:
        return log_densities(problem, perms, **{name: np.asarray(value)})

    grid = quadrature.integrate(
        quadrature.Axis(prior), lambda value: float(np.logaddexp.reduce(values_given(value)))
    )
    total = np.full(len(perms), -np.inf)
    for value, log_weight in zip(grid.values.tolist(), grid.log_weights, strict=True):
        total = np.logaddexp(total, values_given(value) + log_weight)
    middle = grid.values[np.argmax(grid.posterior)]
    return _Summed(grid, total, values_given(float(middle)))


METHODS = {
    "exact": Method(
        MethodInfo(
            name="exact",
            needs="linear scores (blocks up to 24 items), or any density up to 9 items",
            gives="everything, exactly",
            masks=True,
            partial=True,
            cost="O(2^n n) per block, or n! evaluations",
            reference="Ryser 1963; Bellman 1962",
        ),
        options=("max_size",),
        run=run,
        latents=True,
        rounds=False,
    ),
}
