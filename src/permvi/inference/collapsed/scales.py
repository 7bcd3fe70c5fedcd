"""The two variances of the model."""

from typing import NamedTuple


class Scales(NamedTuple):
    """The variances of the model.

    Attributes:
        weight: Prior variance of the weights on the support.
        noise: Noise variance.
    """

    weight: float
    noise: float

    @property
    def ridge(self) -> float:
        """What is added to the diagonal of a regression's second moments."""
        return self.noise / self.weight

    @property
    def regression(self) -> tuple[float, float]:
        """The ridge and the noise variance, which evidence is computed from."""
        return self.ridge, self.noise
