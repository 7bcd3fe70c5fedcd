"""The layout of arrays of matchings, for one permutation or several.

A posterior over several permutations has a site axis, one over a single permutation has none. Exact
laws treat S independent sites of n rows and m columns as one *joined* matching of S*n rows and S*m
columns with a block-diagonal mask.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import check_matchings


@dataclass(frozen=True)
class Layout:
    """The number of permutations, and the numbers of rows and columns of each."""

    num_sites: int
    num_rows: int
    num_cols: int

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...]) -> "Layout":
        """Return the layout of a (n, m) or (sites, n, m) array; refuse other shapes."""
        if len(shape) not in (2, 3) or 0 in shape or (len(shape) == 3 and shape[0] == 1):
            raise ValueError(
                f"{name} must have shape (n, m), or (sites, n, m) with two sites or more, "
                f"got shape {shape}."
            )
        return cls(*shape) if len(shape) == 3 else cls(1, *shape)

    @property
    def site_axes(self) -> tuple[int, ...]:
        """The leading shape of arrays by site: (), or (sites,)."""
        return () if self.num_sites == 1 else (self.num_sites,)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of a matching: (n,), or (sites, n)."""
        return (*self.site_axes, self.num_rows)

    @property
    def table_shape(self) -> tuple[int, ...]:
        """The shape of a table of pairs: (n, m), or (sites, n, m)."""
        return (*self.site_axes, self.num_rows, self.num_cols)

    @property
    def joined_shape(self) -> tuple[int, int]:
        """The numbers of rows and columns of all sites together."""
        return self.num_sites * self.num_rows, self.num_sites * self.num_cols

    def check(self, name: str, value: ArrayLike) -> np.ndarray:
        """Return ``value`` as int64 matchings (..., *event_shape) of columns -1..m-1."""
        array = np.asarray(value)
        event = self.event_shape
        if array.ndim < len(event) or array.shape[-len(event) :] != event:
            wanted = ", ".join(map(str, event))
            raise ValueError(f"{name} must have shape (..., {wanted}), got shape {array.shape}.")
        return check_matchings(name, array, (self.num_rows, self.num_cols))

    def check_distinct(self, name: str, value: ArrayLike) -> np.ndarray:
        """Check as :meth:`check` does, and refuse matchings that use a column twice."""
        perms = self.check(name, value)
        ordered = np.sort(perms, axis=-1)
        twice = ordered[..., 1:][(ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)]
        if twice.size:
            raise ValueError(f"{name} must take each column at most once, got {twice[0]} twice.")
        return perms

    def join(self, perms: np.ndarray) -> np.ndarray:
        """Turn matchings (..., *event_shape) into (..., S*n) with columns in -1..S*m-1."""
        batch = perms.shape[: perms.ndim - len(self.event_shape)]
        perms = perms.reshape(*batch, self.num_sites, self.num_rows)
        joined = np.where(perms < 0, -1, perms + self._first_cols)
        return joined.reshape(*batch, self.num_sites * self.num_rows)

    def split(self, joined: np.ndarray) -> np.ndarray:
        """Undo :meth:`join`."""
        batch = joined.shape[:-1]
        if self.num_sites == 1:
            return joined.reshape(*batch, *self.event_shape)
        perms = joined.reshape(*batch, self.num_sites, self.num_rows)
        perms = np.where(perms < 0, -1, perms - self._first_cols)
        return perms.reshape(*batch, *self.event_shape)

    def join_tables(self, tables: np.ndarray, *, fill: float) -> np.ndarray:
        """Turn tables (*site_axes, n, m) into (S*n, S*m), ``fill`` outside the diagonal blocks."""
        rows, cols = self.joined_shape
        joined = np.full((rows, cols), fill, dtype=tables.dtype)
        blocks = joined.reshape(self.num_sites, self.num_rows, self.num_sites, self.num_cols)
        sites = np.arange(self.num_sites)
        blocks[sites, :, sites, :] = tables.reshape(self.num_sites, self.num_rows, self.num_cols)
        return joined

    def split_table(self, joined: np.ndarray) -> np.ndarray:
        """Return the diagonal blocks of a (S*n, S*m) table as (*site_axes, n, m)."""
        blocks = joined.reshape(self.num_sites, self.num_rows, self.num_sites, self.num_cols)
        sites = np.arange(self.num_sites)
        return blocks[sites, :, sites, :].reshape(*self.event_shape, self.num_cols)

    @property
    def _first_cols(self) -> np.ndarray:
        return self.num_cols * np.arange(self.num_sites)[:, None]


def narrow(perms: np.ndarray) -> np.ndarray:
    """Convert matchings to the smallest of int16 and int32 that holds them, to save memory."""
    few = perms.max(initial=0) <= np.iinfo(np.int16).max
    return perms.astype(np.int16 if few else np.int32)
