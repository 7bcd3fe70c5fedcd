r"""The stick-breaking lattice of the Birkhoff polytope, swept along anti-diagonals in logarithms.

Each cell of the free (N-1, N-1) block takes four margins from its upper and left neighbours and
passes on three, see ``_cells``. Anti-diagonals are independent, so the sweep takes 2N-3 vectorised
steps. Only the middle ones use every row; in large matrices the others are swept without the rows
that have not begun or have ended.

The sweep of tangents is linear in them, so JAX transposes it for reverse mode. Where no derivatives
are asked for, CPUs take the sweep of ``_forward`` instead.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from permvi.transforms._cells import (
    Cells,
    Margins,
    choose,
    proportions,
    split,
    split_tangents,
    unit,
)
from permvi.transforms._diagonals import (
    LANES,
    LARGE,
    Segment,
    segments,
    skew,
    unskew,
    with_idle_rows,
)
from permvi.transforms._forward import sweep_values


class _State(NamedTuple):
    """The values that each row has passed to the right, down and to the lower right; (K,) each."""

    right: jax.Array
    down: jax.Array
    corner: jax.Array


@jax.custom_jvp
def birkhoff_from_logits(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Fill a doubly-stochastic matrix from the logits of its stick proportions b.

    Finite (K, K) logits with K >= 1 give the (N, N) matrix, N = K + 1, and the (K,) row sums of the
    log widths.
    """
    log_matrix, log_widths = lax.platform_dependent(
        logits, cpu=sweep_values, default=lambda logits: _sweep(logits)[:2]
    )
    return jnp.exp(log_matrix), log_widths


@birkhoff_from_logits.defjvp
def _birkhoff_from_logits_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    (logits,), (logits_dot,) = primals, tangents
    log_matrix, log_widths, history = _sweep(logits)
    matrix = jnp.exp(log_matrix)
    return (matrix, log_widths), _sweep_tangents(logits, log_matrix, history, logits_dot)


def _sweep(logits: jax.Array) -> tuple[jax.Array, jax.Array, list[Margins]]:
    """The log matrix, the log widths summed over each row, and the margins that each cell met."""
    K = logits.shape[0]
    # The remainder of the later columns before row 0 (and of the later rows before column 0).
    later = jnp.arange(K, 0, -1, dtype=logits.dtype)
    later = jnp.where(later > 1, later, 0)
    diagonals = _diagonals_of(logits)
    zeros = jnp.zeros_like(diagonals[0])

    def step(margins: Margins, logit: jax.Array) -> tuple[Cells, jax.Array, Margins]:
        choice = choose(margins)
        return split(choice, proportions(logit)), choice.w, margins

    start = _State(zeros, zeros, zeros.at[:K].set(later))
    end, log_widths, log_x, last_row, history = _drive(step, start, later, [diagonals])
    log_matrix = jnp.block([[log_x, end.right[:, None]], [last_row[None], end.corner[None, -1:]]])
    return log_matrix, log_widths, history


