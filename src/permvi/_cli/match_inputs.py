"""Build the model of ``permvi match`` from its files and options."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from permvi._assignment import masks
from permvi._checks import one_of
from permvi._cli import results
from permvi._cli.csv_tables import TRUTH, PairList, Table, read_pairs, read_table
from permvi._cli.options import INFER, KINDS, NOISES, SCALED, number, numbers
from permvi._csv import at, is_number
from permvi.models import LinearMatching, PointMatching

_EXPECTED = {
    "scores": "a score below infinity",
    "costs": "a cost above minus infinity",
    "log-odds": "log odds below infinity (certain pairs go to --known)",
    "probabilities": "a probability from 0 to below 1 (certain pairs go to --known)",
    "row-probabilities": "a probability from 0 to 1",
}
# Rounded probabilities of a row may add up to a little more than one.
_ROUNDING = 0.05
# The most items or labels that an error names.
_MOST_NAMED = 5


class Files(NamedTuple):
    """Files with more information on pairs, None for those that are not given."""

    mask: Path | None = None  # a table of 0 and 1, 1 where a pair is allowed
    known: Path | None = None
    prior: Path | None = None  # a table of prior weights
    prior_kind: str = "scores"  # the kind of its numbers

    def named(self) -> dict[str, str]:
        """Return the settings of the files that are given."""
        paths = {"mask": self.mask, "known": self.known, "prior": self.prior}
        given = {name: str(path) for name, path in paths.items() if path is not None}
        return given | ({} if self.prior is None else {"prior_kind": self.prior_kind})


class Unpaired(NamedTuple):
    """The weights of unmatched items and unused labels, as the user wrote them."""

    # A number, or the name of a column with a number for each item; None if all items have to be
    # matched.
    unmatched: str | None = None
    # A number, or the name of a row with a number for each label; None if not given.
    unused: str | None = None

    def names(self) -> tuple[str | None, str | None]:
        """Return the names of the column and of the row; a number is never taken for a name."""
        unmatched, unused = (None if is_number(given or "") else given for given in self)
        return unmatched, unused

    def pairs_of(self, table: Table) -> tuple[list[int], list[int]]:
        """Return the rows and columns of a table that hold pairs, and not its borders."""
        unmatched, unused = self.names()
        return (
            [i for i, name in enumerate(table.rows) if name != unused],
            [j for j, name in enumerate(table.cols) if name != unmatched],
        )


def model_of_pairs(
    table: Table, files: Files, unpaired: Unpaired, *, kind: str, temperature: float
) -> LinearMatching:
    """Build the model of a table with a number for each pair; an empty cell forbids its pair.

    The numbers, and those of ``unpaired`` if these are not names of the table's borders, are of the
    same ``kind``, a key of `KINDS`. The temperature divides scores and costs.
    """
    check_kind("kind", kind, temperature)
    table, free = _split(table, unpaired, kind, temperature)
    weights = table_weights(table, kind, temperature)
    check_sums(table, kind)
    found = _constraints(table.path, table.rows, table.cols, weights > -np.inf, files, free)
    scores = np.where(weights > -np.inf, weights, 0.0)
    return LinearMatching(scores, labels=(table.rows, table.cols), **found)


def model_of_features(
    items: Table,
    labels: Table,
    files: Files,
    unpaired: Unpaired,
    *,
    scale: str,
    noise: str,
    df: float = 4.0,
) -> PointMatching:
    """Build the model of items that have the features of their labels plus noise.

    Both tables have the same features as columns, in any order. ``unpaired.unmatched`` is a
    distance in standard deviations: an unmatched item has the weight of a label that lies as rarely
    so far as a normal number does at that distance; with an inferred scale, that is the median of
    the scale's prior.
    ``unpaired.unused`` is the probability that a label has no item. The standard deviation
    ``scale`` is one number, one for each feature separated by commas, or "infer"; ``df`` are the
    degrees of freedom of Student's t.
    """
    one_of("noise", noise, NOISES)
    centers = labels.aligned(labels.rows, items.cols)
    for table in (items, centers):
        bad = np.argwhere(~np.isfinite(table.values))
        if len(bad):
            i, j = map(int, bad[0])
            got = "an empty cell" if np.isnan(table.values[i, j]) else f"{table.values[i, j]:g}"
            raise ValueError(f"{table.place(i, j)}: expected a finite number, got {got}.")
    settings: dict[str, Any] = {"scale": _scale(scale, items.cols), "noise": noise, "df": df}
    unmatched = unused = None
    if unpaired.unmatched is not None:
        distance = number("unmatched", unpaired.unmatched)
        given = settings
        if given["scale"] is None:
            # A weight that followed an unknown scale would have no maximum: with a scale of zero,
            # unmatched items would have any density.
            prior = PointMatching(items.values, centers.values, **settings).scale_prior
            given = {**settings, "scale": float(prior[0])}
        unmatched = _log_density_at(distance, len(items.cols), given)
    if unpaired.unused is not None:
        unused = one_weight("unused", number("unused", unpaired.unused), "probabilities")
    free = {"row_unmatched": unmatched, "col_unmatched": unused}
    found = _constraints(items.path, items.rows, centers.rows, None, files, free)
    return PointMatching(
        items.values, centers.values, **settings, labels=(items.rows, centers.rows), **found
    )


def _split(
    table: Table, unpaired: Unpaired, kind: str, temperature: float
) -> tuple[Table, dict[str, Any]]:
    """Separate the pairs of a table from its borders; return log weights of both."""
    unmatched, unused = unpaired.names()
    rows, cols = unpaired.pairs_of(table)
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
    free = {
        "row_unmatched": weight("unmatched", unpaired.unmatched, "column", column),
        "col_unmatched": weight("unused", unpaired.unused, "row", row),
    }
    return table.take(rows, cols), free


def _scale(text: str, features: Sequence[str]) -> Any:
    """Parse --scale: a number, a list with one for each feature, or None to infer it."""
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
    """Return the log density that is as rare as a normal number so many deviations away."""
    if not 0 < distance < np.inf:
        raise ValueError(f"unmatched must be a positive number, got {distance:g}.")
    # Imported here because SciPy's functions take their time to load.
    from permvi.models.rarity import log_density_as_rare

    scale = np.broadcast_to(np.asarray(settings["scale"], float), features)
    return log_density_as_rare(settings["noise"], distance, scale, settings["df"])


def check_kind(option: str, kind: str, temperature: float) -> None:
    """Raise ``ValueError`` for an unknown kind, or a temperature that it cannot have."""
    one_of(option, kind, KINDS)
    if not 0 < temperature < np.inf:
        raise ValueError(f"temperature must be positive, got {temperature}.")
    if temperature != 1 and kind not in SCALED:
        raise ValueError(
            f"temperature must be 1 unless kind is {' or '.join(map(repr, SCALED))}, got "
            f"{temperature:g} with {kind!r}."
        )


def _log_weight(value: np.ndarray, kind: str, temperature: float = 1.0) -> np.ndarray:
    r"""Return the log weight of each number, its term in the log probability of a matching.

    :math:`s/T` for scores, :math:`-c/T` for costs, :math:`o` for log odds,
    :math:`\log p - \log(1-p)` for probabilities and :math:`\log p` for row probabilities. NaN (an
    empty cell) forbids a pair and has the weight -inf. Numbers of another kind give NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind in SCALED:
            weight = (value if kind == "scores" else -value) / temperature
        elif kind == "log-odds":
            weight = value
        elif kind == "probabilities":
            weight = np.log(value) - np.log1p(-value)
        else:
            weight = np.where(value <= 1, np.log(value), np.nan)
    weight = np.where(weight == np.inf, np.nan, weight)
    return np.where(np.isnan(value), -np.inf, weight)


