"""Posteriors of latent variables other than the permutations."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from permvi.posterior.laws import normalise_log_weights


@dataclass(frozen=True, eq=False)
class Latent:
    """Mean, standard deviation and optional draws of one latent variable.

    Attributes:
        mean: (...) posterior means.
        sd: (...) posterior standard deviations.
        draws: (num, ...) draws, or None. In a posterior made of equally many draws of permutations,
            each belongs to the permutation of the same index and shares its weight.
    """

    mean: np.ndarray
    sd: np.ndarray
    draws: np.ndarray | None = None

    def __post_init__(self) -> None:
        mean, sd = _frozen(self.mean), _frozen(self.sd)
        if sd.shape != mean.shape:
            raise ValueError(f"sd must have the shape {mean.shape} of mean, got {sd.shape}.")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "sd", sd)
        if self.draws is not None:
            draws = _frozen(self.draws)
            if draws.shape[1:] != mean.shape or draws.ndim == 0 or len(draws) == 0:
                raise ValueError(
                    f"draws must be a non-empty stack of the shape {mean.shape} of mean, "
                    f"got shape {draws.shape}."
                )
            object.__setattr__(self, "draws", draws)

    @classmethod
    def from_draws(cls, draws: ArrayLike, log_weights: ArrayLike | None = None) -> Self:
        """Compute weighted moments of draws (num, ...), and keep the draws."""
        values = np.asarray(draws, dtype=np.float64)
        if values.ndim == 0 or len(values) == 0:
            raise ValueError(f"draws must have shape (num, ...), got shape {values.shape}.")
        weights = normalise_log_weights(log_weights, len(values))
        mean = np.tensordot(weights, values, axes=1)
        sd = np.sqrt(np.tensordot(weights, (values - mean) ** 2, axes=1))
        return cls(mean, sd, values)


def _frozen(value: ArrayLike) -> np.ndarray:
    array = np.array(value, dtype=np.float64)
    array.flags.writeable = False
    return array
