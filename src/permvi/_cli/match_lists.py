"""Build the model of ``permvi match --pairs`` from its list, without a table of all pairs."""

import dataclasses
from typing import Any

import numpy as np

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
from permvi._csv import is_number
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
    unmatched, unused = (None if is_number(name or "") else name for name in unpaired)
    col = given.cols.index(unmatched) if unmatched in given.cols else -1
    row = given.rows.index(unused) if unused in given.rows else -1
    only_row = row >= 0 and len(given.rows) == 1
    if only_row or (col >= 0 and len(given.cols) == 1):
        raise ValueError(
            f"unmatched and unused must leave pairs in {given.path}, got the names of its only "
            f"{'row' if only_row else 'column'}."
        )
    of_row, of_col = given.pairs[:, 0] == row, given.pairs[:, 1] == col

    def weight(option: str, text: str | None, side: str) -> Any:
        if text is None:
            return None
        value = number(option, text, f" or the name of a {side} of {given.path}")
        return one_weight(option, value, kind, temperature)

    def border(chosen: np.ndarray, side: int, names: tuple[str, ...]) -> np.ndarray:
        """Return log weights by row or by column, -inf for those that are not listed."""
        listed = dataclasses.replace(given, pairs=given.pairs[chosen], values=given.values[chosen])
        found = np.full(len(names), -np.inf)
        found[listed.pairs[:, side]] = table_weights(listed, kind, temperature)
        return found

    rows = np.delete(np.arange(len(given.rows)), [row] if row >= 0 else [])
    cols = np.delete(np.arange(len(given.cols)), [col] if col >= 0 else [])
    if col >= 0:
        of_rows: Any = border(of_col & ~of_row, 0, given.rows)[rows]
    else:
        of_rows = weight("unmatched", unpaired.unmatched, "column")
    if row >= 0:
        of_cols: Any = border(of_row & ~of_col, 1, given.cols)[cols]
    else:
        of_cols = weight("unused", unpaired.unused, "row")
    pairs = given.pairs[~of_row & ~of_col]
    left = PairList(
        given.path,
        tuple(given.rows[i] for i in rows),
        tuple(given.cols[j] for j in cols),
        np.stack([np.searchsorted(rows, pairs[:, 0]), np.searchsorted(cols, pairs[:, 1])], axis=1),
        given.values[~of_row & ~of_col],
    )
    return left, {"row_unmatched": of_rows, "col_unmatched": of_cols}
