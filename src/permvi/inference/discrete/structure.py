"""The choices of a row-by-row law: columns, staying unmatched, and the graph behind them."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from permvi._assignment.masks import maximum_matching
from permvi.inference.discrete import graph
from permvi.problem.problem import Problem


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Structure:
    """The choices of S sites of n rows: C = m columns, and one more if rows may stay unmatched.

    Attributes:
        edges: (S, L, L) a square graph whose perfect matchings are the allowed matchings. Dummy
            columns stand for "unmatched", dummy rows take unused columns. None if every row may
            take every column that is left.
        start: (S, L) a perfect matching of the graph, or None.
        shape: (n, m).
        num_sites: S.
        ground: Whether "unmatched" is a choice.
    """

    edges: Any
    start: Any
    shape: tuple[int, int] = dataclasses.field(metadata={"static": True})
    num_sites: int = dataclasses.field(metadata={"static": True})
    ground: bool = dataclasses.field(metadata={"static": True})

    @property
    def num_choices(self) -> int:
        """C."""
        return self.shape[1] + self.ground

    def site(self, s: int | jax.Array) -> "Structure":
        """Return one site, without the axis of sites."""
        pick = lambda array: None if array is None else jnp.asarray(array)[s]  # noqa: E731
        return dataclasses.replace(self, edges=pick(self.edges), start=pick(self.start))


class DrawState(NamedTuple):
    """The state of a row-by-row draw of one site."""

    free: jax.Array  # (m,) the columns that are left
    later: jax.Array  # (n,) the rows that are left
    holding: graph.Holding | None  # a matching of the rest; None without a graph


class Menu(NamedTuple):
    """The choices of a row."""

    allowed: jax.Array  # (C,) booleans
    spare: jax.Array | None  # the dummy column to take for "unmatched"
    successor: jax.Array | None  # see `graph.Options`


def build_structure(problem: Problem) -> Structure:
    """Return the choices of a problem, on the host; raise ``ValueError`` if it has no matching."""
    n, m = problem.shape
    S = problem.num_sites
    if problem.mask is None and not problem.is_partial and n <= m:
        return Structure(None, None, (n, m), S, ground=False)
    pairs = np.ones((n, m), bool) if problem.mask is None else np.asarray(problem.mask)
    rows, cols = (np.asarray(weights) > -np.inf for weights in problem.unmatched)
    pairs, rows, cols = (
        np.broadcast_to(array, (S, *array.shape[-ndim:]))
        for array, ndim in ((pairs, 2), (rows, 1), (cols, 1))
    )
    # As many dummies as can stay unmatched: if one side must be matched, the surplus of the other.
    num_cols = 0 if not rows.any() else n if cols.any() else n - m
    num_rows = 0 if not cols.any() else m if rows.any() else m - n
    edges = np.ones((S, n + num_rows, m + num_cols), bool)
    edges[:, :n, :m] = pairs
    edges[:, :n, m:] = rows[:, :, None]
    edges[:, n:, :m] = cols[:, None, :]
    start = np.stack([maximum_matching(site) for site in edges]).astype(np.int32)
    if (start >= edges.shape[2]).any() or edges.shape[1] != edges.shape[2]:
        raise ValueError("mask must allow at least one matching, got one that allows none.")
    return Structure(edges, start, (n, m), S, ground=num_cols > 0)


def begin(structure: Structure) -> DrawState:
    """Return the state before a draw of one site (see `Structure.site`)."""
    n, m = structure.shape
    holding = None if structure.start is None else graph.hold(structure.start)
    return DrawState(jnp.ones(m, bool), jnp.ones(n, bool), holding)


def menu(structure: Structure, state: DrawState, row: jax.Array) -> Menu:
    """Return the choices of a row of one site that leave the others a matching."""
    if state.holding is None:
        return Menu(state.free, None, None)
    m = structure.shape[1]
    found = graph.options(structure.edges, state.holding, row)
    if not structure.ground:
        return Menu(found.allowed[:m], None, found.successor)
    # All dummy columns are alike: they are one choice.
    dummies = found.allowed[m:]
    allowed = jnp.append(found.allowed[:m], dummies.any())
    return Menu(allowed, m + jnp.argmax(dummies), found.successor)


def choose(
    structure: Structure, state: DrawState, row: jax.Array, found: Menu, choice: jax.Array
) -> DrawState:
    """Return the state after a row has made one of its choices."""
    m = structure.shape[1]
    # "Unmatched" is out of bounds, and dropped.
    free = state.free.at[choice].set(False, mode="drop")
    later = state.later.at[row].set(False)
    if state.holding is None or found.successor is None:
        return DrawState(free, later, None)
    column = choice if found.spare is None else jnp.where(choice < m, choice, found.spare)
    return DrawState(free, later, graph.take(state.holding, row, column, found.successor))
