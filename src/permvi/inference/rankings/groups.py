r"""Groups of voters, each with an order and parameters of its own.

A voter belongs to group g with probability :math:`\pi_g` and gives ballot r with probability
:math:`p_r(\sigma_g, \theta_g)` of a Mallows model, or :math:`p_r(w_g)` of a
Plackett-Luce model. Shares have a uniform (Dirichlet) prior, orders, dispersions and worths the
priors of `families` and `worths`. So

.. math:: p(\text{ballots} \mid \sigma, \theta, \pi) =
          \prod_r \Big( \sum_g \pi_g \, p_r(\sigma_g, \theta_g) \Big)^{c_r}.

Particles drawn from the prior meet the voters one after the other, in random order: they are
weighted by the ballots, drawn anew and moved by Gibbs sampling (Chopin 2002). This finds groups
without a start, while few voters do not yet hold them apart, and it gives the evidence, which tells
how many groups there are.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp, softmax

from permvi._checks import whole
from permvi.inference.method import Progress, silent
from permvi.inference.rankings.voices import VOICES, Voice
from permvi.models.rankings import Ballots
from permvi.posterior import Posterior, diagnose

# The models that groups can have.
MODELS = tuple(VOICES)
MAX_GROUPS = 6
# Independent runs, and particles of each.
_RUNS = 4
_PARTICLES = 128
# Voters are added as long as this share of the particles stays effective.
_EFFECTIVE = 0.8
_BISECTIONS = 12
# Sweeps after that, then with all voters before draws and between them.
_SWEEPS = 3
_SETTLING = 10
_DRAWS, _BETWEEN = 5, 5
# A number of groups is out of the question if its log evidence is this far below the best.
_CLEARLY_WORSE = 3.0
# Less than this is no reason for one more group.
_AS_GOOD = 1.0
# Dispersions of more places are not shown in tables.
_PLACES_SHOWN = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Groups:
    """The posterior of G groups of voters, the largest group first.

    Attributes:
        shares: (G, 3) mean share of the voters, and its central 95 % interval.
        orders: A posterior over the order of the items for each group.
        model: One of `MODELS`.
        thetas: (G, 2) mean and standard deviation of the dispersion, or of sigma for
            "plackett_luce"; (G, 2, J) if there are dispersions for each of J places.
        log_worths: (G, n) mean log worths, which add up to 0; None without worths.
        memberships: (R, G) the probability that a voter with each of the ballots is in each group.
        log_evidence: The log probability of the ballots.
        log_evidence_se: Its standard error, from independent runs.
    """

    shares: np.ndarray
    orders: tuple[Posterior, ...]
    model: str
    thetas: np.ndarray
    log_worths: np.ndarray | None
    memberships: np.ndarray
    log_evidence: float
    log_evidence_se: float

    def __len__(self) -> int:
        return len(self.orders)

    @property
    def scale(self) -> str:
        """The name of the parameter of each group that `thetas` holds."""
        return "theta" if self.log_worths is None else "sigma"

    def scale_in_words(self, group: int) -> str:
        """Return the mean of that parameter of a group, or the means for the first places."""
        means = [f"{mean:.2f}" for mean in np.atleast_1d(self.thetas[group, 0])]
        return ", ".join(means if len(means) <= _PLACES_SHOWN else [*means[:_PLACES_SHOWN], "..."])


class ComparedGroups(NamedTuple):
    """A number of groups of a model, its log evidence and the standard error of that."""

    num_groups: int
    log_evidence: float
    se: float
    model: str


def choose(
    ballots: Ballots,
    seed: int,
    models: Sequence[str] = ("mallows",),
    most: int = 4,
    progress: Progress = silent,
) -> tuple[Groups, list[ComparedGroups]]:
    """Find the model of most evidence, and the least number of its groups as good as any.

    More groups are tried until the evidence clearly falls.
    """
    tried: list[ComparedGroups] = []
    chosen: Groups | None = None
    for model in models:
        found: list[Groups] = []
        for num in range(1, most + 1):
            progress("comparing groups of voters", num - 1, most)
            last = solve(ballots, num, seed, model)
            found.append(last)
            best = max(found, key=_evidence)
            errors = best.log_evidence_se + last.log_evidence_se
            if best.log_evidence - last.log_evidence > _CLEARLY_WORSE + 3 * errors:
                break
        tried += [compared(groups) for groups in found]
        if chosen is not None and chosen.log_evidence > best.log_evidence:
            continue
        enough = best.log_evidence - best.log_evidence_se - _AS_GOOD
        chosen = next(
            groups for groups in found if groups.log_evidence + groups.log_evidence_se > enough
        )
    if chosen is None:
        raise ValueError("models must name at least one model, got none.")
    return chosen, tried


def compared(groups: Groups) -> ComparedGroups:
    """Return the evidence of groups."""
    return ComparedGroups(len(groups), groups.log_evidence, groups.log_evidence_se, groups.model)


def _evidence(groups: Groups) -> float:
    return groups.log_evidence


def solve(ballots: Ballots, num_groups: int, seed: int, model: str = "mallows") -> Groups:
    """Sample the posterior of a number of groups.

    Raises:
        ValueError: Counts are not whole numbers, or there are too many groups.
    """
    whole("groups", num_groups, 1)
    if num_groups > MAX_GROUPS:
        raise ValueError(f"groups must be at most {MAX_GROUPS}, got {num_groups}.")
    if (ballots.counts != np.rint(ballots.counts)).any():
        raise ValueError(
            "groups need counts of ballots that are whole numbers, got "
            f"{ballots.counts[ballots.counts != np.rint(ballots.counts)][0]:g}."
        )
    runs = [
        _Run(ballots, model, num_groups, np.random.default_rng([seed, num_groups, k]))
        for k in range(_RUNS)
    ]
    evidences = np.array([run.anneal() for run in runs])
    draws = _aligned([run.draw() for run in runs])
    value = float(logsumexp(evidences) - np.log(_RUNS))
    error = float(evidences.std(ddof=1) / np.sqrt(_RUNS))
    return _summarised(ballots, model, draws, softmax(evidences), value, error)


class _Draws(NamedTuple):
    """Draws of the posterior, (num, ...), grouped by run."""

    ranks: np.ndarray  # (num, G, n)
    thetas: np.ndarray  # (num, G, J)
    log_worths: np.ndarray  # (num, G, n), or (num, G, 0) without worths
    shares: np.ndarray  # (num, G)
    memberships: np.ndarray  # (num, R, G)


class _Run:
    """A population of P particles on their way from the prior to the posterior."""

    def __init__(
        self, ballots: Ballots, model: str, num_groups: int, rng: np.random.Generator
    ) -> None:
        self._rng, self._counts = rng, ballots.counts
        self._voice: Voice = VOICES[model](ballots, (_PARTICLES, num_groups), rng)
        self._shares = rng.dirichlet(np.ones(num_groups), size=_PARTICLES)
        self._log_p = np.zeros((_PARTICLES, len(ballots.levels), num_groups))
        for k in range(_PARTICLES):
            self._voice.score(k, self._log_p[k])

    def anneal(self) -> float:
        """Add all voters, and return the log evidence."""
        counts = self._counts.astype(int)
        voters = self._rng.permutation(np.repeat(np.arange(len(counts)), counts))
        self._counts, total = np.zeros(len(counts)), 0.0
        while len(voters):
            gains, number = _most_at_once(self._log_mixtures(self._log_p), voters)
            if number == 1:
                # Of many items few particles know what the voter says.
                total += self._add_in_parts(int(voters[0]))
            else:
                total += self._resample(gains)
            np.add.at(self._counts, voters[:number], 1.0)
            voters = voters[number:]
            self._move(_SWEEPS)
        self._move(_SETTLING)
        return total

    def draw(self) -> _Draws:
        """Return draws of all particles."""
        kept: list[tuple[np.ndarray, ...]] = []
        for _ in range(_DRAWS):
            self._move(_BETWEEN)
            belongs = softmax(np.log(self._shares)[:, None] + self._log_p, axis=2)
            voice = self._voice
            kept.append(
                (voice.ranks, voice.scales.copy(), voice.log_worths, self._shares.copy(), belongs)
            )
        return _Draws(*(np.concatenate(parts) for parts in zip(*kept, strict=True)))

    def _log_mixtures(self, log_p: np.ndarray) -> np.ndarray:
        """(P, R, G) log probabilities of ballots in groups -> (P, R) of ballots."""
        return logsumexp(np.log(self._shares)[:, None] + log_p, axis=2)

    def _add_in_parts(self, voter: int) -> float:
        """Raise the probability of a voter's ballot to powers up to 1; return the log evidence.

        After the last power particles are not yet moved.
        """
        total, part = 0.0, 0.0

        def gains(power: float) -> np.ndarray:
            own = self._log_p[:, [voter]]
            return (self._log_mixtures(power * own) - self._log_mixtures(part * own))[:, 0]

        while part < 1.0:
            low, high = part, 1.0
            if _effective_share(gains(high)) < _EFFECTIVE:
                for _ in range(_BISECTIONS):
                    middle = 0.5 * (low + high)
                    enough = _effective_share(gains(middle)) >= _EFFECTIVE
                    low, high = (middle, high) if enough else (low, middle)
            weights = gains(high)
            part = high
            total += self._resample(weights)
            if part < 1.0:
                self._move(_SWEEPS, voter, part)
        return total

    def _resample(self, gains: np.ndarray) -> float:
        """Draw the particles anew by log weights, systematically; return the log mean weight."""
        weights = softmax(gains)
        places = (self._rng.random() + np.arange(_PARTICLES)) / _PARTICLES
        chosen = np.minimum(np.searchsorted(np.cumsum(weights), places), _PARTICLES - 1)
        self._voice.take(chosen)
        self._shares, self._log_p = self._shares[chosen], self._log_p[chosen]
        return float(logsumexp(gains)) - np.log(_PARTICLES)

    def _move(self, num_sweeps: int, newest: int = 0, part: float = 0.0) -> None:
        self._voice.move(
            self._counts, newest, part, self._shares, self._log_p, num_sweeps, self._rng
        )


def _most_at_once(log_likelihoods: np.ndarray, voters: np.ndarray) -> tuple[np.ndarray, int]:
    """Find how many of the next voters particles can take at once, at least one.

    Args:
        log_likelihoods: (P, R) of ballots.
        voters: (V,) the ballots of the voters that are left.

    Returns:
        (P,) log weights of the particles, and the number of voters.
    """
    least, most = 1, len(voters)
    while least < most:
        number = (least + most + 1) // 2
        if _effective_share(_weights(log_likelihoods, voters[:number])) >= _EFFECTIVE:
            least = number
        else:
            most = number - 1
    return _weights(log_likelihoods, voters[:least]), least


def _weights(log_likelihoods: np.ndarray, voters: np.ndarray) -> np.ndarray:
    return log_likelihoods @ np.bincount(voters, minlength=log_likelihoods.shape[1])


def _effective_share(log_weights: np.ndarray) -> float:
    weights = softmax(log_weights)
    return float(1.0 / (weights**2).sum() / len(weights))


def _aligned(runs: list[_Draws]) -> list[_Draws]:
    """Name the groups of all draws alike: by the memberships of the ballots, the largest first."""
    reference = runs[0].memberships[-1][:, np.argsort(-runs[0].shares[-1])]
    for _ in range(2):
        runs = [_renamed(run, reference) for run in runs]
        reference = np.mean([run.memberships.mean(axis=0) for run in runs], axis=0)
    largest = np.argsort(-np.mean([run.shares.mean(axis=0) for run in runs], axis=0))
    return [_permuted(run, np.tile(largest, (len(run.shares), 1))) for run in runs]


def _renamed(run: _Draws, reference: np.ndarray) -> _Draws:
    """Give each draw the names of groups whose ballots agree most with the reference (R, G)."""
    overlaps = np.einsum("rg,krh->kgh", reference, run.memberships)
    names = np.array([linear_sum_assignment(-overlap)[1] for overlap in overlaps])
    return _permuted(run, names)


def _permuted(run: _Draws, names: np.ndarray) -> _Draws:
    """Put group ``names[k, g]`` of draw k in place g."""
    return _Draws(
        np.take_along_axis(run.ranks, names[:, :, None], 1),
        np.take_along_axis(run.thetas, names[:, :, None], 1),
        np.take_along_axis(run.log_worths, names[:, :, None], 1),
        np.take_along_axis(run.shares, names, 1),
        np.take_along_axis(run.memberships, names[:, None, :], 2),
    )


def _summarised(
    ballots: Ballots,
    model: str,
    runs: list[_Draws],
    weights: np.ndarray,
    value: float,
    error: float,
) -> Groups:
    """Summarise draws of all runs; what runs disagree on is not to be trusted.

    Runs count in proportion to their evidences, ``weights``: one may have missed the best groups.
    """
    together = _Draws(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))
    number = len(together.shares)
    places = (np.arange(number) + 0.5) / number
    shares_of_draws = np.cumsum(np.repeat(weights / len(runs[0].shares), len(runs[0].shares)))
    kept = np.minimum(np.searchsorted(shares_of_draws, places), number - 1)
    together = _Draws(*(part[kept] for part in together))
    n = len(ballots.items)
    orders = []
    for g in range(together.shares.shape[1]):
        by_run = np.stack([_frequencies(run.ranks[:, g], n) for run in runs])
        # The error of a mean of runs, from their differences; halves of them are compared, too.
        # Both count all runs alike, since a weight near one would hide that others differ.
        spread = by_run.std(axis=0, ddof=1) / np.sqrt(_RUNS)
        apart = np.abs(by_run[::2].mean(axis=0) - by_run[1::2].mean(axis=0)).sum(axis=1) / 2
        labels: Any = (ballots.items, tuple(str(k + 1) for k in range(n)))
        orders.append(
            Posterior.from_draws(
                together.ranks[:, g], shape=(n, n), labels=labels, method="groups",
                mode=_most_frequent(together.ranks[:, g]),
                diagnostics=diagnose(
                    sampling_error_by_row=0.5 * np.sqrt(2 / np.pi) * spread.sum(axis=1),
                    disagreement_by_row=np.maximum(apart - 2 * spread.sum(axis=1), 0.0),
                    row_labels=ballots.items,
                ),
            )
        )  # fmt: skip
    low, high = np.quantile(together.shares, [0.025, 0.975], axis=0)
    moments = np.stack([together.thetas.mean(axis=0), together.thetas.std(axis=0)], axis=1)
    return Groups(
        np.stack([together.shares.mean(axis=0), low, high], axis=1),
        tuple(orders),
        model,
        moments[..., 0] if moments.shape[-1] == 1 else moments,
        together.log_worths.mean(axis=0) if together.log_worths.size else None,
        together.memberships.mean(axis=0),
        value,
        error,
    )


def _frequencies(ranks: np.ndarray, n: int) -> np.ndarray:
    """(num, n) ranks -> (n, n) shares of draws in which item i has rank k."""
    return np.stack([np.bincount(ranks[:, i], minlength=n) for i in range(n)]) / len(ranks)


def _most_frequent(ranks: np.ndarray) -> np.ndarray:
    distinct, counts = np.unique(ranks, axis=0, return_counts=True)
    return distinct[int(np.argmax(counts))]
