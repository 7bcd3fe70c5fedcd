"""Method "importance": sequential importance sampling, row by row (Harrison and Miller 2013).

It gives weighted matchings and an estimate of the evidence that is unbiased on its natural scale,
whatever the density; both have standard errors from independent populations. Use it if the evidence
and its error matter, above all for linear models and for matchings with forbidden pairs. A density
that is far from any linear function enters only in the last factor of a weight. A few matchings
then have all the weight, which the errors and the verdict show.
"""

import dataclasses
from typing import Literal, NamedTuple, get_args

import jax
import numpy as np

from permvi._checks import one_of, whole
from permvi._programmes import light_jit
from permvi.inference.discrete import warm_start
from permvi.inference.discrete.family import Family, draw_many
from permvi.inference.discrete.structure import build_structure
from permvi.inference.importance.population import Weighted, combine, draw_populations
from permvi.inference.method import Context, Method, MethodInfo, option_names, split_key
from permvi.inference.verdict.audit import audited, audited_estimate
from permvi.posterior import Posterior, diagnose
from permvi.problem.evaluation import Evaluate, Evaluations, as_perms, evaluator
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem

Guide = Literal["auto", "uniform"]


@dataclasses.dataclass(frozen=True)
class ImportanceOptions:
    """Options of method "importance".

    Attributes:
        num_particles: Particles in a population.
        num_populations: Independent populations, at least 2; their spread gives standard errors.
        resample_below: Resample a population when its effective sample size falls below this share
            of its particles: 0 for never (plain importance sampling), 1 for always.
        guide: The weights by which columns are chosen: "auto" for the balanced scores of a linear
            model, or of a linear function that explains the density if there is one, or "uniform".
    """

    num_particles: int = 256
    num_populations: int = 32
    resample_below: float = 0.5
    guide: Guide = "auto"

    def __post_init__(self) -> None:
        whole("num_particles", self.num_particles)
        if whole("num_populations", self.num_populations) < 2:
            raise ValueError(f"num_populations must be at least 2, got {self.num_populations}.")
        share = self.resample_below
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"resample_below must be from 0 to 1, got {share!r:.60}.")
        one_of("guide", self.guide, get_args(Guide))


# The largest share of the evaluations to spend on the search for a linear approximation.
_PROBE_SHARE = 0.25


class ImportanceResult(NamedTuple):
    """The result of a run.

    Attributes:
        weighted: Weighted matchings, evidence and errors.
        num_resamplings: The mean number of resamplings per population.
        mode: (n,) or (S, n) the matching of largest density seen.
        num_evaluations: The number of log densities evaluated.
    """

    weighted: Weighted
    num_resamplings: float
    mode: np.ndarray
    num_evaluations: int


def run_importance(
    problem: Problem,
    rng_key: jax.Array,
    evaluate: Evaluate,
    options: ImportanceOptions | None = None,
) -> ImportanceResult:
    """Return weighted matchings and an unbiased estimate of the evidence.

    Rows choose one after the other, certain ones first, by Sinkhorn-balanced scores and by the
    choices that remain for the others. Masks, rectangles and unmatched items are respected. Any
    density is possible, since its value enters as the last factor of a weight. Cost: O(n^3) and at
    most one log density per particle, with no matching evaluated twice.

    Args:
        problem: The problem, without other latents.
        rng_key: A JAX random key.
        evaluate: Maps choices (num, S, n) to log densities (num,) on the host.
        options: Settings.

    Raises:
        ValueError: All matchings that were drawn have density zero.
    """
    options = options or ImportanceOptions()
    structure = build_structure(problem)
    seen = Evaluations(evaluate, structure.shape[1])
    key_probe, key_draw = split_key(rng_key, 2)
    num = options.num_populations * options.num_particles
    family = _guide(problem, key_probe, seen, options.guide, int(_PROBE_SHARE * num))
    drawn = draw_populations(
        family,
        key_draw,
        np.asarray(options.resample_below, family.log_weights.dtype),
        num_particles=options.num_particles,
        num_populations=options.num_populations,
    )
    choices = np.asarray(drawn.choices)
    flat = choices.reshape(-1, *choices.shape[2:])
    log_p = seen.look_up(flat)
    if not (log_p > -np.inf).any():
        raise ValueError("the log density must be finite for some matching, got -inf for all seen.")
    # In float64, whatever the precision of the guide.
    guide = np.asarray(family.params["logits"], np.float64)[0]
    of_sites, of_rows = np.indices(flat.shape[1:])
    log_guide = guide[of_sites, of_rows, flat].sum(axis=(1, 2))
    log_weights = (
        np.asarray(drawn.log_weights, np.float64)
        + np.asarray(drawn.log_scale, np.float64)[:, None]
        + (log_p - log_guide).reshape(choices.shape[:2])
    )
    weighted = combine(np.asarray(as_perms(choices, problem)), log_weights, problem.shape[1])
    mode = np.asarray(as_perms(seen.best, problem))
    num_resamplings = float(np.mean(np.asarray(drawn.num_resamplings)))
    return ImportanceResult(weighted, num_resamplings, mode, seen.num_evaluations)


