"""How groups of voters give ballots: the parameters of P particles with G groups each."""

import abc
from typing import Any

import numpy as np

from permvi.inference.rankings import worths
from permvi.models.rankings import Ballots


class Voice(abc.ABC):
    """Parameters of a model, drawn from the prior at first.

    Attributes:
        scales: (P, G) dispersions, or standard deviations of log worths.
    """

    scales: np.ndarray
    # The compiled moves, the ballots as they take them, and (P, G, n) orders or log worths.
    _kernels: Any
    _ballots: tuple[np.ndarray, ...]
    _state: np.ndarray

    @abc.abstractmethod
    def __init__(self, ballots: Ballots, size: tuple[int, int], rng: np.random.Generator) -> None:
        """Draw P x G groups."""

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
        k: int,
        counts: np.ndarray,
        newest: int,
        part: float,
        shares: np.ndarray,
        log_p: np.ndarray,
        num_sweeps: int,
        rng: np.random.Generator,
    ) -> None:
        """Move particle k, with its shares (G,) and log probabilities (R, G), in place.

        The probability of the newest voter's ballot is raised to a power, ``part``.
        """
        self._kernels.move_groups(
            *self._ballots, counts, newest, part, self._state[k], self.scales[k], shares, log_p,
            num_sweeps, rng,
        )  # fmt: skip

    def take(self, chosen: np.ndarray) -> None:
        """Replace all particles by some of them (P,)."""
        self._state, self.scales = self._state[chosen], self.scales[chosen]


class _Mallows(Voice):
    """Orders and dispersions."""

    def __init__(self, ballots: Ballots, size: tuple[int, int], rng: np.random.Generator) -> None:
        from permvi.inference.rankings import group_kernels

        n = len(ballots.items)
        self._kernels = group_kernels
        self._ballots = np.ascontiguousarray(ballots.levels, np.int64), ballots.choices
        self._state = rng.permuted(np.broadcast_to(np.arange(n), (*size, n)).copy(), axis=-1)
        self.scales = rng.exponential(size=size)

    @property
    def ranks(self) -> np.ndarray:
        return np.argsort(self._state, axis=2)

    @property
    def log_worths(self) -> np.ndarray:
        return np.zeros((*self.scales.shape, 0))

    def score(self, k: int, log_p: np.ndarray) -> None:
        self._kernels.score_groups(*self._ballots, self._state[k], self.scales[k], log_p)


class _PlackettLuce(Voice):
    """Log worths and their standard deviations."""

    def __init__(self, ballots: Ballots, size: tuple[int, int], rng: np.random.Generator) -> None:
        from permvi.inference.rankings import group_worth_kernels

        self._kernels = group_worth_kernels
        self._ballots = worths.for_kernels(ballots)
        self.scales = np.exp(rng.normal(size=size))
        self._state = self.scales[..., None] * rng.normal(size=(*size, len(ballots.items)))

    @property
    def ranks(self) -> np.ndarray:
        return np.argsort(np.argsort(-self._state, axis=2), axis=2)

    @property
    def log_worths(self) -> np.ndarray:
        return self._state - self._state.mean(axis=2, keepdims=True)

    def score(self, k: int, log_p: np.ndarray) -> None:
        self._kernels.score_groups(*self._ballots, self._state[k], log_p)


VOICES: dict[str, type[Voice]] = {"mallows": _Mallows, "plackett_luce": _PlackettLuce}
