r"""The choices that leave the other rows a perfect matching, inside JAX.

A row-by-row sampler that takes any free column runs into dead ends: on random sparse masks in 40 to
98 % of its draws. Here a row may take only columns that some perfect matching of the remaining
graph gives it. One perfect matching of the remaining rows and columns is kept. Row r, which holds
column c in it, may take column j if the holder of j can take another column, the holder of that one
another, and so on until one takes c: a path in the graph "s can take what t holds", found by
breadth-first search backwards from c (Berge 1957).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

_Triple = tuple[jax.Array, jax.Array, jax.Array]


class Holding(NamedTuple):
    """A perfect matching of the rest of an L by L graph.

    Attributes:
        column: (L,) the column that each row holds.
        holder: (L,) the row that holds each column.
        open_rows: (L,) whether the row has no column yet.
    """

    column: jax.Array
    holder: jax.Array
    open_rows: jax.Array


class Options(NamedTuple):
    """The columns that a row may take.

    Attributes:
        allowed: (L,) booleans.
        successor: (L,) for each row that has to give way, the row whose column it takes.
    """

    allowed: jax.Array
    successor: jax.Array


def hold(column: jax.Array) -> Holding:
    """Return the start: all rows open, with a perfect matching (L,) of the whole graph."""
    holder = jnp.argsort(column).astype(column.dtype)
    return Holding(column, holder, jnp.ones(column.shape, bool))


def options(edges: jax.Array, holding: Holding, row: jax.Array) -> Options:
    """Return the columns that an open row of the graph (L, L) can take."""
    column, holder, open_rows = holding
    others = open_rows.at[row].set(False)
    # takes[s, t]: row s could take what row t holds.
    takes = edges[:, column] & others[:, None] & others
    movable = edges[:, column[row]] & others
    successor = jnp.where(movable, row, -1).astype(column.dtype)

    def search(state: _Triple) -> _Triple:
        movable, successor, _ = state
        through = takes & movable
        found = through.any(axis=1) & ~movable
        nearest = jnp.argmax(through, axis=1).astype(successor.dtype)
        successor = jnp.where(found, nearest, successor)
        return movable | found, successor, found.any()

    movable, successor, _ = lax.while_loop(
        lambda state: state[2], search, (movable, successor, movable.any())
    )
    allowed = edges[row] & movable[holder]
    return Options(allowed.at[column[row]].set(True), successor)


def take(holding: Holding, row: jax.Array, chosen: jax.Array, successor: jax.Array) -> Holding:
    """Give a row one of its options: the rows on the path to it move, and the row is closed."""
    column, holder, open_rows = holding
    row, chosen = row.astype(column.dtype), chosen.astype(column.dtype)

    def move(state: _Triple) -> _Triple:
        mover, new_column, new_holder = state
        freed = column[successor[mover]]
        return successor[mover], new_column.at[mover].set(freed), new_holder.at[freed].set(mover)

    _, column_after, holder_after = lax.while_loop(
        lambda state: state[0] != row, move, (holder[chosen], column, holder)
    )
    return Holding(
        column_after.at[row].set(chosen),
        holder_after.at[chosen].set(row),
        open_rows.at[row].set(False),
    )
