"""Statements about several items at once, and about whole matchings.

An *event* says which labels some items may have. Exact laws give its probability exactly; else it
is the weighted share of the draws that agree with it, with a standard error.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from permvi._checks import whole
from permvi.posterior.items import UNMATCHED

if TYPE_CHECKING:
    from permvi.posterior.posterior import Posterior

# Rows of all sites in one sequence -> booleans (m+1,), the labels allowed, the last "unmatched".
Event = Mapping[int, np.ndarray]

# Draws from laws that neither know probabilities of events nor keep draws of their own.
_NUM_DRAWS = 10_000
_SEED = 0
# Probabilities that differ by less than this share are ties.
_TIE = 1e-9
# A set of more than this share of all distinct draws would grow with their number.
_MOST_OF_THE_DRAWS = 0.5


class Probability(float):
    """A probability, which is a float, with its standard error.

    Attributes:
        se: The standard error: 0 where the probability was computed exactly, else that of the
            draws. It does not cover what a wrong posterior misses; see the verdict.
    """

    se: float

    def __new__(cls, value: float, se: float = 0.0) -> "Probability":
        """Make a probability; rounding errors beyond 0 and 1 are cut off."""
        self = super().__new__(cls, min(max(float(value), 0.0), 1.0))
        self.se = float(se)
        return self

    def __repr__(self) -> str:
        return f"{float(self):.4g}" + (f" ± {self.se:.2g}" if self.se else "")


class Labelling(NamedTuple):
    """Labels of some items, in the order of the items, and their joint probability."""

    labels: tuple[Any, ...]
    probability: Probability


class Together(NamedTuple):
    """What some items are together.

    Attributes:
        same: The probability that all of them have one and the same label. Items of one
            permutation never do.
        labels: Their most probable joint labels, in decreasing order.
    """

    same: Probability
    labels: list[Labelling]


class CredibleMatchings(NamedTuple):
    """A smallest set of matchings that has at least a given probability.

    Attributes:
        perms: (num, n) or (num, sites, n) the matchings, most probable first, -1 for unmatched.
        probabilities: (num,) their probabilities.
        reached: Whether the set reaches the level and is known to be the smallest.
        note: How the set was found, or why it is not known.
    """

    perms: np.ndarray
    probabilities: np.ndarray
    reached: bool
    note: str


def probability(
    posterior: "Posterior", pairs: Mapping[Any, Any], excluding: Mapping[Any, Any]
) -> Probability:
    """Return the probability that all ``pairs`` hold and none of ``excluding`` does."""
    return _of_event(posterior, _event(posterior, pairs, excluding))


def together(posterior: "Posterior", items: tuple[Any, ...], k: int) -> Together:
    """Return what two or more items are together; see `Together`."""
    rows = [_row(posterior, item) for item in items]
    if len(rows) < 2 or len(set(rows)) < len(rows):
        raise ValueError(f"together needs two different items or more, got {items!r}.")
    n, m = posterior.shape
    states, weights = _support(posterior, rows)
    # The most probable first, and of equals the first in the order of labels.
    found, place = np.unique(states, axis=0, return_inverse=True)
    shares = np.bincount(place.ravel(), weights=weights, minlength=len(found))
    best = found[np.argsort(-shares, kind="stable")[: whole("k", k)]]
    labels = [
        Labelling(
            tuple(_label_name(posterior, state) for state in chosen.tolist()),
            _of_event(posterior, {r: _only(m, [s]) for r, s in zip(rows, chosen, strict=True)}),
        )
        for chosen in best
    ]
    labels.sort(key=lambda one: -one.probability)
    if len({row // n for row in rows}) < len(rows):
        return Together(Probability(0.0), labels)
    if hasattr(posterior.law, "event_probability"):
        each = (_of_event(posterior, {row: _only(m, [j]) for row in rows}) for j in range(m))
        return Together(Probability(sum(each)), labels)
    equal = (states == states[:, :1]).all(axis=1) & (states[:, 0] < m)
    return Together(_estimate(posterior, equal, weights), labels)


def credible_matchings(
    posterior: "Posterior", level: float, max_matchings: int
) -> CredibleMatchings:
    """Return the smallest set of matchings with a probability of at least ``level``."""
    if not 0 < level <= 1:
        raise ValueError(f"level must be above 0 and at most 1, got {level!r}.")
    law: Any = posterior.law
    limit = whole("max_matchings", max_matchings)
    _refuse_marginals(law, "a set of whole matchings")
    # Begin with few: exact laws take their time for each.
    k = min(8, limit)
    while True:
        perms, probs = top(posterior, k)
        total = np.cumsum(probs)
        size = int(np.searchsorted(total, level - 1e-12)) + 1
        if size <= len(probs) or len(probs) < k or k == limit:
            break
        k = min(4 * k, limit)
    perms, probs = perms[:size], probs[:size]
    covered = f"{100 * float(probs.sum()):.3g} %"
    if size > len(total):
        reason = f"the {len(probs):,} most probable matchings known have only {covered}"
        return CredibleMatchings(perms, probs, reached=False, note=reason)
    if not hasattr(law, "weights") or _lists_everything(posterior, law.weights):
        note = f"{len(probs):,} matchings have {covered}, by their exact probabilities"
        return CredibleMatchings(perms, probs, reached=True, note=note)
    distinct, num = law.top(len(law.weights))[1], len(law.weights)
    # Good (1953): the share of draws seen once estimates the probability of all never seen.
    unseen = float((distinct * num < 1.5).sum()) / num if np.ptp(law.weights) == 0 else 0.0
    if unseen > 1 - level or size > _MOST_OF_THE_DRAWS * len(distinct) + 1:
        reason = (
            f"{num:,} draws are too few: they hold {len(distinct):,} different matchings, so most "
            "of those in the set were never drawn"
        )
        return CredibleMatchings(perms, probs, reached=False, note=reason)
    note = f"{len(probs):,} matchings have {covered}, by their shares of {num:,} draws"
    return CredibleMatchings(perms, probs, reached=True, note=note)


def top(posterior: "Posterior", k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return up to k most probable matchings and their probabilities, the mode first.

    The mode has the largest density of all matchings that the fit has seen, so it is known to be at
    least as probable as each of the others. Shares of draws that say otherwise are averaged with
    that of the mode: the maximum likelihood estimate in that order (isotonic regression).
    """
    law, mode = posterior.law, posterior.mode
    perms, probs = law.top(k)
    if not len(perms) or (perms[0] == mode).all():
        return perms, probs
    own = law.weight(mode) if hasattr(law, "weight") else float(np.exp(law.log_prob(mode)))
    wanted = k
    while True:
        others = (perms != mode).reshape(len(perms), -1).any(axis=1)
        perms, probs = perms[others], probs[others]
        means = (own + np.append(0.0, np.cumsum(probs))) / np.arange(1, len(probs) + 2)
        # Average until the next is no more probable than the average.
        done = np.flatnonzero(np.append(probs, 0.0) <= means * (1 + _TIE))[0]
        if done < len(probs) or len(probs) < wanted - 1:
            break
        wanted *= 4
        perms, probs = law.top(wanted)
    probs = np.concatenate([np.full(done + 1, means[done]), probs[done:]])
    return np.concatenate([mode[None], perms])[:k], probs[:k]


