"""Find the columns of a table of pairs, and turn its scores into natural log odds."""

import contextlib
import dataclasses
from typing import Any

import numpy as np

from permvi._checks import one_of
from permvi._csv import NAMES_OF_SIDES, sides_of
from permvi.linkage.sources import Source, arrow, listed

# The meaning of a score; SPLINK's weights are logarithms to the base of 2.
KINDS = ("log-odds", "log2-odds", "probabilities", "scores", "costs")
_DATASETS = ("source_dataset_l", "source_dataset_r")
# Names of columns of scores, in the order in which they are tried, and their meaning.
_SCORES = {
    "match_weight": "log2-odds",
    "match_probability": "probabilities",
    "log_odds": "log-odds",
    "logit": "log-odds",
    "log2_odds": "log2-odds",
    "probability": "probabilities",
    "prob": "probabilities",
    "p": "probabilities",
    "weight": "log-odds",
    "score": "log-odds",
    "cost": "costs",
}
# Rows of a table that are all right.
_NONE = np.empty(0, np.int64)
# Probabilities of 1 count as this, the largest number below 1.
_ALMOST_ONE = 1.0 - 2.0**-53
# How far the weights and the probabilities of one file may be apart.
_SAME = 0.02
_WORDS = {
    "log-odds": "natural log odds",
    "log2-odds": "log odds to the base of 2",
    "probabilities": "probabilities",
    "scores": "natural log odds",
    "costs": "costs, so that their negatives are natural log odds",
}


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a table, and what was assumed about them.

    Attributes:
        left: The name of the column of left records.
        right: The name of the column of right records.
        score: The name of the column of scores.
        kind: The meaning of the scores, one of `KINDS`.
        datasets: The names of the columns with the tables that left and right records come from.
        notes: What was assumed, in words.
    """

    left: str
    right: str
    score: str
    kind: str
    datasets: tuple[str, str] | None
    notes: tuple[str, ...]


def find_columns(
    source: Source,
    left: str | None = None,
    right: str | None = None,
    score: str | None = None,
    kind: str | None = None,
) -> Columns:
    """Return the columns of a table: those that are named, and others by their usual names.

    Raises:
        ValueError: A column is missing; the message says which columns there are.
    """
    if kind is not None:
        one_of("kind", kind, KINDS)
    names = list(source.schema.names)
    for option, given in (("item_col", left), ("label_col", right), ("score_col", score)):
        if given is not None and given not in names:
            raise ValueError(
                f"{source.name}: expected a column {given!r} ({option}), got {listed(names)}."
            )
    lower = {name.lower().strip(): name for name in reversed(names)}
    left, right = _sides(source, names, lower, left, right)
    if left == right:
        raise ValueError(f"item_col and label_col must differ, got {left!r} twice.")
    if score is None:
        score = _score(source, names, lower, (left, right), kind)
    known = _SCORES.get(score.lower().strip())
    meaning = kind or known or "log-odds"
    sides = f"records from columns {left!r} and {right!r}"
    how = f"column {score!r} has {_WORDS[meaning]} that a pair is a match"
    if kind is None and score.lower().strip() not in ("match_weight", "match_probability"):
        how += " (--kind to change that)"
    datasets = _DATASETS if set(_DATASETS) <= set(names) and left.endswith("_l") else None
    return Columns(left, right, score, meaning, datasets, (sides, how))


def _sides(
    source: Source, names: list[str], lower: dict[str, str], left: str | None, right: str | None
) -> tuple[str, str]:
    if left is not None and right is not None:
        return left, right
    usual = sides_of(lower)
    if usual is not None:
        return left or lower[usual[0]], right or lower[usual[1]]
    known = NAMES_OF_SIDES | set(_SCORES)
    # Three columns with other names are records and a score; half of a known pair is a mistake.
    unknown = not known & {name.lower().strip() for name in names[:2]}
    if len(names) == 3 and left is None and right is None and unknown:
        return names[0], names[1]
    raise ValueError(
        f"{source.name}: expected columns of left and right records such as 'unique_id_l' and "
        f"'unique_id_r', got {listed(names)}; name them with item_col and label_col."
    )


def _score(
    source: Source,
    names: list[str],
    lower: dict[str, str],
    sides: tuple[str, str],
    kind: str | None,
) -> str:
    found = [name for name in _SCORES if name in lower and lower[name] not in sides]
    # A kind that is asked for chooses among several scores.
    suited = [name for name in found if kind is None or _SCORES[name] == kind] or found
    if suited:
        return lower[suited[0]]
    others = [name for name in names if name not in sides]
    if len(others) == 1:
        return others[0]
    raise ValueError(
        f"{source.name}: expected a column of scores such as 'match_weight' or "
        f"'match_probability', got {listed(names)}; name it with score_col."
    )


def read_scores(source: Source, columns: Columns, temperature: float) -> tuple[np.ndarray, Any]:
    """Return (E,) natural log odds and the notes about them.

    Raises:
        ValueError: A score is missing, is not a number or is out of range; the message names it.
    """
    notes: list[str] = []
    values = _numbers(source, columns.score, notes)
    # Their minimum is NaN if one of them is, and needs no second array.
    bad = np.flatnonzero(np.isnan(values)) if np.isnan(values.min(initial=0.0)) else _NONE
    if len(bad):
        raise ValueError(
            f"{source.place(int(bad[0]))}: expected a number in column {columns.score!r}, got NaN "
            f"or nothing ({len(bad)} in all)."
        )
    notes += _looks(values, columns)
    if columns.kind == "probabilities":
        weights = _of_probabilities(source, columns.score, values, notes)
    else:
        weights = values
        weights *= {"log2-odds": np.log(2.0), "costs": -1.0}.get(columns.kind, 1.0)
    endless = np.flatnonzero(weights == np.inf) if weights.max(initial=0.0) == np.inf else _NONE
    if len(endless):
        raise ValueError(
            f"{source.place(int(endless[0]))}: expected a finite number in column "
            f"{columns.score!r}, got infinite odds ({len(endless)} in all)."
        )
    if columns.score == "match_weight" and "match_probability" in source.schema.names:
        _compare(source, weights, _numbers(source, "match_probability", notes))
    weights /= temperature
    return weights, notes


def _numbers(source: Source, name: str, notes: list[str]) -> np.ndarray:
    """Return a column as float64, NaN where it is empty; add to the notes what was assumed."""
    pa = arrow()
    column = source.column(name)
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _parsed(source, name, column, notes)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise ValueError(f"{source.name}: expected numbers in column {name!r}, got {kind}.")
    found = np.empty(len(column))
    start = 0
    for chunk in column.cast(pa.float64()).chunks:
        # Arrow writes NaN for nothing.
        found[start : start + len(chunk)] = chunk.to_numpy(zero_copy_only=False)
        start += len(chunk)
    return found


def _parsed(source: Source, name: str, column: Any, notes: list[str]) -> Any:
    """Return a column of text as numbers, with decimal points or, failing that, commas."""
    pa = arrow()
    pc = pa.compute
    trimmed = pc.utf8_trim_whitespace(column)
    with contextlib.suppress(pa.ArrowInvalid):
        return trimmed.cast(pa.float64())
    with contextlib.suppress(pa.ArrowInvalid):
        found = pc.replace_substring(trimmed, ",", ".").cast(pa.float64())
        notes.append(f"numbers in column {name!r} have decimal commas")
        return found
    for row, value in enumerate(trimmed):
        try:
            float(value.as_py() or "nan")
        except ValueError:
            raise ValueError(
                f"{source.place(row)}: expected a number in column {name!r}, got "
                f"{value.as_py()!r:.60}."
            ) from None
    raise ValueError(f"{source.name}: expected numbers in column {name!r}, got text.")


def _of_probabilities(
    source: Source, name: str, values: np.ndarray, notes: list[str]
) -> np.ndarray:
    outside = np.flatnonzero((values < 0.0) | (values > 1.0))
    if len(outside):
        value = values[outside[0]]
        hint = "; divide percentages by 100" if 1.0 < value <= 100.0 else ""
        raise ValueError(
            f"{source.place(int(outside[0]))}: expected a probability in column {name!r}, got "
            f"{value:g}{hint}."
        )
    certain = np.count_nonzero(values == 1.0)
    if certain:
        notes.append(f"{certain} pairs have probability 1, which counts as 1 - 1e-16")
    inside = np.minimum(values, _ALMOST_ONE)
    with np.errstate(divide="ignore"):
        return np.log(inside) - np.log1p(-inside)


def _compare(source: Source, weights: np.ndarray, given: np.ndarray) -> None:
    """Raise ``ValueError`` if weights and probabilities of the same pairs contradict each other."""
    own = own_probability(weights)
    off = np.flatnonzero(np.abs(own - given) > _SAME)
    if len(off):
        k = int(off[0])
        raise ValueError(
            f"{source.place(k)}: expected match_weight and match_probability to agree, got "
            f"{weights[k] / np.log(2):g}, which is a probability of {own[k]:.3g}, and "
            f"{given[k]:g}; choose one with score_col."
        )


def own_probability(weights: np.ndarray) -> np.ndarray:
    """Return the probability of each pair judged by itself, 1 / (1 + exp(-w))."""
    from scipy.special import expit

    return np.asarray(expit(weights))


def _looks(values: np.ndarray, columns: Columns) -> list[str]:
    """Return a note if scores that should be log odds look like something else."""
    if columns.kind not in ("log-odds", "log2-odds", "scores") or len(values) < 3:
        return []
    lowest, highest = float(values.min()), float(values.max())
    where = f"all scores in column {columns.score!r} are"
    if lowest >= 0.0 and highest <= 1.0:
        return [f"{where} between 0 and 1: if they are probabilities, use --kind probabilities; "
                "similarities need --calibrate"]  # fmt: skip
    if lowest >= 0.0 and highest <= 100.0 and float(np.median(values)) > 20.0:
        return [f"{where} between 0 and 100, like percentages: log odds above 20 are certainties; "
                "divide by 100 and use --kind probabilities, or use --calibrate"]  # fmt: skip
    if lowest >= 0.0:
        return [f"{where} positive, so that every pair is more likely right than wrong: if they "
                "are costs or distances, use --kind costs; otherwise use --calibrate"]  # fmt: skip
    return []
