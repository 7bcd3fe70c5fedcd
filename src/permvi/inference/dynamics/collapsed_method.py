"""Method "collapsed": permutations of subjects that share linear dynamics, weights integrated out.

It takes models with the hook ``shared_regression``: statistics of recordings that share a sparse
regression. Known neurons are kept as entries of the mask. The option ``search`` selects the engine.
"moves" (the default) searches from several starts and samples by moves. "softassign" is a mean
field for many models of one shape at a time; its marginals have no error bars, so its verdict is
never "trust".
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from permvi import _threads, assignment
from permvi._checks import one_of
from permvi.inference.dynamics.evidence import CollapsedState
from permvi.inference.dynamics.measurement import Filtered, measurement_noise
from permvi.inference.dynamics.regression import Scales, SharedRegression
from permvi.inference.dynamics.run import CollapsedOptions, CollapsedResult, run_collapsed
from permvi.inference.dynamics.shared import LATENT, Dynamics, dynamics_of, outer, unknown_rows
from permvi.inference.dynamics.softassign import SoftassignOptions, SoftassignResult, run_softassign
from permvi.inference.mcmc.result import summarise_chains
from permvi.inference.method import Context, Method, MethodInfo, option_names
from permvi.posterior import Diagnostics, Latent, Marginals, Posterior, normalise_marginals
from permvi.posterior.diagnostics import Judgement, worst_first
from permvi.posterior.marginal_law import MarginalsLaw
from permvi.problem.prepare import Prepared

Search = Literal["moves", "softassign"]
_OPTIONS_OF: dict[str, tuple[str, ...]] = {
    "moves": option_names(CollapsedOptions),
    "softassign": option_names(SoftassignOptions),
}

# A search disagrees with the posterior in a row if its label has less than this share of the
# probability of the row's most probable label.
_SURPRISE = 0.05
# Shares of rows in which the second best search disagrees.
_SURPRISES_CHECK = 0.02
_SURPRISES_DISTRUST = 0.1
# The probability that the best optimum was missed if no two searches agree.
_TOSS_UP = 0.5
# Expected accuracy of the rows whose label is not known.
_RIGHT_CHECK = 0.9
_RIGHT_DISTRUST = 0.7
# The share of missing edges, relative to the support, from which on the support is in doubt.
_MISSING_CHECK = 0.5
# Probabilities may underflow; this floor leaves some matching with positive probability.
_LEAST = 1e-9
# The largest change of an entry in the last step of a mean field that has converged.
_CONVERGED = 0.05


def run(prepared: Prepared, context: Context) -> Posterior:
    """Compute the posterior of one model.

    Raises:
        ValueError: The model has no shared dynamics.
    """
    search, chosen = _search_options(context)
    if search == "softassign":
        problem, scales, *_ = dynamics_of(prepared, context.method)
        return _softassign([prepared], [problem], [scales], chosen)[0]
    options = CollapsedOptions(**chosen)
    dynamics = dynamics_of(prepared, context.method, forgive=options.forgive)
    rng = np.random.default_rng(context.seed)
    learned = {"learn_weight": dynamics.learn_weight, "learn_noise": dynamics.learn_noise}

    def fit(problem: SharedRegression, scales: Scales) -> CollapsedResult:
        return run_collapsed(problem, scales, rng, options, on_progress=context.step, **learned)

    result, noise = fit(dynamics.problem, dynamics.scales), None
    if dynamics.filtered is not None:
        noise = measurement_noise(
            dynamics.problem, result.mode, result.edges > 0.5, result.scales, dynamics.filtered,
            weight=dynamics.learn_weight, noise=dynamics.learn_noise,
        )  # fmt: skip
        if noise is not None:
            result = fit(noise.problem, noise.scales)
    forgiven = _forgiven(dynamics, result, noise)
    return _sampled_posterior(prepared, result, unknown_rows(prepared, dynamics.problem), forgiven)


class Forgiven(NamedTuple):
    """What the fit has allowed for, as judgements for the verdict, as arrays and as latents."""

    judgements: list[Judgement]
    extras: dict[str, np.ndarray]
    latents: dict[str, Latent]


def _forgiven(dynamics: Dynamics, result: CollapsedResult, noise: Filtered | None) -> Forgiven:
    judgements: list[Judgement] = []
    extras: dict[str, np.ndarray] = {}
    # What was estimated, not integrated out, has no standard deviation.
    latents: dict[str, Latent] = {}
    if dynamics.degrees is not None:
        latents["innovation_degrees"] = Latent(np.array(dynamics.degrees), np.zeros(()))
        words = f"Student's t with {dynamics.degrees:g} degrees of freedom"
        judgements.append(Judgement("trust", (f"allowed for: innovations have tails of {words}",)))
    if noise is not None:
        extras["measurement_scale"] = np.array(noise.noise_scale)
        latents["filter_gain"] = Latent(np.array(noise.gain), np.zeros(()))
        words = f"allowed for: measurement noise of standard deviation {noise.noise_scale:.2g}"
        judgements.append(Judgement("trust", (words,)))
    if result.wiring is not None:
        drawn, missing = result.wiring.errors(dynamics.problem.support)
        extras["wrong_edges"], extras["missing_edges"] = np.array(drawn), np.array(missing)
        latents["edges"] = Latent(result.edges, np.sqrt(result.edges * (1 - result.edges)))
        words = (
            f"edges of the support seem wrong: {100 * drawn:.0f} % of them are none, and "
            f"{100 * missing:.0f} % as many are missing"
        )
        judgements.append(
            Judgement("trust", (f"allowed for: {words}",))
            if missing < _MISSING_CHECK
            else Judgement("check", (f"{words}, so the support may not be that of the data",))
        )
    return Forgiven(judgements, extras, latents)


def run_many(batch: Sequence[Prepared], context: Context) -> list[Posterior] | None:
    """Compute the posteriors of models of one shape by softassign in one call; else None."""
    search, chosen = _search_options(context)
    if search != "softassign":
        return None
    with _threads.pool(len(batch)) as pool:
        given = pool.map(lambda prepared: dynamics_of(prepared, context.method), batch)
        problems, scales, *_ = zip(*given, strict=True)
    if len({problem.mask.shape for problem in problems}) > 1:
        return None
    return _softassign(batch, problems, scales, chosen)


def _search_options(context: Context) -> tuple[Search, dict[str, Any]]:
    """Return the kind of search and its options."""
    chosen = dict(context.options)
    search: Any = one_of("search", chosen.pop("search", "moves"), get_args(Search))
    for name in chosen:
        if name not in _OPTIONS_OF[search]:
            other = next(each for each, names in _OPTIONS_OF.items() if name in names)
            raise ValueError(
                f"{name} is an option of search={other!r}, got it with search={search!r}."
            )
    return search, chosen


def _sampled_posterior(
    prepared: Prepared, result: CollapsedResult, unknown: np.ndarray, forgiven: Forgiven
) -> Posterior:
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
        "latents": {LATENT: Latent(result.weights.mean, result.weights.sd), **forgiven.latents},
        "num_evaluations": result.num_evaluations,
    }
    if not forgiven.judgements:
        # Other densities are of estimates or pseudo-observations, not of the recordings.
        total = float(np.logaddexp.reduce(densities)) + result.log_evidence_offset
        fields |= {"log_evidence": total, "log_evidence_kind": "bound"}
    posterior = Posterior.from_draws(flat, **fields)
    surprises = _surprises(posterior, found, unknown)
    missed = _chance_missed(surprises)
    if missed > 0:
        parts = [flat, found.reshape(len(found), *flat.shape[1:])]
        weights = [np.full(len(part), 1 / len(part)) for part in parts]
        shared = np.concatenate([(1 - missed) * weights[0], missed * weights[1]])
        posterior = Posterior.from_draws(np.concatenate(parts), np.log(shared), **fields)
    summary, right = summarise_chains(draws, m), _expected_accuracy(posterior.marginals, unknown)
    diagnostics = Diagnostics(
        *worst_first([_judge_searches(surprises), _judge_data(right), *forgiven.judgements]),
        ess_per_draw=summary.ess_per_draw,
        sampling_error_by_row=summary.sampling_error_by_row,
        extras={
            "expected_accuracy": np.array(right),
            "search_log_densities": result.found_log_densities,
            "search_surprises": surprises,
            **_scales(result.scales),
            **forgiven.extras,
        },
    )
    return dataclasses.replace(posterior, diagnostics=diagnostics)


def _surprises(posterior: Posterior, found: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Return (R,) the share of unknown rows in which each search disagrees, in rising order.

    The optima ``found`` are (R, n) or (R, J, n), and ``unknown`` is (n,) or (J, n) booleans.
    """
    shares = posterior.marginals / posterior.marginals.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shares[None], found[..., None], axis=-1)[..., 0]
    return np.sort((chosen[:, unknown] < _SURPRISE).mean(axis=-1))


