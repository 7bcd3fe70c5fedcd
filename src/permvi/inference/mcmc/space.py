"""The matchings among which chains move: which pairs are allowed, and what may stay unmatched."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from permvi.inference.problem import Problem


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MatchingSpace:
    """The feasible matchings of S sites, as tables that moves look up; a pytree.

    Rows have one column more, the last, which stands for staying unmatched: -1 indexes it.

    Attributes:
        allowed: (S, n, m+1) booleans.
        columns: (S, n, m+1) the allowed columns of each row in front, in order, -1 for unmatched.
        places: (S, n, m+1) where in ``columns`` a column is.
        counts: (S, n) how many are allowed.
        may_be_free: (S, m+1) whether a column may have no row; True in the last place.
        row_weights: (S, n) log weights of unmatched rows, or None where they weigh nothing.
        col_weights: (S, m) the same for columns.
    """

    allowed: jax.Array
    columns: jax.Array
    places: jax.Array
    counts: jax.Array
    may_be_free: jax.Array
    row_weights: jax.Array | None
    col_weights: jax.Array | None

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The space of a problem; works on traced problems, too."""
        (n, m), S = problem.shape, problem.num_sites
        mask = True if problem.mask is None else jnp.asarray(problem.mask)
        rows, cols = problem.row_unmatched, problem.col_unmatched
        row_weights = None if rows is None else jnp.broadcast_to(jnp.asarray(rows), (S, n))
        col_weights = None if cols is None else jnp.broadcast_to(jnp.asarray(cols), (S, m))
        # Without weights only a surplus may stay unmatched.
        ground = jnp.full((S, n), n > m) if row_weights is None else row_weights > -jnp.inf
        free = jnp.full((S, m), m > n) if col_weights is None else col_weights > -jnp.inf
        pairs = jnp.broadcast_to(mask, (S, n, m))
        allowed = jnp.concatenate([pairs, ground[..., None]], axis=-1)
        order = jnp.argsort(~allowed, axis=-1, stable=True)
        return cls(
            allowed=allowed,
            columns=jnp.where(order < m, order, -1),
            places=jnp.argsort(order, axis=-1),
            counts=allowed.sum(axis=-1),
            may_be_free=jnp.concatenate([free, jnp.ones((S, 1), bool)], axis=-1),
            row_weights=row_weights,
            col_weights=col_weights,
        )

    @property
    def num_cols(self) -> int:
        """The number of columns m."""
        return self.allowed.shape[-1] - 1

    def contains(self, perm: jax.Array) -> jax.Array:
        """Whether one matching (S, n) is feasible."""
        sites, rows = jnp.ogrid[: perm.shape[0], : perm.shape[1]]
        uses = (perm[..., :, None] == jnp.arange(self.num_cols)).sum(axis=-2)
        columns_fit = (uses == 1) | ((uses == 0) & self.may_be_free[:, :-1])
        return self.allowed[sites, rows, perm].all() & columns_fit.all()

    def log_weights(self, perms: Any) -> Any:
        """What the unmatched add to the log density: (..., S, n) -> (...); NumPy in, NumPy out."""
        xp: Any = np if isinstance(perms, np.ndarray) else jnp
        total = xp.zeros(perms.shape[:-2])
        if self.row_weights is not None:
            weights = xp.asarray(self.row_weights)
            total = total + xp.where(perms < 0, weights, 0.0).sum(axis=(-2, -1))
        if self.col_weights is not None:
            used = (perms[..., :, None] == np.arange(self.num_cols)).any(axis=-2)
            total = total + xp.where(used, 0.0, xp.asarray(self.col_weights)).sum(axis=(-2, -1))
        return total


def swaps_need_cycles(problem: Problem) -> bool:
    """Whether there may be matchings that swaps alone do not reach from others.

    Without a mask there are none: rows that trade places with a free column, or with staying
    unmatched, do so directly, and all else is a permutation of columns among rows.
    """
    return problem.mask is not None


def only_rows_swap(problem: Problem) -> bool:
    """Whether every feasible swap move trades columns between two rows, as ``delta`` has it."""
    n, m = problem.shape
    return n >= m and problem.row_unmatched is None and problem.col_unmatched is None
