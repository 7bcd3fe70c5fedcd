"""Posteriors in the commands: fitted, then written as JSON, CSV, figures, reports and tables."""

import dataclasses
import json
import platform
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from permvi._cli import advice, commands, terminal
from permvi._cli.tables import UNMATCHED
from permvi._cli.tables import part_of as part_of
from permvi._cli.tables import save_figure as save_figure
from permvi._cli.tables import write_csv as write_csv
from permvi._files import STANDARD, write_text

if TYPE_CHECKING:
    from permvi.inference.method import Progress
    from permvi.posterior import Posterior

NOT_TRUSTED = 3

# Laws that know the k most probable matchings exactly.
_EXACT_LAWS = ("exact", "tabular", "linear")
_LIBRARIES = ("permvi", "jax", "numpyro", "numpy", "scipy")
# Longer lists are cut in tables, but not in files.
_MAX_IN_SET = 6
_MAX_PAIRS = 8
# Of more rows than this, only so many are printed.
MAX_ROWS = 20
# The number of matchings that are listed by default. There are none for problems above a size where
# each matching has a negligible probability and finding it takes minutes.
_TOP = 3
_MAX_SIZE_OF_TOP = 500


def fit(
    model: Any,
    method: str,
    seed: int,
    progress: "Progress",
    settings: Mapping[str, Any],
    **options: Any,
) -> "Posterior":
    """Fit and check a model; add the command's settings, except those of None, to the posterior's.

    ``options`` are those of the method; ``progress`` is called as ``progress(what, done, total)``.
    """
    import permvi as pv

    with warnings.catch_warnings():
        # The command prints the verdict.
        warnings.simplefilter("ignore", pv.FitWarning)
        posterior = pv.fit(model, method=method, seed=seed, progress=progress, **options)
    try:
        posterior.check(model, seed)
    except KeyboardInterrupt:
        # The answer is there already, and what was asked for may be more than its check.
        terminal.note("interrupted: whether the model fits its data was not checked.")
    asked = {**settings, "command": commands.as_typed()}
    given = {name: value for name, value in asked.items() if value is not None}
    return dataclasses.replace(posterior, settings={**posterior.settings, **given})


def exit_unless_trusted(verdict: str, reason: str) -> None:
    """Exit with status 3 and a one-line reason if the verdict is "do not trust"."""
    if verdict == "do not trust":
        terminal.note(f"verdict 'do not trust': {reason}.")
        raise typer.Exit(NOT_TRUSTED)


def names_of(posterior: "Posterior") -> tuple[Sequence[str], Sequence[str]]:
    """Return the names, or else numbers, of the items and labels of a single permutation."""
    if posterior.num_sites > 1:
        raise ValueError(
            f"the posterior must be of one permutation, got one of {posterior.num_sites}."
        )
    rows, cols = (
        names or [str(k) for k in range(size)]
        for names, size in zip(posterior.labels, posterior.shape, strict=True)
    )
    return rows, cols


def items_of(posterior: "Posterior", level: float) -> list[dict[str, Any]]:
    """Summarise each item; a label of None means "unmatched"."""
    rows, cols = names_of(posterior)
    # Summaries by number: a label may be called "unmatched".
    by_number = dataclasses.replace(posterior, labels=(None, None))

    def label(column: Any) -> str | None:
        return None if column < 0 else cols[column]

    one_to_one = posterior.expected_loss("hamming").perm.tolist()
    return [
        {
            "item": rows[item.row],
            "best": label(item.best),
            "probability": item.probability,
            "one_to_one": label(one_to_one[item.row]),
            "runner_up": label(item.runner_up),
            "runner_up_probability": item.runner_up_probability,
            "p_unmatched": item.p_unmatched,
            "credible_set": [label(column) for column in item.credible_set],
            "set_size": len(item.credible_set),
            "entropy": item.entropy,
        }
        for item in by_number.item_summaries(level)
    ]


