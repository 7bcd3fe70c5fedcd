"""The problem that an engine is given: a log density over permutations, and its constraints.

`permvi.problem.prepare` makes a `Problem` of a model after taking out the known pairs, so engines
do not depend on models, labels or known pairs. A problem is a pytree whose arrays are leaves and
whose functions are static, so jitted engines compile once for all data of one shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from permvi._jax import jax, pytree_dataclass
from permvi.problem.sites import Layout
from permvi.problem.unmatched import UnmatchedWeights, may_be_partial, unmatched_weights


@pytree_dataclass
@dataclasses.dataclass(frozen=True)
class Problem:
    """A log density over S permutations, each an n by m matching.

    Attributes:
        data: Pytree of arrays, the first argument of the functions below.
        log_density: ``(data, X) -> (...)`` for X of shape (..., n, m), or (..., S, n, m) if
            ``num_sites`` > 1; differentiable in X, for 0/1 and relaxed matrices. Latents are
            keyword arguments. None if the density is defined on permutations only.
        log_density_of: ``(data, perm) -> (...)`` for integers of shape (..., n) or (..., S, n).
        shape: (n, m).
        num_sites: S.
        traceable: Whether the functions are JAX functions; others run on the host.
        mask: (n, m) or (S, n, m) booleans, True where allowed, or None.
        scores: (n, m) or (S, n, m) such that the log density is ``constant + sum(scores * X)``, or
            None if it is not linear.
        constant: The log density of the empty matching, for linear problems.
        row_unmatched: (n,) or (S, n) log weights of leaving a row unmatched, or None; see
            `unmatched` for what None means.
        col_unmatched: (m,) or (S, m) log weights of leaving a column unused, or None.
        latents: Priors of other latent variables by name, NumPyro distributions.
        delta: ``(data, perm, i, k) -> ()``, a JAX function that returns what swapping the columns
            of rows i and k of one matching (n,) adds to the log density; with several sites
            ``(data, perm, i, k, site)`` and perm (S, n). None if the model has no such function.
    """

    data: Any
    mask: np.ndarray | jax.Array | None
    scores: np.ndarray | jax.Array | None
    constant: float | jax.Array
    row_unmatched: np.ndarray | jax.Array | None
    col_unmatched: np.ndarray | jax.Array | None
    latents: dict[str, Any]
    log_density: Callable[..., Any] | None = dataclasses.field(metadata={"static": True})
    log_density_of: Callable[..., Any] = dataclasses.field(metadata={"static": True})
    shape: tuple[int, int] = dataclasses.field(metadata={"static": True})
    num_sites: int = dataclasses.field(metadata={"static": True})
    traceable: bool = dataclasses.field(metadata={"static": True})
    delta: Callable[..., Any] | None = dataclasses.field(default=None, metadata={"static": True})

    @property
    def is_partial(self) -> bool:
        """Whether rows may stay unmatched, or columns unused, beyond a surplus."""
        return may_be_partial(self.row_unmatched, self.col_unmatched)

    @property
    def layout(self) -> Layout:
        """The layout of arrays of matchings and of tables by site."""
        return Layout(self.num_sites, *self.shape)

    @property
    def unmatched(self) -> UnmatchedWeights:
        """The log weights of unmatched rows and unused columns, see `unmatched_weights`."""
        return unmatched_weights(self.row_unmatched, self.col_unmatched, self.shape)

    @property
    def host_scores(self) -> np.ndarray:
        """The scores (n, m) or (S, n, m) of a linear problem, in float64 on the host."""
        return np.asarray(self.scores, dtype=np.float64)

    @property
    def table_mask(self) -> np.ndarray:
        """The mask (n, m) or (S, n, m) on the host, all True where there is none."""
        mask = True if self.mask is None else np.asarray(self.mask)
        return np.broadcast_to(mask, self.layout.table_shape)
