"""The matchings among which chains move: which pairs are allowed, and what may stay unmatched."""

import dataclasses
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from permvi.problem.problem import Problem
from permvi.problem.unmatched import UnmatchedWeights


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
        unmatched: Log weights of unmatched rows (S, n) and unused columns (S, m), or None where
            they weigh nothing.
    """

    allowed: jax.Array
    columns: jax.Array
    places: jax.Array
    counts: jax.Array
    may_be_free: jax.Array
    unmatched: UnmatchedWeights | None

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The space of a problem; works on traced problems, too."""
        (n, m), S = problem.shape, problem.num_sites
        mask = True if problem.mask is None else jnp.asarray(problem.mask)
        rows = jnp.broadcast_to(problem.unmatched.rows, (S, n))
        cols = jnp.broadcast_to(problem.unmatched.cols, (S, m))
        pairs = jnp.broadcast_to(mask, (S, n, m))
        allowed = jnp.concatenate([pairs, (rows > -jnp.inf)[..., None]], axis=-1)
        order = jnp.argsort(~allowed, axis=-1, stable=True)
        return cls(
            allowed=allowed,
            columns=jnp.where(order < m, order, -1),
            places=jnp.argsort(order, axis=-1),
            counts=allowed.sum(axis=-1),
            may_be_free=jnp.concatenate([cols > -jnp.inf, jnp.ones((S, 1), bool)], axis=-1),
            unmatched=UnmatchedWeights(rows, cols) if problem.is_partial else None,
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
        """Return what the unmatched add to the log density: (..., S, n) -> (...)."""
        if self.unmatched is None:
            xp: Any = np if isinstance(perms, np.ndarray) else jnp
            return xp.zeros(perms.shape[:-2])
        return self.unmatched.of(perms)


def swaps_need_cycles(problem: Problem) -> bool:
    """Whether there may be matchings that swaps alone do not reach from others.

    Without a mask there are none: rows that trade places with a free column, or with staying
    unmatched, do so directly, and all else is a permutation of columns among rows.
    """
    return problem.mask is not None


def only_rows_swap(problem: Problem) -> bool:
    """Whether every feasible swap move trades columns between two rows, as ``delta`` has it."""
    n, m = problem.shape
    return n >= m and not problem.is_partial


class Swap(NamedTuple):
    """A proposed matching (S, n) and the two rows of one site that trade columns.

    ``row`` and ``other`` are equal if nothing changes, or if only one row changes.
    """

    perm: jax.Array
    row: jax.Array
    other: jax.Array
    site: jax.Array


def num_words(kind: str, num_rows: int) -> int:
    """How many random words a "swap" or a "cycle" of so many rows takes."""
    return 2 if kind == "swap" else num_rows + 2


def propose_swap(space: MatchingSpace, perm: jax.Array, words: jax.Array) -> Swap:
    """Make one allowed pair of one site in a matching (S, n), by 2 random words; see the module."""
    site = _uniform(words[0], perm.shape[0])
    counts, now = space.counts[site], perm[site]
    ends = jnp.cumsum(counts)
    pair = _uniform(words[1], ends[-1])
    row = (ends <= pair).sum()
    new = space.columns[site, row, pair - (ends[row] - counts[row])]
    old = now[row]
    holds = (now == new) & (new >= 0)
    held = holds.any()
    other = jnp.where(held, jnp.argmax(holds), row)
    feasible = jnp.where(held, space.allowed[site, other, old], space.may_be_free[site, old])
    # In this order: a pair that is there already has both of them in one place.
    changed = now.at[other].set(old).at[row].set(new)
    return Swap(
        perm.at[site].set(jnp.where(feasible, changed, now)),
        row,
        jnp.where(feasible, other, row),
        site,
    )


class _Walk(NamedTuple):
    """A walk at ``row``: the changed matching (n,) so far, and the rows that were seen."""

    row: jax.Array
    perm: jax.Array
    seen: jax.Array
    length: jax.Array
    goes_on: jax.Array
    ended_well: jax.Array


def propose_cycle(space: MatchingSpace, perm: jax.Array, words: jax.Array) -> jax.Array:
    """Change one site of a matching (S, n) along an alternating walk, by n + 2 random words."""
    num_sites, n = perm.shape
    site = _uniform(words[0], num_sites)
    start = _uniform(words[1], n + 1)
    now = perm[site]
    # Row n is none: the walk is over before it starts.
    first = jnp.minimum(start, n - 1)

    def step(walk: _Walk) -> _Walk:
        row = walk.row
        num_others = space.counts[site, row] - 1
        place = _uniform(words[2 + walk.length], jnp.maximum(num_others, 1))
        place = place + (place >= space.places[site, row, now[row]])
        new = space.columns[site, row, place]
        holds = (now == new) & (new >= 0)
        held, holder = holds.any(), jnp.argmax(holds)
        seen = walk.seen.at[row].set(True)
        closes = held & (holder == first)
        opens = ~held & space.may_be_free[site, now[first]]
        has_choice = num_others > 0
        return _Walk(
            row=holder,
            perm=walk.perm.at[row].set(new),
            seen=seen,
            length=walk.length + 1,
            goes_on=has_choice & held & ~seen[holder],
            ended_well=has_choice & (closes | opens),
        )

    begun = _Walk(
        row=first,
        perm=now,
        seen=jnp.zeros(n, bool),
        length=jnp.zeros((), int),
        goes_on=start < n,
        ended_well=jnp.zeros((), bool),
    )
    walk = jax.lax.while_loop(lambda walk: walk.goes_on, step, begun)
    return perm.at[site].set(jnp.where(walk.ended_well, walk.perm, now))


def _uniform(word: jax.Array, num: int | jax.Array) -> jax.Array:
    """A random word as one of the numbers 0, ..., num - 1."""
    return (word % jnp.asarray(num, jnp.uint32)).astype(int)
