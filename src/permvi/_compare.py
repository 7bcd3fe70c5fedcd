"""Several methods on one model, side by side with the exact answer where there is one."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from permvi import metrics
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

# Up to so many items all matchings are listed to compare whole distributions.
_MAX_LISTED = 8


@dataclass(frozen=True)
class Compared:
    """What became of one method; None where there is nothing to say.

    Attributes:
        method: Its name.
        tv_mean: Mean over rows of the total variation between its marginals and the exact ones.
        tv_max: The largest of them.
        hellinger: Hellinger distance between whole distributions, up to 8 items.
        log_evidence_error: Its log evidence minus the exact one.
        verdict: What it says of itself.
        ess_per_draw: Effective samples per draw.
        evaluations: Log densities evaluated.
        seconds: How long it took, compilation included.
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
    """A list of what became of each method that prints as a table.

    Attributes:
        posteriors: The posteriors by method.
        exact: The exact posterior, None if there is none.
    """

    def __init__(
        self,
        rows: Iterable[Compared],
        posteriors: Mapping[str, Posterior],
        exact: Posterior | None,
    ) -> None:
        super().__init__(rows)
        self.posteriors = dict(posteriors)
        self.exact = exact

    def to_frame(self) -> "pd.DataFrame":
        """A pandas frame with a row per method."""
        import pandas as pd

        names = [field.name for field in fields(Compared)]
        return pd.DataFrame([[getattr(row, name) for name in names] for row in self], columns=names)

    def to_markdown(self) -> str:
        """A Markdown table."""
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
    """Run several methods on one model and say how far each is from the exact answer.

    Args:
        model: As for `fit`.
        methods: Names from `permvi.methods`; by default all that are for this kind of model. What
            a method refuses is a row with its reason.
        seed: As for `fit`.
        options: Settings by method, e.g. ``{"mcmc": {"num_chains": 4}}``.
        n: For functions, as for `fit`, and so on for the next two.
        input: What a function takes.
        jax: Whether it is a JAX function.
        progress: As for `fit`.

    Returns:
        A table with a row per method, in the given order. Errors are against the exact posterior;
        where that is not affordable they are missing.

    Raises:
        ValueError: A method does not exist.
    """
    given = as_model(model, n=n, input=input, jax=jax)
    prepared = prepare(given)
    names = registry.names_for(given) if methods is None else _names(methods)
    settings = dict(options or {})
    for name, of_method in settings.items():
        registry.check_options(registry.method(_known(name), given), of_method)
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
    return [_known(name) for name in given]


def _known(name: str) -> str:
    return registry.check_method(name)


def _row(name: str, found: Posterior, reference: Posterior | None, prepared: Prepared) -> Compared:
    errors: dict[str, float | None] = {}
    if reference is not None:
        by_row = metrics.total_variation_per_row(
            found.marginals,
            reference.marginals,
            found.p_unmatched_rows,
            reference.p_unmatched_rows,
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
    """Between whole distributions; of draws, their weighted frequencies are the distribution."""
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
