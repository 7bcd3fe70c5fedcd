"""Relaxed problems: square, with a pruned mask, all leaves arrays."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi import assignment
from permvi.inference.vi.families import FAMILIES
from permvi.problem.problem import Problem
from permvi.problem.unmatched import complete


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RelaxedProblem:
    r"""The part of a `Problem` that a relaxed ELBO uses, as a square of ``size`` rows and columns.

    The problem is the (n, m) corner of the square. If all items are matched, the size is max(n, m)
    and rows or columns beyond the corner match anything at no cost: every matching of the corner
    extends to \|n - m\|! permutations. If items may stay unmatched, the size is n + m, column m + i
    belongs to row i alone, and rows from n on take the unused columns that may stay unused: every
    partial matching extends to m! permutations. So the extension does not change the posterior.

    Attributes:
        data: The first argument of ``log_density``.
        mask: (size, size) or (S, size, size) booleans, pruned, or None.
        row_alone: (n,) or (S, n) log weights of unmatched rows, zero where they must be matched;
            None if all items are matched.
        col_alone: (m,) or (S, m) log weights of unused columns, or None.
        latents: Priors of other latents by name.
        log_density: The log density of the (n, m) corner.
        shape: (n, m).
        num_sites: S.
    """

    data: Any
    mask: Any
    row_alone: Any
    col_alone: Any
    latents: dict[str, Any]
    log_density: Callable[..., jax.Array] = dataclasses.field(metadata={"static": True})
    shape: tuple[int, int] = dataclasses.field(metadata={"static": True})
    num_sites: int = dataclasses.field(metadata={"static": True})

    @property
    def size(self) -> int:
        """The number of rows and columns of the square."""
        return max(self.shape) if self.row_alone is None else sum(self.shape)

    def value(self, X: jax.Array, **latents: Any) -> jax.Array:
        """Return the log density of one relaxed square (S, size, size) or of its first n rows.

        Columns weigh ``col_alone`` as far as the n rows leave them unused, even if columns do not
        sum to one.
        """
        n, m = self.shape
        corner = X[..., :n, :m]
        inner = corner if self.num_sites > 1 else corner[0]
        total = self.log_density(self.data, inner, **latents)
        if self.row_alone is None:
            return total
        alone = jnp.diagonal(X[..., :n, m : m + n], axis1=-2, axis2=-1)
        left = 1.0 - jnp.sum(corner, axis=-2)
        return total + jnp.sum(self.row_alone * alone) + jnp.sum(self.col_alone * left)


def relax(problem: Problem, family: str) -> RelaxedProblem:
    """Check a problem and make it square; its leaves may have a batch axis in front.

    Raises:
        ValueError: The family, or any relaxation, cannot treat this problem.
    """
    if problem.log_density is None or not problem.traceable:
        raise ValueError(
            f"problem must have a log density that JAX can differentiate in X for {family}, got "
            "one that is defined on permutations only or not a JAX function; try method='mcmc'."
        )
    if problem.is_partial and not FAMILIES[family].masks:
        raise ValueError(
            f"problem must match every item for {family}, got a partial matching problem; "
            "try method='rounding' or 'auto'."
        )
    if problem.mask is not None and not FAMILIES[family].masks:
        raise ValueError(
            f"problem must have no mask for {family}, got one; method='rounding' honours masks."
        )
    mask = None if problem.mask is None else np.asarray(problem.mask)
    row_alone, col_alone = None, None
    if problem.is_partial:
        row_alone, col_alone = (np.asarray(part, np.float64) for part in problem.unmatched)
        mask = _partial_mask(mask, row_alone, col_alone)
        row_alone, col_alone = (np.where(np.isinf(a), 0.0, a) for a in (row_alone, col_alone))
    elif mask is not None:
        mask = _square_mask(mask, problem.shape)
    relaxed = RelaxedProblem(
        problem.data,
        mask,
        row_alone,
        col_alone,
        dict(problem.latents),
        problem.log_density,
        problem.shape,
        problem.num_sites,
    )
    # NumPy first: it gives Python numbers a definite dtype, and so one compilation.
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)), relaxed)


def _square_mask(mask: np.ndarray, shape: tuple[int, int]) -> Any:
    size = max(shape)
    padding = [(0, 0)] * (mask.ndim - 2) + [(0, size - length) for length in shape]
    return assignment.prune_mask(np.pad(mask, padding, constant_values=True))


def _partial_mask(mask: np.ndarray | None, row: np.ndarray, col: np.ndarray) -> np.ndarray:
    """Return the pruned mask (..., n+m, n+m) of the square of a partial problem."""
    n, m = row.shape[-1], col.shape[-1]
    tables = np.zeros((*row.shape[:-1], n + 1, m + 1))
    if mask is not None:
        tables[..., :n, :m] = np.where(mask, 0.0, -np.inf)
    tables[..., :n, m], tables[..., n, :m] = row, col
    return assignment.prune_mask(np.isfinite(complete(tables)))
