r"""Wiring diagrams with wrong edges: spike-and-slab weights between pairs of labels.

A subject's recording gives an estimate of every weight between its neurons, with standard error s
(`matching.estimate_edges`). Add up the estimates that permutations bring to a pair of labels (a, b)
over subjects: :math:`x_{ab} = \sum_j z_j / s_j^2`, with precision
:math:`P_{ab} = \sum_j 1 / s_j^2`. Every pair is an edge with probability :math:`p_1` if the diagram
has it and :math:`p_0` if not, so both kinds of error are allowed. With indicators and weights
integrated out, the log evidence of the permutations is a sum over pairs,

.. math::
    \sum_{a < b} \log \bigl[ 1 - p_{ab} + p_{ab} \, e^{B_{ab}} \bigr] , \qquad
    B = \sum_{\pm} \tfrac12 \Bigl[ \frac{t_\pm \, (x_{ab} \pm x_{ba})^2 / 2}{1 + P t_\pm}
    - \log (1 + P t_\pm) \Bigr] ,

where :math:`t_\pm` are the variances of :math:`(W_{ab} \pm W_{ba}) / \sqrt 2`. The two directions
of a connection are wrong together, and their weights may be correlated, if the diagram is
symmetric. Otherwise each direction is an edge of its own, and its sum has one term. A pair adds at
most about :math:`\log p_1 / p_0` to the evidence against a matching, however large its weight
(spike and slab, Mitchell and Beauchamp 1988).

The probabilities, the variances and the scale of the errors maximise the evidence (EM). Most pairs
are no edges, so the errors' scale is that of the bulk of all pairs (an empirical null, Efron 2004).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from permvi.inference.dynamics.evidence import Moves, Permuted, Screen
from permvi.inference.dynamics.matching import Edges, PairScores
from permvi.inference.dynamics.regression import Scales, SharedRegression

_STEPS = 12
# Pseudo-counts of edges and of none among the edges of the diagram, and among other pairs.
_PSEUDO = 1.0
_LEAST_VARIANCE = 1e-6
# Wrong edges are allowed for if at least this many are missing, as a share of the diagram too, and
# the evidence for errors is at least this many nats.
_LEAST_MISSING = 10.0
_LEAST_SHARE = 0.06
_LEAST_EVIDENCE = 20.0


class Wiring(NamedTuple):
    """The errors of the diagram and the law of the weights.

    Attributes:
        kept: The probability that an edge of the diagram is one.
        missing: The probability that any other pair is an edge.
        odd: The prior variance of ``(W[a, b] - W[b, a]) / sqrt(2)``.
        even: The prior variance of ``(W[a, b] + W[b, a]) / sqrt(2)``.
        error: The variance of the estimates' errors, relative to what is expected of them.
        symmetric: Whether the two directions of a connection are edges together.
    """

    kept: float
    missing: float
    odd: float
    even: float
    error: float
    symmetric: bool

    def errors(self, support: np.ndarray) -> tuple[float, float]:
        """Return the expected shares of edges that are none and of missing ones, by its edges."""
        off = ~np.eye(len(support), dtype=bool)
        drawn, others = (support & off).sum(), (~support & off).sum()
        return 1 - self.kept, self.missing * float(others) / max(float(drawn), 1.0)

    @property
    def parameters(self) -> np.ndarray:
        """The numbers as the compiled functions take them."""
        return np.array(
            [
                *(np.log(p / (1 - p)) for p in (self.missing, self.kept)),
                *(np.log1p(-p) for p in (self.missing, self.kept)),
                self.odd,
                self.even,
                self.error,
                float(self.symmetric),
            ]
        )


class Estimates(NamedTuple):
    """All subjects' estimates of weights, divided by their variances, and these precisions."""

    x: np.ndarray  # (J, m, m) by rows
    precision: np.ndarray  # (J, m, m), zero on the diagonal and where nothing is recorded

    @classmethod
    def of(cls, edges: Sequence[Edges]) -> "Estimates":
        """Stack the estimates of all subjects."""
        off = 1 - np.eye(len(edges[0].z))
        return cls(
            np.stack([each.z / each.s**2 for each in edges]),
            np.stack([each.recorded * off / each.s**2 for each in edges]),
        )

    def by_label(self, rows: np.ndarray) -> "Estimates":
        """Add the subjects up in the order of the labels; ``rows[j, a]`` has label a."""
        place = (np.arange(len(rows))[:, None, None], rows[:, :, None], rows[:, None, :])
        return Estimates(self.x[place].sum(axis=0), self.precision[place].sum(axis=0))