def _guide(
    problem: Problem, rng_key: jax.Array, seen: Evaluations, guide: Guide, max_evaluations: int
) -> Family:
    """Return a look-ahead component at the Sinkhorn marginals of a linear approximation or mask."""
    structure = build_structure(problem)
    keys = iter(split_key(rng_key, 4))
    uniform = warm_start.uniform_family(structure)

    def probe(num: int) -> tuple[np.ndarray, np.ndarray]:
        choices = np.asarray(_draw_many(uniform, next(keys), num))
        return choices, seen.look_up(choices)

    table = (
        warm_start.find_table(problem, structure, probe, max_evaluations)
        if guide == "auto"
        else None
    )
    if table is None:
        table = np.zeros((structure.num_sites, structure.shape[0], structure.num_choices))
    balanced = warm_start.log_marginals(structure, table)
    return warm_start.initial_family(structure, "lookahead", 1, np.random.default_rng(0), balanced)


_draw_many = light_jit(draw_many, static_argnums=2)
_ADVICE = "try more particles, or method='sequential' or 'mcmc'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Sample one problem; options are those of `ImportanceOptions`."""
    options = ImportanceOptions(**context.options)
    problem = prepared.problem
    result = run_importance(problem, context.rng_key, evaluator(problem), options)
    weighted = result.weighted
    diagnostics = diagnose(
        row_labels=prepared.labels[0],
        advice=_ADVICE,
        ess_per_draw=weighted.ess_per_draw,
        sampling_error_by_row=prepared.in_all_rows(weighted.error_by_row),
        disagreement_by_row=prepared.in_all_rows(weighted.disagreement_by_row),
        extras={
            "log_evidence_by_population": weighted.log_evidence_by_population,
            "num_resamplings": np.array(result.num_resamplings),
        },
    )
    posterior = Posterior.from_draws(
        prepared.restore(weighted.perms),
        weighted.log_weights,
        shape=prepared.model.shape,
        mode=prepared.restore(result.mode),
        log_evidence=weighted.log_evidence,
        log_evidence_kind="estimate",
        log_evidence_se=weighted.log_evidence_se,
        diagnostics=diagnostics,
        num_evaluations=result.num_evaluations,
    )
    # The search behind a verdict handles only matchings with as many pairs as possible.
    if problem.is_partial:
        return audited_estimate(prepared, posterior, _ADVICE)
    return audited(prepared, posterior, result.mode, _ADVICE)


METHODS = {
    "importance": Method(
        MethodInfo(
            name="importance",
            needs="any density on permutations; best if linear",
            gives="weighted draws, an unbiased evidence estimate and its standard error",
            masks=True,
            partial=True,
            cost="O(n^3) and one evaluation per particle",
            reference="Harrison and Miller 2013; Del Moral et al. 2006",
        ),
        options=option_names(ImportanceOptions),
        run=run,
    ),
}
