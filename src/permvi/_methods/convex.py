"""Method "convex": a relaxation's bound on the largest density, and a matching by rounding.

For models that are linear or quadratic (the hook ``quadratic``, as `GraphMatching` has it). Linear
ones need no relaxation beyond the Birkhoff polytope, whose vertices are the permutations: the
result is one assignment, and the bound is attained. Quadratic ones are made concave and solved by
Frank-Wolfe, over the Birkhoff polytope and, where the labels are positions on a line (seriation,
2-SUM), over the permutahedron as a sorting network describes it (Lim and Wright 2014); see
`permvi.inference.convex`. Each step is an assignment of O(n^3).

Choose it to learn how much better than a matching at hand any other can be:
``diagnostics.extras["log_density_upper"]`` bounds the log density of all of them. As a search,
method "map" is better, and neither says how uncertain the matching is.
"""

import dataclasses

import numpy as np

from permvi._choices import one_of
from permvi._methods import refusals
from permvi._methods.audit import audited
from permvi._methods.context import Context
from permvi._methods.density import log_densities
from permvi._methods.map import quadratic_of
from permvi._methods.scaling import restore_marginals
from permvi._task import Task
from permvi.inference.convex import Relaxed, relax_quadratic
from permvi.inference.exact.problem import positive_int
from permvi.inference.map import solve_linear
from permvi.inference.map.frank_wolfe import matrices
from permvi.posterior import Diagnostics, Marginals, Posterior, normalise_marginals
from permvi.posterior.marginal_law import MarginalsLaw

OPTIONS = ("marginals", "max_iter")

_MAX_ITER = 200
_ADVICE = "try method='sequential' or 'mcmc'"
# A bound this close to the matching, relative to its log density, is attained.
_ATTAINED = 1e-6


def run(task: Task, context: Context) -> Posterior:
    """The best rounded matching as a posterior with all its mass there, and the bound.

    Its evidence is that matching's density, a bound from below. Evaluations are values and
    gradients of the quadratic function.

    Options are ``max_iter``, the most Frank-Wolfe steps, and ``marginals``: "mode" for those of the
    matching, or "relaxed" for the solution of the relaxation. That one is doubly stochastic, and
    says where the relaxation hesitates; it does not approximate the posterior's marginals. It is
    ``diagnostics.extras["relaxed"]`` in any case.

    Raises:
        ValueError: The model is neither linear nor quadratic, or has other latents, or is partial.
    """
    refusals.refuse_partial(task, context.method)
    refusals.refuse_latents(task, context.method)
    kind = one_of("marginals", context.options.get("marginals", "mode"), ("mode", "relaxed"))
    max_iter = positive_int("max_iter", context.options.get("max_iter", _MAX_ITER))
    found = _relax(task, context.method, max_iter)
    value = float(log_densities(task.problem, found.perm[None])[0])
    posterior = Posterior.from_draws(
        task.restore(found.perm[None]),
        shape=task.model.shape,
        log_evidence=value,
        log_evidence_kind="bound",
        diagnostics=_diagnostics(found, value),
        num_evaluations=found.num_evaluations + 1,
    )
    if kind == "relaxed":
        posterior = _with_marginals(task, posterior, found.X)
    return audited(task, posterior, found.perm, _ADVICE)


def _relax(task: Task, method: str, max_iter: int) -> Relaxed:
    problem = task.problem
    mask = None if problem.mask is None else np.asarray(problem.mask)
    if problem.scores is not None:
        best = solve_linear(refusals.linear_scores(task, method), mask, float(problem.constant))
        value = float(best.restart_values[0])
        X = matrices(best.perm, problem.shape[1])
        return Relaxed(X, value, best.perm, value, by_network=False, num_evaluations=0)
    quadratic = quadratic_of(task)
    if quadratic is None:
        raise ValueError(
            f"model must have scores, or one site and a quadratic form, for method {method!r}, got "
            f"a {type(task.model).__name__} that has not; try method='map'."
        )
    return relax_quadratic(quadratic, mask, max_iter)


def _with_marginals(task: Task, posterior: Posterior, X: np.ndarray) -> Posterior:
    found = normalise_marginals(np.clip(X, 0.0, 1.0))
    marginals: Marginals = restore_marginals(task.reduction, found)
    law = MarginalsLaw(*marginals)
    return dataclasses.replace(posterior, law=law, **marginals._asdict())


def _diagnostics(found: Relaxed, value: float) -> Diagnostics:
    # In float32 the model's own density may be a little above the bound.
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
