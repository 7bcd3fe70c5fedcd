"""The methods of Table 1: how each is run, and what its distribution over matchings is.

Every runner takes problems and a seed and yields, for each of its rows in the table, a name and one
`Answer` for each problem. Rows that come from the same fits are made together.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from permvi import assignment, metrics, permutations
from permvi._fit import FitWarning, fit_many
from permvi.distributions import Mallows
from permvi.experiments.matching.problems import Problem, marginals_of, scores
from permvi.experiments.matching.settings import FITTED, RELAXED
from permvi.inference.mallows import draw_by_swaps
from permvi.posterior import Posterior
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import prepare

THETAS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Dispersions of the Mallows rows; the paper's, and 1, which its row of 0.5 probably is."""

_NUM_DRAWS = 2000
# Swaps before a chain's draw, in units of n^2. With six items the chain is then within 2e-5 of its
# law in total variation at every theta, far below what 2000 draws can show.
_SWEEPS = 4


class Answer(NamedTuple):
    """What a method says of one problem.

    Attributes:
        distribution: (n!,) over matchings in lexicographic order.
        marginals: (n, n).
        evaluations: Log densities evaluated, None where there are none to count.
    """

    distribution: np.ndarray
    marginals: np.ndarray
    evaluations: int | None = None


Rows = Iterator[tuple[str, list[Answer]]]
Runner = Callable[[Sequence[Problem], int], Rows]


def fit_quietly(
    problems: Sequence[Problem], method: str, seed: int, options: Mapping[str, Any] | None = None
) -> list[Posterior]:
    """The posteriors; the table says how good they are, so that warnings need not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        models = [problem.model for problem in problems]
        return fit_many(models, method, seed=seed, **(options or {}))


def _relaxed(name: str) -> Runner:
    """Raw counts of the draws, as the paper has it."""

    def run(problems: Sequence[Problem], seed: int) -> Rows:
        method, options = RELAXED[name]
        options = {**options, "num_draws": _NUM_DRAWS}
        yield name, [_of_draws(fit) for fit in fit_quietly(problems, method, seed, options)]

    return run


def _fitted(name: str) -> Runner:
    """The weighted draws of a method, or the mixture that has its marginals."""

    def run(problems: Sequence[Problem], seed: int) -> Rows:
        method, options = FITTED.get(name, (name, {}))
        yield name, [_of_draws(fit) for fit in fit_quietly(problems, method, seed, options)]

    return run


def _sequential(problems: Sequence[Problem], seed: int) -> Rows:
    """A fit's own probabilities, and its draws weighted by the density."""
    fits = fit_quietly(problems, "sequential", seed)
    perms = permutations.enumerate_permutations(len(problems[0].truth))
    own = [np.exp(fit.log_prob(perms)) for fit in fits]
    yield (
        "sequential",
        [
            Answer(q / q.sum(), marginals_of(perms, q / q.sum()), fit.num_evaluations)
            for q, fit in zip(own, fits, strict=True)
        ],
    )
    yield "corrected", [_of_draws(fit) for fit in fits]


def _without_replacement(problems: Sequence[Problem], seed: int) -> Rows:
    """Two hundred distinct draws, and the family for what is not among them.

    A matching that was evaluated has its density over the estimated evidence for a probability;
    what these leave is shared by all others in proportion to the family's own probabilities.
    """
    method, options = FITTED["swor"]
    n = len(problems[0].truth)
    perms = permutations.enumerate_permutations(n)
    answers = []
    for problem, fit in zip(problems, fit_quietly(problems, method, seed, options), strict=True):
        seen = _of_draws(fit).distribution > 0
        # The same numbers as in the fit, so that what is left is not a difference of roundings.
        log_p = log_densities(prepare(problem.model).problem, perms[seen])
        known = np.zeros(len(perms))
        known[seen] = np.exp(log_p - (fit.log_evidence or 0.0))
        others = np.where(seen, 0.0, np.exp(fit.log_prob(perms)))
        left = max(0.0, 1.0 - known.sum())
        q = known + (left / others.sum() * others if others.any() else 0.0)
        q /= q.sum()
        answers.append(Answer(q, marginals_of(perms, q), fit.num_evaluations))
    yield "swor", answers


def _mallows(problems: Sequence[Problem], seed: int) -> Rows:
    """Around the best matching c.

    The footrule does not mind which item is which, so draws delta around the identity give draws
    pi(i) = delta(c(i)).
    """
    n, num = len(problems[0].truth), len(problems)
    perms = permutations.enumerate_permutations(n)
    centres = [assignment.solve(scores(problem.model)) for problem in problems]
    from_identity = np.asarray(permutations.footrule(perms, np.arange(n)), np.float64)
    for index, theta in enumerate(THETAS):
        law = Mallows(jnp.arange(n), theta, "footrule")
        key = jax.random.fold_in(jax.random.key(seed), index)
        draws = np.asarray(draw_by_swaps(law, key, num * _NUM_DRAWS, _SWEEPS * n * n))
        draws = draws.reshape(num, _NUM_DRAWS, n)
        mass = np.exp(-theta * from_identity)
        mass /= mass.sum()
        chain, exact = [], []
        for centre, own in zip(centres, draws, strict=True):
            chain.append(_tabulated(own[:, centre], None))
            exact.append(_tabulated(perms[:, centre], mass))
        yield f"mallows_{theta:g}", chain
        yield f"mallows_{theta:g}_exact", exact


def _best(problems: Sequence[Problem], seed: int) -> Rows:
    """All probability on the best matching."""
    del seed
    best = [assignment.solve(scores(problem.model)) for problem in problems]
    yield "map", [_tabulated(np.asarray(perm)[None], None) for perm in best]


RUNNERS: dict[str, Runner] = {
    "rounding": _relaxed("rounding"),
    "rounding_paper": _relaxed("rounding_paper"),
    "stick_breaking": _relaxed("stick_breaking"),
    "stick_breaking_paper": _relaxed("stick_breaking_paper"),
    "mallows": _mallows,
    "map": _best,
    "sequential": _sequential,
    "swor": _without_replacement,
    "mcmc": _fitted("mcmc"),
    "sinkhorn": _fitted("sinkhorn"),
    "bethe": _fitted("bethe"),
    "gumbel_sinkhorn": _fitted("gumbel_sinkhorn"),
    "naive": _fitted("naive"),
}
"""Runners by the name of their first row, in the order of the table."""


def _tabulated(perms: np.ndarray, weights: np.ndarray | None) -> Answer:
    q = metrics.empirical_distribution(perms, perms.shape[-1], weights)
    listed = permutations.enumerate_permutations(perms.shape[-1])
    return Answer(q, marginals_of(listed, q))


def _of_draws(fit: Posterior) -> Answer:
    top = fit.top(len(permutations.enumerate_permutations(fit.shape[0])))
    perms = np.array([matching.perm for matching in top])
    weights = np.array([matching.probability for matching in top])
    answer = _tabulated(perms, weights)
    return answer._replace(marginals=fit.marginals, evaluations=fit.num_evaluations)
