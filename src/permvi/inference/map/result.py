"""What a search for the most probable matching returns."""

from typing import NamedTuple

import numpy as np


class MapResult(NamedTuple):
    """The best matching found, and how the search went.

    Attributes:
        perm: (n,) or (S, n) the matching, -1 for unmatched.
        restart_values: (r,) the log density that each restart ended at.
        num_evaluations: How many log densities, gradients and swap differences were computed, each
            of them counting as one evaluation.
        optimal: Whether no matching has a larger log density, for certain.
        finished: Whether all restarts have reached a local optimum.
    """

    perm: np.ndarray
    restart_values: np.ndarray
    num_evaluations: int
    optimal: bool
    finished: bool
