"""What a run of chains consists of, wherever its density is computed."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from permvi.inference.mcmc.chains import Chains


class Config(NamedTuple):
    """What a sweep consists of; compiled into the run.

    Attributes:
        num_swaps: Swaps in a sweep.
        cycles: Whether a proposal along a cycle follows.
        delta: Whether swaps use the model's short cut.
        sample: Draws of the independence proposal that follows, or None.
        log_prob: Its log probabilities, or None.
        thin: Sweeps between two records.
    """

    num_swaps: int
    cycles: bool
    delta: bool
    sample: Callable[..., Any] | None
    log_prob: Callable[..., Any] | None
    thin: int

    @property
    def sweep_length(self) -> int:
        """Proposals in a sweep."""
        return self.num_swaps + self.cycles + (self.sample is not None)


class Records(NamedTuple):
    """What is kept of a part of a run of P problems with C chains each.

    Attributes:
        perms: (P, length, C, S, n) the matchings of the coldest chains.
        log_p: (P, length, C) their log densities.
        trades: (P, length) exchanges between temperatures.
    """

    perms: Any
    log_p: Any
    trades: Any


class Run(Protocol):
    """Chains of P problems under way."""

    @property
    def chains(self) -> Chains:
        """The chains, B = C T of each problem, the T temperatures of a chain in succession."""

    @property
    def num_evaluations(self) -> int:
        """How many densities, or differences of them, were evaluated for each problem so far."""

    def advance(self, length: int, first: int) -> Records:
        """So many records from number ``first`` on."""
