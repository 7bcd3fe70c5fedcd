r"""The space of feasible matchings, and symmetric proposals on it.

The proposal x' is as probable from x as x is from x', so no Hastings ratio is needed.

**Swap.** Choose one of the allowed pairs (row i, column j) uniformly, where "unmatched" counts as a
column, and make it: the row that had column j takes the old column of row i. If no row had it, the
old column becomes free. This swaps two rows, moves a row to a free column, or adds, deletes or
replaces a pair. The pair (i, old column of i) leads back and is one of the same allowed pairs; for
two matched rows there are two such pairs each way. A forbidden change leaves the matching as it is.
So does a pair that is there already, which keeps the chain from being periodic.

**Cycle.** Walk from a uniform row: each row takes one of its other allowed columns, uniformly, and
the row that had that column is next. The walk succeeds if it reaches the column that the first row
left, a free column or "unmatched"; it fails if it meets another row again. A walk over rows
:math:`i_1, \dots, i_L` has probability :math:`\frac{1}{n+1} \prod_l 1 / (c_{i_l} - 1)`, where
:math:`c_i` is the number of allowed columns of row i, which does not depend on x. The walk that
undoes it visits the same rows; a closed cycle has L first rows either way. With probability
1 / (n + 1) nothing is tried, against periodicity.

Two feasible matchings differ by disjoint alternating cycles and paths. Each of these is a walk of
positive probability that changes nothing else, so **cycles reach every feasible matching from every
other, whatever the constraints are**. This may take long: the probability of a long cycle falls
exponentially with its length, unless its rows have few columns to choose from.

Randomness comes as 32-bit words, whose remainders are uniform to within k / 2^32 for k choices.
"""

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
    """The feasible matchings of S sites, as a pytree of lookup tables.

    Rows have one extra column, the last, which means unmatched; -1 indexes it.

    Attributes:
        allowed: (S, n, m+1) whether a row may take a column.
        columns: (S, n, m+1) the allowed columns of each row in front, in order, -1 for unmatched.
        places: (S, n, m+1) the place of a column in ``columns``.
        counts: (S, n) the number of allowed columns.
        may_be_free: (S, m+1) whether a column may stay unused; True in the last place.
        unmatched: Log weights of unmatched rows (S, n) and unused columns (S, m), or None if they
            are all zero.
    """

    allowed: jax.Array
    columns: jax.Array
    places: jax.Array
    counts: jax.Array
    may_be_free: jax.Array
    unmatched: UnmatchedWeights | None

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the space of a problem, which may be traced."""
        (n, m), S = problem.shape, problem.num_sites
        mask = True if problem.mask is None else jnp.asarray(problem.mask)
        rows = jnp.broadcast_to(problem.unmatched.rows, (S, n))
        cols = jnp.broadcast_to(problem.unmatched.cols, (S, m))
        weights = UnmatchedWeights(rows, cols) if problem.is_partial else None
        return cls._of(jnp.broadcast_to(mask, (S, n, m)), rows > -jnp.inf, cols > -jnp.inf, weights)

    @classmethod
    def of_permutations(cls, mask: jax.Array) -> Self:
        """Return the space of the permutations that a mask (S, n, n) allows."""
        nothing = jnp.zeros(mask.shape[:-1], bool)
        return cls._of(mask, nothing, nothing, None)

    @classmethod
    def _of(
        cls, pairs: jax.Array, rows: jax.Array, cols: jax.Array, weights: UnmatchedWeights | None
    ) -> Self:
        """Build the tables from allowed pairs (S, n, m), and who may stay alone."""
        m = pairs.shape[-1]
        allowed = jnp.concatenate([pairs, rows[..., None]], axis=-1)
        order = jnp.argsort(~allowed, axis=-1, stable=True)
        last = jnp.ones((*cols.shape[:-1], 1), bool)
        return cls(
            allowed=allowed,
            columns=jnp.where(order < m, order, -1),
            places=jnp.argsort(order, axis=-1),
            counts=allowed.sum(axis=-1),
            may_be_free=jnp.concatenate([cols, last], axis=-1),
            unmatched=weights,
        )

    @property
    def num_cols(self) -> int:
        """The number of columns m."""
        return self.allowed.shape[-1] - 1

    def contains(self, perm: jax.Array) -> jax.Array:
        """Return whether one matching (S, n) is feasible."""
        sites, rows = jnp.ogrid[: perm.shape[0], : perm.shape[1]]
        uses = (perm[..., :, None] == jnp.arange(self.num_cols)).sum(axis=-2)
        columns_fit = (uses == 1) | ((uses == 0) & self.may_be_free[:, :-1])
        return self.allowed[sites, rows, perm].all() & columns_fit.all()

    def log_weights(self, perms: Any) -> Any:
        """Return the log weights of all that matchings leave unmatched: (..., S, n) -> (...)."""
        if self.unmatched is None:
            xp: Any = np if isinstance(perms, np.ndarray) else jnp
            return xp.zeros(perms.shape[:-2])
        return self.unmatched.of(perms)


def swaps_need_cycles(problem: Problem) -> bool:
    """Return whether swaps alone may fail to reach some matchings.

    Without a mask they reach all: a row moves to a free column, or to staying unmatched, directly,
    and all else is a permutation of columns among rows.
    """
    return problem.mask is not None


def only_rows_swap(problem: Problem) -> bool:
    """Return whether every feasible swap trades columns between two rows, as ``delta`` assumes."""
    n, m = problem.shape
    return n >= m and not problem.is_partial


class Swap(NamedTuple):
    """A proposed matching (S, n) and the two rows of one site that trade columns.

    ``row`` and ``other`` are equal if at most one row changes.
    """

    perm: jax.Array
    row: jax.Array
    other: jax.Array
    site: jax.Array


def propose_swap(space: MatchingSpace, perm: jax.Array, words: jax.Array) -> Swap:
    """Make one allowed pair of one site in a matching (S, n), by 2 random words."""
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
    # In this order, since a new pair without a holder has other = row.
    changed = now.at[other].set(old).at[row].set(new)
    proposed = perm.at[site].set(jnp.where(feasible, changed, now))
    return Swap(proposed, row, jnp.where(feasible, other, row), site)


class _Walk(NamedTuple):
    """A walk that is at ``row``, with the matching (n,) changed so far and the rows seen."""

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
    # There is no row n: the walk ends before it starts.
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

    nothing = jnp.zeros((), int)
    begun = _Walk(first, now, jnp.zeros(n, bool), nothing, start < n, nothing.astype(bool))
    walk = jax.lax.while_loop(lambda walk: walk.goes_on, step, begun)
    return perm.at[site].set(jnp.where(walk.ended_well, walk.perm, now))


def _uniform(word: jax.Array, num: int | jax.Array) -> jax.Array:
    """Return a random word as one of the numbers 0, ..., num - 1."""
    return (word % jnp.asarray(num, jnp.uint32)).astype(int)
