"""Point estimates that minimise an expected loss: each is an assignment on the marginals."""

from typing import Literal, NamedTuple, get_args

import numpy as np

from permvi._assignment.duality import best_matching
from permvi._choices import one_of
from permvi.posterior.marginals import Marginals

Loss = Literal["hamming", "footrule"]


class Decision(NamedTuple):
    """A matching and the loss it has on average.

    Attributes:
        perm: (n,) or (sites, n) integers, -1 for unmatched.
        expected_loss: Its expected loss under the posterior, summed over sites.
    """

    perm: np.ndarray
    expected_loss: float


def decode(marginals: Marginals, loss: Loss = "hamming") -> Decision:
    """The matching x of least expected loss ``E sum_i l(x_i, y_i)`` with y from the posterior.

    With p the marginals and -1 the label of what is unmatched, an item's loss is

        hamming:   l(x, y) = [x != y], expected ``1 - p[i, x]``;
        footrule:  l(x, y) = |x - y|, expected ``sum_j p[i, j] |x - j|``, and m where only one of x
                   and y is unmatched: more than any displacement.

    Rows and columns that are never unmatched are matched. The Hamming decoder also keeps to pairs
    that have a probability; the footrule decoder need not, since a rank between two probable ones
    may be the best answer.

    Args:
        marginals: What the posterior knows of each item.
        loss: "hamming" or "footrule".

    Returns:
        The matching and its expected loss.
    """
    one_of("loss", loss, get_args(Loss))
    pairs, rows, cols = marginals
    n, m = pairs.shape[-2:]
    losses = np.stack(
        [
            _hamming(p, p_row) if loss == "hamming" else _footrule(p, p_row)
            for p, p_row in zip(pairs.reshape(-1, n, m), rows.reshape(-1, n), strict=True)
        ]
    )
    possible = np.ones_like(losses, dtype=bool)
    possible[..., m] = rows.reshape(-1, n) > 0
    if loss == "hamming":
        possible[..., :m] = pairs.reshape(-1, n, m) > 0
    perms = [
        _assign(np.where(allowed, -table, -np.inf), col_alone)
        for table, allowed, col_alone in zip(losses, possible, cols.reshape(-1, m) > 0, strict=True)
    ]
    total = sum(float(table[np.arange(n), x].sum()) for table, x in zip(losses, perms, strict=True))
    return Decision(np.stack(perms).reshape(rows.shape), total)


def _hamming(pairs: np.ndarray, p_unmatched: np.ndarray) -> np.ndarray:
    """(n, m+1) expected losses, those of leaving a row unmatched last."""
    return 1.0 - np.column_stack([pairs, p_unmatched])


def _footrule(pairs: np.ndarray, p_unmatched: np.ndarray) -> np.ndarray:
    m = pairs.shape[1]
    places = np.arange(m)
    displaced = pairs @ np.abs(places[:, None] - places) + m * p_unmatched[:, None]
    return np.column_stack([displaced, m * pairs.sum(axis=1)])


def _assign(values: np.ndarray, col_alone: np.ndarray) -> np.ndarray:
    """The best matching of (n, m+1) values; columns stay unmatched only where they may."""
    grounded = np.vstack([values, np.append(np.where(col_alone, 0.0, -np.inf), 0.0)])
    perm = best_matching(grounded)
    if perm is None:
        # Marginals are averages of matchings, so this takes sums that are off by a whole unit.
        raise ValueError("marginals must be averages of matchings, got some that no matching fits.")
    return perm
