"""Assignment on the accelerator, in pure JAX: one problem per call, batches come from ``vmap``.

The solver uses shortest augmenting paths like the compiled one, arranged for lockstep: all phases
are one loop whose step does a fixed amount of work, so that the problems of a batch need not wait
for each other after every path. Ties are broken on the board of ``masks``, by the same rule.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from permvi._assignment import INFEASIBLE, NOT_FINITE, SOLVED, TIE_ULPS


def solve(cost: jax.Array, mask: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Minimise one (n, m) cost over the pairs that the mask allows.

    Return the permutation (n,), all -1 if unsolved, and the status of the problem.
    """
    n, m = cost.shape
    allowed = jnp.ones((n, m), bool) if mask is None else mask
    finite = jnp.all(jnp.isfinite(cost) | ~allowed)
    # Replace a problem that is not finite by an easy one, so that its batch need not wait for it.
    cost = jnp.where(allowed & finite, cost, 0.0)
    cost = jnp.where(allowed | ~finite, cost * _shrinkage(cost), jnp.inf)
    if n > m:
        v, u, _, column, complete = _augment(cost.T)
    else:
        u, v, column, _, complete = _augment(cost)
    column = jnp.where(column < 0, m, column)
    # Skip problems without an answer, which would slow the others down.
    column = _smallest(_tight(cost, u, v, column) & complete & finite, column)
    status = jnp.where(finite, jnp.where(complete, SOLVED, INFEASIBLE), NOT_FINITE)
    return jnp.where((status == SOLVED) & (column < m), column, -1), status.astype(jnp.uint8)


def _shrinkage(cost: jax.Array) -> jax.Array:
    """A power of two that keeps sums of costs from overflowing; one unless they are huge."""
    power = 2.0 ** -math.ceil(math.log2(8 * sum(cost.shape)))
    huge = jnp.max(jnp.abs(cost)) > float(jnp.finfo(cost.dtype).max) * power
    return jnp.where(huge, power, 1.0).astype(cost.dtype)


class _Search(NamedTuple):
    """Potentials, matching (-1 for none), and the search from ``root`` for a free column."""

    u: jax.Array
    v: jax.Array
    col_of: jax.Array
    row_of: jax.Array
    dist: jax.Array
    reached_from: jax.Array
    settled: jax.Array
    root: jax.Array
    row: jax.Array
    low: jax.Array
    # The next column to reassign while a path is being applied, -1 while searching for one.
    column: jax.Array
    failed: jax.Array
    num_steps: jax.Array


