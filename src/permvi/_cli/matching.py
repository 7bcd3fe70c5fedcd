"""From the files and options of ``permvi match`` to a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from permvi._checks import one_of
from permvi._cli.csv_numbers import is_number
from permvi._cli.csv_pairs import read_pairs
from permvi._cli.csv_rows import at
from permvi._cli.csv_tables import TRUTH, Table, read_table
from permvi._cli.kinds import INFER, NOISES
from permvi._cli.options import number, numbers
from permvi._cli.weights import check_kind, check_sums, one_weight, table_weights
from permvi.models import LinearMatching, PointMatching


class Files(NamedTuple):
    """Files that say more about pairs, each None if there is none.

    Attributes:
        mask: A table of 0 and 1, 1 where a pair is allowed.
        known: A list of certain pairs.
        prior: A table of numbers.
        prior_kind: What those numbers mean.
    """

    mask: Path | None = None
    known: Path | None = None
    prior: Path | None = None
    prior_kind: str = "scores"

    def named(self) -> dict[str, str]:
        """The names of those that there are, for a record of the settings."""
        paths = {"mask": self.mask, "known": self.known, "prior": self.prior}
        given = {name: str(path) for name, path in paths.items() if path is not None}
        return given | ({} if self.prior is None else {"prior_kind": self.prior_kind})


class Alone(NamedTuple):
    """What staying alone counts, as the user wrote it: a number or a name, None if not allowed.

    Attributes:
        unmatched: For items.
        unused: For labels.
    """

    unmatched: str | None = None
    unused: str | None = None


def of_pairs(
    table: Table, files: Files, alone: Alone, *, kind: str, temperature: float
) -> LinearMatching:
    """The model of a table with a number for each pair.

    Args:
        table: Items by labels; an empty cell forbids its pair.
        files: What else is known.
        alone: Numbers in the units of the table, or the names of a column (of what staying
            unmatched counts for each item) and of a row (likewise for labels).
        kind: What the numbers mean.
        temperature: What scores and costs are divided by.

    Raises:
        ValueError: Something in a file or an option is wrong.
    """
    check_kind("kind", kind, temperature)
    table, free = _split(table, alone, kind, temperature)
    weights = table_weights(table, kind, temperature)
    check_sums(table, kind)
    found = _constraints(table.path, table.rows, table.cols, weights > -np.inf, files, free)
    scores = np.where(weights > -np.inf, weights, 0.0)
    return LinearMatching(scores, labels=(table.rows, table.cols), **found)


def of_features(
    items: Table,
    labels: Table,
    files: Files,
    alone: Alone,
    *,
    scale: str,
    noise: str,
    df: float = 4.0,
) -> PointMatching:
    """The model of items and labels with the same features, the items' with noise.

    Args:
        items: Items by features.
        labels: Labels by the same features, in any order.
        files: What else is known.
        alone: ``unmatched`` is a distance in standard deviations: staying unmatched counts as much
            as a label that far away. ``unused`` is the probability that a label has no item.
        scale: The standard deviation of the noise, one number or one for each feature, separated by
            commas, or "infer".
        noise: Its distribution.
        df: The degrees of freedom of Student's t.

    Raises:
        ValueError: Something in a file or an option is wrong.
    """
    one_of("noise", noise, NOISES)
    centers = labels.aligned(labels.rows, items.cols)
    for table in (items, centers):
        bad = np.argwhere(~np.isfinite(table.values))
        if len(bad):
            i, j = map(int, bad[0])
            got = "an empty cell" if np.isnan(table.values[i, j]) else f"{table.values[i, j]:g}"
            raise ValueError(f"{table.place(i, j)}: expected a finite number, got {got}.")
    known_scale = _scale(scale, items.cols)
    settings: dict[str, Any] = {"scale": known_scale, "noise": noise, "df": df}
    unmatched = unused = None
    if alone.unmatched is not None:
        unmatched = _log_density_at(number("unmatched", alone.unmatched), len(items.cols), settings)
    if alone.unused is not None:
        unused = one_weight("unused", number("unused", alone.unused), "probabilities")
    everything = np.ones((len(items.rows), len(centers.rows)), dtype=bool)
    free = _free(unmatched, unused)
    found = _constraints(items.path, items.rows, centers.rows, everything, files, free)
    return PointMatching(
        items.values, centers.values, **settings, labels=(items.rows, centers.rows), **found
    )


def _free(unmatched: Any, unused: Any) -> dict[str, Any]:
    """Log weights of staying alone, as models take them.

    An item that stays unmatched leaves a label unused, so that whoever allows the one allows the
    other; for nothing unless they say otherwise.
    """
    if unmatched is not None and unused is None:
        unused = 0.0
    return {"row_unmatched": unmatched, "col_unmatched": unused}


def _split(
    table: Table, alone: Alone, kind: str, temperature: float
) -> tuple[Table, dict[str, Any]]:
    """The pairs of a table, and what staying alone counts by numbers or by the table's borders."""
    # Where names count, a number is a number and not a name.
    unmatched, unused = (None if is_number(given or "") else given for given in alone)
    rows = [i for i, name in enumerate(table.rows) if name != unused]
    cols = [j for j, name in enumerate(table.cols) if name != unmatched]
    if not rows or not cols:
        raise ValueError(
            f"unmatched and unused must leave pairs in {table.path}, got the names of its only "
            f"{'column' if rows else 'row'}."
        )

    def weight(option: str, given: str | None, side: str, border: Table | None) -> Any:
        if border is not None:
            return table_weights(border, kind, temperature).ravel()
        if given is None:
            return None
        value = number(option, given, f" or the name of a {side} of {table.path}")
        return one_weight(option, value, kind, temperature)

    column = row = None
    if unmatched in table.cols:
        column = table.take(rows, [table.cols.index(unmatched)])
    if unused in table.rows:
        row = table.take([table.rows.index(unused)], cols)
    free = _free(
        weight("unmatched", alone.unmatched, "column", column),
        weight("unused", alone.unused, "row", row),
    )
    return table.take(rows, cols), free


