"""Rank items from ballots: choose a model, check it, and say what can be relied on."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from permvi import _checks
from permvi.inference.method import Progress, silent
from permvi.inference.rankings import groups as voters
from permvi.inference.rankings import robust as checks
from permvi.inference.rankings import solve
from permvi.inference.rankings.consensus import Kemeny, contradicted, kemeny
from permvi.inference.rankings.groups import ComparedGroups, Groups
from permvi.inference.rankings.solve import MODELS, Answer
from permvi.models import Rankings, fingerprint
from permvi.posterior import Posterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AUTO = "auto"
# The fewest sweeps, draws and resamples.
_LEAST = 20
# Models whose groups are compared by default, beside the best model of all voters together.
_KINDS_OF_GROUPS = ("mallows", "plackett_luce")


class Compared(NamedTuple):
    """A model and its log evidence.

    Attributes:
        name: The name of the model.
        log_evidence: The log probability of the ballots, None if the model does not take them.
        se: Its standard error, 0 where it is exact.
        note: Why the model does not take the ballots.
    """

    name: str
    log_evidence: float | None
    se: float
    note: str = ""


class RankedItem(NamedTuple):
    """An item and its rank.

    Attributes:
        item: Its name.
        rank: Its rank from 1, in the order of least expected distance between ranks.
        probability: The probability of this rank.
        low: The best rank of its credible interval, that of a probability nearest to the level.
        high: The worst rank of the interval.
        mean: Its mean rank.
        p_first: The probability that it is the best of all.
        p_top3: The probability that it is among the best three.
        p_before_next: The probability that it is better than the item of the next rank; None for
            the last item.
        log_worth: Its mean log worth if the model has worths, else None.
    """

    item: str
    rank: int
    probability: float
    low: int
    high: int
    mean: float
    p_first: float
    p_top3: float
    p_before_next: float | None
    log_worth: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Ranking:
    """The order of items behind rankings.

    Attributes:
        rankings: The data.
        model: The name of the model.
        posterior: The posterior of the model, with ``model_check``.
        bootstrap: The law of the most probable order if ballots are drawn with replacement; None if
            it was not computed.
        kemeny: The order that contradicts the fewest pairs.
        compared: All models with their evidences, the best first; the chosen one alone unless the
            model was chosen automatically.
        answer: What the engine returned.
        groups: Groups of voters, each with its own order; None if they were not asked for.
        compared_groups: The numbers of groups that were tried, with their evidences.
    """

    rankings: Rankings
    model: str
    posterior: Posterior
    bootstrap: Posterior | None
    kemeny: Kemeny
    compared: tuple[Compared, ...]
    answer: Answer
    groups: Groups | None = None
    compared_groups: tuple[ComparedGroups, ...] = ()

    @property
    def shown(self) -> Posterior:
        """The law behind all probabilities: the bootstrap if there is one, else the posterior."""
        return self.posterior if self.bootstrap is None else self.bootstrap

    @property
    def items(self) -> tuple[str, ...]:
        """(n,) names of the items."""
        return self.rankings.items

    @cached_property
    def order(self) -> np.ndarray:
        """(n,) item numbers, the best first: the order of least expected distance between ranks."""
        return np.argsort(self.shown.expected_loss("footrule").perm)

    @cached_property
    def before(self) -> np.ndarray:
        """(n, n) the probability that item i is better than item j."""
        if self.bootstrap is None:
            return self.answer.solved.before
        draws = self._resampled
        return np.stack([(draws[:, [i]] < draws).mean(axis=0) for i in range(draws.shape[1])])

    @property
    def _resampled(self) -> np.ndarray:
        """(num, n) the ranks of all resamples of a bootstrap."""
        return self.shown.law.to_arrays()["draws"]

    @property
    def p_order(self) -> float:
        """The probability of the whole `order`."""
        ranks = np.argsort(self.order)
        if self.bootstrap is None and self.answer.method == "exact":
            return float(np.exp(self.shown.law.log_prob(ranks)))
        return float(self.shown.probability(dict(enumerate(ranks.tolist()))))

    @property
    def shown_as(self) -> str:
        """What the probabilities are, in words."""
        if self.bootstrap is None:
            return f"the posterior probability of the model {self.model}"
        why = ""
        check = self.posterior.model_check
        if check is not None and check.verdict == "does not fit":
            why = ", since the model does not fit"
        return f"the share of {len(self._resampled)} resamples of the rankings{why}"

    @property
    def kemeny_in_words(self) -> str:
        """Whether the Kemeny order is optimal, and how it relates to the order shown."""
        best = self.kemeny
        noun = "pair" if best.contradicted == 1 else "pairs"
        pairs = f"contradicts {best.contradicted:,.10g} {noun}"
        if best.proven:
            how = "proven optimal"
            if best.num_optimal is not None:
                orders = "the only one" if best.num_optimal == 1 else f"one of {best.num_optimal:,}"
                how = f"{how}, {orders}"
        else:
            how = f"at least {best.lower_bound:,.10g} by the best proof"
        names = [self.items[i] for i in best.order]
        mine = contradicted(np.argsort(self.order)[None], np.asarray(self.rankings.against))
        if float(mine[0]) <= best.contradicted:
            return f"{pairs}, {how}; the order above is {'it' if best.num_optimal == 1 else 'one'}"
        return f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}; {pairs}, {how}"

    def table(self, level: float = 0.95) -> list[RankedItem]:
        """Return all items, the best first, with intervals of probability ``level``."""
        marginals, order = np.asarray(self.shown.marginals), self.order.tolist()
        places = np.arange(1, len(order) + 1)
        rows = []
        for rank, item in enumerate(order):
            law = marginals[item]
            low, high = interval(law, level)
            after = float(self.before[item, order[rank + 1]]) if rank + 1 < len(order) else None
            worths = self.answer.worths
            rows.append(
                RankedItem(
                    self.items[item],
                    rank + 1,
                    float(law[rank]),
                    low + 1,
                    high + 1,
                    float(law @ places),
                    float(law[0]),
                    float(law[:3].sum()),
                    after,
                    None if worths is None else float(worths.mean[item]),
                )
            )
        return rows

    def group_order(self, group: int) -> list[str]:
        """Return the items of a group of voters, the best first, by expected ranks."""
        if self.groups is None:
            raise ValueError("groups must be asked for: rank(..., groups=2) or groups='auto'.")
        ranks = self.groups.orders[group].expected_loss("footrule").perm
        return [self.items[i] for i in np.argsort(ranks)]

    def plot(self, level: float = 0.95) -> "Axes":
        """Plot mean ranks with intervals; see `permvi.plots.ranking`."""
        from permvi import plots

        return plots.ranking(self.table(level))

    def report(self, path: str | PathLike[str], level: float = 0.95) -> Path:
        """Write a report as one HTML file, and return its path."""
        from permvi.report import ranking

        return ranking.write(self, path, level)


def rank(
    rankings: Rankings | str | PathLike[str] | Sequence[Any],
    model: str = "mallows",
    *,
    robust: bool | None = None,
    groups: int | str | None = None,
    method: str = "auto",
    seed: int = 0,
    num_sweeps: int | None = None,
    num_draws: int | None = None,
    num_resamples: int = checks.NUM_RESAMPLES,
    max_seconds: float = 60.0,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Ranking:
    """Infer the order of items behind rankings.

    Args:
        rankings: The data: `Rankings`, a file for `Rankings.read`, or orders for `Rankings`.
        model: "mallows" (Kendall's distance), "generalised_mallows" (a dispersion for each place),
            "footrule", "spearman", "cayley", "plackett_luce" (Bradley-Terry for comparisons),
            "davidson" (comparisons with ties as results), or "auto": the model of largest evidence
            among all that take such ballots; for comparisons with ties "davidson", since the others
            take a tie for an unknown result.
        robust: Whether probabilities are those of a bootstrap over ballots instead of the model's.
            By default they are if a check finds that the model does not fit.
        groups: The number of groups of voters to look for, each with an order of its own: a mixture
            of models of one kind, any but "davidson"; with ``model="auto"`` it is "mallows",
            "plackett_luce" or the best model of all voters together, whichever has groups of most
            evidence. "auto" compares numbers by their evidence, too. The one order of all voters
            is inferred all the same.
        method: "exact" or "mcmc" for Mallows models; by default exact where that takes seconds.
        seed: The same seed gives the same answer.
        num_sweeps: Sweeps of each chain over all items, if a Mallows model is sampled; by default
            what takes some seconds.
        num_draws: Draws of worths, for "plackett_luce" and "davidson".
        num_resamples: Resamples of the bootstrap.
        max_seconds: The longest time for the proof of each part of the Kemeny order.
        settings: Further settings that the posterior keeps, as JSON values.
        progress: Called now and then as ``progress(what, done, total)``.

    Examples:
        >>> found = rank([["Rome", "Paris", "Lima"], ["Rome", "Lima", "Paris"], ["Rome", "Paris"]])
        >>> [row.item for row in found.table()]
        ['Rome', 'Paris', 'Lima']
    """
    _checks.one_of("model", model, (*MODELS, AUTO))
    _checks.one_of("method", method, ("auto", "exact", "mcmc"))
    if groups is not None and groups != AUTO:
        _checks.whole("groups", groups, 1)
    if groups is not None and model not in (*voters.MODELS, AUTO):
        raise ValueError(
            f"groups must be left out for the model {model!r}, since its comparisons do not say "
            f"which of them come from one voter, got {groups!r}."
        )
    sizes = {"num_sweeps": num_sweeps, "num_draws": num_draws}
    for what, value in sizes.items():
        if value is not None:
            _checks.whole(what, value, _LEAST)
    _checks.whole("num_resamples", num_resamples, _LEAST)
    _checks.positive_number("max_seconds", max_seconds)
    show = progress or silent
    data = _as_rankings(rankings)
    compared: list[Compared] = []
    name: str = model
    if model == AUTO:
        compared = compare(data, seed, show)
        name = compared[0].name
    show("computing", 0, 1)
    answer = solve.answer(name, data.ballots, seed, method, **sizes)
    if not compared:
        compared = [Compared(name, answer.solved.log_evidence, answer.evidence_se)]
    given = {what: value for what, value in sizes.items() if value is not None}
    posterior = answer.posterior(
        labels=data.labels,
        seed=seed,
        fingerprint=fingerprint(data),
        settings={"model": name, "requested": method, **given, **(settings or {})},
    )
    show("checking", 0, 1)
    named = "" if model in ("mallows", AUTO) else "model='mallows', "
    advice = "" if groups is not None else f" ({named}groups=2 looks for them)"
    found = checks.check(answer, seed, advice)
    object.__setattr__(posterior, "model_check", found)
    wanted = found.verdict == "does not fit" if robust is None else robust
    resampled = None
    if wanted:
        show("resampling", 0, 1)
        resampled = dataclasses.replace(
            checks.bootstrap(answer, seed, num_resamples),
            labels=data.labels,
            model_check=found,
            seed=seed,
        )
    best = kemeny(data.against, max_seconds=max_seconds)
    taking = {one.name for one in compared if one.log_evidence is not None}
    # Groups of all models would take minutes for thousands of ballots.
    kinds = [one for one in voters.MODELS if one in taking & {name, *_KINDS_OF_GROUPS}]
    parts, tried = _groups(data, groups, kinds, seed, show)
    return Ranking(data, name, posterior, resampled, best, tuple(compared), answer, parts, tried)


def _groups(
    data: Rankings,
    asked: int | str | None,
    models: Sequence[str],
    seed: int,
    progress: Progress,
) -> tuple[Groups | None, tuple[ComparedGroups, ...]]:
    """Find groups of voters if they are asked for; the numbers and models that were compared."""
    if asked is None:
        return None, ()
    if asked == AUTO:
        found, tried = voters.choose(data.ballots, seed, models, progress=progress)
        return found, tuple(tried)
    progress("looking for groups of voters", 0, 1)
    several = [voters.solve(data.ballots, int(asked), seed, model) for model in models]
    best = max(several, key=lambda one: one.log_evidence)
    return best, tuple(map(voters.compared, several)) if len(several) > 1 else ()


def compare(rankings: Rankings, seed: int = 0, progress: Progress = silent) -> list[Compared]:
    """Compute the evidence of all models, the best first; those that do not apply come last."""
    found = []
    for k, name in enumerate(MODELS):
        progress("comparing models", k, len(MODELS))
        try:
            evidence, error = solve.log_evidence(name, rankings.ballots, seed)
        except ValueError as refused:
            found.append(Compared(name, None, 0.0, str(refused)))
        else:
            found.append(Compared(name, evidence, error))
    found.sort(key=lambda one: np.inf if one.log_evidence is None else -one.log_evidence)
    with_ties = any(len(sizes) == 1 for sizes in rankings.ballots.sizes)
    chosen = next((one for one in found if one.name == solve.DAVIDSON), None)
    if chosen is None or chosen.log_evidence is None or not with_ties:
        return found
    note = "takes ties for unknown results, so evidences cannot be compared"
    others = [one._replace(note=one.note or note) for one in found if one is not chosen]
    return [chosen, *others]


def interval(law: np.ndarray, level: float) -> tuple[int, int]:
    """The first and the last rank, from 0, of the interval whose probability is nearest to a level.

    Intervals are the most probable ones of each length; of two that are as near, the shorter one.
    Ranks are whole numbers, so that intervals that all reach the level hold the true ranks more
    often than they say.
    """
    cumulative = np.concatenate([[0.0], np.cumsum(law)])
    nearest, found = np.inf, (0, len(law) - 1)
    for length in range(1, len(law) + 1):
        masses = cumulative[length:] - cumulative[:-length]
        best = int(np.argmax(masses))
        if abs(masses[best] - level) < nearest - 1e-9:
            nearest, found = abs(masses[best] - level), (best, best + length - 1)
    return found


def _as_rankings(value: Any) -> Rankings:
    if isinstance(value, Rankings):
        return value
    if isinstance(value, str | PathLike):
        return Rankings.read(value)
    return Rankings(value)
