r"""Bayesian Plackett-Luce models: each item has a worth, and the order is that of the worths.

From items A a ballot chooses i first with probability :math:`w_i / \sum_{j \in A} w_j`, then goes
on with the rest. With two items each this is the model of Bradley and Terry. Log worths are normal
with mean 0 and standard deviation :math:`\sigma`, and :math:`\log\sigma` is standard normal.

With ties as results of their own (Davidson 1970), a comparison of i and j ends in a tie with weight
:math:`\nu \sqrt{w_i w_j}` beside :math:`w_i` and :math:`w_j`; :math:`\log\nu` is standard normal.

Given :math:`\sigma` the log posterior is concave. Draws come from Student's t distribution around
its mode, and importance weights correct them; :math:`\sigma` is summed over a grid.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import gammaln, logsumexp, ndtri, softmax
from scipy.stats import chi2, qmc

from permvi.inference.rankings import worth_chains
from permvi.inference.rankings.exact import Solved
from permvi.models.rankings import Ballots
from permvi.posterior.laws import DrawsLaw

_LOG_SIGMAS = np.linspace(-3.0, 4.5, 31)
# Values of sigma whose evidence is this far below the best are left out.
_NEGLIGIBLE = 14.0
# Proposals: degrees of freedom, and numbers of draws times choices that take seconds.
_DF = 10.0
_DRAWS = (2_000, 40_000)
_CHOICES = 60_000_000
_KEPT = 4_000
# If fewer draws are effective, their centres are sought again, with larger covariances.
_ENOUGH = 10_000
_INFLATED, _NEVER_LESS = 1.3, 1e-4
_MAX_STEPS = 60
# Tanh-sinh quadrature of u in (0, 1), for ties.
_T = np.arange(-24, 25) * 0.16
_LOG_U = -np.log1p(np.exp(-np.pi * np.sinh(_T)))
_WEIGHTS = 0.16 * np.pi * np.cosh(_T) * np.exp(_LOG_U - np.log1p(np.exp(np.pi * np.sinh(_T))))


class Worths(NamedTuple):
    """A posterior of worths.

    Attributes:
        solved: The posterior over orders; ``thetas`` holds mean and standard deviation of sigma.
        evidence_se: The standard error of the log evidence.
        mean: (n,) posterior means of the log worths, which add up to 0.
        sd: (n,) their standard deviations.
        effective: The effective number of draws.
        halves: (2, n, n) marginals of either half of the draws.
        log_tie: Mean and standard deviation of log nu if ties are results, else None.
    """

    solved: Solved
    evidence_se: float
    mean: np.ndarray
    sd: np.ndarray
    effective: float
    halves: np.ndarray
    log_tie: tuple[float, float] | None = None


class _Data(Protocol):
    """Ballots, and their probability given D parameters; log worths come first.

    Attributes:
        num_items: The number of items.
        counts: (R,) how often each ballot was given.
        size: The number of choices, for the time that a likelihood takes.
    """

    @property
    def num_items(self) -> int: ...

    @property
    def counts(self) -> np.ndarray: ...

    @property
    def size(self) -> int: ...

    def sds(self, sigma: float) -> np.ndarray:
        """Return (D,) standard deviations of the prior."""

    def log_likelihoods(self, points: np.ndarray, *, approximate: bool = False) -> np.ndarray:
        """(N, D) parameters -> (N,) log likelihoods, or what Newton's method climbs."""

    def slopes(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return gradients (R, D) of each ballot, and the Hessian (D, D) of all."""


class _Choices(NamedTuple):
    """Ballots as the kernels take them; the order of tied items is unknown."""

    items: np.ndarray
    levels: np.ndarray
    counts: np.ndarray
    num_items: int

    @classmethod
    def of(cls, ballots: Ballots) -> "_Choices":
        items = ballots.orders
        levels = np.take_along_axis(ballots.levels, np.maximum(items, 0), 1)
        levels = np.where(items >= 0, levels, -1).astype(np.int64)
        return cls(items, levels, ballots.counts, len(ballots.items))

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self.items >= 0))

    def sds(self, sigma: float) -> np.ndarray:
        return np.full(self.num_items, sigma)

    def log_likelihoods(self, points: np.ndarray, *, approximate: bool = False) -> np.ndarray:
        from permvi.inference.rankings import worth_kernels

        if approximate:
            return _breslow(self, points)
        return worth_kernels.log_likelihoods(points, *self[:3], _LOG_U, _WEIGHTS)

    def slopes(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from permvi.inference.rankings import worth_kernels

        return worth_kernels.slopes(point, *self[:3])


class _Comparisons(NamedTuple):
    """Comparisons of two items with ties as results; the last parameter is log nu.

    Attributes:
        items: (R, 2) the items, the winner first.
        result: (R,) 0 for a winner, 2 for a tie.
        counts: (R,) how often each was seen.
        num_items: The number of items.
    """

    items: np.ndarray
    result: np.ndarray
    counts: np.ndarray
    num_items: int

    @classmethod
    def of(cls, ballots: Ballots) -> "_Comparisons":
        if any(sum(sizes) != 2 for sizes in ballots.sizes):
            raise ValueError("davidson takes comparisons of two items, got longer rankings")
        result = np.array([2 if len(sizes) == 1 else 0 for sizes in ballots.sizes])
        return cls(ballots.orders, result, ballots.counts, len(ballots.items))

    @property
    def size(self) -> int:
        return 3 * len(self.counts)

    def sds(self, sigma: float) -> np.ndarray:
        return np.append(np.full(self.num_items, sigma), 1.0)

    def log_likelihoods(self, points: np.ndarray, *, approximate: bool = False) -> np.ndarray:
        del approximate
        logs = points @ self._features.reshape(-1, points.shape[1]).T
        logs = logs.reshape(len(points), -1, 3)
        return (logs[:, np.arange(len(self.result)), self.result] - logsumexp(logs, axis=2)) @ (
            self.counts
        )

    def slopes(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        features = self._features
        p = softmax(features @ point, axis=1)
        mean = np.einsum("rk,rkd->rd", p, features)
        gradients = features[np.arange(len(self.result)), self.result] - mean
        squares = np.einsum("r,rk,rkd,rke->de", self.counts, p, features, features)
        return gradients, np.einsum("r,rd,re->de", self.counts, mean, mean) - squares

    @property
    def _features(self) -> np.ndarray:
        """(R, 3, n + 1) what the log weights of both winners and of a tie are made of."""
        features = np.zeros((len(self.items), 3, self.num_items + 1))
        rows = np.arange(len(self.items))
        for k in range(2):
            features[rows, k, self.items[:, k]] = 1.0
            features[rows, 2, self.items[:, k]] = 0.5
        features[:, 2, -1] = 1.0
        return features


def solve(
    ballots: Ballots, seed: int, *, ties: bool = False, num_draws: int | None = None
) -> Worths:
    """Compute the posterior of the order of the worths, with ``ties`` as results of their own.

    There are about ``num_draws`` draws, rounded up to powers of two.

    Raises:
        ValueError: Ties are results, and ballots are no comparisons of two items.
    """
    data = _data(ballots, ties=ties)
    modes = []
    start = np.zeros(len(data.sds(1.0)))
    for log_sigma in _LOG_SIGMAS:
        modes.append(_Mode.of(data, float(np.exp(log_sigma)), start))
        start = modes[-1].point
    prior = -0.5 * _LOG_SIGMAS**2 - 0.5 * np.log(2 * np.pi) + np.log(np.diff(_LOG_SIGMAS)[0])
    rough = prior + np.array([mode.laplace for mode in modes])
    total = num_draws or int(np.clip(_CHOICES / data.size, *_DRAWS))
    found = _weigh(data, modes, prior, rough, total, seed)
    if ties or found.effective > _ENOUGH or not worth_chains.are_quick(ballots):
        return found
    # Where ballots say little, the posterior is skew, and a mode no good centre of draws.
    modes = _recentred(ballots, modes, seed)
    other = _weigh(data, modes, prior, np.array([mode.laplace for mode in modes]), total, seed)
    return max(found, other, key=lambda one: one.effective)


def _weigh(
    data: _Data, modes: "list[_Mode]", prior: np.ndarray, rough: np.ndarray, total: int, seed: int
) -> Worths:
    """Weigh draws around centres, one for each sigma; ``rough`` (31,) are their log evidences."""
    n = data.num_items
    used = np.flatnonzero(rough > rough.max() - _NEGLIGIBLE)
    shares = np.exp(rough[used] - logsumexp(rough[used]))
    draws, log_weights, evidence = [], [], []
    for k, share in zip(used.tolist(), shares, strict=True):
        # Powers of two keep Sobol's points balanced.
        num = 1 << max(5, int(np.ceil(np.log2(share * total + 1))))
        points, weights = modes[k].proposals(data, num, seed + k)
        draws.append(points)
        log_weights.append(weights + prior[k] - np.log(num))
        evidence.append(prior[k] + logsumexp(weights) - np.log(num))
    points, weights, values = np.concatenate(draws), np.concatenate(log_weights), np.array(evidence)
    found = _summarised(points[:, :n], weights, values, used, seed)
    if points.shape[1] == n:
        return found
    shares = softmax(weights)
    log_tie = float(shares @ points[:, n])
    sd = float(np.sqrt(shares @ (points[:, n] - log_tie) ** 2))
    return found._replace(log_tie=(log_tie, sd))


def _recentred(ballots: Ballots, modes: "list[_Mode]", seed: int) -> "list[_Mode]":
    """Centre draws on the moments of a Markov chain, of its states near each sigma."""
    moments = worth_chains.moments(
        for_kernels(ballots), ballots.counts, modes[len(modes) // 2].point, _LOG_SIGMAS, seed
    )
    # The covariance of Student's t is larger than its squared scale.
    scale = (_DF - 2) / _DF * _INFLATED
    return [
        _Mode(
            near.mean,
            cholesky(np.linalg.inv(scale * near.covariance), lower=True),
            mode.sigma,
            np.log(near.share + _NEVER_LESS),  # every sigma gets some draws
        )
        for mode, near in zip(modes, moments, strict=True)
    ]


def for_kernels(ballots: Ballots) -> tuple[np.ndarray, ...]:
    """(R, k) items and levels of ballots, and the nodes and weights of the quadrature for ties."""
    choices = _Choices.of(ballots)
    return choices.items, choices.levels, _LOG_U, _WEIGHTS


def _data(ballots: Ballots, *, ties: bool) -> _Choices | _Comparisons:
    return _Comparisons.of(ballots) if ties else _Choices.of(ballots)


def modal_ranks(ballots: Ballots, counts: np.ndarray, found: Worths) -> np.ndarray:
    """(n,) ranks by the most probable worths if the same ballots had other counts.

    With ties that the slopes only approximate, it is one Newton step from the posterior mean, in
    which the approximation cancels to first order.
    """
    data, n = _data(ballots, ties=found.log_tie is not None), len(ballots.items)
    sigma = float(found.solved.thetas[0, 0])
    mean = found.mean if found.log_tie is None else np.append(found.mean, found.log_tie[0])
    if ballots.is_staged or found.log_tie is not None:
        return _ranks(_Mode.of(data._replace(counts=counts), sigma, mean).point[None, :n])[0]
    gradients, hessian = data.slopes(mean)
    curvature = np.diag(data.sds(sigma) ** -2.0) - hessian
    step = np.linalg.solve(curvature, (counts - ballots.counts) @ gradients)
    return _ranks((mean + step)[None])[0]


class _Mode(NamedTuple):
    """The centre of draws of log worths given sigma, and the Cholesky factor of the precision.

    ``laplace`` is a rough log evidence.
    """

    point: np.ndarray
    factor: np.ndarray
    sigma: float
    laplace: float

    @classmethod
    def of(cls, data: _Data, sigma: float, start: np.ndarray) -> "_Mode":
        """Find the mode by Newton's method with halved steps."""
        point, n = start.copy(), len(start)
        precisions = data.sds(sigma) ** -2.0
        value = _log_joint(data, point[None], sigma, approximate=True)[0]
        for _ in range(_MAX_STEPS):
            gradients, hessian = data.slopes(point)
            gradient = data.counts @ gradients - point * precisions
            curvature = np.diag(precisions) - hessian
            step = np.linalg.solve(curvature, gradient)
            scale = 1.0
            while scale > 1e-6:
                new = _log_joint(data, (point + scale * step)[None], sigma, approximate=True)[0]
                if new >= value:
                    break
                scale /= 2
            point, value = point + scale * step, new
            if np.abs(step).max() < 1e-6:
                break
        factor = cholesky(curvature, lower=True)
        exact = _log_joint(data, point[None], sigma)[0]
        log_det = float(np.log(np.diag(factor)).sum())
        return cls(point, factor, sigma, float(exact) + 0.5 * n * np.log(2 * np.pi) - log_det)

    def proposals(self, data: _Data, num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw (num, D) parameters from a t distribution, and their log importance weights."""
        n = len(self.point)
        uniform = qmc.Sobol(n + 1, rng=np.random.default_rng(seed)).random(num)
        uniform = np.clip(uniform, 1e-12, 1 - 1e-12)
        scales = np.sqrt(_DF / chi2.ppf(uniform[:, -1], _DF))
        z = ndtri(uniform[:, :-1]) * scales[:, None]
        points = self.point + solve_triangular(self.factor, z.T, lower=True, trans="T").T
        log_density = (
            gammaln((_DF + n) / 2) - gammaln(_DF / 2) - 0.5 * n * np.log(_DF * np.pi)
            + np.log(np.diag(self.factor)).sum()
            - 0.5 * (_DF + n) * np.log1p((z**2).sum(axis=1) / _DF)
        )  # fmt: skip
        return points, _log_joint(data, points, self.sigma) - log_density


def _log_joint(
    data: _Data, points: np.ndarray, sigma: float, *, approximate: bool = False
) -> np.ndarray:
    """(N, D) parameters -> (N,) log likelihoods plus log priors."""
    sds = data.sds(sigma)
    prior = -0.5 * ((points / sds) ** 2).sum(axis=1) - np.log(sds * np.sqrt(2 * np.pi)).sum()
    return prior + data.log_likelihoods(points, approximate=approximate)


def _breslow(choices: _Choices, log_worths: np.ndarray) -> np.ndarray:
    """(N, n) -> (N,) log likelihoods with Breslow's treatment of ties, which Newton climbs."""
    present = choices.items >= 0
    last = choices.levels == choices.levels.max(axis=1, keepdims=True)
    # The first place of each item's group: the choice is from all items from there on.
    start = np.where(present, choices.levels, choices.items.shape[1] + 1)
    place = (start[:, None, :] < start[:, :, None]).sum(axis=2)
    found = []
    for row in log_worths:
        values = np.where(present, row[choices.items], -np.inf)
        left = np.logaddexp.accumulate(values[:, ::-1], axis=1)[:, ::-1]
        chosen = np.take_along_axis(left, np.minimum(place, left.shape[1] - 1), 1)
        terms = np.where(present & ~last, values, 0.0) - np.where(present & ~last, chosen, 0.0)
        found.append(choices.counts @ terms.sum(axis=1))
    return np.array(found)


def _ranks(log_worths: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(-log_worths, axis=1), axis=1)


def _summarised(
    draws: np.ndarray, log_weights: np.ndarray, evidence: np.ndarray, used: np.ndarray, seed: int
) -> Worths:
    """Summaries of weighted draws of log worths."""
    total = float(logsumexp(evidence))
    weights = np.exp(log_weights - logsumexp(log_weights))
    ranks = _ranks(draws)
    marginals = _shares(ranks, weights)
    rng = np.random.default_rng(seed)
    # Neighbouring points of Sobol's sequence complement each other, so halves are random.
    split = np.array_split(rng.permutation(len(ranks)), 2)
    halves = np.stack([_shares(ranks[half], weights[half]) for half in split])
    before = np.stack([weights @ (ranks[:, [i]] < ranks) for i in range(draws.shape[1])])
    centred = draws - draws.mean(axis=1, keepdims=True)
    mean = weights @ centred
    sd = np.sqrt(weights @ (centred - mean) ** 2)
    effective = float(1 / (weights**2).sum())
    positions = (rng.random() + np.arange(_KEPT)) / _KEPT
    kept = ranks[np.searchsorted(np.cumsum(weights) / weights.sum(), positions * (1 - 1e-12))]
    sigmas, of_sigma = np.exp(_LOG_SIGMAS[used]), np.exp(evidence - total)
    sigma = float(of_sigma @ sigmas)
    spread = np.sqrt(of_sigma @ (sigmas - sigma) ** 2)
    solved = Solved(
        marginals, before, kept, _ranks(mean[None])[0],
        total, np.array([[sigma, spread]]), DrawsLaw(kept),
    )  # fmt: skip
    se = float(np.sqrt(max(0.0, 1 / effective - 1 / len(draws))))
    return Worths(solved, se, mean, sd, effective, halves)


def _shares(ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(n, n) weighted shares of draws (num, n) in which item i has rank k."""
    n = ranks.shape[1]
    table = np.stack([np.bincount(ranks[:, i], weights, minlength=n) for i in range(n)])
    return table / table.sum(axis=1, keepdims=True)