def table_weights(table: Table | PairList, kind: str, temperature: float = 1.0) -> np.ndarray:
    """Return the log weights of a table; raise for a number that is not of this kind."""
    weights = _log_weight(table.values, kind, temperature)
    bad = np.argwhere(np.isnan(weights))
    if len(bad):
        place = tuple(map(int, bad[0]))
        raise ValueError(
            f"{table.place(*place)}: expected {_EXPECTED[kind]}, got {table.values[place]:g}."
        )
    return weights


def one_weight(option: str, value: float, kind: str, temperature: float = 1.0) -> float:
    """Return the log weight of an option's number; raise if it is not of this kind."""
    weight = float("nan") if np.isnan(value) else _log_weight(np.array(value), kind, temperature)
    if np.isnan(weight):
        raise ValueError(f"{option} must be {_EXPECTED[kind]}, got {value:g}.")
    return float(weight)


def check_sums(table: Table | PairList, kind: str) -> None:
    """Raise ``ValueError`` if a row of row probabilities adds up to more than one."""
    if kind != "row-probabilities":
        return
    sums = table.row_sums()
    row = int(np.argmax(sums))
    if sums[row] > 1 + _ROUNDING:
        raise ValueError(
            f"{table.row_place(row)}: expected probabilities that add up to 1 at "
            f"most, got {sums[row]:.4g}; --kind probabilities judges each pair by itself."
        )


def _constraints(
    path: Path,
    rows: tuple[str, ...],
    cols: tuple[str, ...],
    allowed: np.ndarray | None,
    files: Files,
    free: dict[str, Any],
) -> dict[str, Any]:
    """Return the arguments that all models share; ``allowed`` is None if all pairs are."""
    prior_scores = None
    if files.mask is not None:
        mask = read_mask(files.mask, rows, cols)
        allowed = mask if allowed is None else allowed & mask
    if files.prior is not None:
        weights = read_prior(files, rows, cols)
        possible = weights > -np.inf
        allowed = possible if allowed is None else allowed & possible
        prior_scores = np.where(possible, weights, 0.0)
    if allowed is not None and allowed.all():
        allowed = None
    known = None
    if files.known is not None:
        known = read_known(
            files.known, rows, cols, lambda i, j: allowed is None or bool(allowed[i, j])
        )
    if allowed is not None:
        check_feasible(path, rows, len(cols), np.any(allowed, axis=1), free["row_unmatched"])
    return {"mask": allowed, "known": known, "prior_scores": prior_scores, **free}


