"""The sweep of ``_wavefront`` for values alone, arranged for the vector units of CPUs.

It computes the same numbers with three changes. The values that rows pass on are overwritten in
place, because a shifted copy takes a loop with branches. The number of rows is a multiple of what
fills the vector registers, because single rows at the end of a loop are slow. The sweep is cut into
more segments. None of this suits the sweep of tangents, whose transpose it would slow down, nor
devices where each operation of a step is a launch.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from permvi.transforms._cells import Margins, choose, proportions, split
from permvi.transforms._diagonals import (
    LANES,
    LARGE,
    Segment,
    segments,
    skew,
    unskew,
    with_idle_rows,
)

# For larger matrices the number of rows is a multiple of this.
_LANES = 32
_NUM_WIDTHS = 3


class _State(NamedTuple):
    """The values that each row has passed on, and the sum of its log widths.

    The first entries of ``down`` and ``corner`` come from above the first row, so that all entries
    but the last are what each row receives.
    """

    right: jax.Array  # (rows,)
    down: jax.Array  # (1 + rows,)
    corner: jax.Array  # (1 + rows,), to the lower right
    log_widths: jax.Array  # (rows,)


def sweep_values(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The (N, N) log matrix and the (K,) row sums of the log widths of (K, K) logits, N = K + 1."""
    K = logits.shape[0]
    is_large = K >= LARGE
    padded = with_idle_rows(logits, _LANES if is_large else LANES)
    rows = padded.shape[0]
    width = _LANES * math.ceil(K / (_NUM_WIDTHS * _LANES)) if is_large else rows
    # The remainder of the later columns before row 0 (and of the later rows before column 0).
    later = jnp.arange(K, 0, -1, dtype=logits.dtype)
    later = jnp.where(later > 1, later, 0)
    # The value that the first row receives in the next step, while it has a cell there.
    above = jnp.pad(later[1:], (0, K))
    diagonals = skew(padded)
    zeros = jnp.zeros(rows, logits.dtype)
    corner = jnp.concatenate([later[:1], later, zeros[K:]])
    state = _State(zeros, jnp.zeros_like(corner), corner, zeros)
    x_parts, down_parts = [], []
    for segment in segments(K, rows, width):
        start, stop, low, high = segment
        ends = high, high + 1, high + 1, high
        part, (x, down) = lax.scan(
            functools.partial(_advance, segment, K),
            _State(*(leaf[low:end] for leaf, end in zip(state, ends, strict=True))),
            (jnp.arange(start, stop), above[start:stop], diagonals[start:stop, low:high]),
        )
        state = _State(*(a.at[low:end].set(b) for a, b, end in zip(state, part, ends, strict=True)))
        x_parts.append(jnp.pad(x, ((0, 0), (low, rows - high)))[:, :K])
        down_parts.append(down)
    log_x = unskew(jnp.concatenate(x_parts))
    last_row = jnp.concatenate(down_parts)[K - 1 :]
    log_matrix = jnp.block(
        [[log_x, state.right[:K, None]], [last_row[None], state.corner[None, K : K + 1]]]
    )
    return log_matrix, state.log_widths[:K]


def _advance(
    segment: Segment, K: int, state: _State, inputs: tuple[jax.Array, jax.Array, jax.Array]
) -> tuple[_State, tuple[jax.Array, jax.Array]]:
    """Sweep one anti-diagonal; return the state, log x and the value the last row passes down."""
    diagonal, above, logit = inputs
    right, down, corner, log_widths = state
    margins = Margins(right, down[:-1], corner[:-1], corner[1:])
    choice = choose(margins)
    cells = split(choice, proportions(logit))
    # Outside its columns a row keeps its values.
    column = diagonal - jnp.arange(segment.low, segment.high)
    active = (column >= 0) & (column < K)
    state = _State(
        jnp.where(active, cells.right, right),
        down.at[1:].set(cells.down),
        corner.at[1:].set(jnp.where(active, cells.corner, margins.D)).at[0].set(above),
        log_widths + jnp.where(active, choice.w, 0),
    )
    last = min(segment.high, K) - 1 - segment.low
    return state, (cells.x, cells.down[last])