def _chance_missed(surprises: np.ndarray) -> float:
    """Return the probability that no search has found the best optimum.

    The chains come from the best search. If a second search agrees with them, nothing is taken to
    be missed. If all others ended far away, it is a toss-up, and the optima of the independent
    searches are the best guess of the rest of the posterior.
    """
    if len(surprises) < 2:
        return 0.0
    disagreement = np.interp(surprises[1], [_SURPRISES_CHECK, _SURPRISES_DISTRUST], [0, 1])
    return _TOSS_UP * float(disagreement)


def _softassign(
    batch: Sequence[Prepared],
    problems: Sequence[SharedRegression],
    scales: Sequence[Scales],
    options: Mapping[str, Any],
) -> list[Posterior]:
    """Compute mean-field posteriors of models of one shape from statistics and variances."""
    results = run_softassign(problems, scales, SoftassignOptions(**options))
    with _threads.pool(len(batch)) as pool:
        return list(pool.map(_soft_posterior, batch, problems, scales, results))


def _soft_posterior(
    prepared: Prepared, problem: SharedRegression, scales: Scales, result: SoftassignResult
) -> Posterior:
    n = prepared.model.shape[0]
    floored = np.where(problem.mask, np.maximum(result.matrices, _LEAST), 0.0)
    square = np.stack([normalise_marginals(table).marginals for table in floored])
    perms = np.asarray(assignment.solve(square, problem.mask, backend="host"), np.int64)
    table, mode = square[:, :n], perms[:, :n]
    left_over = square[:, n:].sum(axis=1)
    if prepared.model.num_sites == 1:
        table, mode, left_over = table[0], mode[0], left_over[0]
    marginals = Marginals(table, np.zeros(table.shape[:-1]), left_over)
    right = _expected_accuracy(table, unknown_rows(prepared, problem))
    at = np.nonzero(problem.support)
    return Posterior(
        law=MarginalsLaw(*marginals),
        **marginals._asdict(),
        mode=mode,
        latents={LATENT: Latent(result.mean[at], np.sqrt(result.variance[at]))},
        log_evidence=CollapsedState(problem, perms, scales).log_evidence,
        log_evidence_kind="bound",
        diagnostics=_diagnose_soft(right, scales, result),
        num_evaluations=result.num_evaluations + 1,
    )