def read_prior(files: Files, rows: tuple[str, ...], cols: tuple[str, ...]) -> np.ndarray:
    """Return the (n, m) log weights of the prior, -inf for impossible pairs."""
    check_kind("prior-kind", files.prior_kind, temperature=1.0)
    if files.prior is None:
        raise ValueError("prior must be a file, got none.")
    prior = read_table(files.prior).aligned(rows, cols)
    weights = table_weights(prior, files.prior_kind)
    check_sums(prior, files.prior_kind)
    # A pair without a score is impossible, but one without a prior is not.
    return np.where(np.isnan(prior.values), 0.0, weights)


def read_mask(path: Path, rows: tuple[str, ...], cols: tuple[str, ...]) -> np.ndarray:
    """Return the (n, m) mask of a file, True where a pair is allowed."""
    table = read_table(path, TRUTH).aligned(rows, cols)
    values = np.nan_to_num(table.values, nan=0.0)
    bad = np.argwhere((values != 0) & (values != 1))
    if len(bad):
        i, j = map(int, bad[0])
        raise ValueError(
            f"{table.place(i, j)}: expected 1 (allowed) or 0 (forbidden), got "
            f"{table.values[i, j]:g}."
        )
    return values == 1


def read_known(
    path: Path,
    rows: tuple[str, ...],
    cols: tuple[str, ...],
    is_allowed: Callable[[int, int], bool],
) -> np.ndarray:
    """Return the (n,) known columns, -1 for unknown."""
    row_of, col_of = ({name: k for k, name in enumerate(names)} for names in (rows, cols))
    known = np.full(len(rows), -1)
    used: set[int] = set()
    for line, item, label in read_pairs(path, row_of, col_of):
        for what, name, place in (("an item", item, row_of), ("a label", label, col_of)):
            if name not in place:
                raise ValueError(f"{at(path, line)}: expected {what} of the input, got {name!r}.")
        i, j = row_of[item], col_of[label]
        if known[i] >= 0 or j in used:
            raise ValueError(
                f"{at(path, line)}: expected each item and each label once, got {item!r} and "
                f"{label!r} again."
            )
        if not is_allowed(i, j):
            raise ValueError(
                f"{at(path, line)}: expected a pair that is allowed, got {item!r} and {label!r}, "
                "which are not."
            )
        known[i] = j
        used.add(j)
    return known


def check_feasible(
    path: Path, rows: tuple[str, ...], m: int, has_label: np.ndarray, unmatched: Any
) -> None:
    """Raise ``ValueError`` if an item can neither be matched nor stay unmatched.

    ``has_label``, (n,), tells whether an item has an allowed label.
    """
    if unmatched is None:
        must_match = np.full(len(rows), len(rows) <= m)
    else:
        must_match = np.broadcast_to(np.asarray(unmatched) == -np.inf, len(rows))
    stuck = np.flatnonzero(must_match & ~has_label)
    if stuck.size:
        raise ValueError(
            f"{path}: expected an allowed label for each item, or --unmatched, got none for "
            f"{rows[stuck[0]]!r:.60}."
        )


def check_conflicts(path: Path, model: Any, unpaired: Unpaired) -> None:
    """Raise ``ValueError`` if some items have too few labels together, or labels too few items."""
    listed = hasattr(model, "pair_weights")
    if unpaired.unmatched is not None or not (listed or model.mask is not None):
        return
    rows, cols = _possible_pairs(model)
    n, m = model.shape
    sides = [("items", "labels"), ("labels", "items")]
    names = list(model.labels)
    # The smaller side has to be matched.
    if n > m:
        rows, cols, sides, names, n, m = cols, rows, sides[::-1], names[::-1], m, n
    found = masks.conflict(rows, cols, (n, m))
    if found is None:
        return
    (one, other), (many, few) = sides[0], found
    named = [
        results.short([repr(side[k]) for k in places.tolist()], _MOST_NAMED)
        for side, places in zip(names, found, strict=True)
    ]
    compete = f"the {one} {named[0]}" if len(many) > 1 else f"{one[:-1]} {named[0]}"
    which = f"only {named[1]} for {compete}" if few.size else f"none for {compete}"
    raise ValueError(
        f"{path}: expected enough allowed {other} for {len(many):,} {one} together, got {which}; "
        "--unmatched VALUE lets items stay unmatched."
    )


def _possible_pairs(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and columns of pairs that the mask, or the list, and known pairs allow."""
    if hasattr(model, "pair_weights"):
        rows, cols = np.asarray(model.rows), np.asarray(model.cols)
    else:
        rows, cols = np.nonzero(model.mask)
    if model.known is None:
        return rows, cols
    known = np.asarray(model.known)
    taken = np.isin(cols, known[known >= 0])
    kept = np.where(known[rows] >= 0, known[rows] == cols, ~taken)
    return rows[kept], cols[kept]
