"""Settings of sequential importance sampling."""

import dataclasses
from typing import Literal, get_args

from permvi._choices import one_of
from permvi.inference.exact.problem import positive_int

Guide = Literal["auto", "uniform"]


@dataclasses.dataclass(frozen=True)
class ImportanceOptions:
    """How to sample.

    Attributes:
        num_particles: Particles in a population.
        num_populations: Independent populations, at least 2: standard errors come from how much
            they differ.
        resample_below: Resample a population when its effective sample size falls below this share
            of its particles; 0 never does (plain importance sampling), 1 always does.
        guide: What columns are chosen by: "auto" (the balanced scores of a linear model, or of a
            linear function that explains the density, if one does) or "uniform".
    """

    num_particles: int = 256
    num_populations: int = 32
    resample_below: float = 0.5
    guide: Guide = "auto"

    def __post_init__(self) -> None:
        positive_int("num_particles", self.num_particles)
        if positive_int("num_populations", self.num_populations) < 2:
            raise ValueError(f"num_populations must be at least 2, got {self.num_populations}.")
        share = self.resample_below
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"resample_below must be from 0 to 1, got {share!r:.60}.")
        one_of("guide", self.guide, get_args(Guide))