class _Pairs(NamedTuple):
    """Sums of the pairs of labels, rotated to differences and sums of both directions."""

    odd: np.ndarray  # (K,) differences, divided by sqrt(2)
    even: np.ndarray  # (K,) sums, divided by sqrt(2)
    precision: np.ndarray  # (K,)
    drawn: np.ndarray  # (K,) booleans, True for edges of the diagram

    @classmethod
    def of(cls, sums: Estimates, support: np.ndarray, *, symmetric: bool) -> "_Pairs":
        if not symmetric:
            at = np.nonzero(~np.eye(len(support), dtype=bool))
            x = sums.x[at]
            return cls(x, np.zeros_like(x), sums.precision[at], support[at])
        a, b = np.triu_indices(len(support), 1)
        x, y = sums.x[a, b], sums.x[b, a]
        root = np.sqrt(2)
        return cls((x - y) / root, (x + y) / root, sums.precision[a, b], support[a, b])


def _log_bayes(pairs: _Pairs, wiring: Wiring) -> np.ndarray:
    """Return (K,) the log Bayes factors B of edges against none."""
    total = np.zeros(len(pairs.drawn))
    P = pairs.precision / wiring.error
    for x, variance in ((pairs.odd, wiring.odd), (pairs.even, wiring.even)):
        if wiring.symmetric or x is pairs.odd:
            x = x / wiring.error
            total += 0.5 * (x**2 * variance / (1 + P * variance) - np.log1p(P * variance))
    return total


def _posterior(pairs: _Pairs, wiring: Wiring) -> tuple[np.ndarray, float]:
    """Return (K,) the probabilities of edges, and the log density of the estimates."""
    prior = np.where(pairs.drawn, wiring.kept, wiring.missing)
    bayes = _log_bayes(pairs, wiring)
    values = np.logaddexp(np.log1p(-prior), np.log(prior) + bayes)
    # The density of the estimates without an edge, which depends on the scale of their errors.
    seen = pairs.precision > 0
    squares = (pairs.odd[seen] ** 2 + pairs.even[seen] ** 2) / pairs.precision[seen]
    dims = 2 if wiring.symmetric else 1
    null = -0.5 * (squares.sum() / wiring.error + dims * seen.sum() * np.log(wiring.error))
    return np.exp(np.log(prior) + bayes - values), float(values.sum() + null)


def learn(
    sums: Estimates, support: np.ndarray, wiring: Wiring, *, errors: bool = True
) -> tuple[Wiring, float]:
    """Maximise the evidence by EM; return the wiring and the log density of the estimates.

    Args:
        sums: Estimates by label.
        support: (m, m) booleans, the diagram.
        wiring: Where to begin.
        errors: Whether the probabilities of wrong edges are learned, too.
    """
    pairs = _Pairs.of(sums, support, symmetric=wiring.symmetric)
    seen = pairs.precision > 0
    pairs = _Pairs(*(part[seen] for part in pairs))
    num_drawn = pairs.drawn.sum()
    for _ in range(_STEPS):
        edge, _ = _posterior(pairs, wiring)
        weights: dict[str, Any] = {}
        for name, x in (("odd", pairs.odd), ("even", pairs.even)):
            variance = getattr(wiring, name)
            scale = 1 + pairs.precision / wiring.error * variance
            square = (x / wiring.error * variance / scale) ** 2 + variance / scale
            weights[name] = max(float((edge * square).sum() / edge.sum()), _LEAST_VARIANCE)
        dims = 2 if wiring.symmetric else 1
        squares = (pairs.odd**2 + pairs.even**2) / pairs.precision
        error = float(((1 - edge) * squares).sum() / (dims * max((1 - edge).sum(), 1e-9)))
        wiring = wiring._replace(
            **weights, error=error if (1 - edge).sum() > num_drawn else wiring.error
        )
        if errors:
            shares = [
                (edge[these].sum() + _PSEUDO) / (these.sum() + 2 * _PSEUDO)
                for these in (pairs.drawn, ~pairs.drawn)
            ]
            wiring = wiring._replace(kept=float(shares[0]), missing=float(shares[1]))
    return wiring, _posterior(pairs, wiring)[1]


