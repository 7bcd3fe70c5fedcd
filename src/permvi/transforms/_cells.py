r"""The arithmetic of one cell of the stick-breaking lattice, in logarithms, and its derivatives.

Cell (m, n) of the free (N-1, N-1) block splits a 2x2 table whose margins are known when the cell is
reached (all indices from 0):

    ===================  =========================  ======================================
    margin               meaning                    arrives from
    ===================  =========================  ======================================
    r                    what is left of row m      the left neighbour
    c                    what is left of column n   the upper neighbour
    R                    later columns, this row    the upper neighbour, its lower right
    D = R + c - r        later rows, this column    the left neighbour, its lower right
    ===================  =========================  ======================================

With the width ``w = min(r, c, R, D)`` and the proportion ``b`` the four entries of the table are

    x  = max(0, r - R) + b w             right        r' = max(0, r - c) + (1 - b) w
    down c' = max(0, c - r) + (1 - b) w  lower right  L' = max(0, R - r) + b w

If w is the margin r, say, then x = b w and r' = (1-b) w, while the other two are ``c - b w`` and
``R - (1-b) w``; each of the other cases likewise has two products and two remainders.

Margins are carried as logarithms, which keep full relative precision at both ends of a stick: a
margin of 1e-30 as well as one of 1 - 1e-30. R and D count whole columns and rows besides; above 3/2
they are carried as they are, so that whole numbers stay whole. Such a margin is never the width,
since r and c are at most 1, and all that happens to it is that the lower right is less by (1-b) w.

**Derivatives.** The derivative of ``log(p - b w)`` with respect to ``log p`` is ``p / (p - b w)``,
which overflows near the vertices although the derivative of the whole map does not: the factor
meets an equally small one elsewhere. Tangents of a logarithm v are therefore carried in units of
``|v|``, in which all coefficients stay moderate. The sweep of tangents is linear, so JAX transposes
it for reverse mode.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Margins(NamedTuple):
    """Margins of the cells of one anti-diagonal; logarithms, except for R and D above 3/2."""

    r: jax.Array
    c: jax.Array
    R: jax.Array
    D: jax.Array


class Proportions(NamedTuple):
    """A stick proportion b = sigmoid(logit) and its complement, with their logarithms."""

    b: jax.Array
    not_b: jax.Array
    log_b: jax.Array
    log_not_b: jax.Array


class Choice(NamedTuple):
    """The margin that is the width w, and the margins p and q that leave a remainder.

    ``row_is_short``: w is r or R, so p - b w stays in the column, otherwise in the row.
    ``in_this_line``: w is r or c, so q - (1-b) w stays in the lower right, otherwise in x.
    """

    row_is_short: jax.Array
    in_this_line: jax.Array
    w: jax.Array
    p: jax.Array
    q: jax.Array


class Cells(NamedTuple):
    """A value for each of the four entries of a cell's table: x, right, down and lower right."""

    x: jax.Array
    right: jax.Array
    down: jax.Array
    corner: jax.Array


def split_tangents(
    choice: Choice, prop: Proportions, margins_dot: Margins, logit_dot: jax.Array
) -> tuple[Cells, jax.Array]:
    """Tangents of the entries and of the log width, linear in those of the margins and the logit.

    The tangents of the margins, and those returned for log r', log c' and L', are in the units of
    `unit`. The tangent of x is that of x itself, and that of log w has unit one.
    """
    cells = split(choice, prop)
    w, p, q = follow(choice.row_is_short, choice.in_this_line, margins_dot)
    w_dot = unit(choice.w) * w
    by_b = w_dot + prop.not_b * logit_dot
    by_not_b = w_dot - prop.b * logit_dot

    # The remainder p - b w. Where p = w to the last bit, it is the product (1-b) w, and the ratios
    # of the general formula are kept from overflowing.
    gone = _coincide(choice.p, choice.w)
    left = jnp.where(gone, choice.p, jnp.where(choice.row_is_short, cells.down, cells.right))
    share = prop.b * jnp.exp(choice.w - left)
    outer = unit(choice.p) * jnp.exp(choice.p - left)
    rest_p = jnp.where(gone, by_not_b, outer * p - share * by_b)

    # The remainder q - (1-b) w, whose logarithm is carried unless it is big.
    gone = _coincide(choice.q, choice.w)
    left = jnp.where(gone, choice.q, jnp.where(choice.in_this_line, cells.corner, cells.x))
    left = jnp.where(left > 1, 0, left)
    share = prop.not_b * jnp.exp(choice.w - left)
    outer = unit(choice.q) * jnp.exp(jnp.where(choice.q > 1, 0, choice.q) - left)
    rest_q = jnp.where(gone, by_b, outer * q - share * by_not_b)

    x = jnp.where(choice.in_this_line, by_b, rest_q)
    right = jnp.where(choice.row_is_short, by_not_b, rest_p)
    down = jnp.where(choice.row_is_short, rest_p, by_not_b)
    corner = jnp.where(choice.in_this_line, rest_q, by_b)
    return Cells(
        jnp.exp(cells.x) * x,
        right / unit(cells.right),
        down / unit(cells.down),
        corner / unit(cells.corner),
    ), w_dot


def unit(log_value: jax.Array) -> jax.Array:
    """The unit in which a tangent of this logarithm is carried: its size, kept above zero."""
    return jnp.maximum(jnp.abs(log_value), jnp.sqrt(jnp.finfo(log_value.dtype).tiny))


