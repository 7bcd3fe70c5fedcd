"""Permutations of all subjects with the weights that they share, each updated given the other."""

import numpy as np
from scipy.sparse import csr_array

from permvi.inference.dynamics import evidence_kernels, swap_kernels
from permvi.inference.dynamics.regression import Scales, SharedRegression

KINDS = ("swap", "cycle")
# The share of proposals along cycles where there is a mask. Without them some matchings might be
# out of reach, but they cost more than swaps and are seldom taken.
_SHARE_OF_CYCLES = 0.05
# The least gain, in nats, that counts as a step uphill.
_LEAST_GAIN = 1e-9


class JointState:
    """Permutations (J, m) and weights (E,), which start at their mean given the permutations.

    Args:
        problem: The statistics.
        perms: (J, m) the labels of the rows.
        scales: The variances.

    Attributes:
        num_evaluations: The number of regressions and of differences of log densities computed.
        proposed: (2,) the number of proposals of each of `KINDS`.
        taken: (2,) the number of those that were taken.
    """

    def __init__(self, problem: SharedRegression, perms: np.ndarray, scales: Scales) -> None:
        self._problem, self._scales = problem, scales
        self._edges = np.nonzero(problem.support)
        W = np.zeros((problem.size, problem.size))
        self._system = swap_kernels.System(
            W, problem.support, problem.inputs, problem.touched, scales.noise
        )
        self._subjects = [self._subject(j, perm) for j, perm in enumerate(perms)]
        self._cycles = not problem.mask.all()
        self.num_evaluations = 0
        self.proposed, self.taken = np.zeros((2, 2), np.int64)
        self.regress()

    def _subject(self, j: int, perm: np.ndarray) -> swap_kernels.Subject:
        problem = self._problem
        choice = problem.mask[j].sum(axis=1) > 1
        pairs = np.argwhere(problem.mask[j] & choice[:, None])
        return swap_kernels.Subject(
            C0=problem.C0[j],
            C1=problem.C1[j],
            recorded=problem.recorded[j],
            prior=problem.prior[j],
            mask=problem.mask[j],
            pairs=pairs,
            pairs_start=np.searchsorted(pairs[:, 0], np.arange(problem.size + 1)),
            labels=perm.astype(np.int64),
            rows=np.argsort(perm),
            U=np.zeros((problem.size, problem.size)),
        )

    @property
    def perms(self) -> np.ndarray:
        """The label of each row, (J, m)."""
        return np.stack([subject.labels for subject in self._subjects])

    @property
    def weights(self) -> np.ndarray:
        """The weights on the edges of the support, (E,), row by row."""
        return self._system.W[self._edges]

    @property
    def table(self) -> np.ndarray:
        """The weights as a matrix (m, m), zero off the support."""
        return self._system.W.copy()

    @property
    def log_density(self) -> float:
        """Joint log density of recordings, permutations and weights."""
        (to, come), W, variance = self._edges, self.weights, self._scales.weight
        total = -(W**2).sum() / variance - len(W) * np.log(2 * np.pi * variance)
        for subject in self._subjects:
            h, k = subject.rows[to], subject.rows[come]
            terms = W * (2 * subject.C1[h, k] - subject.U[to, k])
            total += terms[subject.recorded[h]].sum() / self._scales.noise
        problem = self._problem
        return float(total / 2 + problem.log_prior(self.perms)) + problem.log_constant(
            self._scales.noise
        )

    def regress(self, rng: np.random.Generator | None = None) -> float:
        """Draw the weights given the permutations, or set them to their mean if ``rng`` is None.

        Returns:
            Log density of recordings and permutations with the weights integrated out.
        """
        problem, rows = self._problem, np.stack([subject.rows for subject in self._subjects])
        sums, num_edges = problem.pool(problem.by_label(rows)), len(self._edges[0])
        normals = np.zeros(num_edges) if rng is None else rng.standard_normal(num_edges)
        evidence, drawn = evidence_kernels.draw_weights(
            sums, problem.inputs, *self._scales.regression, normals
        )
        self.num_evaluations += 1
        self._system.W[self._edges] = drawn
        table = csr_array((drawn, *problem.inputs), shape=problem.support.shape)
        for subject in self._subjects:
            subject.U[:] = table @ subject.C0[subject.rows]
        constant = problem.log_constant(self._scales.noise)
        return float(evidence) + problem.log_prior(self.perms) + constant

    def swap(self, num_per_row: int, rng: np.random.Generator) -> None:
        """Take ``num_per_row`` Metropolis steps given the weights for each row with a choice."""
        for subject in self._subjects:
            total = num_per_row * len(np.unique(subject.pairs[:, 0]))
            cycles = int(np.ceil(_SHARE_OF_CYCLES * total)) if self._cycles else 0
            wanted = total - cycles, cycles
            computed, *taken = swap_kernels.metropolis(self._system, subject, *wanted, rng)
            self.num_evaluations += computed
            self.proposed += wanted
            self.taken += taken

    def climb(self, j: int) -> int:
        """Swap labels of subject j until no swap raises the log density; return how many did."""
        computed, taken = swap_kernels.climb(self._system, self._subjects[j], _LEAST_GAIN)
        self.num_evaluations += computed
        return int(taken)

    def move(self, j: int, perm: np.ndarray) -> None:
        """Replace the permutation (m,) of subject j."""
        subject = self._subjects[j]
        subject.labels[:], subject.rows[:] = perm, np.argsort(perm)
        table = csr_array(self._system.W)
        subject.U[:] = table @ subject.C0[subject.rows]