def _scale(text: str, features: Sequence[str]) -> Any:
    """A number, one for each feature, or None to infer it."""
    if text == INFER:
        return None
    found = numbers("scale", text, f", numbers or {INFER!r}")
    if len(found) not in (1, len(features)):
        raise ValueError(
            f"scale must be one number or one for each of {len(features)} features, got "
            f"{len(found)} numbers."
        )
    return found[0] if len(found) == 1 else found


def _log_density_at(distance: float, features: int, settings: dict[str, Any]) -> float:
    """The log density of an item so many standard deviations from its label, in one feature."""
    if settings["scale"] is None:
        raise ValueError(
            "unmatched is a distance in standard deviations, so scale must be given, got "
            f"{INFER!r}."
        )
    if not 0 < distance < np.inf:
        raise ValueError(f"unmatched must be a positive number, got {distance:g}.")
    scale = np.broadcast_to(settings["scale"], features)
    away = np.zeros((1, features))
    away[0, 0] = distance * scale[0]
    return float(PointMatching(away, np.zeros((1, features)), **settings).scores[0, 0])


def _constraints(
    path: Path,
    rows: tuple[str, ...],
    cols: tuple[str, ...],
    allowed: np.ndarray,
    files: Files,
    free: dict[str, Any],
) -> dict[str, Any]:
    """What every model takes beside its density."""
    prior_scores = None
    if files.mask is not None:
        allowed = allowed & _mask(read_table(files.mask, TRUTH).aligned(rows, cols))
    if files.prior is not None:
        check_kind("prior-kind", files.prior_kind, temperature=1.0)
        prior = read_table(files.prior).aligned(rows, cols)
        weights = table_weights(prior, files.prior_kind)
        check_sums(prior, files.prior_kind)
        # Unlike a pair without a score, one without a prior is not impossible.
        weights = np.where(np.isnan(prior.values), 0.0, weights)
        allowed = allowed & (weights > -np.inf)
        prior_scores = np.where(weights > -np.inf, weights, 0.0)
    known = None if files.known is None else _known(files.known, rows, cols, allowed)
    _check_feasible(path, rows, len(cols), allowed, free["row_unmatched"])
    mask = None if allowed.all() else allowed
    return {"mask": mask, "known": known, "prior_scores": prior_scores, **free}


def _mask(table: Table) -> np.ndarray:
    values = np.nan_to_num(table.values, nan=0.0)
    bad = np.argwhere((values != 0) & (values != 1))
    if len(bad):
        i, j = map(int, bad[0])
        raise ValueError(
            f"{table.place(i, j)}: expected 1 (allowed) or 0 (forbidden), got "
            f"{table.values[i, j]:g}."
        )
    return values == 1


def _known(
    path: Path, rows: tuple[str, ...], cols: tuple[str, ...], allowed: np.ndarray
) -> np.ndarray:
    """(n,) known columns, -1 for unknown."""
    places = ({name: k for k, name in enumerate(names)} for names in (rows, cols))
    row_of, col_of = places
    known = np.full(len(rows), -1)
    for line, item, label in read_pairs(path):
        for what, name, place in (("an item", item, row_of), ("a label", label, col_of)):
            if name not in place:
                raise ValueError(f"{at(path, line)}: expected {what} of the input, got {name!r}.")
        i, j = row_of[item], col_of[label]
        if known[i] >= 0 or j in known:
            raise ValueError(
                f"{at(path, line)}: expected each item and each label once, got {item!r} and "
                f"{label!r} again."
            )
        if not allowed[i, j]:
            raise ValueError(
                f"{at(path, line)}: expected a pair that is allowed, got {item!r} and {label!r}, "
                "which are not."
            )
        known[i] = j
    return known


def _check_feasible(
    path: Path, rows: tuple[str, ...], m: int, allowed: np.ndarray, unmatched: Any
) -> None:
    """Refuse an item that can neither be matched nor stay unmatched."""
    if unmatched is None:
        must_match = np.full(len(rows), len(rows) <= m)
    else:
        must_match = np.broadcast_to(np.asarray(unmatched) == -np.inf, len(rows))
    stuck = np.flatnonzero(must_match & ~allowed.any(axis=1))
    if stuck.size:
        raise ValueError(
            f"{path}: expected an allowed label for each item, or --unmatched, got none for "
            f"{rows[stuck[0]]!r:.60}."
        )
