"""What the collapsed method has found."""

from typing import NamedTuple

import numpy as np

from permvi.inference.collapsed.scales import Scales


class Weights(NamedTuple):
    """Posterior moments of the weights on the edges, (E,) each, over permutations and weights."""

    mean: np.ndarray
    sd: np.ndarray


class CollapsedResult(NamedTuple):
    """Draws of permutations, and how the searches behind them agree.

    Attributes:
        draws: (R, num, J, m) permutations, of equal weight, of all chains.
        log_densities: (R, num) exact log evidence and prior of the draws, untempered.
        mode: (J, m) the best permutations found.
        mode_log_density: Theirs.
        log_evidence_offset: What makes a log density, up to a constant, that of the recordings.
        found: (R, J, m) the optima that independent searches ended in.
        found_log_densities: (R,) theirs.
        scales: The variances, learned or given.
        weights: Moments of W.
        num_evaluations: How many exact evidences, their differences and gradients were computed.
    """

    draws: np.ndarray
    log_densities: np.ndarray
    mode: np.ndarray
    mode_log_density: float
    log_evidence_offset: float
    found: np.ndarray
    found_log_densities: np.ndarray
    scales: Scales
    weights: Weights
    num_evaluations: int