def wrong_edges(
    problem: SharedRegression, edges: Sequence[Edges], perms: np.ndarray, scales: Scales
) -> Wiring | None:
    """Return the errors of the diagram given permutations (J, m), None if there are next to none.

    Wrong labels look like wrong edges, so a few of either are ignored. In short recordings the
    estimates of all pairs leak into each other, so `given_inputs` have to show errors as well.
    """
    symmetric = bool((problem.support == problem.support.T).all())
    near = 1e-9
    none = Wiring(1 - near, near, scales.weight, scales.weight, 1.0, symmetric)
    rows, found = np.argsort(perms, axis=1), None
    for sums in (
        given_inputs(problem, rows, scales, symmetric=symmetric),
        Estimates.of(edges).by_label(rows),
    ):
        _, without = learn(sums, problem.support, none, errors=False)
        found, value = learn(sums, problem.support, none._replace(kept=0.9, missing=0.005))
        share = found.errors(problem.support)[1]
        asked = share >= _LEAST_SHARE and share * problem.support.sum() >= _LEAST_MISSING
        if not asked or value - without <= _LEAST_EVIDENCE:
            return None
    return found


def given_inputs(
    problem: SharedRegression, rows: np.ndarray, scales: Scales, *, symmetric: bool
) -> Estimates:
    r"""Estimate the weight of each pair given the other inputs that the diagram has.

    Label a has the inputs b. With :math:`S = K_{bb} + \lambda I` and :math:`r = K^1_{ab}`, another
    label c, added to them, has :math:`x = (K^1_{ac} - K_{cb} S^{-1} r) / \sigma^2` and the
    precision :math:`(K_{cc} - K_{cb} S^{-1} K_{bc}) / \sigma^2`. An input b has
    :math:`x = (S^{-1} r)_b / (S^{-1}_{bb} \sigma^2)` and
    :math:`(1 / S^{-1}_{bb} - \lambda) / \sigma^2`. Precisions of two directions are averaged.
    """
    sums = problem.pool(problem.by_label(rows))
    m, ridge = problem.size, scales.ridge
    x, precision = np.zeros((m, m)), np.zeros((m, m))
    for a in range(m):
        here = sums.present[:, a]
        K0, K1 = sums.K0[here].sum(axis=0), sums.K1[here, a].sum(axis=0)
        b = np.flatnonzero(problem.support[a])
        inverse = np.linalg.inv(K0[np.ix_(b, b)] + ridge * np.eye(len(b)))
        means, across = inverse @ K1[b], inverse @ K0[b]
        x[a] = K1 - means @ K0[b]
        precision[a] = np.diag(K0) - (K0[b] * across).sum(axis=0)
        own = np.diag(inverse)
        x[a, b], precision[a, b] = means / own, 1 / own - ridge
    precision = np.maximum(precision, 0.0)
    np.fill_diagonal(precision, 0.0)
    scores = x / np.sqrt(np.where(precision > 0, precision * scales.noise, np.inf))
    if symmetric:
        precision = np.where((precision > 0) & (precision.T > 0), precision + precision.T, 0.0) / 2
    precision = precision / scales.noise
    return Estimates(scores * np.sqrt(precision), precision)


def lone_scores(
    problem: SharedRegression, edges: Sequence[Edges], wiring: Wiring, subject: int
) -> PairScores:
    """Return the pair scores of one subject by itself, which are exact."""
    from permvi.inference.dynamics import wiring_kernels

    alone = Estimates.of([edges[subject]])
    gains = wiring_kernels.gains_of_edges(alone.x[0], alone.precision[0], wiring.parameters)
    support = problem.support.astype(float)
    np.fill_diagonal(support, 0.0)
    return PairScores(gains[None], support[None], problem.prior[subject])


