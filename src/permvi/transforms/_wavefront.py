r"""The stick-breaking lattice of the Birkhoff polytope, swept along anti-diagonals in logarithms.

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
margin of 1e-30 as well as one of 1 - 1e-30. R and D count whole columns and rows as well, and the
logarithm of 3 - 1e-30 is that of 3; above 3/2 they are carried as a whole number and a fraction in
[-1/2, 1/2] instead. Since r and c are at most 1, such a margin is never the width, and all that
happens to it is that the lower right is less by (1-b) w.

Anti-diagonals are independent, so the sweep takes 2N-3 vectorised steps.

**Derivatives.** The derivative of ``log(p - b w)`` with respect to ``log p`` is ``p / (p - b w)``,
which overflows near the vertices although the derivative of the whole map does not: the factor
meets an equally small one elsewhere. Tangents of a logarithm v are therefore carried in units of
``|v|``, in which all coefficients stay moderate. The sweep of tangents is linear, so JAX transposes
it for reverse mode.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class _Level(NamedTuple):
    """A margin of any size: its logarithm if ``whole`` is 0, else whole + level."""

    level: jax.Array
    whole: jax.Array


class _Margins(NamedTuple):
    """Margins of the cells of one anti-diagonal, each (K,), indexed by row; r and c are logs."""

    r: jax.Array
    c: jax.Array
    R: _Level
    D: _Level


class _Proportions(NamedTuple):
    """A stick proportion b = sigmoid(logit) and its complement, with their logarithms."""

    b: jax.Array
    not_b: jax.Array
    log_b: jax.Array
    log_not_b: jax.Array


class _Choice(NamedTuple):
    """Which margin is the width w, and the margins p and q of which a remainder is left.

    ``row_is_short``: w is r or R, so p - b w stays in the column, else in the row.
    ``in_this_line``: w is r or c, so q - (1-b) w stays in the lower right, else in x.
    """

    row_is_short: jax.Array
    in_this_line: jax.Array
    w: jax.Array
    p: jax.Array
    q: jax.Array
    big: _Level


class _Cells(NamedTuple):
    """One thing for each entry of the cells' tables: x, right, down and lower right."""

    x: Any
    right: Any
    down: Any
    corner: Any


class _Coefficients(NamedTuple):
    """Derivatives of a log entry along its outer margin (p or q), the width and the logit."""

    outer: jax.Array
    width: jax.Array
    logit: jax.Array