def _sweep_tangents(
    logits: jax.Array, log_matrix: jax.Array, history: list[Margins], logits_dot: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Tangents of the matrix and of the rows' log widths, linear in ``logits_dot``."""
    K = logits.shape[0]

    # Recomputing the coefficients on the way back is cheaper than storing them for every cell.
    @jax.checkpoint
    def step(
        tangents: Margins, logit: jax.Array, logit_dot: jax.Array, margins: Margins
    ) -> tuple[Cells, jax.Array, None]:
        return *split_tangents(choose(margins), proportions(logit), tangents, logit_dot), None

    diagonals = [_diagonals_of(logits), _diagonals_of(logits_dot)]
    zeros = jnp.zeros_like(diagonals[1][0])
    end, log_widths, x_dot, last_row, _ = _drive(
        step, _State(zeros, zeros, zeros), zeros[:K], diagonals, history
    )
    edge = jnp.exp(log_matrix) * unit(log_matrix)
    matrix_dot = jnp.block(
        [
            [x_dot, (edge[:K, K] * end.right)[:, None]],
            [(edge[K, :K] * last_row)[None], (edge[K, K] * end.corner[-1])[None, None]],
        ]
    )
    return matrix_dot, log_widths


def _diagonals_of(matrix: jax.Array) -> jax.Array:
    """Anti-diagonals as rows, with idle rows of the matrix if it is small."""
    return skew(with_idle_rows(matrix, LANES if matrix.shape[0] < LARGE else 1))


def _drive(
    step: Callable[..., tuple[Cells, jax.Array, Any]],
    state: _State,
    first_R: jax.Array,
    diagonals: list[jax.Array],
    by_segment: list[Margins] | None = None,
) -> tuple[_State, jax.Array, jax.Array, jax.Array, list[Any]]:
    """Sweep all anti-diagonals, for values and for tangents alike.

    A step takes the margins of an anti-diagonal and its inputs: ``diagonals``, (2K-1, rows) each,
    and ``by_segment``, as kept by an earlier sweep. It returns what its cells pass on, their terms
    of the sums over rows, and anything to keep. ``first_R`` (K,) is the margin R of row 0, whose
    margin c is zero. Return the final state, the sums over rows, the entries x of the cells as a
    (K, K) matrix, what the last row passes down to each column, and what was kept, by segments.
    """
    K, rows = first_R.shape[0], state.right.shape[0]
    width = rows if K < LARGE else math.ceil(K / 2)
    sums = jnp.zeros_like(state.right)
    x_parts, down_parts, kept = [], [], []
    for number, segment in enumerate(segments(K, rows, width)):
        start, stop, low, high = segment
        above = (jnp.zeros(stop - start, first_R.dtype), jnp.pad(first_R, (0, K - 1))[start:stop])
        if low > 0:
            # Only the first of these steps still has a cell in the first row.
            nothing = jnp.zeros_like(above[0])
            above = (
                nothing.at[0].set(state.down[low - 1]),
                nothing.at[0].set(state.corner[low - 1]),
            )
        rest: list[Any] = [diagonal[start:stop, low:high] for diagonal in diagonals]
        if by_segment is not None:
            rest.append(by_segment[number])
        carry = (_State(*(leaf[low:high] for leaf in state)), sums[low:high])
        (part, sums_part), (x, down, keep) = lax.scan(
            functools.partial(_advance, step, min(high, K) - 1 - low),
            carry,
            (_active(segment, K), above, rest),
        )
        state = _State(*(a.at[low:high].set(b) for a, b in zip(state, part, strict=True)))
        sums = sums.at[low:high].set(sums_part)
        x_parts.append(jnp.pad(x, ((0, 0), (low, rows - high)))[:, :K])
        down_parts.append(down)
        kept.append(keep)
    last_row = jnp.concatenate(down_parts)[K - 1 :]
    state = _State(*(leaf[:K] for leaf in state))
    return state, sums[:K], unskew(jnp.concatenate(x_parts)), last_row, kept


def _advance(
    step: Callable[..., tuple[Cells, jax.Array, Any]], last: int, carry: Any, inputs: Any
) -> Any:
    """Sweep one anti-diagonal: gather the margins, take the step, pass on active rows' values."""
    (right, down, corner), sums = carry
    active, (first_c, first_R), rest = inputs
    margins = Margins(right, _shift(down, first_c), _shift(corner, first_R), corner)
    cells, share, keep = step(margins, *rest)
    # Outside its columns a row keeps its values.
    passed = _State(
        jnp.where(active, cells.right, right), cells.down, jnp.where(active, cells.corner, corner)
    )
    return (passed, sums + jnp.where(active, share, 0)), (cells.x, cells.down[last], keep)


def _active(segment: Segment, K: int) -> jax.Array:
    """(steps, rows): whether the anti-diagonal has a cell in the row."""
    row = jnp.arange(segment.low, segment.high)
    column = jnp.arange(segment.start, segment.stop)[:, None] - row
    return (column >= 0) & (column < K) & (row < K)


def _shift(values: jax.Array, first: jax.Array) -> jax.Array:
    """Pass each row's value to the next row; row 0 receives ``first``."""
    return jnp.concatenate([first[None], values[:-1]])