def _augment(cost: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Match all n <= m rows at least cost; return u, v, both matchings and success."""
    n, m = cost.shape
    infinite = jnp.full(m, jnp.inf, cost.dtype)
    nobody = jnp.full(m, -1, jnp.int32)
    u, v, col_of, row_of = _start(cost)

    def begin(state: _Search) -> _Search:
        root = _first(state.col_of < 0)
        return state._replace(
            dist=infinite,
            reached_from=nobody,
            settled=jnp.zeros(m, bool),
            root=root,
            row=root,
            low=jnp.zeros((), cost.dtype),
            column=jnp.int32(-1),
        )

    def seek(state: _Search) -> _Search:
        length = state.low - state.u[state.row] + cost[state.row] - state.v
        shorter = ~state.settled & (length < state.dist)
        dist = jnp.where(shorter, length, state.dist)
        reached_from = jnp.where(shorter, state.row, state.reached_from)
        low = jnp.min(jnp.where(state.settled, jnp.inf, dist))
        nearest = ~state.settled & (dist == low)
        # Among columns at equal distance, a free one ends the search at once.
        column = jnp.argmax(jnp.where(nearest, 1 + (state.row_of < 0), 0)).astype(jnp.int32)
        found = state.row_of[column] < 0
        settled = state.settled | ((jnp.arange(m) == column) & ~found)
        # The rows of the tree hold the settled columns, except the root, which holds none.
        held = state.col_of
        gain = jnp.where(found, low - dist, 0.0)
        in_tree = (held >= 0) & settled[held]
        u = state.u + jnp.where(in_tree, gain[held], 0.0)
        u = u + jnp.where(found & (jnp.arange(n) == state.root), low, 0.0)
        return state._replace(
            u=u,
            v=state.v - jnp.where(settled, gain, 0.0),
            dist=dist,
            reached_from=reached_from,
            settled=settled,
            row=jnp.where(found, state.row, state.row_of[column]),
            low=low,
            column=jnp.where(found, column, -1),
            failed=~jnp.isfinite(low),
        )

    def apply(state: _Search) -> _Search:
        row = state.reached_from[state.column]
        return state._replace(
            row_of=jnp.where(jnp.arange(m) == state.column, row, state.row_of),
            col_of=jnp.where(jnp.arange(n) == row, state.column, state.col_of),
            column=jnp.where(row == state.root, -1, state.col_of[row]),
        )

    def step(state: _Search) -> _Search:
        seeking = state.column < 0
        sought, applied = seek(state), apply(state)
        new = _select(seeking, sought, applied)
        new = _select(~seeking & (applied.column < 0), begin(new), new)
        return new._replace(num_steps=state.num_steps + 1)

    def unfinished(state: _Search) -> jax.Array:
        # A path settles at most m columns and reassigns as many.
        return jnp.any(state.col_of < 0) & ~state.failed & (state.num_steps < 2 * n * (m + 1))

    zero = jnp.int32(0)
    state = _Search(
        u, v, col_of, row_of, infinite, nobody, nobody > 0, zero, zero, u[0], zero, zero > 0, zero
    )
    state = lax.while_loop(unfinished, step, begin(state))
    return state.u, state.v, state.col_of, state.row_of, jnp.all(state.col_of >= 0)


def _select(condition: jax.Array, yes: _Search, no: _Search) -> _Search:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _start(cost: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Potentials from row (and column) minima; each column goes to the first row that picks it."""
    n, m = cost.shape
    u = jnp.min(cost, axis=1)
    u = jnp.where(jnp.isfinite(u), u, 0.0)
    v = jnp.zeros(m, cost.dtype)
    if n == m:
        # A column may be raised only if it cannot be left free.
        v = jnp.min(cost - u[:, None], axis=0)
        v = jnp.where(jnp.isfinite(v), v, 0.0)
    tight = cost - u[:, None] == v
    wanted = tight & (jnp.arange(m) == _first(tight)[:, None])
    row_of = jnp.where(jnp.any(wanted, axis=0), _first(wanted.T), -1)
    got = row_of == jnp.arange(n)[:, None]
    col_of = jnp.where(jnp.any(got, axis=1), _first(got), -1)
    return u, v, col_of, row_of


def _tight(cost: jax.Array, u: jax.Array, v: jax.Array, column: jax.Array) -> jax.Array:
    """The board of the entries that optimal matchings use."""
    n, m = cost.shape
    held = column[:, None] == jnp.arange(m)
    matched = jnp.where(held, jnp.abs(cost), 0.0)
    tolerance = TIE_ULPS * float(jnp.finfo(cost.dtype).eps)
    slack_u = tolerance * (jnp.abs(u) + jnp.sum(matched, axis=1))
    slack_v = tolerance * (jnp.abs(v) + jnp.sum(matched, axis=0))
    entries = held | (cost <= (u + slack_u)[:, None] + (v + slack_v))
    left_over_rows = (u >= -slack_u) & (n > m)
    left_over_cols = jnp.append(v >= -slack_v, False) & (n < m)
    return jnp.vstack([jnp.column_stack([entries, left_over_rows]), left_over_cols])


def _smallest(board: jax.Array, column: jax.Array) -> jax.Array:
    """The lexicographically smallest matching of a board, improving a given one row by row."""
    n, m = board.shape[0] - 1, board.shape[1] - 1
    rows, cols = jnp.arange(n + 1, dtype=jnp.int32), jnp.arange(m + 1, dtype=jnp.int32)

    def held_by(column: jax.Array) -> jax.Array:
        held = column[:, None] == cols
        free = ~jnp.any(held, axis=0) & (cols < m)
        return jnp.vstack([held, free])

    def takeovers(column: jax.Array, held: jax.Array) -> jax.Array:
        """(n+1, n+1): whether a row could take a column that another row holds."""
        entries = board & ~held
        from_free = jnp.any(entries & held[n], axis=1)
        return jnp.column_stack([entries[:, column], from_free])

    def trim(movable: jax.Array) -> jax.Array:
        taken = jnp.any(links & movable[:, None], axis=0)
        takes = jnp.any(links & movable, axis=1)
        return movable & taken & takes

    # Rows in no cycle of takeovers never move; almost always that is all of them.
    links = takeovers(column, held_by(column))
    everyone = jnp.ones(n + 1, bool)
    movable, _ = lax.while_loop(
        lambda pair: jnp.any(pair[0] != pair[1]),
        lambda pair: (trim(pair[0]), pair[0]),
        (trim(everyone), everyone),
    )

    def wishes(column: jax.Array, held: jax.Array, row: jax.Array) -> jax.Array:
        """(n, m+1): the smaller columns that rows from ``row`` on could still get."""
        available = jnp.any(held & (movable & (rows >= row))[:, None], axis=0)
        own = movable[:n] & (rows[:n] >= row)
        return board[:n] & available & (cols < column[:, None]) & own[:, None]

    def improve(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        row, column = state
        held = held_by(column)
        row = _first(jnp.any(wishes(column, held, row), axis=1))
        links = takeovers(column, held)

        def widen(pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            next_row, _ = pair
            reached = next_row >= 0
            new = jnp.any(links & reached, axis=1) & ~reached & movable & (rows > row)
            towards = _first(links & reached)
            return jnp.where(new, towards, next_row), jnp.any(new)

        # next_row leads from a row to the one whose column it would take, and so on to ``row``.
        origin = jnp.where(rows == row, row, -1)
        next_row, _ = lax.while_loop(lambda pair: pair[1], widen, (origin, row >= 0))
        givers = (next_row >= 0) & (rows != row)
        offered = jnp.any(held & givers[:, None], axis=0) & board[row] & (cols < column[row])
        target = _first(offered)
        giver = _first(held[:, target])

        def follow(pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            at, on_path = pair
            return next_row[at], on_path | (rows == at)

        start = jnp.where(jnp.any(offered), giver, row)
        _, on_path = lax.while_loop(
            lambda pair: pair[0] != row, follow, (start, jnp.zeros(n + 1, bool))
        )
        # From row n, which holds all free columns, a row takes the first one it may have.
        theirs = _first(board[:n] & held[next_row[:n]])
        moved = jnp.where(on_path[:n], theirs, column)
        return row + 1, jnp.where((rows[:n] == row) & jnp.any(offered), target, moved)

    def improvable(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        row, column = state
        return jnp.any(wishes(column, held_by(column), row))

    _, column = lax.while_loop(improvable, improve, (jnp.int32(0), column))
    return column


def _first(condition: jax.Array) -> jax.Array:
    """The index of the first True along the last axis, as a 32-bit integer; 0 if there is none."""
    return jnp.argmax(condition, axis=-1).astype(jnp.int32)