def _event(posterior: "Posterior", pairs: Mapping[Any, Any], excluding: Mapping[Any, Any]) -> Event:
    m = posterior.shape[1]
    event: dict[int, np.ndarray] = {}
    for name, given, keep in (("pairs", pairs, True), ("excluding", excluding, False)):
        if not isinstance(given, Mapping):
            raise TypeError(f"{name} must map items to labels, got {given!r:.60}.")
        for item, labels in given.items():
            row = _row(posterior, item)
            if not isinstance(labels, list | tuple | set | frozenset):
                labels = [labels]
            named = _only(m, [_state(posterior, label) for label in labels])
            event[row] = event.get(row, True) & (named if keep else ~named)
    return event


def _of_event(posterior: "Posterior", event: Event) -> Probability:
    law = posterior.law
    if not event:
        return Probability(1.0)
    if len(event) == 1:
        value = _of_one(posterior, *next(iter(event.items())))
        if posterior.log_evidence_kind == "exact" or not hasattr(law, "weights"):
            return Probability(value)
        # Marginals may be finer than shares of draws, so this error is on the safe side.
        return Probability(value, _standard_error(posterior, value))
    if hasattr(law, "event_probability"):
        return Probability(law.event_probability(event))
    states, weights = _support(posterior, list(event))
    holds = np.ones(len(states), bool)
    for column, allowed in zip(states.T, event.values(), strict=True):
        holds &= allowed[column]
    return _estimate(posterior, holds, weights)


def _of_one(posterior: "Posterior", row: int, allowed: np.ndarray) -> float:
    """Return the probability that one item has an allowed label, from the marginals."""
    if issparse(posterior.marginals):
        pairs = posterior.marginals[[row]].toarray()[0]
    else:
        pairs = posterior.marginals.reshape(-1, len(allowed) - 1)[row]
    return float(np.append(pairs, posterior.p_unmatched_rows.ravel()[row])[allowed].sum())


