"""Compare methods on one model with each other and with the exact posterior."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from permvi import metrics
from permvi._checks import one_of
from permvi._fit import FitWarning, as_model, fit
from permvi._tables import html_table, markdown_table, text_table
from permvi.inference import registry
from permvi.inference.exact import method as exact
from permvi.inference.exact.method import list_all
from permvi.inference.method import Progress
from permvi.models import Model
from permvi.models.callables import Input
from permvi.posterior import Posterior
from permvi.problem.prepare import Prepared, prepare

if TYPE_CHECKING:
    import pandas as pd

# Whole distributions are compared by listing all matchings of up to this many items.
_MAX_LISTED = 8


@dataclass(frozen=True)
class Compared:
    """The result of one method; None for what it does not give.

    Attributes:
        method: Name of the method.
        tv_mean: Total variation between its marginals and the exact ones, mean over rows.
        tv_max: The largest total variation of a row.
        hellinger: Hellinger distance between whole distributions, up to 8 items.
        log_evidence_error: Its log evidence minus the exact one.
        verdict: Verdict of its diagnostics.
        ess_per_draw: Effective samples per draw.
        evaluations: Number of log densities evaluated.
        seconds: Duration, compilation included.
        refused: Why it does not take the model, else empty.
    """

    method: str
    tv_mean: float | None = None
    tv_max: float | None = None
    hellinger: float | None = None
    log_evidence_error: float | None = None
    verdict: str | None = None
    ess_per_draw: float | None = None
    evaluations: int | None = None
    seconds: float | None = None
    refused: str = ""


class Comparison(list[Compared]):
    """A list of results by method that prints as a table.

    Attributes:
        posteriors: The posteriors by method.
        exact: The exact posterior, or None if it is not affordable.
    """

    def __init__(
        self, rows: Iterable[Compared], posteriors: Mapping[str, Posterior], exact: Posterior | None
    ) -> None:
        super().__init__(rows)
        self.posteriors = dict(posteriors)
        self.exact = exact

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas frame with a row per method."""
        import pandas as pd

        names = [field.name for field in fields(Compared)]
        return pd.DataFrame([[getattr(row, name) for name in names] for row in self], columns=names)

    def to_markdown(self) -> str:
        """Return a Markdown table."""
        return markdown_table(*self._cells())

    def __repr__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        names = [field.name for field in fields(Compared)]
        if not any(row.refused for row in self):
            names.remove("refused")
        return names, [[_cell(getattr(row, name)) for name in names] for row in self]


def compare(
    model: Model | Callable[[Any], Any],
    methods: Iterable[str] | None = None,
    seed: int = 0,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    n: int | tuple[int, int] | None = None,
    input: Input | None = None,
    jax: bool | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run several methods on one model and measure how far each is from the exact posterior.

    Args:
        model: See `fit`.
        methods: Names from `permvi.methods`; by default all that are for this kind of model. A
            method that refuses the model gets a row with its reason.
        seed: See `fit`.
        options: Settings by method, e.g. ``{"mcmc": {"num_chains": 4}}``.
        n: For functions, see `fit`, and likewise for the rest.
        input: Argument of the function.
        jax: Whether it is a JAX function.
        progress: Called now and then.

    Returns:
        A table with a row per method, in the given order. Errors against the exact posterior are
        missing where that is not affordable.

    Raises:
        ValueError: A method does not exist.
    """
    given = as_model(model, n=n, input=input, jax=jax)
    prepared = prepare(given)
    names = registry.names_for(given) if methods is None else _names(methods)
    settings = dict(options or {})
    for name, of_method in settings.items():
        registry.check_options(
            registry.method(one_of("method", name, registry.NAMES), given), of_method, given
        )
    reference = None
    if exact.affordable(prepared):
        reference = fit(given, "exact")
    rows, posteriors = [], {}
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FitWarning)
                found = fit(given, name, seed, progress=progress, **settings.get(name, {}))
        except ValueError as error:
            rows.append(Compared(name, refused=str(error)))
            continue
        posteriors[name] = found
        rows.append(_row(name, found, reference, prepared))
    return Comparison(rows, posteriors, reference)


def _names(given: Iterable[str]) -> list[str]:
    if isinstance(given, str):
        raise TypeError(f"methods must be a list of names, got {given!r}.")
    return [one_of("method", name, registry.NAMES) for name in given]


def _row(name: str, found: Posterior, reference: Posterior | None, prepared: Prepared) -> Compared:
    errors: dict[str, float | None] = {}
    if reference is not None:
        by_row = metrics.total_variation_per_row(
            found.marginals, reference.marginals, found.p_unmatched_rows, reference.p_unmatched_rows
        )
        errors = {
            "tv_mean": float(by_row.mean()),
            "tv_max": float(by_row.max()),
            "hellinger": _hellinger(found, reference, prepared),
        }
        if found.log_evidence is not None and reference.log_evidence is not None:
            errors["log_evidence_error"] = found.log_evidence - reference.log_evidence
    return Compared(
        name,
        verdict=found.diagnostics.verdict,
        ess_per_draw=found.diagnostics.ess_per_draw,
        evaluations=found.num_evaluations,
        seconds=found.seconds,
        **errors,  # type: ignore[arg-type]
    )


def _hellinger(found: Posterior, reference: Posterior, prepared: Prepared) -> float | None:
    """Return the Hellinger distance of whole distributions; draws count by their frequencies."""
    if prepared.problem.num_sites * max(prepared.problem.shape) > _MAX_LISTED:
        return None
    perms = prepared.restore(list_all(prepared.problem))
    p = np.exp(reference.log_prob(perms))
    try:
        q = np.exp(found.log_prob(perms))
    except ValueError:
        place = {perm.tobytes(): index for index, perm in enumerate(perms.astype(np.int64))}
        q = np.zeros(len(perms))
        for matching in found.top(len(perms)):
            index = place.get(np.ascontiguousarray(matching.perm, dtype=np.int64).tobytes())
            if index is not None:
                q[index] = matching.probability
    return float(np.sqrt(max(0.0, 1.0 - np.sqrt(p * q).sum())))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.1e}"
    return f"{value:,}" if isinstance(value, int) else str(value)
