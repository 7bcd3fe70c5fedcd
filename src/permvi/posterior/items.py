"""Summaries of marginals by item, and point estimates that minimise an expected loss."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

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


class Matching(NamedTuple):
    """A matching, (n,) or (sites, n) with -1 for unmatched, and its probability."""

    perm: np.ndarray
    probability: float


class NamedMatching(NamedTuple):
    """A matching by names, and its probability.

    ``matching`` maps items to labels (None: unmatched), or is a list of such maps over sites.
    Items or labels without names are numbers.
    """

    matching: Any
    probability: float


class Ranked(NamedTuple):
    """The possible states of each row, the most probable first; ties are in order of columns.

    Rows of several sites follow each other. State m is "unmatched".

    Attributes:
        starts: (rows + 1,) the first entry of each row, and the number of entries.
        states: (entries,) columns.
        probs: (entries,) their probabilities, all positive.
    """

    starts: np.ndarray
    states: np.ndarray
    probs: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def take(self, rows: np.ndarray) -> "Ranked":
        """Return the entries of some rows, in the given order."""
        counts = np.diff(self.starts)[rows]
        starts = np.append(0, np.cumsum(counts))
        places = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], counts)
        return Ranked(starts, self.states[places], self.probs[places])

    def sizes(self, level: float) -> np.ndarray:
        """Return (rows,) how many states of each row it takes to reach ``level``, in (0, 1]."""
        if not (isinstance(level, int | float | np.floating) and 0 < level <= 1):
            raise ValueError(f"level must be in (0, 1], got {level!r:.60}.")
        counts = np.diff(self.starts)
        # With rounding errors even the sum over all states may be short of the level.
        sizes, totals = counts.copy(), np.zeros(len(counts))
        left, rank = np.flatnonzero(counts), 0
        while left.size:
            totals[left] += self.probs[self.starts[left] + rank]
            rank += 1
            reached = totals[left] >= level - _ROUNDING
            sizes[left[reached]] = rank
            left = left[~reached & (counts[left] > rank)]
        return sizes


def ranked(marginals: Marginals) -> Ranked:
    """Return the possible states of all rows in decreasing order of probability."""
    m = marginals.marginals.shape[-1]
    if not marginals.is_sparse:
        p = states(marginals).reshape(-1, m + 1)
        order = np.argsort(-p, axis=-1, kind="stable")
        counts = np.count_nonzero(p > 0, axis=-1)
        first = np.arange(m + 1) < counts[:, None]
        columns = order[first]
        rows = np.repeat(np.arange(len(p)), counts)
        return Ranked(np.append(0, np.cumsum(counts)), columns, p[rows, columns])
    rows, cols, probs = marginals.pairs()
    alone = np.flatnonzero(marginals.p_unmatched_rows > 0)
    rows = np.concatenate([rows, alone])
    cols = np.concatenate([cols, np.full(len(alone), m)])
    probs = np.concatenate([probs, marginals.p_unmatched_rows[alone]])
    order = np.lexsort((cols, -probs, rows))
    starts = np.searchsorted(rows[order], np.arange(marginals.marginals.shape[0] + 1))
    return Ranked(starts, cols[order], probs[order])


def states(marginals: Marginals) -> np.ndarray:
    """Return (..., n, m+1) probabilities of each row's labels, 'unmatched' last."""
    return np.concatenate([marginals.marginals, marginals.p_unmatched_rows[..., None]], axis=-1)


def entropies(marginals: Marginals) -> np.ndarray:
    """Return (..., n) entropies ``-sum_j p[i, j] log p[i, j]`` in nats, 'unmatched' included."""
    if marginals.is_sparse:
        rows, _, p = marginals.pairs()
        alone = marginals.p_unmatched_rows
        of_pairs = np.bincount(rows, _information(p), minlength=len(alone))
        return np.maximum(0.0, of_pairs + _information(alone))
    return np.maximum(0.0, np.sum(_information(states(marginals)), axis=-1))


def _information(p: np.ndarray) -> np.ndarray:
    """Return ``-p log p`` of each probability."""
    return -p * np.log(np.where(p > 0, p, 1.0))


def credible_sets(marginals: Marginals, level: float) -> list:
    """Return for each row the fewest columns (-1: unmatched) whose probabilities reach ``level``.

    Returns:
        A list over rows (with several sites, a list of such lists) of tuples, most probable first.
    """
    n, m = marginals.marginals.shape[-2:]
    found = ranked(marginals)
    sets = _sets(found, np.where(found.states == m, -1, found.states).tolist(), level)
    if marginals.p_unmatched_rows.ndim == 1:
        return sets
    return [sets[k : k + n] for k in range(0, len(sets), n)]


