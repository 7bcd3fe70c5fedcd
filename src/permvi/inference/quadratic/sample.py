"""Marginals, draws and evidence of a quadratic problem from several independent ensembles.

Half of the ensembles come down from the uniform law and know nothing of the search. The others
begin in the modes that it found, and have a reference that pulls towards the best of them. An
ensemble whose evidence is clearly below that of another one has missed a part of the posterior, and
does not count.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from permvi._checks import positive_number, whole
from permvi._threads import pool
from permvi.inference.interruptible import Stop
from permvi.inference.quadratic.form import Form
from permvi.inference.quadratic.modes import climbed
from permvi.inference.quadratic.tempering import (
    Ensemble,
    Evidence,
    Reference,
    Sweeps,
    log_evidence,
)
from permvi.inference.quadratic.twins import Cells, Twins, unseen

# Sweeps of a chain around the best mode, which tell how firmly each row stays there.
_PILOT = 400
# The reference holds no row more firmly than this, or so that half a row is loose: k loose rows
# have (n / w)^k e^-1 times the weight of none, where w are the odds of holding a row.
_FIRMEST = 0.995
_LOOSE = 0.5
# Sweeps after each of which levels are set anew, and those before anything counts.
_ADAPTING = (25, 50, 100, 200)
_WARM_UP = 100
# Sweeps of the first batches.
_BATCH = 25
# A sweep is work of order n^2: beyond so many rows there are fewer sweeps, this many at least.
_FEW_ROWS = 200
_FEWEST_SWEEPS = 10
# Batches of each ensemble between two looks at the error, and those in all at which two become one;
# fewer for more rows than so many, since batches have tables. Looks before chains may end.
_BATCHES, _FEW_BATCHES = (20, 64), (10, 24)
_LARGE = 400
_FEWEST_LOOKS = 3
# Parts of a run whose spread tells the error of the evidence.
_EVIDENCE_PARTS = 20
# Standard errors, and nats, by which an evidence is clearly below another one.
_CLEARLY = 4.0
_AT_LEAST = 0.3
# An ensemble this many nats below another one runs no further.
_HOPELESS = 20.0
# Swaps of all chains by default, in units of the work for a swap of so many rows; for more than so
# many rows in proportion to them.
_WORK = 4_000_000_000
_WORK_PER_SWAP = 43
_WORK_ROWS = 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuadraticOptions:
    """Options of method "quadratic".

    Attributes:
        tolerance: The sampling error, as mean total variation of an item, at which chains end.
        num_steps: The approximate number of swaps of all chains, whatever their error; by default
            as many as ``tolerance`` takes, up to a limit of some seconds.
        num_ensembles: The number of independent ensembles of chains, two at least.
        num_draws: The number of matchings to keep.
        search_budget: The most swap differences of populations in the search for modes; by default
            as many as method "map" takes, so that the mode is at least as probable as its answer.
    """

    tolerance: float = 0.006
    num_steps: int | None = None
    num_ensembles: int = 4
    num_draws: int = 1000
    search_budget: int | None = None

    def __post_init__(self) -> None:
        positive_number("tolerance", self.tolerance)
        whole("num_ensembles", self.num_ensembles, 2)
        whole("num_draws", self.num_draws)
        for name in ("num_steps", "search_budget"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))


class Sampled(NamedTuple):
    """The result, in the square form.

    Attributes:
        marginals: (N, N).
        draws: (num, N).
        best: (N,) the best permutation that anything has seen.
        evidence: The log evidence of the form, and its standard error; infinite if it is unknown.
        sampling_error: (N,) expected total variation of each row.
        disagreement: (N,) total variation between ensembles beyond chance.
        missed: The share of the posterior that only ensembles which do not count have found.
        counted: How many of the ensembles count.
        near: The mean share of rows in which a draw is as in the mode next to it.
        num_jumps: How often chains at the last level jumped between modes.
        num_steps: The number of swaps that were tried.
        finished: Whether the chains ended as planned.
    """

    marginals: np.ndarray
    draws: np.ndarray
    best: np.ndarray
    evidence: Evidence
    sampling_error: np.ndarray
    disagreement: np.ndarray
    missed: float
    counted: int
    near: float
    num_jumps: int
    num_steps: int
    finished: bool


def sample(
    form: Form, modes: np.ndarray, options: QuadraticOptions, rng: np.random.Generator, stop: Stop
) -> Sampled:
    """Run ensembles until their sampling error is small enough or steps run out."""
    N = len(form.best)
    limit = options.num_steps or _limit(form)
    stop.plan(limit)
    firmness = _firmness(form, rng.spawn(1)[0], stop)
    pulled = Reference.around(form.best, _pulls(firmness, form.cells), form.cells)
    free = Reference.around(form.best, np.zeros(N), form.cells)
    members = []
    for k, stream in enumerate(rng.spawn(options.num_ensembles)):
        reference, starts = (free, None) if k % 2 == 0 else (pulled, modes)
        members.append(Member(Ensemble(form, reference, modes, starts, stream)))
    running = members
    with pool(len(members)) as threads:
        for sweeps in _ADAPTING:
            num = _sweeps(sweeps, N)
            list(threads.map(lambda m, num=num: m.ensemble.adapt(num, stop), running))
        modes = _learned(form, modes, members)
        list(threads.map(lambda m: m.ensemble.run(_sweeps(_WARM_UP, N), stop), running))
        looks = 0
        while not stop.asked:
            looks += 1
            modes = _learned(form, modes, members)
            list(threads.map(lambda m: m.extend(stop), running))
            if stop.asked or stop.done >= limit:
                break
            evidence = [member.evidence() for member in members]
            highest = max(found.value for found in evidence)
            running = [
                member
                for member, found in zip(members, evidence, strict=True)
                if found.value > highest - _HOPELESS or found.value == -np.inf
            ]
            counting = _counting(members, evidence)
            if not counting:
                continue
            # Rows that fill up are not items.
            error = _error(counting)[: form.shape[0]].mean()
            good = error <= options.tolerance and looks >= _FEWEST_LOOKS
            if options.num_steps is None and good:
                break
    return _combined(form, members, modes, options.num_draws, stop, rng)


def _limit(form: Form) -> int:
    """Return the number of swaps of all chains by default."""
    more = max(1.0, len(form.best) / _WORK_ROWS)
    return int(more * _WORK / (form.work + _WORK_PER_SWAP))


def _sweeps(usual: int, num_rows: int) -> int:
    """Return a number of sweeps, fewer than usual if there are many rows."""
    return max(_FEWEST_SWEEPS, round(usual * min(1.0, _FEW_ROWS / num_rows)))


class Member:
    """An ensemble and the batches of its sweeps."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        N = len(ensemble.reference.centre)
        self._size = _sweeps(_BATCH, N)
        self._num_batches, self._most_batches = _BATCHES if N <= _LARGE else _FEW_BATCHES
        # Whole numbers below 2^24, or means of such.
        self.counts = np.zeros((0, N, N), np.float32)
        self._totals = np.zeros(0)
        self._traces: list[np.ndarray] = []
        self._possible: list[np.ndarray] = []
        self.draws: list[np.ndarray] = []

    def extend(self, stop: Stop) -> None:
        """Run more batches; two become one where there are many."""
        if len(self.counts) + self._num_batches > self._most_batches:
            pairs = len(self.counts) // 2
            self.counts = self.counts[: 2 * pairs].reshape(pairs, 2, *self.counts.shape[1:]).sum(1)
            self._totals = self._totals[: 2 * pairs].reshape(pairs, 2).sum(1)
            self._size *= 2
        for _ in range(self._num_batches):
            found = self.ensemble.run(self._size, stop)
            if found is None:
                return
            self._add(found)

    def _add(self, found: Sweeps) -> None:
        # Twins are exchanged in all ways at once.
        counts = self.ensemble.form.twins.averaged(found.counts)
        self.counts = np.concatenate([self.counts, counts[None].astype(np.float32)])
        self._totals = np.append(self._totals, found.counts[0].sum())
        self._traces.append(found.trace)
        self._possible.append(found.possible)
        kept = found.kept[found.possible]
        self.draws.append(kept[:: max(1, len(kept) // 20)])

    @property
    def mean(self) -> np.ndarray:
        """The (N, N) frequencies of the pairs."""
        return self.counts.sum(axis=0, dtype=np.float64) / max(1.0, self._totals.sum())

    @property
    def variance(self) -> np.ndarray:
        """The (N, N) squared standard errors of the frequencies, from batches."""
        total, num = max(1.0, self._totals.sum()), len(self.counts)
        mean = self.mean
        squares = np.zeros_like(mean)
        for counts, length in zip(self.counts, self._totals, strict=True):
            squares += (counts - length * mean) ** 2
        return squares / total**2 * num / max(1, num - 1)

    def evidence(self) -> Evidence:
        """Return the log evidence, infinitely uncertain before the first batches."""
        if not self._traces:
            return Evidence(-np.inf, np.inf)
        ensemble = self.ensemble
        return log_evidence(
            ensemble.betas,
            np.concatenate(self._traces),
            np.concatenate(self._possible),
            ensemble.reference.log_total,
            _EVIDENCE_PARTS,
        )


def _learned(form: Form, modes: np.ndarray, members: list[Member]) -> np.ndarray:
    """Return modes (m, N) with those next to the replicas of ensembles, which all learn them."""
    found = [member.ensemble.replicas for member in members]
    # Those of the last level first, since a few may have to do.
    levels = range(max(map(len, found)))
    seen = np.concatenate([part[k : k + 1] for k in levels for part in found])
    modes = climbed(form.quadratic, form.allowed, modes, seen, form.twins)
    for member in members:
        member.ensemble.learn(modes)
    return modes


def _firmness(form: Form, rng: np.random.Generator, stop: Stop) -> np.ndarray:
    """Return (N,) how often a chain from the best mode has each row in its cell."""
    nothing = Reference.around(form.best, np.zeros(len(form.best)), form.cells)
    chain = Ensemble(form, nothing, form.best[None], form.best[None], rng)
    chain.posterior_only()
    found = chain.run(_PILOT, stop)
    if found is None:
        return np.ones(len(form.best))
    return nothing.in_cells(found.kept[_PILOT // 4 :, :]).mean(axis=0)


def _pulls(firmness: np.ndarray, cells: Cells) -> np.ndarray:
    r"""Return the pulls (N,), alike in each cell, whose reference holds rows about as firmly.

    Where L rows are loose in all, and l of the a rows of a cell, one more has a weight in the
    reference that is about :math:`L e^{-\lambda} (a - l) / l^2` times as large, which is 1 at the
    most probable l. For l below 1 it becomes :math:`L e^{-\lambda} (a - l) / l`.
    """
    held = np.minimum(firmness, max(_FIRMEST, 1.0 - _LOOSE / len(firmness)))
    sizes = np.bincount(cells.of_row)
    held = (np.bincount(cells.of_row, held) / sizes)[cells.of_row]
    loose = np.maximum(1.0, sizes[cells.of_row] * (1.0 - held))
    others = max(1.0, float((1.0 - held).sum()))
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(held / (1.0 - held) * others / loose), 0.0)


def _counting(members: list[Member], evidence: list[Evidence]) -> list[Member]:
    """Return the ensembles whose evidence is not clearly below that of another one."""
    top = max(evidence, key=lambda found: found.value)
    return [
        member
        for member, found in zip(members, evidence, strict=True)
        if found.value > -np.inf
        and top.value - found.value <= max(_AT_LEAST, _CLEARLY * np.hypot(top.error, found.error))
    ]


def _spread(members: list[Member]) -> np.ndarray:
    """Return (N, N) variances of the mean of ensembles.

    They come from batches. If ensembles differ more than their batches say, on the whole, the
    variances are scaled up accordingly.
    """
    num = len(members)
    variance = np.sum([member.variance for member in members], axis=0) / num**2
    if num == 1:
        return variance
    between = np.stack([member.mean for member in members]).var(axis=0, ddof=1).sum() / num
    return variance * max(1.0, between / max(variance.sum(), np.finfo(float).tiny))


def _error(members: list[Member]) -> np.ndarray:
    """Return (N,) the expected total variation of each row."""
    return 0.5 * np.sqrt(2 / np.pi * _spread(members)).sum(axis=1)


def _apart(member: Member, others: list[Member]) -> np.ndarray:
    """Return (N,) the total variation between an ensemble and the mean of others beyond chance."""
    mean = np.mean([other.mean for other in others], axis=0)
    variance = np.mean([o.variance for o in others], axis=0) / len(others) + member.variance
    # By chance, hardly any of this many differences exceeds this many standard errors.
    noise = np.sqrt(2 * np.log(mean.size) * variance)
    return 0.5 * np.maximum(np.abs(member.mean - mean) - noise, 0.0).sum(axis=1)


def _near(draws: np.ndarray, modes: np.ndarray, twins: Twins) -> float:
    """Return the mean share of rows in which draws (num, N) are as in the mode next to each.

    Columns that are twins count as one.
    """
    shared, columns = np.zeros(len(draws)), twins.cols[draws]
    for mode in modes:
        shared = np.maximum(shared, (columns == twins.cols[mode]).mean(axis=1))
    return float(shared.mean())


def _combined(
    form: Form,
    members: list[Member],
    modes: np.ndarray,
    num_draws: int,
    stop: Stop,
    rng: np.random.Generator,
) -> Sampled:
    """Return the answer of the ensembles that count."""
    N = len(form.best)
    best = max(members, key=lambda member: member.ensemble.best_value).ensemble.best
    jumps = sum(member.ensemble.num_jumps for member in members)
    evidence = [member.evidence() for member in members]
    if all(found.value == -np.inf for found in evidence):
        marginals = np.zeros((N, N))
        for perm in modes:
            marginals[np.arange(N), perm] += 1 / len(modes)
        unknown = Evidence(np.nan, np.inf)
        ones = np.ones(N)
        never = 1.0, 0, 1.0, jumps, stop.done, False
        return Sampled(marginals, modes, best, unknown, ones, ones, *never)
    counting = _counting(members, evidence)
    values = {id(member): found for member, found in zip(members, evidence, strict=True)}
    kept = [values[id(member)] for member in counting]
    value = float(np.mean([found.value for found in kept]))
    error = float(np.sqrt(sum(found.error**2 for found in kept))) / len(kept)
    if len(kept) > 1:
        spread = float(np.std([found.value for found in kept], ddof=1))
        error = max(error, spread / np.sqrt(len(kept)))
    others = [member for member in members if member not in counting and member.draws]
    if len(counting) > 1:
        apart = [_apart(m, [o for o in counting if o is not m]) for m in counting]
    else:
        apart = [_apart(other, counting) for other in others] or [np.ones(N)]
    draws = np.concatenate([part for member in counting for part in member.draws])
    missed = 0.0
    for other in others:
        found = np.concatenate(other.draws)
        # Whatever its evidence, an ensemble has seen this much.
        least = float(np.logaddexp.reduce(form.values(np.unique(found, axis=0))))
        share = expit(max(values[id(other)].value, least) - value)
        fresh = unseen(found, draws, form.twins)
        missed = max(missed, share * min(fresh, float(_apart(other, counting).mean())))
    chosen = np.linspace(0, len(draws) - 1, num_draws).round().astype(int)
    draws = form.twins.shuffled(draws[chosen], rng)
    return Sampled(
        np.mean([member.mean for member in counting], axis=0),
        draws,
        best,
        Evidence(value - form.log_copies + form.constant, error),
        _error(counting),
        np.max(apart, axis=0),
        missed,
        len(counting),
        _near(draws, modes, form.twins),
        jumps,
        stop.done,
        not stop.asked,
    )