def choose(margins: Margins) -> Choice:
    """Find the least margin and its two neighbours in the table.

    r + D = c + R makes r - c = R - D and r - R = c - D, so each maximum of the recurrence can be
    read off two pairs of margins; the pair that contains w is taken.
    """
    r, c, R, D = margins
    # A margin above 3/2 is not a logarithm, but it is still greater than any of them.
    in_this_line = jnp.minimum(r, c) <= jnp.minimum(R, D)
    row_is_short = jnp.where(in_this_line, r <= c, R <= D)
    return Choice(row_is_short, in_this_line, *follow(row_is_short, in_this_line, margins))


def follow(
    short: jax.Array, line: jax.Array, margins: Margins
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Select the margins (or their tangents) w, p and q by the two flags of `Choice`."""
    r, c, R, D = margins
    w = jnp.where(line, jnp.where(short, r, c), jnp.where(short, R, D))
    p = jnp.where(line, jnp.where(short, c, r), jnp.where(short, D, R))
    q = jnp.where(line, jnp.where(short, R, D), jnp.where(short, r, c))
    return w, p, q


def split(choice: Choice, prop: Proportions) -> Cells:
    """Logarithms of the four entries; a lower right above 3/2 is not a logarithm."""
    by_b, by_not_b = choice.w + prop.log_b, choice.w + prop.log_not_b

    u = choice.w - choice.p
    taken, left = _part(u, jnp.exp(u), prop.b, prop.not_b)
    log_left = jnp.log(left) + _rounding(taken)
    # Where p = w the answer is log(1-b), which is finite even where 1-b underflows.
    rest_p = choice.p + jnp.where(_coincide(choice.p, choice.w), prop.log_not_b, log_left)

    # One exponential and one logarithm serve small and big q.
    is_big = choice.q > 1
    u = jnp.where(is_big, by_not_b, choice.w - choice.q)
    ratio = jnp.exp(u)
    less = choice.q - ratio
    taken, left = _part(u, ratio, prop.not_b, prop.b)
    log = jnp.log(jnp.where(is_big, less, left))
    rest_q = jnp.where(
        is_big,
        jnp.where(less > 1.5, less, log),
        choice.q + jnp.where(_coincide(choice.q, choice.w), prop.log_b, log + _rounding(taken)),
    )
    return Cells(
        x=jnp.where(choice.in_this_line, by_b, rest_q),
        right=jnp.where(choice.row_is_short, by_not_b, rest_p),
        down=jnp.where(choice.row_is_short, rest_p, by_not_b),
        corner=jnp.where(choice.in_this_line, rest_q, by_b),
    )


def proportions(logit: jax.Array) -> Proportions:
    """sigmoid(logit) and sigmoid(-logit) with their logarithms, from one exp and one log."""
    small = jnp.exp(-jnp.abs(logit))
    total = 1 + small
    # log1p, see _rounding.
    log_sum = jnp.log(total) + (small - (total - 1))
    large_share = 1 / total
    small_share = small * large_share
    positive = logit >= 0
    return Proportions(
        jnp.where(positive, large_share, small_share),
        jnp.where(positive, small_share, large_share),
        jnp.minimum(logit, 0) - log_sum,
        -jnp.maximum(logit, 0) - log_sum,
    )


def _coincide(p: jax.Array, w: jax.Array) -> jax.Array:
    """Whether p and w differ by less than the smallest normal number.

    Some devices have no subnormal numbers. The inverse of any larger difference does not overflow.
    """
    return p - w < jnp.finfo(p.dtype).tiny


def _part(
    u: jax.Array, ratio: jax.Array, share: jax.Array, rest: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The part ``share e^u`` of one and the remainder ``1 - share e^u``, for share + rest = 1.

    ``ratio`` is e^u for u <= 0. If the part is large, the remainder is ``rest e^u + (1 - e^u)``, a
    sum of positive terms.
    """
    taken = share * ratio
    return taken, jnp.where(_is_little(taken), 1 - taken, rest * ratio - _expm1_if_much(u))


def _rounding(taken: jax.Array) -> jax.Array:
    """The correction that turns log(1 - taken) into log1p(-taken): the rounding of 1 - taken.

    The derivative of the logarithm there, 1 to 2, is left out: it would change only the last bit.
    """
    return jnp.where(_is_little(taken), (1 - (1 - taken)) - taken, 0)


def _is_little(taken: jax.Array) -> jax.Array:
    return taken < 0.5


def _expm1_if_much(u: jax.Array) -> jax.Array:
    """Return e^u - 1 for u from -log 2 to 0, the range in which more than half can be taken.

    The series needs few terms there; expm1, which computes a logarithm too, takes longer.
    """
    log_2 = math.log(2)
    num_terms = 1
    while log_2**num_terms / math.factorial(num_terms + 1) > jnp.finfo(u.dtype).eps / 4:
        num_terms += 1
    u = jnp.maximum(u, -log_2)
    # Two terms at a time halve the chain of dependent operations.
    square, series = u * u, jnp.zeros_like(u)
    for k in reversed(range(1, num_terms + 1, 2)):
        series = series * square + (1 / math.factorial(k) + u * (1 / math.factorial(k + 1)))
    return u * series
