"""A posterior as the commands give it out: an object for JSON, a CSV file, tables."""

import csv
import dataclasses
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from permvi._cli import terminal
from permvi._files import atomic

if TYPE_CHECKING:
    from permvi.posterior import Posterior

UNMATCHED = "unmatched"
# Laws that list all matchings or search them in order.
_EXACT_LAWS = ("exact", "tabular")
_LIBRARIES = ("permvi", "jax", "numpyro", "numpy", "scipy")
# Longer lists are cut in tables, never in files.
_MAX_IN_SET = 6
_MAX_PAIRS = 8
# So many matchings are listed unless the user says otherwise; of thousands of items none, since
# each has next to no probability and finding it takes minutes.
_TOP = 3
_MAX_SIZE_OF_TOP = 500


def items_of(posterior: "Posterior", level: float) -> list[dict[str, Any]]:
    """What is known of each item; None instead of a label is "unmatched"."""
    rows, cols = names_of(posterior)
    # By number, or an item without a label could not be told from a label of that name.
    by_number = dataclasses.replace(posterior, labels=(None, None))

    def label(column: Any) -> str | None:
        return None if column < 0 else cols[column]

    return [
        {
            "item": rows[item.row],
            "best": label(item.best),
            "probability": item.probability,
            "runner_up": label(item.runner_up),
            "runner_up_probability": item.runner_up_probability,
            "p_unmatched": item.p_unmatched,
            "credible_set": [label(column) for column in item.credible_set],
            "entropy": item.entropy,
        }
        for item in by_number.item_summaries(level)
    ]


def top_of(posterior: "Posterior", k: int | None) -> list[dict[str, Any]]:
    """The k most probable matchings, each with its probability; a few where k is None."""
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
    """Everything as one object that JSON can hold.

    Args:
        posterior: Of one permutation.
        level: The mass of the credible sets.
        top: How many of the most probable matchings, None for a few.
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
    """How it was computed, and what to think of it."""
    found = posterior.diagnostics
    return {
        "method": posterior.method,
        "verdict": found.verdict,
        "reasons": list(found.reasons),
        "log_evidence": posterior.log_evidence,
        "log_evidence_kind": posterior.log_evidence_kind,
    }


def record_of(posterior: "Posterior", level: float) -> dict[str, Any]:
    """What it takes to compute it again, and how long that would take."""
    return {
        "settings": {"seed": posterior.seed, "level": level, **posterior.settings},
        "seconds": posterior.seconds,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that compute."""
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in _LIBRARIES
    }


def print_json(posterior: "Posterior", *, level: float, top: int | None) -> None:
    """Print `as_object`."""
    print_object(as_object(posterior, level=level, top=top))


def print_object(found: Mapping[str, Any]) -> None:
    """Print an object as JSON."""
    sys.stdout.write(json.dumps(found, allow_nan=False, ensure_ascii=False, indent=2) + "\n")


def names_of(posterior: "Posterior") -> tuple[Sequence[str], Sequence[str]]:
    """Names of the items and of the labels, numbers where there are none.

    Raises:
        ValueError: There are several permutations, for which there is no such table.
    """
    if posterior.num_sites > 1:
        raise ValueError(
            f"the posterior must be of one permutation, got one of {posterior.num_sites}."
        )
    rows, cols = (
        names or [str(k) for k in range(size)]
        for names, size in zip(posterior.labels, posterior.shape, strict=True)
    )
    return rows, cols


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of one form; an empty cell instead of a label is "unmatched"."""
    with atomic(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow([_cell(value) for value in row.values()])


def _cell(value: Any) -> Any:
    """A value as a cell of a CSV file: labels of a set in one."""
    return "; ".join(map(_name, value)) if isinstance(value, list) else value


def show(posterior: "Posterior", *, level: float, top: int | None) -> None:
    """Print the items, the most probable matchings, and what to think of it all."""
    items = items_of(posterior, level)
    partial = any(item["p_unmatched"] > 0 for item in items)
    terminal.table(
        "Which label is it?",
        ["item", "best label", *label_columns(level), *[">unmatched"] * partial],
        [
            [
                item["item"],
                *label_cells(item),
                *[f"{item['p_unmatched']:.3f}"] * partial,
            ]
            for item in items
        ],
        fold=False,
    )
    matchings = top_of(posterior, top)
    if matchings:
        how = "" if posterior.law.kind in _EXACT_LAWS else ", by its draws"
        terminal.table(
            f"The most probable matchings{how}; after the first, what changes",
            [">p", "matching"],
            [
                [f"{m['probability']:.4g}", _changes(m["matching"], matchings[0]["matching"])]
                for m in matchings
            ],
            fold=False,
        )
    terminal.lines(facts_of(posterior))


def label_columns(level: float) -> list[str]:
    """What the columns of `label_cells` are called, but for the best label."""
    return [">p", "runner-up", ">p", f"{100 * level:g} % set"]


def label_cells(item: Mapping[str, Any]) -> list[str]:
    """What a table shows of an item: its best label, the runner-up, their p and the set."""
    return [
        _name(item["best"]),
        f"{item['probability']:.3f}",
        _name(item["runner_up"]) if item["runner_up_probability"] else "",
        f"{item['runner_up_probability']:.3f}",
        short([_name(label) for label in item["credible_set"]], _MAX_IN_SET),
    ]


def facts_of(posterior: "Posterior") -> list[str]:
    """The verdict, the method and single numbers that were inferred, in lines."""
    found = posterior.diagnostics
    facts = [f"verdict: {found.verdict} ({'; '.join(found.reasons)})"]
    evidence = ""
    if posterior.log_evidence is not None:
        evidence = f", log evidence {posterior.log_evidence:.6g} ({posterior.log_evidence_kind})"
    facts.append(f"method: {posterior.method}{evidence}")
    for name, latent in posterior.latents.items():
        if latent.mean.ndim == 0:
            facts.append(f"{name}: {latent.mean:.4g} ± {latent.sd:.2g}")
    return facts


def _changes(matching: Mapping[str, str | None], first: Mapping[str, str | None]) -> str:
    pairs = matching.items()
    if matching is not first:
        pairs = {item: label for item, label in pairs if label != first[item]}.items()
    return short([f"{item} = {_name(label)}" for item, label in pairs], _MAX_PAIRS)


def _name(label: str | None) -> str:
    return UNMATCHED if label is None else label


def short(texts: Sequence[str], most: int) -> str:
    """The first few of some texts, and how many more there are."""
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
