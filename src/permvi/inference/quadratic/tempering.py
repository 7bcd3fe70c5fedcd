r"""Parallel tempering from a reference whose evidence is known to the posterior.

The reference pulls every row i towards the columns that a centre r has for the cell c of the row,

.. math::
    p_0(\pi) \propto e^{g(\pi)}, \qquad g(\pi) = \sum_i \lambda_{c(i)} 1[\pi(i) \in r(c(i))], \qquad
    Z_0 = \sum_k (n - k)! \, [x^k] \prod_c \sum_j \binom{a_c}{j}^2 j! \, (e^{\lambda_c} - 1)^j x^j,

where cell c has :math:`a_c` rows: j of them are held in j of its columns in
:math:`\binom{a_c}{j}^2 j!` ways, and the others take the remaining columns in any order. Rows that
can be exchanged share a cell, so that the pull does not tell them apart; most rows have one of
their own. Without pull this is the uniform law and :math:`Z_0 = n!`. Levels :math:`p_\beta \propto
e^{g + \beta (f - g)}` lead to the posterior of log density f. A pull matters where the posterior
has a phase of its own around a mode: from the uniform law, tempering would have to find a needle in
a haystack.

Neighbouring levels exchange their replicas (Geyer 1991), and inverse temperatures are set so that
all exchanges are equally often rejected (Syed et al. 2022). Bennett's (1976) acceptance ratios of
neighbours add up to the log evidence.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, gammaln

from permvi.inference.interruptible import Stop
from permvi.inference.quadratic.form import Form
from permvi.inference.quadratic.twins import Cells

# Levels to begin with; the first one above zero has about this times one over the spread of f - g.
_FIRST_LEVELS = 16
_FIRST_BETA = 0.2
_FEWEST_LEVELS, _MOST_LEVELS = 4, 40
# Levels for each rejected exchange on the way from the first to the last.
_LEVELS_PER_BARRIER = 2.0
# The smallest rejection rate that a step of the ladder counts with.
_LEAST_REJECTION = 0.02
# Looks at the last level in a sweep, the only level that marginals come from.
_LOOKS = 8
# The share of jumps that choose modes by their densities; the others choose all alike.
_BY_WEIGHT = 0.7
# Accepted exchanges of two neighbours below which their evidence cannot be compared.
_FEWEST_EXCHANGES = 2.0
# Sweeps between looks whether to stop.
_SWEEPS_AT_ONCE = 25


class Reference(NamedTuple):
    """The law that a ladder begins with.

    Attributes:
        centre: (n,) a permutation.
        pulls: (n,) the log weights of rows in their cells.
        log_total: The log of its evidence.
        of_row: (n,) the cell of each row.
        of_col: (n,) the cell of each column.
        members: (n,) rows, cell by cell.
        bounds: (cells+1,) where each cell begins in ``members``.
        num_mixed: The number of rows, the first members, in cells whose rows may differ.
        tables: Log weights for `draw_reference`, its first three arguments.
    """

    centre: np.ndarray
    pulls: np.ndarray
    log_total: float
    of_row: np.ndarray
    of_col: np.ndarray
    members: np.ndarray
    bounds: np.ndarray
    num_mixed: int
    tables: tuple[np.ndarray, np.ndarray, np.ndarray]

    @classmethod
    def around(
        cls, centre: np.ndarray, pulls: np.ndarray, cells: Cells | None = None
    ) -> "Reference":
        """Return the reference with pulls (n,), none of them negative, towards a permutation.

        In each of the ``cells`` pulls are alike. By default every row has its own cell.
        """
        n = len(centre)
        of_row, num_mixed = cells or Cells(np.arange(n), 0)
        sizes, members = np.bincount(of_row), np.argsort(of_row, kind="stable")
        bounds = np.append(0, np.cumsum(sizes))
        of_col = np.empty(n, np.int64)
        of_col[centre] = of_row
        with np.errstate(divide="ignore"):
            log_odds = np.where(pulls > 0, pulls + np.log(-np.expm1(-pulls)), -np.inf)
        log_sums = np.full((len(sizes) + 1, n + 1), -np.inf)
        log_sums[0, 0] = 0.0
        log_terms = []
        for c, (begin, size) in enumerate(zip(bounds, sizes, strict=False)):
            held = np.arange(1, size + 1)
            # binom(a, j)^2 j! = a!^2 / (a - j)!^2 / j!
            ways = 2 * (gammaln(size + 1.0) - gammaln(size - held + 1.0)) - gammaln(held + 1.0)
            terms = np.append(0.0, ways + held * log_odds[members[begin]])
            log_sums[c + 1] = log_sums[c]
            for j, term in enumerate(terms[1:], 1):
                log_sums[c + 1, j:] = np.logaddexp(log_sums[c + 1, j:], term + log_sums[c, :-j])
            log_terms.append(terms)
        log_sizes = log_sums[-1] + gammaln(n + 1.0 - np.arange(n + 1))
        total = float(np.logaddexp.reduce(log_sizes))
        tables = log_sums, log_sizes - total, np.concatenate(log_terms)
        mixed = int(bounds[num_mixed])
        return cls(centre, pulls, total, of_row, of_col, members, bounds, mixed, tables)

    def in_cells(self, perms: np.ndarray) -> np.ndarray:
        """Return whether each row of permutations (..., n) is in its cell."""
        return self.of_col[perms] == self.of_row


class Sweeps(NamedTuple):
    """What an ensemble has seen in some sweeps.

    Attributes:
        trace: (sweeps, K) f - g at each level.
        kept: (sweeps, n) the permutations of the last level.
        possible: (sweeps,) whether they are allowed.
        counts: (n, n) the number of looks with each pair, of those that are allowed.
    """

    trace: np.ndarray
    kept: np.ndarray
    possible: np.ndarray
    counts: np.ndarray


class Ensemble:
    """The replicas of one ladder.

    Args:
        form: The problem.
        reference: The law of the first level.
        modes: (m, n) permutations between which replicas may jump.
        starts: (k, n) where replicas begin, in turn; None: at draws from the reference.
        rng: The source of randomness.
    """

    def __init__(
        self,
        form: Form,
        reference: Reference,
        modes: np.ndarray,
        starts: np.ndarray | None,
        rng: np.random.Generator,
    ) -> None:
        self.form, self.reference, self._rng = form, reference, rng
        self.best, self.best_value = form.best.copy(), form.best_value
        self.learn(modes)
        n = len(reference.centre)
        drawn = self._draws(64)
        spread = (form.values(drawn) - self._pulled(drawn)).std()
        lowest = min(0.5, _FIRST_BETA / max(spread, 1e-12))
        self.betas = np.append(0.0, np.geomspace(lowest, 1.0, _FIRST_LEVELS - 1))
        # The first level is drawn anew in every sweep.
        perms = drawn if starts is None else starts
        self._perms = np.resize(perms, (_FIRST_LEVELS, n)).astype(np.int64)
        self._slots = np.arange(_FIRST_LEVELS)
        self._parity = 0
        self.num_jumps = 0

    def learn(self, modes: np.ndarray) -> None:
        """Jump between these modes (m, n) from now on."""
        self._modes = np.ascontiguousarray(modes)
        self._inverses = np.argsort(modes, axis=1)
        values = self.form.values(modes)
        weights = np.exp(values - values.max())
        shares = _BY_WEIGHT * weights / weights.sum() + (1.0 - _BY_WEIGHT) / len(modes)
        self._cumulative = np.cumsum(shares)
        if values[0] > self.best_value:
            self.best, self.best_value = modes[0].copy(), float(values[0])

    @property
    def replicas(self) -> np.ndarray:
        """The (K, n) permutations, that of the last level first."""
        return self._perms[self._slots[::-1]]

    def _draws(self, num: int) -> np.ndarray:
        from permvi.inference.quadratic.cells_kernels import draw_reference

        law = self.reference
        perms = np.empty((num, len(law.centre)), np.int64)
        draw_reference(*law.tables, law.members, law.bounds, law.centre, perms, self._rng)
        return perms

    def _pulled(self, perms: np.ndarray) -> np.ndarray:
        return (self.reference.in_cells(perms) * self.reference.pulls).sum(axis=-1)

    def posterior_only(self) -> None:
        """Leave out all levels but the last."""
        self.betas, self._slots = np.ones(1), np.zeros(1, np.int64)
        self._perms = self._perms[-1:]

    def adapt(self, num_sweeps: int, stop: Stop) -> None:
        """Sweep, and space the levels so that exchanges are rejected equally often."""
        found = self._sweep(num_sweeps, stop)
        rates = np.maximum(found[1], _LEAST_REJECTION)
        barrier = np.append(0.0, np.cumsum(rates))
        wanted = int(np.ceil(_LEVELS_PER_BARRIER * barrier[-1])) + 2
        number = int(np.clip(wanted, _FEWEST_LEVELS, _MOST_LEVELS))
        betas = np.interp(np.linspace(0.0, barrier[-1], number), barrier, self.betas)
        betas[0], betas[-1] = 0.0, 1.0
        nearest = np.abs(betas[:, None] - self.betas).argmin(axis=1)
        self._perms = self._perms[self._slots[nearest]]
        self.betas, self._slots = betas, np.arange(number)

    def run(self, num_sweeps: int, stop: Stop) -> Sweeps | None:
        """Sweep, or return None if told to stop."""
        found = self._sweep(num_sweeps, stop)[0]
        return None if stop.asked else found

    def _sweep(self, num_sweeps: int, stop: Stop) -> tuple[Sweeps, np.ndarray]:
        """Return what was seen, and the (K - 1,) rejection rates."""
        from permvi.inference.quadratic import tempering_kernels as kernels

        form, law, K = self.form, self.reference, len(self.betas)
        n = len(law.centre)
        size = 0 if form.lists.begins.size else n
        P = np.empty((K, size, size))
        if size:
            for perm, table in zip(self._perms, P, strict=True):
                kernels.place(form.B, perm, table)
        values, pulled = form.values(self._perms), self._pulled(self._perms)
        trace, kept = np.zeros((num_sweeps, K)), np.zeros((num_sweeps, n), np.int64)
        counts, rejected = np.zeros((n, n)), np.zeros(K - 1)
        for begin in range(0, num_sweeps, _SWEEPS_AT_ONCE):
            part = slice(begin, min(begin + _SWEEPS_AT_ONCE, num_sweeps))
            rates = np.zeros(K - 1)
            self.best_value, jumps = kernels.sweep(
                form.A, form.B, form.C, form.symmetric, form.allowed, form.turned, *form.lists,
                self._draws(part.stop - part.start), law.members, law.bounds,
                law.num_mixed, law.of_row, law.of_col, law.pulls,
                self._modes, self._inverses, self._cumulative, self.betas, self._slots,
                self._perms, P, values, pulled, self._parity, form.num_steps, _LOOKS, trace[part],
                kept[part], counts, rates, self.best, self.best_value, self._rng,
            )  # fmt: skip
            length = part.stop - part.start
            rejected += rates * length / num_sweeps
            self._parity = (self._parity + length) % 2
            self.num_jumps += jumps
            if stop(length * (K - 1 + _LOOKS) * form.num_steps):
                break
        possible = kept[:, 0] >= 0
        return Sweeps(trace, kept, possible, counts), rejected


class Evidence(NamedTuple):
    """An estimate of a log evidence, and its standard error; -inf and infinity if it is unknown."""

    value: float
    error: float


def log_evidence(
    betas: np.ndarray,
    trace: np.ndarray,
    possible: np.ndarray,
    log_total: float,
    num_batches: int,
) -> Evidence:
    r"""Return the log evidence at the end of a ladder (K,), from its sweeps (sweeps, K).

    Between neighbours with samples x and y of :math:`v = (\beta' - \beta)(f - g)`, Bennett's c
    solves :math:`\mathrm{mean}\, \sigma(x - c) = \mathrm{mean}\, \sigma(c - y)`. The standard error
    comes from batches of the sum of all steps, since levels that exchange replicas are correlated.
    ``possible`` (sweeps,) says which samples of the last level count. The evidence is unknown if
    none does, or if neighbours hardly ever exchange replicas: then neither has samples where the
    other is, and batches do not show it.
    """
    total, size = log_total, len(trace) // num_batches
    errors = np.zeros(num_batches)

    def batches(values: np.ndarray) -> np.ndarray:
        return values[: size * num_batches].reshape(num_batches, size).mean(axis=1)

    for k, step in enumerate(np.diff(betas)):
        x, y = step * trace[:, k], step * trace[:, k + 1]
        # Neighbours take turns, so that half of the exchanges are tried.
        if 0.5 * np.exp(np.minimum(x - y, 0.0)).sum() < _FEWEST_EXCHANGES:
            return Evidence(-np.inf, np.inf)

        def balance(c: float, x: np.ndarray = x, y: np.ndarray = y) -> float:
            return float(expit(x - c).mean() - expit(c - y).mean())

        low, high = min(x.min(), y.min()) - 1.0, max(x.max(), y.max()) + 1.0
        # Halving an interval of 1e300 to a nat takes a thousand steps.
        c = float(brentq(balance, low, high, xtol=1e-10, maxiter=2000))
        p, q = expit(x - c), expit(c - y)
        slope = float((p * (1 - p)).mean() + (q * (1 - q)).mean())
        errors += batches(p - q) / max(slope, 1e-12)
        total += c
    share = float(possible.mean())
    if share == 0.0:
        return Evidence(-np.inf, np.inf)
    errors += batches(possible.astype(float)) / share
    error = float(errors.std(ddof=1) / np.sqrt(num_batches))
    return Evidence(total + float(np.log(share)), error)
