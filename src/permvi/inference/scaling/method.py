"""Methods "sinkhorn" and "bethe": approximate marginals of linear models, in O(n^2) per step.

The marginals have no error bounds. Those of Sinkhorn scaling tend to be less certain than the
posterior's, those of belief propagation more certain. The evidence is guaranteed to lie between two
bounds (`permvi.inference.scaling.permanent`): the lower one is returned, the upper one is
``diagnostics.extras["log_evidence_upper"]``. Log densities are evaluated only for the verdict.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from permvi import transforms
from permvi._checks import whole
from permvi._programmes import jit
from permvi.inference.method import Context, Method, MethodInfo, restore_marginals
from permvi.inference.scaling import permanent
from permvi.inference.scaling.permanent import SquareProblem
from permvi.inference.verdict.audit import audited
from permvi.posterior import Diagnostics, Marginals, Posterior, diagnose, normalise_marginals
from permvi.posterior.marginal_law import MarginalsLaw
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem

_MAX_STEPS = 2000
# Without damping, belief propagation oscillates if rows compete for equivalent columns.
_DAMPING = 0.2
# Lower odds would be zero in float64, and zeros could leave no feasible matching.
_LOWEST_LOG_ODDS = -600.0
_ADVICE = "try method='linear' or 'sequential'"
_REASON = (
    "marginals of an approximation without error bars: compare with method='exact' or 'sequential'"
)


class _Scaled(NamedTuple):
    """A roughly doubly stochastic matrix, its error, the steps taken and whether they sufficed."""

    table: np.ndarray
    error: float
    num_steps: int
    converged: bool


class _Solved(NamedTuple):
    """The marginals of one site and bounds on its log evidence."""

    marginals: Marginals
    lower: float
    upper: float


def run(prepared: Prepared, context: Context) -> Posterior:
    """Approximate one problem."""
    return _approximate([prepared], context)[0]


def run_many(batch: Sequence[Prepared], context: Context) -> list[Posterior] | None:
    """Approximate problems of one shape in one vmapped call; None if their shapes differ."""
    problems = [prepared.problem for prepared in batch]
    if len({(one.shape, one.num_sites, one.is_partial) for one in problems}) > 1:
        return None
    return _approximate(batch, context)


def _approximate(batch: Sequence[Prepared], context: Context) -> list[Posterior]:
    problems = [_squares(prepared.problem) for prepared in batch]
    flat = [square for squares in problems for square in squares]
    iterate = _beliefs if context.method == "bethe" else _sinkhorn
    scaled = iterate(np.stack([square.scores for square in flat]), context)
    num_sites = len(problems[0])
    return [
        _posterior(prepared, squares, scaled[k * num_sites : (k + 1) * num_sites], context.method)
        for k, (prepared, squares) in enumerate(zip(batch, problems, strict=True))
    ]


def _squares(problem: Problem) -> list[SquareProblem]:
    """Return each site as a permanent."""
    S, (n, m) = problem.num_sites, problem.shape
    scores = problem.host_scores.reshape(S, n, m)

    def by_site(array: Any, *shape: int) -> Any:
        return [None] * S if array is None else np.broadcast_to(np.asarray(array), (S, *shape))

    constraints = by_site(problem.mask, n, m), by_site(problem.row_unmatched, n)
    sites = zip(scores, *constraints, by_site(problem.col_unmatched, m), strict=True)
    return [permanent.square_problem(*site) for site in sites]


def _sinkhorn(scores: np.ndarray, context: Context) -> list[_Scaled]:
    if "damping" in context.options:
        raise ValueError("damping is an option of method 'bethe', got it with method 'sinkhorn'.")
    tol, max_steps = context.options.get("tol"), context.options.get("max_steps", _MAX_STEPS)
    found = _compiled_sinkhorn(scores, tol=tol, max_steps=max_steps, mask=scores > -np.inf)
    return _listed(np.asarray(found.matrix, np.float64), found)


_compiled_sinkhorn = jit(transforms.sinkhorn_until, static_argnames=("tol", "max_steps"))


def _beliefs(scores: np.ndarray, context: Context) -> list[_Scaled]:
    damping = context.options.get("damping", _DAMPING)
    if not 0 <= damping < 1:
        raise ValueError(f"damping must be in [0, 1), got {damping!r}.")
    tol = context.options.get("tol")
    if tol is not None and not tol > 0:
        raise ValueError(f"tol must be positive, got {tol!r}.")
    max_steps = whole("max_steps", context.options.get("max_steps", _MAX_STEPS))
    found = permanent.propagate_beliefs(scores, damping, tol, max_steps)
    log_odds = np.maximum(np.asarray(found.log_odds, np.float64), _LOWEST_LOG_ODDS)
    return _listed(np.where(scores > -np.inf, expit(log_odds), 0.0), found)


def _listed(tables: np.ndarray, found: object) -> list[_Scaled]:
    columns = (np.asarray(getattr(found, name)) for name in ("error", "num_steps", "converged"))
    rows = zip(tables, *(column.tolist() for column in columns), strict=True)
    return [_Scaled(*row) for row in rows]


def _solve(square: SquareProblem, scaled: _Scaled, method: str) -> _Solved:
    """Solve one site; its marginals are scaled to exact sums, so that the bounds always hold."""
    n, m = square.shape
    if square.settled:
        X = (square.best[:, None] == np.arange(m)).astype(float)
        alone = Marginals(X, 1.0 - X.sum(axis=1), 1.0 - X.sum(axis=0))
        return _Solved(alone, square.best_log_weight, square.best_log_weight)
    P = normalise_marginals(scaled.table).marginals
    scores = square.scores
    bethe, capacity = permanent.log_bethe(scores, P), permanent.log_capacity(scores, P)
    if method == "bethe":
        lower, upper = bethe, bethe + len(P) / 2 * math.log(2)
    else:
        lower, upper = (
            max(bethe, capacity + permanent.log_permanent_floor(scores > -np.inf)),
            capacity,
        )
    pairs = Marginals(P[:n, :m], P[:n, m:].sum(axis=1), P[n:, :m].sum(axis=0))
    return _Solved(pairs, lower + square.offset, upper + square.offset)


def _posterior(
    prepared: Prepared, squares: list[SquareProblem], scaled: list[_Scaled], method: str
) -> Posterior:
    solved = [_solve(*pair, method) for pair in zip(squares, scaled, strict=True)]
    parts = (np.stack(arrays) for arrays in zip(*(site.marginals for site in solved), strict=True))
    best = np.stack([square.best for square in squares])
    if len(solved) == 1:
        parts, best = (array[0] for array in parts), best[0]
    marginals = restore_marginals(prepared.reduction, Marginals(*parts))
    constant = float(prepared.problem.constant)
    exact = all(square.settled for square in squares)
    posterior = Posterior(
        law=MarginalsLaw(*marginals),
        **marginals._asdict(),
        mode=prepared.restore(best),
        log_evidence=constant + sum(site.lower for site in solved),
        log_evidence_kind="exact" if exact else "bound",
        diagnostics=_diagnose(
            scaled, constant + sum(site.upper for site in solved), method, exact=exact
        ),
        num_evaluations=0,
    )
    return posterior if exact else audited(prepared, posterior, best, _ADVICE)


def _diagnose(scaled: list[_Scaled], upper: float, method: str, *, exact: bool) -> Diagnostics:
    if exact:
        return diagnose(exact=True)
    converged = all(site.converged for site in scaled)
    reasons = [_REASON]
    if not converged:
        reasons.append(
            f"{method} stopped before it converged (a row or column sum was off by "
            f"{max(site.error for site in scaled):.1g}): allow more steps (max_steps)"
        )
    extras = {
        "marginal_error": np.array([site.error for site in scaled]),
        "num_steps": np.array([site.num_steps for site in scaled]),
    }
    # The upper bound holds only at the optimum, which requires convergence.
    if converged:
        extras["log_evidence_upper"] = np.array(upper)
    return Diagnostics("check", tuple(reasons), converged=converged, extras=extras)


METHODS = {
    name: Method(
        MethodInfo(
            name=name,
            needs="linear scores",
            gives="approximate marginals and a bound on the evidence",
            masks=True,
            partial=True,
            cost="O(n^2) per step",
            reference=reference,
        ),
        options=("tol", "max_steps", "damping"),
        run=run,
        run_many=run_many,
        linear=True,
    )
    for name, reference in (
        ("sinkhorn", "Sinkhorn 1964; Linial et al. 2000"),
        ("bethe", "Chertkov et al. 2008; Vontobel 2013"),
    )
}
