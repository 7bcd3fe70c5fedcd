"""What the marginals say of each item: its best labels, its credible set, its entropy."""

from dataclasses import dataclass

import numpy as np

from permvi.posterior.marginals import Marginals

UNMATCHED = "unmatched"

# Sums of probabilities are rounded; what is short of the level by less than this reaches it.
_ROUNDING = 1e-12

Labels = tuple[tuple[str, ...] | None, tuple[str, ...] | None]


@dataclass(frozen=True)
class Item:
    """One row of the posterior in words; labels are integers (-1: unmatched) where there are none.

    Attributes:
        site: Which of several permutations.
        row: Its index.
        item: Its label.
        best: Its most probable label.
        probability: That label's probability.
        runner_up: The second most probable label.
        runner_up_probability: Its probability.
        p_unmatched: The probability that the item is unmatched.
        entropy: The entropy of its label in nats.
        credible_set: The smallest set of labels that holds the asked mass, most probable first.
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
    """(..., n, m+1) probabilities of each row's labels, 'unmatched' last."""
    return np.concatenate([marginals.marginals, marginals.p_unmatched_rows[..., None]], axis=-1)


def entropies(marginals: Marginals) -> np.ndarray:
    """(..., n) entropies ``-sum_j p[i, j] log p[i, j]`` in nats, 'unmatched' included."""
    p = states(marginals)
    return np.maximum(0.0, -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=-1))


def credible_sets(marginals: Marginals, level: float) -> list:
    """For each row the fewest columns (-1: unmatched) whose probabilities reach ``level``.

    Returns:
        A list over rows, or of such lists over sites, of tuples in decreasing probability.
    """
    if not 0 < level <= 1:
        raise ValueError(f"level must be in (0, 1], got {level}.")
    p = states(marginals)
    order = np.argsort(-p, axis=-1, kind="stable")
    reached = np.cumsum(np.take_along_axis(p, order, axis=-1), axis=-1) >= level - _ROUNDING
    # Rounding may leave even the sum of all labels short of the level.
    sizes = np.where(reached.any(-1), reached.argmax(-1) + 1, np.count_nonzero(p > 0, axis=-1))
    columns = np.where(order == p.shape[-1] - 1, -1, order)

    def collect(columns: np.ndarray, sizes: np.ndarray) -> list:
        if sizes.ndim > 1:
            return [collect(*site) for site in zip(columns, sizes, strict=True)]
        return [tuple(row[:size].tolist()) for row, size in zip(columns, sizes, strict=True)]

    return collect(columns, sizes)


def summarise_items(marginals: Marginals, labels: Labels, level: float) -> list[Item]:
    """All items, site by site."""
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
