"""Settings of the collapsed method, checked."""

from dataclasses import dataclass

from permvi.inference.exact.problem import positive_int


@dataclass(frozen=True)
class CollapsedOptions:
    """How hard to search and how long to sample.

    Attributes:
        num_restarts: Searches from different starts; the first starts from the barycentre.
        num_steps: Proposals of each chain; by default in proportion to the exchanges that are
            plausible where the searches end.
        num_draws: Draws that each chain leaves.
        temperature: Of the posterior that is sampled. Above 1 the evidence counts for less than
            the model says, as it should where the model is not quite right: weights are taken to be
            independent, but those of the two directions of an edge seldom are.
    """

    num_restarts: int = 4
    num_steps: int | None = None
    num_draws: int = 250
    temperature: float = 1.5

    def __post_init__(self) -> None:
        for name in ("num_restarts", "num_draws"):
            positive_int(name, getattr(self, name))
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a positive number, got {self.temperature!r}.")
        if (
            self.num_steps is not None
            and positive_int("num_steps", self.num_steps) < self.num_draws
        ):
            raise ValueError(
                f"num_steps must be at least num_draws ({self.num_draws}), got {self.num_steps}."
            )
