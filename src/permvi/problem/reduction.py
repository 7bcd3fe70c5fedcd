"""Known pairs, which are taken out of a problem before a method sees it and put back afterwards.

All sites keep one shape. If sites differ in their numbers of known pairs, each gives up as many as
the site with the fewest, and its other known pairs become entries of the mask.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from permvi._jax import jax, jnp, pytree_dataclass


@pytree_dataclass
@dataclasses.dataclass(frozen=True)
class Reduction:
    """The free rows and columns, those that are left; a pytree of index arrays.

    Arrays have a leading site axis if there are several sites.

    Attributes:
        settled: (n,) the columns of the rows taken out, -1 for free rows.
        row_place: (n,) the index of a free row in the reduced problem, 0 for others.
        col_place: (m,) the index of a free column in the reduced problem, 0 for others.
        free_rows: (n') the free rows.
        free_cols: (m') the free columns.
    """

    settled: Any
    row_place: Any
    col_place: Any
    free_rows: Any
    free_cols: Any

    @classmethod
    def of(cls, known: np.ndarray, num_cols: int) -> Reduction:
        """Return the reduction by known pairs (n,) or (S, n), -1 for unknown."""
        count = int((known >= 0).sum(axis=-1).min())
        parts = [_reduce_site(site, num_cols, count) for site in known.reshape(-1, known.shape[-1])]
        stacked = [np.stack(arrays) for arrays in zip(*parts, strict=True)]
        return cls(*(arrays[0] if known.ndim == 1 else arrays for arrays in stacked))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of free rows and columns."""
        return self.free_rows.shape[-1], self.free_cols.shape[-1]

    def table(self, full: Any) -> np.ndarray:
        """Return the free rows and columns of (n, m) tables, one for all sites or one each."""
        rows, cols = self.free_rows[..., :, None], self.free_cols[..., None, :]
        if rows.ndim == 2:
            return np.asarray(full)[rows, cols]
        sites = np.arange(len(rows))[:, None, None]
        return np.broadcast_to(full, (len(rows), *np.shape(full)[-2:]))[sites, rows, cols]

    def rows(self, full: Any) -> np.ndarray:
        """Return the free rows of (n,) vectors."""
        return np.take_along_axis(np.asarray(full), self.free_rows, axis=-1)

    def cols(self, full: Any) -> np.ndarray:
        """Return the free columns of (m,) vectors."""
        return np.take_along_axis(np.asarray(full), self.free_cols, axis=-1)

    def restore(self, perm: Any) -> Any:
        """Turn matchings (..., n') of the reduced problem into (..., n); NumPy in, NumPy out."""
        xp: Any = np if isinstance(perm, np.ndarray) else jnp
        ndim = perm.ndim
        # The index -1 finds one more column at the end, which is -1.
        cols = xp.concatenate([self.free_cols, xp.full_like(self.free_cols[..., :1], -1)], axis=-1)
        lifted = xp.take_along_axis(_batched(xp, cols, ndim), perm % cols.shape[-1], axis=-1)
        in_place = xp.take_along_axis(lifted, _batched(xp, self.row_place, ndim), axis=-1)
        settled = _batched(xp, self.settled, ndim)
        return xp.where(settled >= 0, settled, in_place)

    def reduce(self, perm: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Turn matchings (..., n) into (..., n'), and tell whether they respect the known pairs.

        The latter has shape (...), or (..., S) with several sites.
        """
        ndim = perm.ndim
        settled = _batched(jnp, self.settled, ndim)
        consistent = jnp.all((settled < 0) | (perm == settled), axis=-1)
        free = jnp.take_along_axis(perm, _batched(jnp, self.free_rows, ndim), axis=-1)
        place = _batched(jnp, self.col_place, ndim)
        inner = jnp.take_along_axis(place, jnp.maximum(free, 0), axis=-1)
        twice = (free[..., :, None] == settled[..., None, :]) & (settled >= 0)[..., None, :]
        return jnp.where(free < 0, -1, inner), consistent & ~twice.any(axis=(-2, -1))

    def embed(self, X: jax.Array) -> jax.Array:
        """Turn relaxed matchings (..., n', m') into (..., n, m), ones at the pairs taken out."""
        ndim, num_cols = X.ndim, self.col_place.shape[-1]
        settled = jnp.asarray(self.settled)
        pairs = jax.nn.one_hot(settled, num_cols, dtype=X.dtype)
        free = (settled < 0)[..., :, None] & (pairs.sum(axis=-2) == 0)[..., None, :]
        rows = _batched(jnp, jnp.asarray(self.row_place)[..., :, None], ndim)
        cols = _batched(jnp, jnp.asarray(self.col_place)[..., None, :], ndim)
        spread = jnp.take_along_axis(jnp.take_along_axis(X, rows, axis=-2), cols, axis=-1)
        return jnp.where(free, spread, pairs)


def remaining_mask(
    reduction: Reduction, known: np.ndarray, mask: np.ndarray | None
) -> np.ndarray | None:
    """Return the mask of the reduced problem, which includes the known pairs left in it."""
    left = reduction.rows(known)
    allowed = None if mask is None else reduction.table(mask)
    if not (left >= 0).any():
        return allowed
    pairs = left[..., :, None] == reduction.free_cols[..., None, :]
    involved = pairs.any(axis=-1, keepdims=True) | pairs.any(axis=-2, keepdims=True)
    return ~involved | pairs if allowed is None else np.where(involved, pairs, allowed)


def _reduce_site(known: np.ndarray, num_cols: int, count: int) -> tuple[np.ndarray, ...]:
    settled = np.full(len(known), -1)
    out = np.flatnonzero(known >= 0)[:count]
    settled[out] = known[out]
    free_rows = np.flatnonzero(settled < 0)
    free_cols = np.setdiff1d(np.arange(num_cols), settled[out])
    row_place, col_place = np.zeros(len(known), int), np.zeros(num_cols, int)
    row_place[free_rows] = np.arange(len(free_rows))
    col_place[free_cols] = np.arange(len(free_cols))
    return settled, row_place, col_place, free_rows, free_cols


def _batched(xp: Any, index: Any, ndim: int) -> Any:
    """Add the batch axes that ``take_along_axis`` needs to index arrays."""
    index = xp.asarray(index)
    return index.reshape((1,) * (ndim - index.ndim) + index.shape)