def _support(posterior: "Posterior", rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (num, len(rows)) of items in draws, m for unmatched, and weights (num,)."""
    law: Any = posterior.law
    _refuse_marginals(law, "a statement about several items")
    if hasattr(law, "weights"):
        perms, weights = law.draws, law.weights
    else:
        perms = law.sample(_NUM_DRAWS, np.random.default_rng(_SEED))
        weights = np.full(len(perms), 1.0 / len(perms))
    states = perms.reshape(len(perms), -1)[:, rows].astype(np.int64)
    return np.where(states < 0, posterior.shape[1], states), weights


def _refuse_marginals(law: Any, what: str) -> None:
    if law.kind == "marginals":
        raise ValueError(
            f"{what} needs a method with joint probabilities or draws, got a posterior made of "
            "marginals; fit with method='exact', 'linear' or 'sequential'."
        )


def _estimate(posterior: "Posterior", holds: np.ndarray, weights: np.ndarray) -> Probability:
    """Return the share of draws (num,) for which something holds, with its standard error."""
    value = float(weights[holds].sum())
    if _lists_everything(posterior, weights):
        return Probability(value)
    return Probability(value, _standard_error(posterior, value, weights))


def _lists_everything(posterior: "Posterior", weights: np.ndarray) -> bool:
    """Return whether the draws are all matchings with their exact probabilities."""
    several = np.ptp(weights) > 0 or len(weights) == 1
    return posterior.log_evidence_kind == "exact" and bool(several)


def _standard_error(
    posterior: "Posterior", value: float, weights: np.ndarray | None = None
) -> float:
    r"""Return the standard error of a share p of the draws, :math:`\sqrt{p (1 - p) / N}`.

    N is the effective number of draws: that of their weights, or of a chain as the diagnostics know
    it. Half a draw is added to both sides, so that no share is certain.
    """
    law: Any = posterior.law
    weights = law.weights if weights is None else weights
    num = 1.0 / float((weights**2).sum())
    per_draw = posterior.diagnostics.ess_per_draw
    if np.ptp(weights) == 0 and per_draw is not None and 0 < per_draw < 1:
        num *= per_draw
    share = (num * value + 0.5) / (num + 1)
    return float(np.sqrt(share * (1 - share) / num))


def _only(m: int, states: Iterable[int]) -> np.ndarray:
    allowed = np.zeros(m + 1, bool)
    allowed[list(states)] = True
    return allowed


def _row(posterior: "Posterior", item: Any) -> int:
    """Return the place of an item, or of a pair (site, item), among the rows of all sites."""
    n, S = posterior.shape[0], posterior.num_sites
    site = 0
    if S > 1:
        if not isinstance(item, tuple) or len(item) != 2:
            raise ValueError(f"items must be pairs (site, item) with {S} sites, got {item!r}.")
        site, item = item
        if not _is_index(site) or not 0 <= site < S:
            raise ValueError(f"the site of an item must be 0 to {S - 1}, got {site!r}.")
    return int(site) * n + _place("item", item, posterior.labels[0], n)


def _state(posterior: "Posterior", label: Any) -> int:
    """Return the place of a label among the columns, m for unmatched."""
    m, names = posterior.shape[1], posterior.labels[1]
    if label is None or (_is_index(label) and label == -1):
        return m
    if label == UNMATCHED and UNMATCHED not in (names or ()):
        return m
    return _place("label", label, names, m)


def _place(kind: str, value: Any, names: tuple[str, ...] | None, size: int) -> int:
    if _is_index(value):
        if not 0 <= value < size:
            raise ValueError(f"{kind} must be 0 to {size - 1} or a name, got {value}.")
        return int(value)
    if names is None:
        raise ValueError(f"{kind} must be an index, since there are no names, got {value!r:.60}.")
    places = [k for k, name in enumerate(names) if name == str(value)]
    if len(places) != 1:
        much = "the name of none" if not places else f"the name of {len(places)}"
        raise ValueError(f"{kind} must be the name of one {kind}, got {value!r:.60}, {much}.")
    return places[0]


def _is_index(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _label_name(posterior: "Posterior", state: int) -> Any:
    """Return a label's name, its index if it has none, or None for unmatched."""
    names = posterior.labels[1]
    if state == posterior.shape[1]:
        return None
    return state if names is None else names[state]
