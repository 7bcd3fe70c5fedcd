"""Checks of the fields of a posterior."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from permvi._checks import one_of
from permvi.posterior.items import Labels
from permvi.posterior.latents import Latent
from permvi.problem.sites import Layout

EvidenceKind = Literal["exact", "bound", "estimate"]


def evidence(value: float | None, kind: str | None) -> None:
    """Check that a log evidence and its kind come together."""
    if (value is None) != (kind is None):
        raise ValueError(
            f"log_evidence and log_evidence_kind must come together, got {value!r} and {kind!r}."
        )
    if kind is not None:
        one_of("log_evidence_kind", kind, get_args(EvidenceKind))


def latents(given: Mapping[str, Latent]) -> dict[str, Latent]:
    """Check that latents are `Latent` objects, and return them as a dictionary."""
    for name, latent in given.items():
        if not isinstance(latent, Latent):
            raise TypeError(f"latents must be Latent objects, got {type(latent)} for {name!r}.")
    return dict(given)


def labels(given: Sequence[Sequence[Any] | None] | None, layout: Layout) -> Labels:
    """Return names of rows and columns as text, each None where there are none."""
    rows, cols = (None, None) if given is None else given
    return _names("row", rows, layout.num_rows), _names("column", cols, layout.num_cols)


def _names(side: str, names: Sequence[Any] | None, size: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    texts = tuple(str(name) for name in names)
    if len(texts) != size:
        raise ValueError(f"labels must name each of {size} {side}s, got {len(texts)} names.")
    for text in texts:
        # Refuse here what UTF-8 or HDF5 cannot hold, rather than in save.
        if "\0" in text or text.encode("utf-8", "ignore").decode() != text:
            raise ValueError(f"labels must be Unicode text without NUL, got {text!r}.")
    return texts


def plain_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON values."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(f"settings must be JSON values, got {value!r}.")

    return json.loads(json.dumps(dict(settings), default=convert))
