"""Settings and result of the search for the most probable matching."""

import dataclasses
from typing import Literal, NamedTuple, get_args

import numpy as np

from permvi import _checks
from permvi._checks import positive_number, whole

Polish = Literal["tabu", "swap", "none"]
# How many restarts there are unless the caller or the size of a problem says otherwise.
RESTARTS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapOptions:
    """How to search; linear problems ignore these options.

    Attributes:
        num_restarts: Independent starts, the best end of which is returned. None: 16, or fewer, six
            at least, in quadratic problems of more than 200 items.
        max_iter: The most Frank-Wolfe steps from each start.
        polish: What follows: "tabu" (robust tabu search, then swaps, in quadratic problems; hill
            climbing, repeated from shaken ends, in others), "swap" (the best swap while it gains
            anything) or "none".
        max_evaluations: The most log densities that hill climbing may take in problems that are
            neither linear nor quadratic. None: 200,000, or 20,000 for functions that JAX cannot
            trace. If the climbs of all restarts would take more, there are fewer restarts.
        max_seconds: How long the search of a quadratic problem may go on. It ends earlier if
            independent populations agree. None: as long as some 20 seconds of CPU time take it,
            less beyond 50 items. With a number, the same seed need not give the same result.
    """

    num_restarts: int | None = None
    max_iter: int = 50
    polish: Polish = "tabu"
    max_evaluations: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        whole("max_iter", self.max_iter)
        for name in ("num_restarts", "max_evaluations"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if self.max_seconds is not None:
            positive_number("max_seconds", self.max_seconds)
        _checks.one_of("polish", self.polish, get_args(Polish))


# The share of restarts that have to end at the best value.
_AGREED = 0.5
# Log densities this close, relative to their size, are equal.
_SAME = 1e-6


def num_best(values: np.ndarray, best: float) -> int:
    """Return how many of the values (r,) are the best one, up to rounding."""
    return int((values >= best - _SAME * max(1.0, abs(best))).sum())


def agree(values: np.ndarray, best: float) -> bool:
    """Return whether enough independent restarts ended at the best value to believe that it is."""
    return num_best(values, best) >= max(3, round(_AGREED * len(values)))


class MapResult(NamedTuple):
    """The best matching found, and how the search went.

    Attributes:
        perm: (n,) or (S, n) the matching, -1 for unmatched.
        restart_values: (r,) the log density that each restart ended at.
        num_evaluations: How many log densities, gradients and swap differences were computed.
        optimal: Whether certainly no matching has a larger log density.
        finished: Whether all restarts have reached a local optimum.
        value: The log density of ``perm`` if that is no restart's end, or None.
        agreed: Whether enough independent restarts ended at the best value to believe that it is.
        bound: What no matching exceeds, infinity if that is unknown.
        ends: (k, n) where the restarts of a quadratic problem ended, and up to 200 items where they
            had been before tabu search, which may leave a lesser mode; or None.
    """

    perm: np.ndarray
    restart_values: np.ndarray
    num_evaluations: int
    optimal: bool
    finished: bool
    value: float | None = None
    agreed: bool = False
    bound: float = np.inf
    ends: np.ndarray | None = None
