"""Summaries of marginals by item, and point estimates that minimise an expected loss."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from permvi._assignment.duality import best_matching
from permvi._checks import one_of
from permvi.posterior.marginals import Marginals

UNMATCHED = "unmatched"

# A sum that is short of the level by less than this, a rounding error, reaches it.
_ROUNDING = 1e-12

Labels = tuple[tuple[str, ...] | None, tuple[str, ...] | None]
Loss = Literal["hamming", "footrule"]


@dataclass(frozen=True)
class Item:
    """A summary of one row; labels are integers (-1: unmatched) where the model names none.

    Attributes:
        site: Index of its permutation.
        row: Index of the row.
        item: Label of the row.
        best: Most probable label.
        probability: Probability of the most probable label.
        runner_up: Second most probable label.
        runner_up_probability: Probability of the second most probable label.
        p_unmatched: Probability that the item is unmatched.
        entropy: Entropy of the item's label in nats.
        credible_set: Smallest set of labels with the requested probability, most probable first.
    """

    site: int
    row: int
    item: str | int
    best: str | int
    probability: float
    runner_up: str | int
    runner_up_probability: float
    p_unmatched: float
    entropy: float
    credible_set: tuple[str | int, ...]


def states(marginals: Marginals) -> np.ndarray:
    """Return (..., n, m+1) probabilities of each row's labels, 'unmatched' last."""
    return np.concatenate([marginals.marginals, marginals.p_unmatched_rows[..., None]], axis=-1)


def entropies(marginals: Marginals) -> np.ndarray:
    """Return (..., n) entropies ``-sum_j p[i, j] log p[i, j]`` in nats, 'unmatched' included."""
    p = states(marginals)
    return np.maximum(0.0, -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=-1))


def credible_sets(marginals: Marginals, level: float) -> list:
    """Return for each row the fewest columns (-1: unmatched) whose probabilities reach ``level``.

    Returns:
        A list over rows (with several sites, a list of such lists) of tuples, most probable first.
    """
    if not 0 < level <= 1:
        raise ValueError(f"level must be in (0, 1], got {level}.")
    p = states(marginals)
    order = np.argsort(-p, axis=-1, kind="stable")
    reached = np.cumsum(np.take_along_axis(p, order, axis=-1), axis=-1) >= level - _ROUNDING
    # With rounding errors even the sum over all labels may be short of the level.
    sizes = np.where(reached.any(-1), reached.argmax(-1) + 1, np.count_nonzero(p > 0, axis=-1))
    columns = np.where(order == p.shape[-1] - 1, -1, order)

    def collect(columns: np.ndarray, sizes: np.ndarray) -> list:
        if sizes.ndim > 1:
            return [collect(*site) for site in zip(columns, sizes, strict=True)]
        return [tuple(row[:size].tolist()) for row, size in zip(columns, sizes, strict=True)]

    return collect(columns, sizes)


def summarise_items(marginals: Marginals, labels: Labels, level: float) -> list[Item]:
    """Return the summaries of all items, site by site."""
    n, m = marginals.marginals.shape[-2:]
    p = states(marginals).reshape(-1, n, m + 1)
    order = np.argsort(-p, axis=-1, kind="stable")
    entropy = entropies(marginals).reshape(-1, n)
    sets = credible_sets(Marginals(p[..., :m], p[..., m], marginals.p_unmatched_cols), level)
    row_labels, col_labels = labels

    def name(column: int) -> str | int:
        if col_labels is None:
            return -1 if column == m else column
        return UNMATCHED if column in (-1, m) else col_labels[column]

    return [
        Item(
            site=site,
            row=row,
            item=row if row_labels is None else row_labels[row],
            best=name(int(order[site, row, 0])),
            probability=float(p[site, row, order[site, row, 0]]),
            runner_up=name(int(order[site, row, 1])),
            runner_up_probability=float(p[site, row, order[site, row, 1]]),
            p_unmatched=float(p[site, row, m]),
            entropy=float(entropy[site, row]),
            credible_set=tuple(name(column) for column in sets[site][row]),
        )
        for site, row in np.ndindex(p.shape[:2])
    ]


class Decision(NamedTuple):
    """A matching and its expected loss.

    Attributes:
        perm: (n,) or (sites, n) integers, -1 for unmatched.
        expected_loss: The expected loss under the posterior, summed over sites.
    """

    perm: np.ndarray
    expected_loss: float


def decode(marginals: Marginals, loss: Loss = "hamming") -> Decision:
    """Return the matching x with the least expected loss ``E sum_i l(x_i, y_i)``, y the posterior.

    With p the marginals and -1 for unmatched, an item's loss is

        hamming:   l(x, y) = [x != y], expected ``1 - p[i, x]``;
        footrule:  l(x, y) = |x - y|, expected ``sum_j p[i, j] |x - j|``, and m (more than any
                   displacement) if only one of x and y is unmatched.

    Rows and columns that are never unmatched are matched. The Hamming decoder also keeps to pairs
    of positive probability. The footrule decoder need not, since a rank between two probable ones
    may be the best answer.

    Args:
        marginals: The marginals of the posterior.
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
    """Return (n, m+1) expected losses; the last column is for unmatched rows."""
    return 1.0 - np.column_stack([pairs, p_unmatched])


def _footrule(pairs: np.ndarray, p_unmatched: np.ndarray) -> np.ndarray:
    m = pairs.shape[1]
    places = np.arange(m)
    displaced = pairs @ np.abs(places[:, None] - places) + m * p_unmatched[:, None]
    return np.column_stack([displaced, m * pairs.sum(axis=1)])


def _assign(values: np.ndarray, col_alone: np.ndarray) -> np.ndarray:
    """Return the best matching of (n, m+1) values; only ``col_alone`` columns may stay unused."""
    grounded = np.vstack([values, np.append(np.where(col_alone, 0.0, -np.inf), 0.0)])
    perm = best_matching(grounded)
    if perm is None:
        # Only sums that are off by a whole unit lead here: marginals are averages of matchings.
        raise ValueError("marginals must be averages of matchings, got some that no matching fits.")
    return perm