def probabilities_of(
    posterior: "Posterior", *, wide: bool, names: tuple[str, str] = ("item", "label")
) -> list[dict[str, Any]]:
    """Return all probabilities of one permutation as rows of a table.

    Long: a row for each item and each label of positive probability, the most probable first; no
    label means "unmatched". Wide: a row for each item, a column for each label, and one for
    "unmatched" if items may stay so. ``names`` are those of the columns of items and labels.
    """
    from scipy.sparse import issparse

    from permvi.posterior.items import ranked
    from permvi.posterior.marginals import Marginals

    rows, cols = names_of(posterior)
    table, alone = posterior.marginals, posterior.p_unmatched_rows
    if not wide:
        found = ranked(Marginals(table, alone, posterior.p_unmatched_cols))
        labels: list[str | None] = [*cols, None]
        entries = zip(found.rows.tolist(), found.states.tolist(), found.probs.tolist(), strict=True)
        return [
            {names[0]: rows[row], names[1]: labels[state], "probability": p}
            for row, state, p in entries
        ]
    check_wide(len(rows), len(cols))
    table = table.toarray() if issparse(table) else table
    first, last = names[0], UNMATCHED
    # Labels may be called anything.
    while first in cols:
        first += "_"
    while last in (first, *cols):
        last += "_"
    return [
        {
            first: row,
            **dict(zip(cols, p.tolist(), strict=True)),
            **({last: q} if alone.any() else {}),
        }
        for row, p, q in zip(rows, table, alone.tolist(), strict=True)
    ]


def probabilities_of_each(
    column: str,
    posteriors: Iterable[tuple[str, "Posterior"]],
    *,
    wide: bool,
    names: tuple[str, str] = ("item", "label"),
) -> list[dict[str, Any]]:
    """Return `probabilities_of` of several posteriors, whose names stand in a first column."""
    posteriors = list(posteriors)
    while wide and any(column in (one.labels[1] or ()) for _, one in posteriors):
        column += "_"
    rows = [
        {column: called, **row}
        for called, posterior in posteriors
        for row in probabilities_of(posterior, wide=wide, names=names)
    ]
    # Not all of them have items that may be unmatched.
    columns = dict.fromkeys((name for row in rows for name in row), 0.0)
    return [columns | row for row in rows]


def check_wide(num_rows: int, num_cols: int) -> None:
    """Raise ``ValueError`` if a table is too large to have a column for each label."""
    from permvi.posterior.marginals import is_large

    if is_large((num_rows, num_cols)):
        raise ValueError(
            f"--wide must go with at most 25 million pairs, got {num_rows:,} by {num_cols:,}."
        )


def top_of(posterior: "Posterior", k: int | None) -> list[dict[str, Any]]:
    """Return the k most probable matchings with their probabilities; None for a default number."""
    if k is None:
        k = _TOP if max(posterior.shape) <= _MAX_SIZE_OF_TOP else 0
    rows, cols = names_of(posterior)
    return [
        {
            "probability": probability,
            "matching": {
                row: None if column < 0 else cols[column]
                for row, column in zip(rows, perm.tolist(), strict=True)
            },
        }
        for perm, probability in (posterior.top(k) if k else [])
    ]


def as_object(posterior: "Posterior", *, level: float, top: int | None) -> dict[str, Any]:
    """Return the posterior of one permutation as a JSON object.

    ``level`` is the probability of the credible sets, ``top`` the number of most probable
    matchings, None for a default number.
    """
    _, cols = names_of(posterior)
    unused = zip(cols, posterior.p_unmatched_cols.tolist(), strict=True)
    return {
        **verdict_of(posterior),
        "items": items_of(posterior, level),
        "labels": [{"label": label, "p_unused": p} for label, p in unused],
        "top": top_of(posterior, top),
        "top_is_exact": posterior.law.kind in _EXACT_LAWS,
        "latents": {
            name: {"mean": latent.mean.tolist(), "sd": latent.sd.tolist()}
            for name, latent in posterior.latents.items()
        },
        **record_of(posterior, level),
    }


def verdict_of(posterior: "Posterior") -> dict[str, Any]:
    """Return the method, the verdicts with their reasons, and the log evidence."""
    found, of_model = posterior.diagnostics, posterior.model_check
    return {
        "method": posterior.method,
        "verdict": found.verdict,
        "reasons": [advice.in_commands(reason, posterior) for reason in found.reasons],
        "model": None if of_model is None else dataclasses.asdict(of_model),
        "log_evidence": posterior.log_evidence,
        "log_evidence_kind": posterior.log_evidence_kind,
        "log_evidence_se": posterior.log_evidence_se,
    }


