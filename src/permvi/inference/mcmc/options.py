"""Settings of Markov chain Monte Carlo."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from permvi import _checks
from permvi._checks import whole

Start = Literal["random", "map"]

# Evaluations of a run, of which starting and a fit of the proposals take some.
BUDGET = 19_900
# Split R-hat cuts chains in two, and a variance takes two draws.
_FEWEST_DRAWS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class MCMCOptions:
    """How to run the chains.

    Attributes:
        num_chains: Independent chains. Their agreement is what R-hat looks at.
        num_steps: Proposals of each chain at each temperature, warm-up included. None: as many as
            make about 20,000 evaluations of all chains at all temperatures.
        warmup: The part of the steps, in [0, 1), that is thrown away at the beginning.
        thin: Keep the matching after every so many sweeps. None: as few as keep ``num_draws``.
        num_draws: The most draws to keep, of all chains together; without a say if ``thin`` is
            given.
        num_temperatures: Temperatures of parallel tempering, 1 for none. Only draws of the coldest,
            which is the posterior, are kept.
        max_temperature: The hottest one; those between form a geometric sequence.
        swaps_per_proposal: Swaps in a sweep. One proposal along a cycle follows if there is a mask,
            and one from the fitted family if there is one.
        start: "random": every chain starts at another random matching, so that chains which miss
            a mode disagree. "map": all start at the best matching of a linear problem, or at the
            best one that some steps uphill find.
    """

    num_chains: int = 8
    num_steps: int | None = None
    warmup: float = 0.1
    thin: int | None = None
    num_draws: int = 10_000
    num_temperatures: int = 1
    max_temperature: float = 10.0
    swaps_per_proposal: int = 1
    start: Start = "random"

    def __post_init__(self) -> None:
        for name in ("num_chains", "num_draws", "num_temperatures", "swaps_per_proposal"):
            whole(name, getattr(self, name))
        for name in ("num_steps", "thin"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if not (_is_number(self.warmup) and 0 <= self.warmup < 1):
            raise ValueError(f"warmup must be in [0, 1), got {self.warmup!r:.60}.")
        if not (_is_number(self.max_temperature) and 1 < self.max_temperature < math.inf):
            raise ValueError(
                f"max_temperature must be a number above 1, got {self.max_temperature!r:.60}."
            )
        if not isinstance(self.start, str):
            raise TypeError(f"start must be a name, got {self.start!r:.60}.")
        _checks.one_of("start", self.start, get_args(Start))

    @property
    def inverse_temperatures(self) -> np.ndarray:
        """(num_temperatures,) one, and smaller ones in geometric sequence."""
        last = 1.0 / self.max_temperature if self.num_temperatures > 1 else 1.0
        return np.geomspace(1.0, last, self.num_temperatures)

    def plan(self, sweep_length: int) -> "Plan":
        """How many sweeps of so many proposals there are, and which are kept.

        Raises:
            ValueError: Too few are left for a diagnosis.
        """
        num_steps = self.num_steps
        if num_steps is None:
            num_steps = BUDGET // (self.num_chains * self.num_temperatures)
        num_sweeps = num_steps // sweep_length
        kept = num_sweeps * (1 - self.warmup)
        thin = self.thin or max(1, math.ceil(kept * self.num_chains / self.num_draws))
        num_records = num_sweeps // thin
        plan = Plan(thin, num_records, num_warmup=math.floor(self.warmup * num_records))
        if not plan.is_enough(num_records):
            raise ValueError(
                f"num_steps must leave at least {_FEWEST_DRAWS} draws in each chain, got "
                f"{num_records - plan.num_warmup} of {num_steps} steps ({sweep_length} in a sweep, "
                f"draws every {thin} sweeps, warmup {self.warmup:g})."
            )
        return plan


class Plan(NamedTuple):
    """A run in numbers.

    Attributes:
        thin: Sweeps between two records.
        num_records: Records in all.
        num_warmup: How many of them are thrown away.
    """

    thin: int
    num_records: int
    num_warmup: int

    def is_enough(self, num_records: int) -> bool:
        """Whether so many records leave enough draws."""
        return num_records - self.num_warmup >= _FEWEST_DRAWS


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Proposal(NamedTuple):
    """A law q over matchings from which whole matchings are proposed.

    Chains accept x' with the ratio p(x') q(x) / (p(x) q(x')), so ``log_prob`` must be the exact
    law of ``sample``, up to a constant. What it draws outside the constraints is rejected.

    Attributes:
        params: Pytree of arrays; with an axis in front over problems where there are many.
        sample: ``(params, rng_key) -> perm``, one matching (n,) or (S, n), -1 for unmatched. A JAX
            function; code is compiled anew for another one, so it should be one that lasts.
        log_prob: ``(params, perm) -> ()``, likewise.
    """

    params: Any
    sample: Callable[[Any, jax.Array], jax.Array]
    log_prob: Callable[[Any, jax.Array], jax.Array]
