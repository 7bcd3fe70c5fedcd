"""Method "collapsed": permutations of subjects that share linear dynamics, weights integrated out.

It knows one kind of model, that which has the hook ``shared_regression``: statistics of recordings
that share a sparse regression. Known neurons are kept as entries of the mask. The option ``search``
says how: "moves" (the default) searches from several starts and samples by moves; "softassign" is a
mean field, for many models of one shape at a time.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from permvi import _threads
from permvi._checks import one_of
from permvi.inference.dynamics import (
    CollapsedOptions,
    CollapsedResult,
    SoftassignOptions,
    run_collapsed,
)
from permvi.inference.dynamics.shared import LATENT, dynamics_of, outer, unknown_rows
from permvi.inference.dynamics.softassign_method import posteriors as softassign_posteriors
from permvi.inference.mcmc.result import summarise_chains
from permvi.inference.method import Context, Method, MethodInfo, option_names
from permvi.posterior import Diagnostics, Latent, Posterior
from permvi.problem.prepare import Prepared

Search = Literal["moves", "softassign"]
_OPTIONS_OF: dict[str, tuple[str, ...]] = {
    "moves": option_names(CollapsedOptions),
    "softassign": option_names(SoftassignOptions),
}

# A label that a search ended in counts as a surprise if it has less than this share of the
# probability of the likeliest.
_SURPRISE = 0.05
# Surprises among all neurons, in the search that agrees best with the posterior but one.
_SURPRISES_CHECK = 0.02
_SURPRISES_DISTRUST = 0.1
# How likely it is that the best optimum was missed, where no two searches agree.
_TOSS_UP = 0.5
# Expected share of right identities among those that are not known.
_RIGHT_CHECK = 0.9
_RIGHT_DISTRUST = 0.7


def run(prepared: Prepared, context: Context) -> Posterior:
    """The posterior of one model.

    Raises:
        ValueError: The model has no shared dynamics.
    """
    search, chosen = _search_options(context)
    problem, scales, learn_weight, learn_noise = dynamics_of(prepared, context.method)
    if search == "softassign":
        return softassign_posteriors([prepared], [problem], [scales], chosen)[0]
    result = run_collapsed(
        problem,
        scales,
        np.random.default_rng(context.seed),
        CollapsedOptions(**chosen),
        learn_weight=learn_weight,
        learn_noise=learn_noise,
        on_progress=context.step,
    )
    return _posterior(prepared, result, unknown_rows(prepared, problem))


def run_many(batch: Sequence[Prepared], context: Context) -> list[Posterior] | None:
    """Those of models of one shape by softassign, in one call; else None."""
    search, chosen = _search_options(context)
    if search != "softassign":
        return None
    with _threads.pool(len(batch)) as pool:
        given = pool.map(lambda prepared: dynamics_of(prepared, context.method), batch)
        problems, scales, _, _ = zip(*given, strict=True)
    if len({problem.mask.shape for problem in problems}) > 1:
        return None
    return softassign_posteriors(batch, problems, scales, chosen)


def _search_options(context: Context) -> tuple[Search, dict[str, Any]]:
    """How to search, and the options of that."""
    chosen = dict(context.options)
    search: Any = one_of("search", chosen.pop("search", "moves"), get_args(Search))
    for name in chosen:
        if name not in _OPTIONS_OF[search]:
            other = next(each for each, names in _OPTIONS_OF.items() if name in names)
            raise ValueError(
                f"{name} is an option of search={other!r}, got it with search={search!r}."
            )
    return search, chosen


def _posterior(prepared: Prepared, result: CollapsedResult, unknown: np.ndarray) -> Posterior:
    n, m = prepared.model.shape
    draws, mode, found = (
        outer(prepared, perms) for perms in (result.draws, result.mode, result.found)
    )
    flat = draws.reshape(-1, *draws.shape[2:])
    _, first = np.unique(flat.reshape(len(flat), -1), axis=0, return_index=True)
    densities = np.append(result.log_densities.ravel()[first], result.mode_log_density)
    fields: dict[str, Any] = {
        "shape": (n, m),
        "mode": mode,
        "latents": {LATENT: Latent(result.weights.mean, result.weights.sd)},
        "log_evidence": float(np.logaddexp.reduce(densities)) + result.log_evidence_offset,
        "log_evidence_kind": "bound",
        "num_evaluations": result.num_evaluations,
    }
    posterior = Posterior.from_draws(flat, **fields)
    surprises = _surprises(posterior, found, unknown)
    missed = _chance_missed(surprises)
    if missed > 0:
        parts = [flat, found.reshape(len(found), *flat.shape[1:])]
        weights = [np.full(len(part), 1 / len(part)) for part in parts]
        shared = np.concatenate([(1 - missed) * weights[0], missed * weights[1]])
        posterior = Posterior.from_draws(np.concatenate(parts), np.log(shared), **fields)
    summary = summarise_chains(draws, m)
    diagnostics = dataclasses.replace(
        _diagnose(posterior, surprises, unknown, result),
        ess_per_draw=summary.ess_per_draw,
        sampling_error_by_row=summary.sampling_error_by_row,
    )
    return dataclasses.replace(posterior, diagnostics=diagnostics)


def _surprises(posterior: Posterior, found: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """(R,) in how many of its unknown rows each search ended elsewhere, those that agree first.

    Args:
        posterior: What the chains say.
        found: (R, n) or (R, J, n) where the searches ended.
        unknown: (n,) or (J, n) the rows that have a recording and are not known.
    """
    shares = posterior.marginals / posterior.marginals.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shares[None], found[..., None], axis=-1)[..., 0]
    return np.sort((chosen[:, unknown] < _SURPRISE).mean(axis=-1))


def _chance_missed(surprises: np.ndarray) -> float:
    """How likely the best optimum is one that no search has found.

    The chains come from the best of the searches. If a second one agrees with them, nothing is
    taken to be missed; if all others ended far away, that is a toss-up, and what is known then is
    where independent searches end.
    """
    if len(surprises) < 2:
        return 0.0
    disagreement = np.interp(surprises[1], [_SURPRISES_CHECK, _SURPRISES_DISTRUST], [0, 1])
    return _TOSS_UP * float(disagreement)


def _diagnose(
    posterior: Posterior, surprises: np.ndarray, unknown: np.ndarray, result: CollapsedResult
) -> Diagnostics:
    """The verdict: do independent searches end where the chains are, and is that definite?

    Args:
        posterior: The posterior.
        surprises: (R,) in how many rows each search ended elsewhere.
        unknown: (n,) or (J, n) the rows that have a recording and are not known.
        result: For what else is worth knowing.
    """
    right = float(posterior.marginals.max(axis=-1)[unknown].mean())
    judged = [_judge_searches(surprises), _judge_data(right)]
    severity = ("trust", "check", "do not trust")
    judged.sort(key=lambda pair: -severity.index(pair[0]))
    verdict: Any = judged[0][0]
    return Diagnostics(
        verdict=verdict,
        reasons=tuple(reason for _, reason in judged),
        extras={
            "expected_accuracy": np.array(right),
            "search_log_densities": result.found_log_densities,
            "search_surprises": surprises,
            "weight_scale": np.sqrt(result.scales.weight),
            "noise_scale": np.sqrt(result.scales.noise),
        },
    )


def _judge_searches(surprises: np.ndarray) -> tuple[str, str]:
    """By the second best of the searches: the best one is where the posterior comes from."""
    if len(surprises) < 2:
        return "check", "there was one search only: a better optimum would go unnoticed"
    share = float(surprises[1])
    if share <= _SURPRISES_CHECK:
        return "trust", (
            f"independent searches agree with the posterior in all but {share:.1%} of the rows"
        )
    verdict = "do not trust" if share > _SURPRISES_DISTRUST else "check"
    return verdict, (
        f"independent searches end elsewhere in {share:.1%} of the rows or more: the best optimum "
        "may not have been found; try more restarts"
    )


def _judge_data(right: float) -> tuple[str, str]:
    if right >= _RIGHT_CHECK:
        return "trust", f"{right:.1%} of the rows that are not known are expected to be right"
    verdict = "do not trust" if right < _RIGHT_DISTRUST else "check"
    return verdict, (
        f"the data do not suffice: {right:.1%} of the rows that are not known are expected to be "
        "right; longer recordings, more subjects or more known ones would help"
    )


METHODS = {
    "collapsed": Method(
        MethodInfo(
            name="collapsed",
            needs="recordings of shared dynamics (models.SharedDynamics)",
            gives="draws with the weights integrated out, a bound on the evidence",
            masks=True,
            partial=False,
            cost="O(n^3) per step of a search; O(degree^3) per move of a chain",
            reference="Linderman et al. 2018, section 5; Vogelstein et al. 2015",
        ),
        options=(
            "search",
            *dict.fromkeys(name for names in _OPTIONS_OF.values() for name in names),
        ),
        run=run,
        run_many=run_many,
        latents=True,
    ),
}