def record_of(posterior: "Posterior", level: float) -> dict[str, Any]:
    """Return what is needed to repeat the computation: settings and versions; and its time."""
    return {
        "settings": {"seed": posterior.seed, "level": level, **posterior.settings},
        "seconds": posterior.seconds,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the numerical libraries."""
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in _LIBRARIES
    }


def print_object(found: Mapping[str, Any]) -> None:
    """Print an object as JSON."""
    write_object(STANDARD, found)


def write_object(path: Path, found: Mapping[str, Any]) -> None:
    """Write an object as JSON."""
    write_text(path, json.dumps(found, allow_nan=False, ensure_ascii=False, indent=2) + "\n")


def show(
    posterior: "Posterior", *, level: float, top: int | None, everything: bool = False
) -> None:
    """Print the items, the most probable matchings and the verdict."""
    items = items_of(posterior, level)
    partial = any(item["p_unmatched"] > 0 for item in items)
    # If it is the best label of every item, a column would say nothing.
    differs = any(item["one_to_one"] != item["best"] for item in items)
    shown = items
    if len(items) > MAX_ROWS and not everything:
        shown = sorted(items, key=lambda item: -item["entropy"])[:MAX_ROWS]
    terminal.table(
        "Which label is it?",
        ["item", "best label", ">p", *["one-to-one"] * differs, *label_columns(level)[1:]]
        + [">unmatched"] * partial,
        [
            [
                item["item"],
                *(cells := label_cells(item))[:2],
                *[_name(item["one_to_one"])] * differs,
                *cells[2:],
                *[f"{item['p_unmatched']:.3f}"] * partial,
            ]
            for item in shown
        ],
        fold=False,
    )
    if len(shown) < len(items):
        listed = {item["item"] for item in shown}
        left = min(item["probability"] for item in items if item["item"] not in listed)
        terminal.lines(
            [
                f"These are the {len(shown)} least certain of {len(items):,} items. The best label "
                f"of the others has p = {left:.3f} or more (--all shows them, --csv has all)."
            ]
        )
    matchings = top_of(posterior, top)
    if matchings:
        how = "" if posterior.law.kind in _EXACT_LAWS else ", by its draws"
        # An evidence that is known to a tenth of a nat gives one or two digits.
        digits = 2 if posterior.log_evidence_se else 4
        terminal.table(
            f"The most probable matchings{how}; after the first, what changes",
            [">p", "matching"],
            [
                [
                    f"{m['probability']:.{digits}g}",
                    _changes(m["matching"], matchings[0]["matching"]),
                ]
                for m in matchings
            ],
            fold=False,
        )
    terminal.lines(facts_of(posterior))


def label_columns(level: float) -> list[str]:
    """Return the headers of the columns of `label_cells` after the first."""
    return [">p", "runner-up", ">p", f"{100 * level:g} % set"]


def label_cells(item: Mapping[str, Any]) -> list[str]:
    """Return the table cells of an item: best label, its p, runner-up, its p, credible set."""
    return [
        _name(item["best"]),
        f"{item['probability']:.3f}",
        _name(item["runner_up"]) if item["runner_up_probability"] else "",
        f"{item['runner_up_probability']:.3f}",
        short([_name(label) for label in item["credible_set"]], _MAX_IN_SET),
    ]


def facts_of(posterior: "Posterior") -> list[str]:
    """Return lines with the verdicts, the method, the log evidence and scalar latents."""
    found = posterior.diagnostics
    reasons = [advice.in_commands(reason, posterior) for reason in found.reasons]
    facts = [f"verdict: {found.verdict} ({'; '.join(reasons)})"]
    if posterior.model_check is not None:
        facts.append(f"model: {posterior.model_check}")
    evidence = ""
    if posterior.log_evidence is not None:
        error = posterior.log_evidence_se
        spread = "" if error is None else f" ± {error:.2g}"
        kind = posterior.log_evidence_kind
        evidence = f", log evidence {posterior.log_evidence:.6g}{spread} ({kind})"
    facts.append(f"method: {posterior.method}{evidence}")
    for name, latent in posterior.latents.items():
        if latent.mean.ndim == 0:
            facts.append(f"{name}: {latent.mean:.4g} ± {latent.sd:.2g}")
    return facts


def _changes(matching: Mapping[str, str | None], first: Mapping[str, str | None]) -> str:
    """List the pairs of the first matching, and of others those that differ from it."""
    pairs = matching.items()
    if matching is not first:
        pairs = {item: label for item, label in pairs if label != first[item]}.items()
    return short([f"{item} = {_name(label)}" for item, label in pairs], _MAX_PAIRS)


def _name(label: str | None) -> str:
    return UNMATCHED if label is None else label


def short(texts: Sequence[str], most: int) -> str:
    """Join the first few texts and say how many more there are."""
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
