"""How groups of voters give ballots: the parameters of P particles with G groups each."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from permvi.inference.rankings import families, worths
from permvi.models.rankings import Ballots
from permvi.models.rankings.ballots import log_geometric

# Intervals of log theta on which the parts of normalisers are cubic: errors are below 1e-7.
_INTERVALS = 1000


class Voice(abc.ABC):
    """Parameters of a model, drawn from the prior at first."""

    # The compiled moves, the ballots as they take them, (P, G, n) orders or log worths, and
    # (P, G, J) dispersions or (P, G) standard deviations of log worths.
    _kernels: Any
    _ballots: tuple[Any, ...]
    _state: np.ndarray
    _scales: np.ndarray

    @abc.abstractmethod
    def __init__(self, ballots: Ballots, size: tuple[int, int], rng: np.random.Generator) -> None:
        """Draw P x G groups.

        Raises:
            ValueError: The model does not take such ballots.
        """

    @property
    def scales(self) -> np.ndarray:
        """(P, G, J) dispersions, or standard deviations of log worths with J = 1."""
        return self._scales.reshape(*self._state.shape[:2], -1)

    @property
    @abc.abstractmethod
    def ranks(self) -> np.ndarray:
        """(P, G, n) the rank of each item."""

    @property
    @abc.abstractmethod
    def log_worths(self) -> np.ndarray:
        """(P, G, n) log worths that add up to 0, or (P, G, 0) without worths."""

    @abc.abstractmethod
    def score(self, k: int, log_p: np.ndarray) -> None:
        """Write the log probabilities (R, G) of all ballots in the groups of particle k."""

    def move(
        self,
        counts: np.ndarray,
        newest: int,
        part: float,
        shares: np.ndarray,
        log_p: np.ndarray,
        num_sweeps: int,
        rng: np.random.Generator,
    ) -> None:
        """Move all particles, with their shares (P, G) and log probabilities (P, R, G), in place.

        The probability of the newest voter's ballot is raised to a power, ``part``.
        """
        self._kernels.move_groups(
            *self._ballots, counts, newest, part, self._state, self._scales, shares, log_p,
            num_sweeps, rng,
        )  # fmt: skip

    def take(self, chosen: np.ndarray) -> None:
        """Replace all particles by some of them (P,)."""
        self._state, self._scales = self._state[chosen], self._scales[chosen]


class _Mallows(Voice):
    """Orders and dispersions of a family of Mallows models."""

    def __init__(
        self, name: str, ballots: Ballots, size: tuple[int, int], rng: np.random.Generator
    ) -> None:
        from permvi.inference.rankings import group_kernels

        n = len(ballots.items)
        family = families.FAMILIES[name](ballots)
        self._kernels = group_kernels
        kind, gaps = group_kernels.PAIRS, np.zeros((n, n))
        if name in families.GAPS:
            kind = group_kernels.PLACES
            gaps = families.GAPS[name](np.subtract.outer(np.arange(n), np.arange(n)).astype(float))
        elif family.ballots is not None:
            kind = group_kernels.EXCHANGES
        choices, splines = _normalisers(family, ballots)
        levels = np.ascontiguousarray(ballots.levels, np.int64)
        self._measured = kind, levels, gaps, choices, splines
        self._ballots = *self._measured, family.rate
        self._state = rng.permuted(np.broadcast_to(np.arange(n), (*size, n)).copy(), axis=-1)
        self._scales = rng.exponential(1.0 / family.rate, size=(*size, choices.shape[1]))

    @property
    def ranks(self) -> np.ndarray:
        return np.argsort(self._state, axis=2)

    @property
    def log_worths(self) -> np.ndarray:
        return np.zeros((*self._state.shape[:2], 0))

    def score(self, k: int, log_p: np.ndarray) -> None:
        self._kernels.score_groups(*self._measured, self._state[k], self._scales[k], log_p)


def _normalisers(family: families.Family, ballots: Ballots) -> tuple[np.ndarray, np.ndarray]:
    """Return (R, J, K) numbers of K functions in log normalisers, and their (S, 4, K) splines."""
    from scipy.interpolate import CubicSpline

    from permvi.inference.rankings.group_kernels import HIGHEST, LOWEST

    thetas = np.exp(np.linspace(LOWEST, HIGHEST, _INTERVALS + 1))
    if family.name in ("mallows", "generalised_mallows"):
        values = log_geometric(np.arange(1, len(ballots.items) + 1), thetas)
        by_place = family.name == "generalised_mallows"
        choices = families.choices_by_place(ballots) if by_place else ballots.choices[:, None]
    else:
        # Complete rankings all have one normaliser.
        values = family.log_normaliser(thetas) / ballots.counts.sum()
        choices = np.ones((len(ballots.levels), 1, 1))
    splines = CubicSpline(np.arange(len(thetas)), values, axis=1).c
    return choices, np.ascontiguousarray(splines.transpose(1, 0, 2))


class _PlackettLuce(Voice):
    """Log worths and their standard deviations."""

    def __init__(self, ballots: Ballots, size: tuple[int, int], rng: np.random.Generator) -> None:
        from permvi.inference.rankings import group_worth_kernels

        self._kernels = group_worth_kernels
        self._ballots = worths.for_kernels(ballots)
        self._scales = np.exp(rng.normal(size=size))
        self._state = self._scales[..., None] * rng.normal(size=(*size, len(ballots.items)))

    @property
    def ranks(self) -> np.ndarray:
        return np.argsort(np.argsort(-self._state, axis=2), axis=2)

    @property
    def log_worths(self) -> np.ndarray:
        return self._state - self._state.mean(axis=2, keepdims=True)

    def score(self, k: int, log_p: np.ndarray) -> None:
        self._kernels.score_groups(*self._ballots, self._state[k], log_p)


VOICES: dict[str, Callable[[Ballots, tuple[int, int], np.random.Generator], Voice]] = {
    **{name: partial(_Mallows, name) for name in families.FAMILIES},
    "plackett_luce": _PlackettLuce,
}
