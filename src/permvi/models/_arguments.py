"""Checks of the arguments that all models share."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from permvi import _checks
from permvi.models.labels import (
    Labels,
    check_labels,
    frame_labels,
    frame_numbers,
    is_frame,
    known_from_pairs,
)


def real(name: str, value: Any, ndims: tuple[int, ...]) -> Any:
    """Return ``value`` as float64 on the host; a value traced by JAX is returned as it is."""
    array = value
    if _checks.is_concrete(value):
        array = _checks.real_array(name, frame_numbers(name, value) if is_frame(value) else value)
    if array.ndim not in ndims or 0 in array.shape:
        wanted = " or ".join(str(ndim) for ndim in ndims)
        raise ValueError(
            f"{name} must be a non-empty array with {wanted} axes, got shape {array.shape}."
        )
    return array


def finite(name: str, array: Any, hint: str = "") -> Any:
    """Return ``array`` if it is finite; else raise a ``ValueError`` that says where it is not."""
    if _checks.is_concrete(array):
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            place = ", ".join(str(index) for index in bad[0])
            raise ValueError(
                f"{name} must be finite{hint}, got {array[tuple(bad[0])]} at index ({place})."
            )
    return array


def scores(name: str, value: Any, mask: np.ndarray | None) -> Any:
    """Return (n, m) or (S, n, m) scores, finite where the mask allows a pair and zero elsewhere."""
    array = one_site(real(name, value, (2, 3)))
    if mask is not None and _checks.is_concrete(array):
        array = np.where(mask, array, 0.0)
    return finite(name, array, " (mask= forbids pairs, and so do scores of -inf)")


def possible_pairs(table: Any, mask: Any, labels: Labels) -> Any:
    """Return the mask without the pairs whose scores are -inf, as it is if there are none."""
    if not _checks.is_concrete(table):
        return mask
    impossible = np.isneginf(table)
    if not impossible.any():
        return mask
    allowed = allowed_pairs(mask, table.shape, labels)
    return ~impossible if allowed is None else allowed & ~impossible


def one_site(array: Any) -> Any:
    """Drop the site axis of an array if there is only one site."""
    return array[0] if array.ndim == 3 and array.shape[0] == 1 else array


def _like(name: str, value: Any, table: tuple[int, ...], labels: Labels) -> Any:
    """Broadcast ``value`` to the scores' shape; a DataFrame must name rows and columns likewise."""
    for side, mine, theirs in zip(("rows", "columns"), frame_labels(value), labels, strict=True):
        if mine is not None and theirs is not None and mine != theirs:
            raise ValueError(
                f"{name} must name its {side} as the model does and in the same order, got "
                f"{list(mine)!r:.60}."
            )
    array = np.asarray(value.to_numpy() if is_frame(value) else value)
    if array.ndim < 2 or array.ndim > len(table) or array.shape[-2:] != table[-2:]:
        raise ValueError(f"{name} must have shape {table}, got shape {array.shape}.")
    if array.ndim == 3 and array.shape[0] not in (1, table[0]):
        raise ValueError(f"{name} must have shape {table}, got shape {array.shape}.")
    return np.broadcast_to(array, table)


def allowed_pairs(value: Any, table: tuple[int, ...], labels: Labels) -> np.ndarray | None:
    """Return the mask as booleans of the shape of the scores."""
    if value is None:
        return None
    array = _like("mask", value, table, labels)
    if array.dtype != bool:
        raise TypeError(f"mask must be a boolean array, got dtype {array.dtype}.")
    return array


def _prior_scores(
    value: Any, table: tuple[int, ...], labels: Labels, allowed: np.ndarray | None
) -> np.ndarray | None:
    """Return log prior weights of pairs, of the shape of the scores."""
    if value is None:
        return None
    return scores("prior_scores", _like("prior_scores", value, table, labels), allowed)


def known_pairs(
    value: Any, table: tuple[int, ...], labels: Labels, allowed: np.ndarray | None
) -> np.ndarray | None:
    """Return known columns (n,) or (S, n), -1 for unknown; one site may give {row: column}."""
    if value is None:
        return None
    n, m = table[-2:]
    if isinstance(value, Mapping):
        value = known_from_pairs(value, labels, (n, m))
    if np.shape(value) not in ((n,), table[:-1]):
        raise ValueError(f"known must have shape {table[:-1]}, got shape {np.shape(value)}.")
    array = _checks.check_matchings("known", value, (n, m))
    array = _checks.distinct_columns("known", np.broadcast_to(array, table[:-1]))
    if allowed is not None:
        chosen = np.take_along_axis(allowed, np.maximum(array, 0)[..., None], axis=-1)[..., 0]
        forbidden = np.argwhere((array >= 0) & ~chosen)
        if len(forbidden):
            place = tuple(forbidden[0])
            raise ValueError(
                f"known must respect mask, got the forbidden pair of row {place[-1]} and column "
                f"{array[place]}."
            )
    return array


def _unmatched(name: str, value: Any, table: tuple[int, ...], axis: int) -> np.ndarray | None:
    """Return log weights of unmatched rows or columns, -inf for those that must be matched."""
    if value is None:
        return None
    shape = (*table[:-2], table[axis])
    array = _checks.below_infinity(name, real(name, value, (0, 1, 2)))
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{name} must be a number or have shape {shape}, got shape {array.shape}."
        ) from None


class Constraints(NamedTuple):
    """Constraints and names that every model takes, checked and of full shape."""

    mask: np.ndarray | None  # (n, m) or (S, n, m) booleans, True where allowed, or None
    known: np.ndarray | None  # (n,) or (S, n) known columns, -1 for unknown, or None
    prior_scores: np.ndarray | None  # log prior weights of pairs, of the shape of the mask, or None
    row_unmatched: np.ndarray | None  # (n,) or (S, n) log weights of unmatched rows, or None
    col_unmatched: np.ndarray | None  # (m,) or (S, m) log weights of unmatched columns, or None
    labels: Labels  # names of rows and of columns, each None where there are none


ARRAYS = Constraints._fields[:-1]


def constraints(
    table: tuple[int, ...],
    found_labels: Labels,
    mask: Any = None,
    known: Any = None,
    labels: Any = None,
    row_unmatched: Any = None,
    col_unmatched: Any = None,
    prior_scores: Any = None,
) -> Constraints:
    """Check the constraints of a model whose scores have (or would have) the shape ``table``."""
    names = check_labels(labels, found_labels, (table[-2], table[-1]))
    allowed = allowed_pairs(mask, table, names)
    return Constraints(
        mask=allowed,
        known=known_pairs(known, table, names, allowed),
        prior_scores=_prior_scores(prior_scores, table, names, allowed),
        row_unmatched=_unmatched("row_unmatched", row_unmatched, table, -2),
        col_unmatched=_unmatched("col_unmatched", col_unmatched, table, -1),
        labels=names,
    )


class Constrained:
    """A model that keeps the arguments that all models share, see `Constraints`."""

    mask: Any
    known: Any
    prior_scores: Any
    row_unmatched: Any
    col_unmatched: Any
    labels: Labels

    def _constrain(
        self, table: tuple[int, ...], found_labels: Labels, *given: Any, **named: Any
    ) -> None:
        """Check the arguments of `constraints` and keep them."""
        vars(self).update(constraints(table, found_labels, *given, **named)._asdict())
