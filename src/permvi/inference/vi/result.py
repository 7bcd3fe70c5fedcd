"""What variational inference returns."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from permvi.inference.vi.options import VIOptions


class LatentDraws(NamedTuple):
    """Draws (num_draws, ...) of a latent variable, with their mean and standard deviation."""

    draws: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True, eq=False)
class VIResult:
    """A fitted relaxed family, as draws of permutations.

    Attributes:
        family: "stick_breaking" or "rounding".
        options: The settings of the fit.
        draws: (num_draws, n) or (num_draws, S, n) integers, the relaxed draws of the best restart
            rounded by linear assignment; -1 for the rows that are left over if n > m.
        latents: Draws of the other latent variables, each belonging to a draw of permutations.
        elbo_trace: (restarts, steps) estimates of the relaxed ELBO. It bounds the evidence of the
            relaxed model, not that of the discrete one.
        best_restart: The restart with the highest smoothed ELBO at the end.
        converged: Whether the smoothed ELBO of the best restart had stopped rising.
        interrupted: Whether the user stopped the fit before its time.
        marginals: (restarts, n, m) or (restarts, S, n, m) matching frequencies of each restart,
            whose agreement says how far the fit can be trusted.
        vertex_distance: Mean over the draws of the root mean square, over rows, of the distance
            between the relaxed matrix and the permutation to which it was rounded.
        num_evaluations: How often the log density was evaluated.
        params: Variational parameters of each restart, unconstrained.
        relaxed_draws: (num_draws, N, N) or (num_draws, S, N, N) if they were to be kept, with
            N = max(n, m).
    """

    family: str
    options: VIOptions
    draws: np.ndarray
    latents: dict[str, LatentDraws]
    elbo_trace: np.ndarray
    best_restart: int
    converged: bool
    interrupted: bool
    marginals: np.ndarray
    vertex_distance: float
    num_evaluations: int
    params: dict[str, np.ndarray]
    relaxed_draws: np.ndarray | None = None

    @property
    def num_steps(self) -> int:
        """Steps that were taken, fewer than asked for after an early stop."""
        return int(self.elbo_trace.shape[1])
