"""Settings of variational inference, with the paper's values and calibrated ones."""

import dataclasses
import math
from typing import Any, Self

from permvi._checks import one_of, positive_number, whole
from permvi.inference.optimise import equal_chunks
from permvi.inference.vi.families import FAMILIES
from permvi.inference.vi.optimisers import OPTIMISERS, SCHEDULES


@dataclasses.dataclass(frozen=True, kw_only=True)
class VIOptions:
    """How to fit a relaxed family. Start from `calibrated` or `paper` and `replace` what differs.

    Attributes:
        temperature: The temperature at the end of the fit and of the draws; at most 1 for rounding.
        temperature_start: Where the temperature starts, unless its schedule is constant.
        temperature_schedule: "constant", "exponential" or "cosine".
        tempering: The power of the log density in the first step, in (0, 1]; it rises exponentially
            to 1. A small power lets the prior and the noise keep all matchings possible at first.
        anneal_fraction: The part of the steps over which temperature and power move, in (0, 1].
        prior_width: The width of the vertex prior, see `permvi.distributions.VertexPrior`.
        scale_bounds: Bounds of the noise sd.
        learning_rate: The learning rate of Adam at the start.
        learning_rate_end: The learning rate at the end, unless its schedule is constant.
        learning_rate_schedule: "constant", "exponential" or "cosine".
        optimiser: "adam", or "mirror" for rounding: mirror ascent in the mean matrix, see
            `permvi.inference.vi.optimisers`.
        latent_rate: Learning rate of other latents, as a multiple of that of the permutations.
        num_steps: Number of steps, rounded up to whole chunks.
        num_samples: Monte Carlo samples of the ELBO in each step.
        num_restarts: Independent fits, of which the one with the best ELBO is kept.
        start_spread: Standard deviation of the random start around the matrix of equal entries.
        patience: Stop when the smoothed ELBO of no restart has risen in this many consecutive
            chunks, but not while temperature or power move; None takes all steps.
        chunk_size: Steps between two reports of progress, and the window that smooths the ELBO.
        num_draws: Permutations drawn from each restart.
        keep_relaxed: Whether the result keeps the relaxed draws.
    """

    temperature: float
    prior_width: float
    scale_bounds: tuple[float, float]
    temperature_start: float = 1.0
    temperature_schedule: str = "constant"
    tempering: float = 1.0
    anneal_fraction: float = 0.5
    learning_rate: float = 0.1
    learning_rate_end: float = 0.01
    learning_rate_schedule: str = "constant"
    optimiser: str = "adam"
    latent_rate: float = 1.0
    num_steps: int = 800
    num_samples: int = 8
    num_restarts: int = 4
    start_spread: float = 0.1
    patience: int | None = None
    chunk_size: int = 100
    num_draws: int = 2000
    keep_relaxed: bool = False

    def __post_init__(self) -> None:
        rates = ("learning_rate", "learning_rate_end", "latent_rate")
        for name in ("temperature", "temperature_start", "prior_width", *rates):
            positive_number(name, getattr(self, name))
        for name in ("tempering", "anneal_fraction"):
            positive_number(name, getattr(self, name), largest=1.0)
        for name in ("num_steps", "num_samples", "num_restarts", "chunk_size", "num_draws"):
            whole(name, getattr(self, name))
        if self.patience is not None:
            whole("patience", self.patience)
        for name in ("temperature_schedule", "learning_rate_schedule"):
            one_of(name, getattr(self, name), SCHEDULES)
        one_of("optimiser", self.optimiser, OPTIMISERS)
        if not (_is_number(self.start_spread) and 0 <= self.start_spread < math.inf):
            raise ValueError(f"start_spread must be at least 0, got {self.start_spread!r}.")
        _check_bounds(self.scale_bounds)

    @classmethod
    def calibrated(cls, family: str) -> Self:
        """Return settings found by random search, the default of `run_vi`.

        50 settings of each family were scored by the error of the marginals of 80 matching problems
        of 6 points with noise .1, .25, .5 and .75.
        """
        one_of("family", family, FAMILIES)
        return cls(**_CALIBRATED[family])

    @classmethod
    def dynamics(cls) -> Self:
        """Return the default settings of rounding for `permvi.models.SharedDynamics`.

        They were found on simulated worms of 279 neurons. With another temperature the fit still
        starts at 1, where nothing is rounded, and cools down to it.
        """
        return cls(**_DYNAMICS)

    @classmethod
    def paper(cls, family: str) -> Self:
        """Return the paper's bounds and Adam at 0.1 (supplement C).

        The paper calibrated temperature and prior width and does not state them; both are 1/2 here.
        """
        one_of("family", family, FAMILIES)
        return cls(
            temperature=0.5,
            prior_width=0.5,
            scale_bounds=FAMILIES[family].scale_bounds,
            learning_rate=0.1,
        )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changes, checked."""
        return dataclasses.replace(self, **changes)

    @property
    def chunks(self) -> tuple[int, int]:
        """How many chunks there are and how many steps each has."""
        return equal_chunks(self.num_steps, self.chunk_size)

    def check_family(self, family: str) -> None:
        """Raise ``ValueError`` for temperatures and optimisers that the family does not have."""
        one_of("family", family, FAMILIES)
        if self.optimiser == "mirror" and FAMILIES[family].mirrored is None:
            raise ValueError(f"optimiser must be 'adam' for {family}, got 'mirror'.")
        largest = FAMILIES[family].max_temperature
        if largest is None:
            return
        positive_number("temperature", self.temperature, largest)
        if self.temperature_schedule != "constant":
            positive_number("temperature_start", self.temperature_start, largest)


_CALIBRATED: dict[str, dict[str, Any]] = {
    "rounding": {
        "temperature": 1.0,
        "prior_width": 0.669,
        "scale_bounds": (0.02, 0.205),
        "learning_rate": 0.05,
    },
    "stick_breaking": {
        "temperature": 1.0,
        "temperature_start": 2.0,
        "temperature_schedule": "exponential",
        "prior_width": 0.81,
        "scale_bounds": (0.01, 0.28),
        "learning_rate": 0.05,
    },
}


_DYNAMICS: dict[str, Any] = {
    "temperature": 1.0,
    "temperature_start": 1.0,
    "temperature_schedule": "exponential",
    "anneal_fraction": 1.0,
    "optimiser": "mirror",
    "learning_rate": 0.1,
    "learning_rate_end": 0.001,
    "learning_rate_schedule": "cosine",
    "latent_rate": 3.0,
    "scale_bounds": (0.001, 0.01),
    "prior_width": 0.5,
    "start_spread": 0.0,
    "num_steps": 400,
    "num_samples": 1,
    "num_restarts": 1,
    "num_draws": 100,
}


def _check_bounds(bounds: Any) -> None:
    pair = isinstance(bounds, tuple) and len(bounds) == 2
    if not (pair and all(map(_is_number, bounds)) and 0 < bounds[0] < bounds[1] < math.inf):
        raise ValueError(
            f"scale_bounds must be a pair of numbers with 0 < lower < upper, got {bounds!r:.60}."
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