@jax.custom_jvp
def birkhoff_from_logits(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Fill a doubly-stochastic matrix from the logits of its stick proportions.

    Args:
        logits: (K, K) with K >= 1, finite; logit of the proportion b of each cell.

    Returns:
        The (N, N) matrix, N = K + 1, and the (K,) row sums of the log widths.
    """
    log_matrix, log_widths, _ = _sweep(logits)
    return jnp.exp(log_matrix), log_widths


@birkhoff_from_logits.defjvp
def _birkhoff_from_logits_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    (logits,), (logits_dot,) = primals, tangents
    log_matrix, log_widths, history = _sweep(logits)
    matrix = jnp.exp(log_matrix)
    return (matrix, log_widths), _sweep_tangents(logits, log_matrix, history, logits_dot)


def _sweep(logits: jax.Array) -> tuple[jax.Array, jax.Array, _Margins]:
    """The log matrix, the log widths summed over each row, and the margins that each cell met."""
    K = logits.shape[0]
    dtype = logits.dtype
    # What is left in the later columns before row 0 (and in the later rows before column 0).
    later = jnp.arange(K, -1, -1, dtype=dtype)
    later = jnp.where(later > 1, later, 0)

    def step(carry: Any, inputs: Any) -> Any:
        margins, log_widths = carry
        diagonal, active, next_whole = inputs
        choice = _choose(margins)
        cells = _split(choice, _proportions(diagonal))
        # Before and after its columns a row only waits.
        r = jnp.where(active, cells.right, margins.r)
        level = jnp.where(active, cells.corner.level, margins.D.level)
        whole = jnp.where(active, cells.corner.whole, margins.D.whole)
        log_widths = log_widths + jnp.where(active, choice.w, 0)
        R = _Level(_shift(level, zero), _shift(whole, next_whole))
        following = _Margins(r, _shift(cells.down, zero), R, _Level(level, whole))
        return (following, log_widths), (cells.x, cells.down[-1], margins)

    zero, zeros = jnp.zeros((), dtype), jnp.zeros(K, dtype)
    R, D = _Level(zeros, _shift(later[:K], later[0])), _Level(zeros, later[:K])
    next_whole = jnp.concatenate([later[1:], zeros[1:]])
    (end, log_widths), (log_x, last_row, history) = lax.scan(
        step,
        (_Margins(zeros, zeros, R, D), zeros),
        (_skew(logits), _active(K), next_whole),
    )
    log_matrix = jnp.block(
        [[_unskew(log_x), end.r[:, None]], [last_row[None, K - 1 :], end.D.level[None, -1:]]]
    )
    return log_matrix, log_widths, history


def _sweep_tangents(
    logits: jax.Array, log_matrix: jax.Array, history: _Margins, logits_dot: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Tangents of the matrix and of the rows' log widths, linear in ``logits_dot``."""
    K = logits.shape[0]

    # Recomputing the coefficients on the way back is cheaper than storing them for every cell.
    @jax.checkpoint
    def step(carry: Any, inputs: Any) -> Any:
        tangents, log_widths = carry
        logit, logit_dot, active, margins = inputs
        choice = _choose(margins)
        x, right, down, corner = _derivatives(choice, _proportions(logit))
        w, p, q = _follow(choice.row_is_short, choice.in_this_line, *tangents)
        right_dot = right.outer * p + right.width * w + right.logit * logit_dot
        down_dot = down.outer * p + down.width * w + down.logit * logit_dot
        corner_dot = corner.outer * q + corner.width * w + corner.logit * logit_dot
        x_dot = x.outer * q + x.width * w + x.logit * logit_dot
        r = jnp.where(active, right_dot, tangents[0])
        D = jnp.where(active, corner_dot, tangents[3])
        log_widths = log_widths + jnp.where(active, _unit(choice.w) * w, 0)
        nothing = jnp.zeros((), logit_dot.dtype)
        following = (r, _shift(down_dot, nothing), _shift(D, nothing), D)
        return (following, log_widths), (x_dot, down_dot[-1])

    zeros = jnp.zeros_like(logits_dot[0])
    (end, log_widths), (x_dot, last_row) = lax.scan(
        step,
        ((zeros, zeros, zeros, zeros), zeros),
        (_skew(logits), _skew(logits_dot), _active(K), history),
    )
    edge = jnp.exp(log_matrix) * _unit(log_matrix)
    matrix_dot = jnp.block(
        [
            [_unskew(x_dot), (edge[:K, K] * end[0])[:, None]],
            [(edge[K, :K] * last_row[K - 1 :])[None], (edge[K, K] * end[3][-1])[None, None]],
        ]
    )
    return matrix_dot, log_widths


def _derivatives(choice: _Choice, prop: _Proportions) -> _Cells:
    """Coefficients of the tangent of x itself, and of log r', log c' and L' in their units."""
    cells = _split(choice, prop)
    is_big = choice.big.whole > 0
    w_unit, p_unit = _unit(choice.w), _unit(choice.p)
    q_unit = _unit(jnp.where(is_big, choice.big.level, choice.q))
    p_left = jnp.where(choice.row_is_short, cells.down, cells.right)
    q_left = jnp.where(choice.in_this_line, cells.corner.level, cells.x)
    p_ratio = prop.b * jnp.exp(choice.w - p_left)
    q_ratio = prop.not_b * jnp.exp(choice.w - q_left)
    # Where p = w to the last bit, p - b w is the product (1-b) w.
    p_gone, q_gone = choice.p == choice.w, choice.q == choice.w
    rest_p = _Coefficients(
        jnp.where(p_gone, 0, p_unit * jnp.exp(choice.p - p_left)),
        jnp.where(p_gone, 1, -p_ratio) * w_unit,
        jnp.where(p_gone, -prop.b, -p_ratio * prop.not_b),
    )
    rest_q = _Coefficients(
        jnp.where(q_gone, 0, q_unit * jnp.exp(choice.q - q_left)),
        jnp.where(q_gone, 1, -q_ratio) * w_unit,
        jnp.where(q_gone, prop.not_b, q_ratio * prop.b),
    )
    by_b = _Coefficients(jnp.zeros_like(w_unit), w_unit, prop.not_b)
    by_not_b = _Coefficients(jnp.zeros_like(w_unit), w_unit, -prop.b)
    # A big q only has (1-b) w subtracted; what is left may be small enough for a logarithm.
    taken = prop.not_b * jnp.exp(choice.w)
    left = jnp.where(cells.corner.whole > 0, 1, jnp.exp(cells.corner.level))
    less = _Coefficients(q_unit / left, -taken * w_unit / left, taken * prop.b / left)
    corner = _pick(is_big, less, _pick(choice.in_this_line, rest_q, by_b))
    return _Cells(
        x=_rescale(_pick(choice.in_this_line, by_b, rest_q), jnp.exp(cells.x)),
        right=_rescale(_pick(choice.row_is_short, by_not_b, rest_p), 1 / _unit(cells.right)),
        down=_rescale(_pick(choice.row_is_short, rest_p, by_not_b), 1 / _unit(cells.down)),
        corner=_rescale(corner, 1 / _unit(cells.corner.level)),
    )


def _pick(condition: jax.Array, yes: _Coefficients, no: _Coefficients) -> _Coefficients:
    return _Coefficients(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def _rescale(coefficients: _Coefficients, factor: jax.Array) -> _Coefficients:
    return _Coefficients(*(factor * coefficient for coefficient in coefficients))


def _unit(log_value: jax.Array) -> jax.Array:
    """The unit in which a tangent of this logarithm is carried: its size, kept off zero."""
    return jnp.maximum(jnp.abs(log_value), jnp.sqrt(jnp.finfo(log_value.dtype).tiny))


def _active(K: int) -> jax.Array:
    """(2K-1, K): whether anti-diagonal s has a cell in row m, i.e. 0 <= s - m < K."""
    column = jnp.arange(2 * K - 1)[:, None] - jnp.arange(K)
    return (column >= 0) & (column < K)


def _choose(margins: _Margins) -> _Choice:
    """Find the least margin and its two neighbours in the table.

    r + D = c + R makes r - c = R - D and r - R = c - D, so each maximum of the recurrence can be
    read off two pairs of margins; the pair that contains w is taken.
    """
    r, c = margins.r, margins.c
    # Any logarithm above zero will do for what exceeds 3/2, since r and c do not.
    R, D = (jnp.where(big.whole > 0, 1, big.level) for big in (margins.R, margins.D))
    w = jnp.minimum(jnp.minimum(r, c), jnp.minimum(R, D))
    is_r = r == w
    in_this_line = is_r | (c == w)
    row_is_short = is_r | (~in_this_line & (R == w))
    w, p, q = _follow(row_is_short, in_this_line, r, c, R, D)
    whole = jnp.where(row_is_short, margins.R.whole, margins.D.whole)
    level = jnp.where(row_is_short, margins.R.level, margins.D.level)
    big = _Level(level, jnp.where(in_this_line, whole, 0))
    return _Choice(row_is_short, in_this_line, w, p, q, big)


def _follow(
    short: jax.Array, line: jax.Array, r: jax.Array, c: jax.Array, R: jax.Array, D: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The margins (or their tangents) that are w, p and q if the row is short, w in this line."""
    w = jnp.where(line, jnp.where(short, r, c), jnp.where(short, R, D))
    p = jnp.where(line, jnp.where(short, c, r), jnp.where(short, D, R))
    q = jnp.where(line, jnp.where(short, R, D), jnp.where(short, r, c))
    return w, p, q


def _split(choice: _Choice, prop: _Proportions) -> _Cells:
    """Logarithms of the four entries, the lower right as a level."""
    by_b, by_not_b = choice.w + prop.log_b, choice.w + prop.log_not_b
    rest_p = _log_remainder(choice.p, choice.w, prop.b, prop.not_b, prop.log_not_b)
    rest_q = _log_remainder(choice.q, choice.w, prop.not_b, prop.b, prop.log_b)
    is_big = choice.big.whole > 0
    less = _lessen(choice.big, by_not_b)
    return _Cells(
        x=jnp.where(choice.in_this_line, by_b, rest_q),
        right=jnp.where(choice.row_is_short, by_not_b, rest_p),
        down=jnp.where(choice.row_is_short, rest_p, by_not_b),
        corner=_Level(
            jnp.where(is_big, less.level, jnp.where(choice.in_this_line, rest_q, by_b)),
            jnp.where(is_big, less.whole, 0),
        ),
    )


def _lessen(big: _Level, log_taken: jax.Array) -> _Level:
    """whole + level - exp(log_taken) for a big level and log_taken <= 0."""
    # What is taken is near 0 or near 1; its distance from there changes the fraction.
    minus_one = jnp.expm1(log_taken)
    most = minus_one > -0.5
    fraction = jnp.where(most, big.level - minus_one, big.level - (1 + minus_one))
    whole = jnp.where(most, big.whole - 1, big.whole)
    carry = jnp.round(fraction)
    whole, fraction = whole + carry, fraction - carry
    still_big = whole > 1
    return _Level(
        jnp.where(still_big, fraction, jnp.log1p(jnp.where(still_big, 0, fraction))),
        jnp.where(still_big, whole, 0),
    )


def _proportions(logit: jax.Array) -> _Proportions:
    """sigmoid(logit) and sigmoid(-logit) with their logarithms, from one exp and one log1p."""
    small = jnp.exp(-jnp.abs(logit))
    log_sum = jnp.log1p(small)
    large_share = 1 / (1 + small)
    small_share = small * large_share
    positive = logit >= 0
    return _Proportions(
        jnp.where(positive, large_share, small_share),
        jnp.where(positive, small_share, large_share),
        jnp.minimum(logit, 0) - log_sum,
        -jnp.maximum(logit, 0) - log_sum,
    )


def _log_remainder(
    p: jax.Array, w: jax.Array, share: jax.Array, rest: jax.Array, log_rest: jax.Array
) -> jax.Array:
    """log(exp(p) - share exp(w)) for w <= p and share + rest = 1, accurate wherever p and w are.

    With u = w - p it is ``p + log(1 - share e^u)``, where the argument of the logarithm is near 1
    when little is taken and ``(1 - e^u) + rest e^u``, a sum of positive terms, when much is.
    """
    u = w - p
    minus_one = jnp.expm1(u)
    taken = share * (1 + minus_one)
    little = taken < 0.5
    left = jnp.where(little, 1 - taken, rest * (1 + minus_one) - minus_one)
    log_left = jnp.log(left)
    # log1p(-taken) from log(1 - taken): the rounding error of 1 - taken cancels in the ratio.
    rounded = 1 - left
    exact = rounded == 0
    log1p = jnp.where(exact, -taken, log_left * (taken / jnp.where(exact, 1, rounded)))
    # At u = 0 the answer is log_rest, which is finite even where rest underflows.
    return p + jnp.where(u == 0, log_rest, jnp.where(little, log1p, log_left))


def _shift(values: jax.Array, first: jax.Array) -> jax.Array:
    """Hand each row's value to the next row; row 0 receives ``first``."""
    return jnp.concatenate([first[None], values[:-1]])


def _skew(matrix: jax.Array) -> jax.Array:
    """Anti-diagonals as rows: out[s, m] = matrix[m, s - m], zero outside; (K, K) -> (2K-1, K)."""
    K = matrix.shape[0]
    # Rows padded to length 2K and read with stride 2K-1 slide one place to the right each.
    flat = jnp.pad(matrix, ((0, 0), (0, K))).reshape(-1)
    return flat[: K * (2 * K - 1)].reshape(K, 2 * K - 1).T


def _unskew(diagonals: jax.Array) -> jax.Array:
    """The inverse of ``_skew`` on the entries inside: (2K-1, K) -> (K, K)."""
    K = diagonals.shape[1]
    flat = jnp.pad(diagonals.T.reshape(-1), (0, K))
    return flat.reshape(K, 2 * K)[:, :K]
