"""One permutation or several: how arrays of matchings are laid out.

A posterior over several permutations has a site axis, one over a single permutation has none. S
independent sites of n rows and m columns are also one matching of S*n rows and S*m columns whose
mask is block diagonal, which is how exact laws see them: *joined*.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import check_matchings


@dataclass(frozen=True)
class Layout:
    """The numbers of permutations, of rows and of columns of each."""

    num_sites: int
    num_rows: int
    num_cols: int

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...]) -> "Layout":
        """The layout of a (n, m) or (sites, n, m) array, refused if it is anything else."""
        if len(shape) not in (2, 3) or 0 in shape or (len(shape) == 3 and shape[0] == 1):
            raise ValueError(
                f"{name} must have shape (n, m), or (sites, n, m) with two sites or more, "
                f"got shape {shape}."
            )
        return cls(*shape) if len(shape) == 3 else cls(1, *shape)

    @property
    def site_axes(self) -> tuple[int, ...]:
        """The leading shape of everything that exists per site: (), or (sites,)."""
        return () if self.num_sites == 1 else (self.num_sites,)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of a matching: (n,), or (sites, n)."""
        return (*self.site_axes, self.num_rows)

    @property
    def joined_shape(self) -> tuple[int, int]:
        """The rows and columns of all sites together."""
        return self.num_sites * self.num_rows, self.num_sites * self.num_cols

    def check(self, name: str, value: ArrayLike) -> np.ndarray:
        """``value`` as int64 matchings (..., *event_shape) with columns in -1..m-1, or refused."""
        array = np.asarray(value)
        event = self.event_shape
        if array.ndim < len(event) or array.shape[-len(event) :] != event:
            wanted = ", ".join(map(str, event))
            raise ValueError(f"{name} must have shape (..., {wanted}), got shape {array.shape}.")
        return check_matchings(name, array, (self.num_rows, self.num_cols))

    def check_distinct(self, name: str, value: ArrayLike) -> np.ndarray:
        """Like :meth:`check`, but refused too where a column is taken twice."""
        perms = self.check(name, value)
        ordered = np.sort(perms, axis=-1)
        twice = ordered[..., 1:][(ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)]
        if twice.size:
            raise ValueError(f"{name} must take each column at most once, got {twice[0]} twice.")
        return perms

    def join(self, perms: np.ndarray) -> np.ndarray:
        """Matchings (..., *event_shape) -> (..., S*n) of columns in -1..S*m-1."""
        batch = perms.shape[: perms.ndim - len(self.event_shape)]
        perms = perms.reshape(*batch, self.num_sites, self.num_rows)
        joined = np.where(perms < 0, -1, perms + self._first_cols)
        return joined.reshape(*batch, self.num_sites * self.num_rows)

    def split(self, joined: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`join`."""
        batch = joined.shape[:-1]
        perms = joined.reshape(*batch, self.num_sites, self.num_rows)
        perms = np.where(perms < 0, -1, perms - self._first_cols)
        return perms.reshape(*batch, *self.event_shape)

    def join_tables(self, tables: np.ndarray, *, fill: float) -> np.ndarray:
        """Tables (*site_axes, n, m) -> (S*n, S*m), ``fill`` outside the diagonal blocks."""
        rows, cols = self.joined_shape
        joined = np.full((rows, cols), fill, dtype=tables.dtype)
        blocks = joined.reshape(self.num_sites, self.num_rows, self.num_sites, self.num_cols)
        sites = np.arange(self.num_sites)
        blocks[sites, :, sites, :] = tables.reshape(self.num_sites, self.num_rows, self.num_cols)
        return joined

    def split_table(self, joined: np.ndarray) -> np.ndarray:
        """The diagonal blocks of a (S*n, S*m) table as (*site_axes, n, m)."""
        blocks = joined.reshape(self.num_sites, self.num_rows, self.num_sites, self.num_cols)
        sites = np.arange(self.num_sites)
        return blocks[sites, :, sites, :].reshape(*self.event_shape, self.num_cols)

    @property
    def _first_cols(self) -> np.ndarray:
        return self.num_cols * np.arange(self.num_sites)[:, None]


def narrow(perms: np.ndarray) -> np.ndarray:
    """Matchings in the smallest integer dtype that is never too small, for keeping many of them."""
    few = perms.max(initial=0) <= np.iinfo(np.int16).max
    return perms.astype(np.int16 if few else np.int32)
