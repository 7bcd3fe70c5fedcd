"""Build the model of ``permvi match --pairs`` from its list, without a table of all pairs."""

import dataclasses
from typing import Any

import numpy as np

from permvi._cli.csv_cells import is_number
from permvi._cli.csv_tables import PairList
from permvi._cli.match_inputs import (
    Files,
    Unpaired,
    check_feasible,
    check_kind,
    check_sums,
    one_weight,
    read_known,
    read_mask,
    read_prior,
    table_weights,
)
from permvi._cli.options import number
from permvi.models import SparseMatching


def model_of_list(
    given: PairList, files: Files, unpaired: Unpaired, *, kind: str, temperature: float
) -> SparseMatching:
    """Build the model of a list with a number for each pair; other pairs are forbidden.

    The arguments are those of `model_of_pairs`.
    """
    check_kind("kind", kind, temperature)
    listed, free = _split(given, unpaired, kind, temperature)
    weights = table_weights(listed, kind, temperature)
    check_sums(listed, kind)
    (i, j), shape = listed.pairs.T, (len(listed.rows), len(listed.cols))
    allowed = weights > -np.inf
    if files.mask is not None:
        allowed &= read_mask(files.mask, listed.rows, listed.cols)[i, j]
    if files.prior is not None:
        prior = read_prior(files, listed.rows, listed.cols)[i, j]
        weights = weights + prior
        allowed &= prior > -np.inf
    i, j, weights = i[allowed], j[allowed], weights[allowed]
    known = None
    if files.known is not None:
        codes = set((i * shape[1] + j).tolist())
        known = read_known(
            files.known, listed.rows, listed.cols, lambda a, b: a * shape[1] + b in codes
        )
    has_label = np.bincount(i, minlength=shape[0]) > 0
    check_feasible(listed.path, listed.rows, shape[1], has_label, free["row_unmatched"])
    return SparseMatching(
        i, j, weights, shape, known=known, labels=(listed.rows, listed.cols), **free
    )


def _split(
    given: PairList, unpaired: Unpaired, kind: str, temperature: float
) -> tuple[PairList, dict[str, Any]]:
    """Separate the pairs of items and labels from those with the names of the borders."""
    # A number is never taken for the name of a border.
    names = [None if is_number(name or "") else name for name in unpaired]
    sides = (given.cols, given.rows)
    places = [
        side.index(name) if name in side else -1 for name, side in zip(names, sides, strict=True)
    ]
    col, row = places
    if (row >= 0 and len(given.rows) == 1) or (col >= 0 and len(given.cols) == 1):
        side = "row" if row >= 0 and len(given.rows) == 1 else "column"
        raise ValueError(
            f"unmatched and unused must leave pairs in {given.path}, got the names of its only "
            f"{side}."
        )
    of_row, of_col = given.pairs[:, 0] == row, given.pairs[:, 1] == col

    def weight(
        option: str, text: str | None, side: str, chosen: np.ndarray | None, size: int, axis: int
    ) -> Any:
        if chosen is not None:
            border = dataclasses.replace(
                given, pairs=given.pairs[chosen], values=given.values[chosen]
            )
            found = np.full(size, -np.inf)
            found[border.pairs[:, axis]] = table_weights(border, kind, temperature)
            return found
        if text is None:
            return None
        value = number(option, text, f" or the name of a {side} of {given.path}")
        return one_weight(option, value, kind, temperature)

    keep_rows = np.arange(len(given.rows)) != row
    keep_cols = np.arange(len(given.cols)) != col
    unmatched = weight(
        "unmatched",
        unpaired.unmatched,
        "column",
        of_col & ~of_row if col >= 0 else None,
        len(given.rows),
        0,
    )
    unused = weight(
        "unused",
        unpaired.unused,
        "row",
        of_row & ~of_col if row >= 0 else None,
        len(given.cols),
        1,
    )
    inside = ~of_row & ~of_col
    places = np.cumsum(keep_rows) - 1, np.cumsum(keep_cols) - 1
    pairs = given.pairs[inside]
    left = PairList(
        given.path,
        tuple(name for name, kept in zip(given.rows, keep_rows, strict=True) if kept),
        tuple(name for name, kept in zip(given.cols, keep_cols, strict=True) if kept),
        np.stack([places[0][pairs[:, 0]], places[1][pairs[:, 1]]], axis=1),
        given.values[inside],
    )
    return left, {
        "row_unmatched": unmatched if col < 0 else unmatched[keep_rows],
        "col_unmatched": unused if row < 0 else unused[keep_cols],
    }
