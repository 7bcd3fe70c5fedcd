"""Method "convex": quadratic matching problems by all relaxations that apply."""

import dataclasses
from typing import NamedTuple

import numpy as np

from permvi._checks import one_of, whole
from permvi.inference.convex.matrices import maximise_quadratic
from permvi.inference.convex.vectors import Permutahedron, minimise_quadratic, vector_form
from permvi.inference.map import Quadratic, solve_linear
from permvi.inference.map.method import quadratic_of
from permvi.inference.map.polytope import matrices
from permvi.inference.method import Context, Method, MethodInfo, restore_marginals
from permvi.inference.verdict.audit import audited
from permvi.posterior import Diagnostics, Marginals, Posterior, normalise_marginals
from permvi.posterior.marginal_law import MarginalsLaw
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import Prepared


class Relaxed(NamedTuple):
    """The result of relaxations.

    Attributes:
        X: (n, m) the solution of the relaxation with the smaller bound.
        bound: An upper bound on the function over all matchings.
        perm: (n,) the best matching found by rounding, -1 for unmatched.
        value: Its value.
        by_network: Whether a sorting network gave the bound.
        num_evaluations: How many values and gradients were computed.
    """

    X: np.ndarray
    bound: float
    perm: np.ndarray
    value: float
    by_network: bool
    num_evaluations: int


def relax_quadratic(
    quadratic: Quadratic, mask: np.ndarray | None = None, max_iter: int = 200
) -> Relaxed:
    """Relax ``max <A, X B X'> + <C, X>`` in two ways; return the better bound and matching.

    The Birkhoff polytope always applies. The permutahedron, which is much smaller, applies if the
    problem is to order a vector and nothing is forbidden.

    Args:
        quadratic: The function.
        mask: (n, m) booleans, True where allowed, pruned; or None.
        max_iter: The most Frank-Wolfe steps in each.
    """
    found = maximise_quadratic(quadratic, mask, max_iter)
    form = None if mask is not None else vector_form(quadratic)
    if form is None:
        X, bound, perm, value, num = found
        return Relaxed(X, bound, perm, value, by_network=False, num_evaluations=num)
    ordered = minimise_quadratic(-form.Q, -form.c, form.values, max_iter=max_iter)
    bound, value = form.constant - ordered.bound, form.constant - ordered.value
    by_network = bound < found.bound
    better = value > found.value
    return Relaxed(
        Permutahedron(form.values).mixture(ordered.x) if by_network else found.X,
        min(bound, found.bound),
        ordered.perm if better else found.perm,
        max(value, found.value),
        by_network,
        found.num_evaluations + ordered.num_evaluations,
    )


_MAX_ITER = 200
_ADVICE = "try method='sequential' or 'mcmc'"
# A bound this close to the log density of the matching, relative to it, is attained.
_ATTAINED = 1e-6


def run(prepared: Prepared, context: Context) -> Posterior:
    """Return the best rounded matching, as a posterior with all its mass there, and the bound.

    The evidence is that matching's density, a lower bound. Evaluations are values and gradients of
    the quadratic function.

    Options are ``max_iter``, the most Frank-Wolfe steps, and ``marginals``: "mode" for those of the
    matching, or "relaxed" for the relaxed solution, which is also
    ``diagnostics.extras["relaxed"]``. It is doubly stochastic and shows where the relaxation is
    undecided; it does not approximate the posterior's marginals.

    Raises:
        ValueError: The model is neither linear nor quadratic, or has other latents, or is partial.
    """
    kind = one_of("marginals", context.options.get("marginals", "mode"), ("mode", "relaxed"))
    max_iter = whole("max_iter", context.options.get("max_iter", _MAX_ITER))
    found = _relax(prepared, context.method, max_iter)
    value = float(log_densities(prepared.problem, found.perm[None])[0])
    posterior = Posterior.from_draws(
        prepared.restore(found.perm[None]),
        shape=prepared.model.shape,
        log_evidence=value,
        log_evidence_kind="bound",
        diagnostics=_diagnostics(found, value),
        num_evaluations=found.num_evaluations + 1,
    )
    if kind == "relaxed":
        posterior = _with_marginals(prepared, posterior, found.X)
    return audited(prepared, posterior, found.perm, _ADVICE)


def _relax(prepared: Prepared, method: str, max_iter: int) -> Relaxed:
    problem = prepared.problem
    mask = None if problem.mask is None else np.asarray(problem.mask)
    if problem.scores is not None:
        best = solve_linear(prepared.problem.host_scores, mask, float(problem.constant))
        value = float(best.restart_values[0])
        X = matrices(best.perm, problem.shape[1])
        return Relaxed(X, value, best.perm, value, by_network=False, num_evaluations=0)
    quadratic = quadratic_of(prepared)
    if quadratic is None:
        raise ValueError(
            f"model must have scores, or one site and a quadratic form, for method {method!r}, got "
            f"a {type(prepared.model).__name__} that has not; try method='map'."
        )
    return relax_quadratic(quadratic, mask, max_iter)


def _with_marginals(prepared: Prepared, posterior: Posterior, X: np.ndarray) -> Posterior:
    found = normalise_marginals(np.clip(X, 0.0, 1.0))
    marginals: Marginals = restore_marginals(prepared.reduction, found)
    law = MarginalsLaw(*marginals)
    return dataclasses.replace(posterior, law=law, **marginals._asdict())


def _diagnostics(found: Relaxed, value: float) -> Diagnostics:
    # In float32 the model's density may be a little above the bound.
    gap = max(0.0, found.bound - value)
    if gap <= _ATTAINED * max(1.0, abs(value)):
        optimality = "no matching is more probable than this one"
    else:
        optimality = f"another matching may have a log density larger by up to {gap:.3g}"
    return Diagnostics(
        "check",
        ("a point estimate: it says nothing about how uncertain the matching is", optimality),
        extras={
            "log_density_upper": np.array(found.bound),
            "relaxed": found.X,
            "by_network": np.array(found.by_network),
        },
    )


METHODS = {
    "convex": Method(
        MethodInfo(
            name="convex",
            needs="linear scores or a quadratic form",
            gives="a matching, and a bound on the log density of all others",
            masks=True,
            partial=False,
            cost="O(n^3) per step",
            reference="Lim and Wright 2014",
        ),
        options=("marginals", "max_iter"),
        run=run,
    )
}
