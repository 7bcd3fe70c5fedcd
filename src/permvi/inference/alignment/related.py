r"""Method "linear" for models with relations between pairs of labels.

Without relations the model is linear, and the linear engine draws matchings :math:`x_s`. Relations
give each of them a weight :math:`w_s`, the product over related pairs. Their weighted frequencies
less those without weights are added to the marginals of the linear engine.
"""

import dataclasses
from typing import Any

import numpy as np

from permvi.inference.alignment.method import best_by_marginals
from permvi.inference.linear import LinearOptions
from permvi.inference.linear.method import METHODS as LINEAR
from permvi.inference.method import Context
from permvi.models.linear import LinearMatching
from permvi.posterior import DrawsLaw, Posterior, diagnose, normalise_marginals
from permvi.posterior.diagnostics import Judgement, worst_first
from permvi.problem.prepare import Prepared, prepare

_NUM_DRAWS, _NUM_BATCHES = 4000, 10
# The smallest factor of a probability: differences of small ones are noise.
_LEAST = 1e-3
_ADVICE = "try more draws (num_draws)"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Infer the matching of a model with ``relation_tables``; options are `LinearOptions`."""
    model: Any = prepared.model
    options = {"num_draws": _NUM_DRAWS, **context.options}
    linear = prepared.linear_with(model.pair_table)
    given = prepare(LinearMatching(**linear.arguments()), lists=False)
    plain = LINEAR["linear"].run(given, context._replace(options=options))
    draws = plain.sample(LinearOptions(**options).num_draws, context.seed)
    log_weights = model.log_relations(draws)
    weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    # The last column is that of unmatched cells.
    hits = draws[..., None] == np.append(np.arange(model.shape[1]), -1)
    shift = np.einsum("s,sij->ij", weights - 1 / len(draws), hits)
    found = normalise_marginals(
        _moved(plain.marginals, shift[:, :-1]),
        _moved(plain.p_unmatched_rows, shift[:, -1]),
        _moved(plain.p_unmatched_cols, -shift[:, :-1].sum(axis=0)),
    )
    return Posterior(
        law=DrawsLaw(draws, log_weights),
        **found._asdict(),
        mode=best_by_marginals(prepared, found.marginals, found.p_unmatched_rows),
        diagnostics=_judged(prepared, plain, weights, hits),
        num_evaluations=len(draws),
    )


def _moved(before: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Add differences to probabilities. What was possible stays so."""
    return np.maximum(before + shift, _LEAST * before)


def _judged(prepared: Prepared, plain: Posterior, weights: np.ndarray, hits: np.ndarray) -> Any:
    """Judge the answer of the linear engine, and the error of what the weights add to it."""
    shifts = []
    for batch in np.array_split(np.arange(len(weights)), min(_NUM_BATCHES, len(weights))):
        part = weights[batch] / weights[batch].sum()
        shifts.append(np.einsum("s,sij->ij", part - 1 / len(part), hits[batch]))
    error = np.std(shifts, axis=0) / np.sqrt(len(shifts))
    ess = 1.0 / float((weights**2).sum()) / len(weights)
    apart = plain.diagnostics.disagreement_by_row
    own = diagnose(
        row_labels=prepared.labels[0],
        advice=_ADVICE,
        sampling_error_by_row=0.5 * np.sqrt(2 / np.pi) * error.sum(axis=-1),
        disagreement_by_row=np.zeros(len(error)) if apart is None else apart,
        ess_per_draw=ess,
    )
    note = Judgement("trust", (f"with relations, {ess:.0%} of the draws are effective",))
    both = (Judgement(each.verdict, each.reasons) for each in (plain.diagnostics, own))
    return dataclasses.replace(own, **worst_first([*both, note])._asdict())


METHODS = {"linear": dataclasses.replace(LINEAR["linear"], run=run, linear=False, lists=False)}
