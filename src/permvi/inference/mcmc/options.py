"""Options of Markov chain Monte Carlo, and independence proposals."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from permvi._checks import one_of, whole

Start = Literal["random", "map", "both"]

# Evaluations of a run, including starting points and the fit of proposals.
BUDGET = 19_900
# Beyond this temperature chains meet ones that melt so seldom that all of them may agree on wrong
# weights of far modes.
HOTTEST_TRUSTED = 100.0
# Split R-hat cuts chains in two, and a variance needs two draws.
_FEWEST_DRAWS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class MCMCOptions:
    """Options of method "mcmc".

    Attributes:
        num_chains: Independent chains, which R-hat compares.
        num_steps: Proposals of each chain at each temperature, warm-up included. By default all
            chains at all temperatures together make about 20,000 evaluations.
        warmup: The fraction of the steps, in [0, 1), that is discarded at the beginning.
        thin: Keep a draw every ``thin`` sweeps; by default as many as ``num_draws`` allows.
        num_draws: The largest number of draws to keep from all chains together, unless ``thin`` is
            given.
        num_temperatures: Temperatures of parallel tempering, 1 for none. Only draws at the coldest,
            which are those of the posterior, are kept.
        max_temperature: The hottest temperature. Temperatures form a geometric sequence.
        swaps_per_proposal: Swaps in a sweep. One proposal along a cycle follows if there is a mask,
            and one from the fitted family if there is one.
        start: "random" starts every chain at a different random matching, so that chains which miss
            a mode disagree. "map" starts all at the best matching of a linear problem, or at the
            best one found by some steps uphill. "both" starts half of them each way, so that they
            disagree about a narrow mode, too, which chains do not find by chance.
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
        one_of("start", self.start, get_args(Start))

    @property
    def inverse_temperatures(self) -> np.ndarray:
        """The inverse temperatures (num_temperatures,), decreasing geometrically from one."""
        last = 1.0 / self.max_temperature if self.num_temperatures > 1 else 1.0
        return np.geomspace(1.0, last, self.num_temperatures)

    def plan(self, sweep_length: int) -> "Plan":
        """Return how many sweeps of ``sweep_length`` proposals there are, and which are kept.

        Raise ``ValueError`` if too few draws are left for diagnostics.
        """
        num_steps = self.num_steps or BUDGET // (self.num_chains * self.num_temperatures)
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
    """The sweeps between two records, the number of records, and how many are discarded."""

    thin: int
    num_records: int
    num_warmup: int

    def is_enough(self, num_records: int) -> bool:
        """Return whether ``num_records`` records leave enough draws."""
        return num_records - self.num_warmup >= _FEWEST_DRAWS


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Proposal(NamedTuple):
    """A law q from which whole matchings are proposed.

    Chains accept x' with the ratio p(x') q(x) / (p(x) q(x')), so the log probabilities must be
    exact, up to a constant. Draws that violate the constraints are rejected. Every new function
    object is compiled again, so do not create them in a loop.

    Attributes:
        params: Pytree of arrays, with an axis over problems in front if there are several.
        sample: The JAX function ``(params, rng_key, x) -> (x', log q(x'), log q(x))`` of one
            matching (n,) or (S, n), -1 for unmatched.
    """

    params: Any
    sample: Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]