def cavity_scores(
    problem: SharedRegression,
    edges: Sequence[Edges],
    wiring: Wiring,
    perms: np.ndarray,
    subject: int,
) -> PairScores:
    r"""Return the pair scores of a subject given the others' permutations.

    The pairs that the others make more likely edges than not have normal beliefs about their
    weights, and no other pair is an edge:
    :math:`\log N(z; \mu, v + s^2) - \log N(z; 0, s^2)`.
    """
    from permvi.inference.dynamics.matching import Beliefs, pair_scores

    others = np.arange(problem.num_subjects) != subject
    estimates = Estimates.of([each for j, each in enumerate(edges) if others[j]])
    sums = estimates.by_label(np.argsort(perms[others], axis=1))
    x, P = sums.x / wiring.error, sums.precision / wiring.error
    if wiring.symmetric:
        odd, even = wiring.odd / (1 + P * wiring.odd), wiring.even / (1 + P * wiring.even)
        mean = 0.5 * (odd * (x - x.T) + even * (x + x.T))
        variance = 0.5 * (odd + even)
    else:
        variance = wiring.odd / (1 + P * wiring.odd)
        mean = variance * x
    likely = edge_probabilities(sums, problem.support, wiring) > 0.5
    error = edges[subject]._replace(s=edges[subject].s * np.sqrt(wiring.error))
    beliefs = Beliefs(np.where(likely, mean, 0.0), np.where(likely, variance, 0.0))
    return pair_scores(error, beliefs, problem.prior[subject])


def edge_probabilities(sums: Estimates, support: np.ndarray, wiring: Wiring) -> np.ndarray:
    """Return (m, m) probabilities that pairs of labels are edges, given estimates by label."""
    found = np.zeros(support.shape)
    pairs = _Pairs.of(sums, support, symmetric=wiring.symmetric)
    edge, _ = _posterior(pairs, wiring)
    if wiring.symmetric:
        a, b = np.triu_indices(len(support), 1)
        found[a, b] = found[b, a] = edge
    else:
        found[~np.eye(len(support), dtype=bool)] = edge
    return found


class WiringState(Permuted):
    """Permutations (J, m) of all subjects and the sums of all pairs, as `CollapsedState` has it."""

    def __init__(
        self, problem: SharedRegression, edges: Sequence[Edges], perms: np.ndarray, scales: Wiring
    ) -> None:
        self.scales = scales
        self._estimates = Estimates.of(edges)
        super().__init__(problem, perms)

    @property
    def log_density(self) -> float:
        """Log evidence plus log prior of the permutations."""
        return self._value + self.problem.log_prior(self.perms)

    @property
    def log_evidence(self) -> float:
        """The log density of the estimates and the permutations, comparable between wirings."""
        pairs = _Pairs.of(self._sums, self.problem.support, symmetric=self.scales.symmetric)
        return _posterior(pairs, self.scales)[1] + self.problem.log_prior(self.perms)

    @property
    def edge_probabilities(self) -> np.ndarray:
        """(m, m) probabilities that pairs of labels are edges."""
        return edge_probabilities(self._sums, self.problem.support, self.scales)

    def refresh(self) -> None:
        """Recompute the sums from the permutations, since updates lose digits."""
        from permvi.inference.dynamics import wiring_kernels

        self._sums = self._estimates.by_label(self._rows)
        self._value = float(
            wiring_kernels.evidence(*self._sums, self.problem.support, self.scales.parameters)
        )

    def walk(
        self, moves: Moves, order: np.ndarray, thresholds: np.ndarray, screen: Screen | None = None
    ) -> np.ndarray:
        """Try moves in an order (num,) as `CollapsedState.walk` does; return what each gains.

        Nothing is screened, since differences are cheap.
        """
        # Imported here because it loads numba.
        from permvi.inference.dynamics import wiring_kernels

        del screen
        problem = self.problem
        subjects = wiring_kernels.Subjects(
            self._estimates.x,
            self._estimates.precision,
            problem.mask,
            problem.prior,
            self._rows,
        )
        num_evaluations, gains, total = wiring_kernels.walk(
            self._sums.x, self._sums.precision, subjects, problem.support,
            self.scales.parameters, moves, order, thresholds,
        )  # fmt: skip
        self._value += total
        self.num_evaluations += num_evaluations
        return gains

    def learn_scales(self, *, weight: bool = True, noise: bool = True) -> None:
        """Set the wiring to the values that maximise the evidence."""
        del weight, noise
        self.scales = learn(self._sums, self.problem.support, self.scales)[0]
        self.refresh()
