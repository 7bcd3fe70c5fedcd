"""Laws: where a posterior's draws and probabilities come from, and how they are stored.

Every kind of law lives in a file of its own and registers itself, so that new ones need no change
here but a line in ``_HOMES``, which lets a saved posterior find its law in a fresh process.
"""

import importlib
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np


class Law(Protocol):
    """A distribution over matchings of one layout, as the methods of inference provide it."""

    kind: ClassVar[str]

    @property
    def entropy(self) -> float | None:
        """``-sum_x p(x) log p(x)`` in nats, or None where the family cannot tell."""

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """(num, n) or (num, sites, n) integers, -1 for an unmatched row."""

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """(..., n) or (..., sites, n) matchings -> (...) log probabilities.

        Raises:
            ValueError: The family has none.
        """

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The at most k most probable matchings and their probabilities, in decreasing order."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that :meth:`from_arrays` needs, under names that are Python identifiers."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The law that ``to_arrays`` described."""


class Summary(NamedTuple):
    """What an exact law knows of itself; shapes as in :class:`~permvi.posterior.Posterior`."""

    marginals: np.ndarray
    p_unmatched_rows: np.ndarray
    p_unmatched_cols: np.ndarray
    mode: np.ndarray
    log_evidence: float


class SolvedLaw(Law, Protocol):
    """A law that is known exactly."""

    def summary(self) -> Summary:
        """Marginals, mode and evidence."""


LawClass = TypeVar("LawClass", bound=type[Law])

_LAWS: dict[str, type[Law]] = {}

# The modules that define the kinds of laws; loading one registers what it defines.
_HOMES = {
    "exact": "permvi.posterior.exact_laws",
    "tabular": "permvi.posterior.exact_laws",
    "draws": "permvi.posterior.draws",
    "family": "permvi.posterior.family_law",
    "marginals": "permvi.posterior.marginal_law",
    "mallows": "permvi.posterior.mallows_law",
    "plackett_luce": "permvi.posterior.plackett_luce_law",
}


def register_law(cls: LawClass) -> LawClass:
    """Class decorator: saved posteriors with this ``kind`` are read back by this class."""
    _LAWS[cls.kind] = cls
    return cls


def restore_law(kind: str, arrays: Mapping[str, np.ndarray]) -> Law:
    """The law of a saved posterior.

    Raises:
        ValueError: No law of this kind is known.
    """
    if kind not in _LAWS and kind in _HOMES:
        importlib.import_module(_HOMES[kind])
    if kind not in _LAWS:
        raise ValueError(
            f"kind must be a registered law ({', '.join(sorted({*_LAWS, *_HOMES}))}), got {kind!r}."
        )
    return _LAWS[kind].from_arrays(arrays)
