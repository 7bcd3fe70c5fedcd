"""The posterior of a linear model by draws and its evidence."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from permvi.inference.exact import k_best
from permvi.inference.exact.laws import join_sites
from permvi.posterior import DrawsLaw, register_law
from permvi.problem.sites import Layout
from permvi.problem.unmatched import LogWeights, build_weights


@register_law
class LinearLaw(DrawsLaw):
    r"""Draws of a linear model whose evidence is known, so that it has probabilities, too.

    :math:`\log p(x) = \sum_{(i,j) \in x} s_{ij} + \dots - \log Z`, as exact as
    :math:`\log Z` is.

    Args:
        draws: (num, n) or (num, sites, n) matchings, -1 for unmatched.
        log_evidence: log Z.
        arrays: The scores and constraints of the model, by the names that
            :func:`~permvi.inference.exact.solve_exact` has for them, with a site axis or without.
    """

    kind: ClassVar[str] = "linear"

    def __init__(self, draws: ArrayLike, log_evidence: float, **arrays: ArrayLike | None) -> None:
        super().__init__(draws)
        self._log_evidence = float(log_evidence)
        self._arrays = {name: np.asarray(v) for name, v in arrays.items() if v is not None}
        self._layout = Layout.of("scores", self._arrays["scores"].shape)

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Return log probabilities (...) of matchings, -inf for those that are not allowed."""
        return self._weights.of(self._layout.join(perms)) - self._log_evidence

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k most probable matchings and their probabilities, by Murty's algorithm."""
        joined, log_weights = k_best(k=k, **self._problem())
        # An evidence with an error may be a little below the weight of the best matching.
        probs = np.exp(np.minimum(log_weights - self._log_evidence, 0.0))
        return self._layout.split(joined), probs

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return draws, evidence and problem."""
        return {"draws": self.draws, "log_evidence": np.array(self._log_evidence)} | self._arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the law from its arrays."""
        rest: dict[str, Any] = dict(arrays)
        return cls(rest.pop("draws"), float(rest.pop("log_evidence")), **rest)

    @cached_property
    def _weights(self) -> LogWeights:
        return build_weights(**self._problem())

    def _problem(self) -> dict[str, Any]:
        return join_sites(self._arrays, self._layout)