def _diagnose_soft(right: float, scales: Scales, result: SoftassignResult) -> Diagnostics:
    converged = result.change <= _CONVERGED
    judged = [_judge_data(right)] if right < _RIGHT_DISTRUST else []
    if not converged:
        reason = "the mean field had not converged when it stopped: allow more steps (num_steps)"
        judged.append(Judgement("check", (reason,)))
    reason = "a mean field has no error bars: compare with search='moves', which samples"
    return Diagnostics(
        *worst_first([*judged, Judgement("check", (reason,))]),
        converged=converged,
        extras={"expected_accuracy": np.array(right), **_scales(scales)},
    )


def _expected_accuracy(marginals: np.ndarray, unknown: np.ndarray) -> float:
    """Return the mean probability of the most probable label over the unknown rows."""
    confidence = marginals.max(axis=-1)[unknown]
    return float(confidence.mean()) if len(confidence) else 1.0


def _scales(scales: Scales) -> dict[str, np.ndarray]:
    return {"weight_scale": np.sqrt(scales.weight), "noise_scale": np.sqrt(scales.noise)}


def _judge_searches(surprises: np.ndarray) -> Judgement:
    """Judge by the second best search, since the posterior comes from the best one."""
    if len(surprises) < 2:
        return Judgement(
            "check", ("there was only one search, so a better optimum would go unnoticed",)
        )
    share = float(surprises[1])
    if share <= _SURPRISES_CHECK:
        return Judgement(
            "trust", (f"independent searches agree about all but {100 * share:.1f} % of the rows",)
        )
    reason = (
        f"independent searches disagree about {100 * share:.1f} % of the rows or more: the best "
        "optimum may have been missed; try more restarts"
    )
    return Judgement("do not trust" if share > _SURPRISES_DISTRUST else "check", (reason,))


def _judge_data(right: float) -> Judgement:
    """Judge by the expected accuracy of the rows that are not known."""
    expected = f"expected accuracy: {100 * right:.1f} % of the unknown rows have the right label"
    if right >= _RIGHT_CHECK:
        return Judgement("trust", (expected,))
    reason = (
        f"{expected}; there is too little data, and longer recordings, more subjects or more known "
        "rows would help"
    )
    return Judgement("do not trust" if right < _RIGHT_DISTRUST else "check", (reason,))


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
    )
}
