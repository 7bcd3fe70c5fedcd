r"""Symmetric proposals: x' is as probable from x as x is from x', so no Hastings ratio is needed.

**Swap.** One of the allowed pairs (row i, column j), "unmatched" being a column, is chosen
uniformly and made: the row that had column j takes the old column of row i; if no row had it, the
old column stays free. That is a swap of two rows, a move to a free column, or a row that is added,
deleted or replaced. The pair (i, old column of i) leads back, and it is among the same allowed
pairs; for two matched rows there are two pairs each way. What the constraints forbid changes
nothing. Nor does a pair that is there already, which keeps the chain from being periodic.

**Cycle.** From a uniform row, walk: each row takes one of its other allowed columns, uniformly, and
the row that had that column is next. The walk ends well if it reaches the column that the first row
left, a free column, or "unmatched"; it fails if it comes to another row that it has seen. A walk
over rows :math:`i_1, \dots, i_L` has probability :math:`\frac{1}{n+1} \prod_l 1 / (c_{i_l} - 1)`
where :math:`c_i` counts the allowed columns of row i, which does not depend on x. The walk that
undoes it goes through the same rows; a closed cycle has L first rows either way. With probability
1 / (n + 1) nothing is tried, against periodicity.

Two feasible matchings differ by disjoint alternating cycles and paths. Each of these is a walk that
has positive probability and leaves all else as it is, so **cycles reach every feasible matching
from every other, whatever the constraints are**. How many steps that takes is another matter: a
long cycle that is the only way out has a probability that falls exponentially with its length,
unless its rows have few columns to choose from.

Randomness comes as 32-bit words, whose remainders are uniform to within k / 2^32 for k choices.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from permvi.inference.mcmc.space import MatchingSpace


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