def _sets(found: Ranked, names: list, level: float) -> list[tuple]:
    """Return the credible set of each row, given the name of each entry."""
    starts = found.starts[:-1]
    ends = starts + found.sizes(level)
    return [tuple(names[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def summarise_items(
    marginals: Marginals, labels: Labels, level: float, rows: np.ndarray | None = None
) -> list[Item]:
    """Return the summaries of all items, site by site, or of some of these ``rows``."""
    columns = item_columns(marginals, labels, level, rows)
    return [Item(*values) for values in zip(*columns.values(), strict=True)]


def item_columns(
    marginals: Marginals, labels: Labels, level: float, rows: np.ndarray | None = None
) -> dict[str, list]:
    """Return the fields of `Item` by name, each a list over all items or over some ``rows``."""
    n, m = marginals.marginals.shape[-2:]
    found, entropy = ranked(marginals), entropies(marginals).ravel()
    alone = marginals.p_unmatched_rows.ravel()
    if rows is None:
        rows = np.arange(len(alone))
    else:
        found, entropy, alone = found.take(rows), entropy[rows], alone[rows]
    # An entry more, so that the runner-up of the last row has a place to look at.
    ends, probs = np.append(found.states, 0), np.append(found.probs, 0.0)
    first = found.starts[:-1]
    best = ends[first]
    several = np.diff(found.starts) > 1
    # Of labels without any probability the first one is the runner-up.
    runner_up = np.where(several, ends[first + 1], np.where(best == 0, 1, 0))
    return {
        "site": (rows // n).tolist(),
        "row": (rows % n).tolist(),
        "item": _item_names(labels, rows % n),
        "best": _label_names(labels, best, m),
        "probability": probs[first].tolist(),
        "runner_up": _label_names(labels, runner_up, m),
        "runner_up_probability": np.where(several, probs[first + 1], 0.0).tolist(),
        "p_unmatched": alone.tolist(),
        "entropy": entropy.tolist(),
        "credible_set": _sets(found, _label_names(labels, found.states, m), level),
    }


def pair_columns(marginals: Marginals, labels: Labels) -> dict[str, list]:
    """Return site, item, label and probability of all possible pairs, "unmatched" included.

    The items are in order, and the labels of an item in decreasing order of probability.
    """
    n, m = marginals.marginals.shape[-2:]
    found = ranked(marginals)
    return {
        "site": (found.rows // n).tolist(),
        "item": _item_names(labels, found.rows % n),
        "label": _label_names(labels, found.states, m),
        "probability": found.probs.tolist(),
    }


def with_one_to_one(
    columns: dict[str, list], marginals: Marginals, labels: Labels
) -> dict[str, list]:
    """Add the labels of the best one-to-one decision to the columns of all items."""
    m = marginals.marginals.shape[-1]
    chosen = decode(marginals).perm.ravel()
    found: dict[str, list] = {}
    for name, values in columns.items():
        found[name] = values
        if name == "probability":
            found["one_to_one"] = _label_names(labels, np.where(chosen < 0, m, chosen), m)
    return found


def matchings(perms: Any, probs: Any, labels: Labels, *, names: bool) -> list:
    """Return matchings and their probabilities, by names or not."""
    if not names:
        return [Matching(perm, float(p)) for perm, p in zip(perms, probs, strict=True)]
    return [NamedMatching(_by_name(x, labels), float(p)) for x, p in zip(perms, probs, strict=True)]


def _by_name(perm: np.ndarray, labels: Labels) -> Any:
    """Return a matching (n,) as a dictionary from items to labels, or (sites, n) as a list."""
    if perm.ndim > 1:
        return [_by_name(one, labels) for one in perm]
    rows = range(len(perm)) if labels[0] is None else labels[0]
    return dict(zip(rows, _named(perm.tolist(), labels[1]), strict=True))


def sets_by_name(sets: list, labels: Labels) -> Any:
    """Return credible sets as a dictionary from items to labels, or a list of them over sites."""
    if sets and isinstance(sets[0], list):
        return [sets_by_name(one, labels) for one in sets]
    rows = range(len(sets)) if labels[0] is None else labels[0]
    return {row: tuple(_named(one, labels[1])) for row, one in zip(rows, sets, strict=True)}


def _named(columns: Iterable[int], names: Sequence[str] | None) -> list:
    """Return the names of columns, their indices if they have none; None for -1."""
    return [None if k < 0 else k if names is None else names[k] for k in columns]


def _item_names(labels: Labels, rows: np.ndarray) -> list:
    """Return the names of rows, their indices if they have none."""
    names = labels[0]
    return rows.tolist() if names is None else [names[row] for row in rows.tolist()]


def _label_names(labels: Labels, states: np.ndarray, m: int) -> list:
    """Return the names of columns, their indices if they have none; state m is "unmatched"."""
    if labels[1] is None:
        return np.where(states == m, -1, states).tolist()
    named = (*labels[1], UNMATCHED)
    return [named[state] for state in states.tolist()]


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
    if marginals.is_sparse:
        return _decode_lists(marginals, loss)
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


def _decode_lists(marginals: Marginals, loss: Loss) -> Decision:
    """Return the matching of least expected Hamming loss under sparse marginals."""
    # Imported here because small posteriors do not need it.
    from permvi.problem.candidates import Candidates, best_matching

    if loss != "hamming":
        n, m = marginals.marginals.shape
        raise ValueError(
            f"loss must be 'hamming' for a posterior of {n * m:,} pairs, whose marginals are "
            f"sparse, got {loss!r}."
        )
    rows, cols, probs = marginals.pairs()
    alone = marginals.p_unmatched_rows
    problem = Candidates(
        rows,
        cols,
        probs - 1.0,
        np.where(alone > 0, alone - 1.0, -np.inf),
        np.where(marginals.p_unmatched_cols > 0, 0.0, -np.inf),
    )
    try:
        perm = best_matching(problem)
    except ValueError:
        raise ValueError(_NOT_AVERAGES) from None
    return Decision(perm, -problem.log_weight(perm))


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
        raise ValueError(_NOT_AVERAGES)
    return perm


_NOT_AVERAGES = "marginals must be averages of matchings, got some that no matching fits."
