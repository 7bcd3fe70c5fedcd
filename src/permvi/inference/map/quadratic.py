"""Quadratic log densities of matchings, on the host in float64."""

import dataclasses
import os
import sys
import time

import numpy as np

from permvi._threads import pool
from permvi.inference.map.local_search import Neighbourhood
from permvi.inference.map.polytope import (
    LineSearch,
    best_matrices,
    best_step,
    frank_wolfe,
    matrices,
    relaxed_starts,
    scaled,
    solve,
)
from permvi.inference.map.population import Islands
from permvi.inference.map.result import MapOptions, MapResult, agree, num_best


@dataclasses.dataclass(frozen=True, eq=False)
class Quadratic:
    r"""``<A, X B X'> + <C, X> + constant``, with ``X[i, j] = 1`` where ``perm[i] = j``.

    Attributes:
        A: (n, n) weights of ordered pairs of rows.
        B: (m, m) weights of ordered pairs of columns.
        C: (n, m) weights of pairs.
        constant: Added for all matchings.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    constant: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.C.shape[0], self.C.shape[1]

    def given(
        self, settled: np.ndarray, free_rows: np.ndarray, free_cols: np.ndarray
    ) -> "Quadratic":
        r"""Return the function of the remaining rows and columns, some pairs being known.

        A known pair (s, t) adds ``A[i, s] B[j, t] + A[s, i] B[t, j]`` to the weight of the pair
        (i, j), so the rest is quadratic again. ``settled`` (n,) has the known columns, -1 for
        others.
        """
        rows = np.flatnonzero(settled >= 0)
        cols = settled[rows]
        A, B = self.A, self.B
        outwards = A[np.ix_(free_rows, rows)] @ B[np.ix_(free_cols, cols)].T
        inwards = A[np.ix_(rows, free_rows)].T @ B[np.ix_(cols, free_cols)]
        known = (A[np.ix_(rows, rows)] * B[np.ix_(cols, cols)]).sum() + self.C[rows, cols].sum()
        return Quadratic(
            A[np.ix_(free_rows, free_rows)],
            B[np.ix_(free_cols, free_cols)],
            self.C[np.ix_(free_rows, free_cols)] + outwards + inwards,
            self.constant + float(known),
        )

    def padded(self) -> "Quadratic":
        """Return a square problem, in which rows and columns without weights take the surplus."""
        size = max(self.shape)
        A, B, C = (np.zeros((size, size)) for _ in range(3))
        n, m = self.shape
        A[:n, :n], B[:m, :m], C[:n, :m] = self.A, self.B, self.C
        return Quadratic(A, B, C, self.constant)

    def symmetrised(self) -> "Quadratic":
        """Return the same function with A and B symmetric, if one of them is; else itself.

        ``<A, X B X'>`` depends on the symmetric part of A alone if B is symmetric, and likewise.
        """
        parts = [(array + array.T) / 2 for array in (self.A, self.B)]
        same = [np.array_equal(*pair) for pair in zip(parts, (self.A, self.B), strict=True)]
        return dataclasses.replace(self, A=parts[0], B=parts[1]) if any(same) else self

    @property
    def is_symmetric(self) -> bool:
        """Whether both A and B are symmetric."""
        return np.array_equal(self.A, self.A.T) and np.array_equal(self.B, self.B.T)

    def values(self, perms: np.ndarray) -> np.ndarray:
        """Return the values (...) of permutations (..., n) of a square problem."""
        rows = np.arange(self.shape[0])
        edges = (self.A * self.B[perms[..., :, None], perms[..., None, :]]).sum(axis=(-2, -1))
        return edges + self.C[rows, perms].sum(axis=-1) + self.constant

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """Return ``A X B' + A' X B + C``: (..., n, m) -> (..., n, m)."""
        return self.A @ X @ self.B.T + self.A.T @ X @ self.B + self.C

    def curvature(self, direction: np.ndarray) -> np.ndarray:
        """Return ``<A, D B D'>``: (..., n, m) directions -> (...)."""
        return ((self.A @ direction @ self.B.T) * direction).sum(axis=(-2, -1))


# A relaxed matching that moves less than this (root mean square of its rows) has arrived.
ARRIVED = 0.01


def exact_line_search(quadratic: Quadratic) -> LineSearch:
    """Return the line search of a quadratic function: where its slope vanishes, or an end."""

    def steps(X: np.ndarray, vertices: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        direction = vertices - X
        return best_step((slopes * direction).sum(axis=(-2, -1)), quadratic.curvature(direction))

    return steps


def upper_bound(quadratic: Quadratic, allowed: np.ndarray) -> float:
    r"""Return an upper bound on the values of a square problem: the smaller of two.

    That of Gilmore and Lawler (1962) is an assignment with the weights

    .. math:: A_{ii} B_{jj} + C_{ij} + \max_\pi \sum_{k \ne i} A_{ik} B_{j \pi(k)},

    where sorted numbers meet sorted numbers. If A and B are symmetric, :math:`\langle A, X B X^\top
    \rangle` is at most the inner product of their sorted eigenvalues (Finke, Burkard and Rendl
    1987), and the linear part at most an assignment.
    """
    A, B, C = quadratic.A, quadratic.B, quadratic.C
    n = len(A)
    rows, cols = (np.sort(M[~np.eye(n, dtype=bool)].reshape(n, n - 1), axis=1) for M in (A, B))
    weights = rows @ cols.T + np.outer(np.diag(A), np.diag(B)) + C
    perm = solve(weights, allowed)
    bound = float(weights[np.arange(n), perm].sum())
    if quadratic.is_symmetric:
        spectrum = float(np.linalg.eigvalsh(A) @ np.linalg.eigvalsh(B))
        best = solve(C, allowed)
        bound = min(bound, spectrum + float(C[np.arange(n), best].sum()))
    return bound + quadratic.constant


# Widths of the kernels of spectral starts, in units of the standard deviation of eigenvalues.
_WIDTHS = (0.8, 0.4, 1.6, 0.2)
_SHARPNESS = 2.0


def spectral_starts(quadratic: Quadratic, allowed: np.ndarray, num: int) -> np.ndarray:
    r"""Return up to four relaxed matchings (r, n, n) from the spectra of A and B.

    The similarity of row i and column j, with eigenvectors u of A and v of B, is

    .. math:: \sum_{kl} u_{ik} v_{jl} (1^\top u_k) (1^\top v_l)
              / ((\lambda_k - \mu_l)^2 + \eta^2)

    (GRAMPA: Fan, Mao, Wu and Xu 2020). It finds the region of a planted matching where climbs from
    the centre of the polytope do not, and Frank-Wolfe finds the rest.
    """
    n = len(allowed)
    values, sums, vectors = [], [], []
    for M in (quadratic.A, quadratic.B):
        M = (M + M.T) / 2
        M = M - M.mean()
        spread = M.std() * np.sqrt(n)
        found = np.linalg.eigh(M / (spread if spread > 0 else 1.0))
        values.append(found[0])
        vectors.append(found[1])
        sums.append(found[1].sum(axis=0))
    starts = []
    for width in _WIDTHS[:num]:
        kernel = np.outer(*sums) / (np.subtract.outer(*values) ** 2 + width**2)
        similarity = vectors[0] @ kernel @ vectors[1].T
        spread = similarity.std()
        z = (similarity - similarity.mean()) / (spread if spread > 0 else 1.0)
        starts.append(scaled(np.where(allowed, np.exp(_SHARPNESS * np.clip(z, -8, 8)), 0.0)))
    return np.array(starts).reshape(-1, n, n)


# Steps of tabu search from each start: this many times n, or fewer so that about this many swap
# differences are updated (a tenth of a second), but n at least.
_STEPS_PER_ROW = 500
_DIFFERENCES = 3_000_000
# Likewise for members of a population.
_STEPS_PER_MEMBER = 100
# The most swap differences of all populations together: some 20 seconds of CPU time up to so many
# items, and then fewer, since method "quadratic" takes the same search as its first step.
_BUDGET = 5_000_000_000
_BUDGET_OF_MANY = 1_000_000_000
_FEW = 50
# Taillard's tenures around n; swaps unused for this many times n^2 steps go first.
_TENURE = (0.9, 1.1)
_PATIENCE = 5
# Gains below this share of the largest possible difference are rounding errors.
_RELATIVE_TOLERANCE = 1e-12
# A bound this close to the value, relative to it, is reached.
_REACHED = 1e-9
# Alternations of Frank-Wolfe and swaps at the end; they settle after one or two.
_MAX_ROUNDS = 10


def default_budget(size: int) -> int:
    """Return the most swap differences that populations of so many items take by default."""
    return max(_BUDGET_OF_MANY, int(_BUDGET * min(1.0, _FEW / size) ** 2.5))


def solve_quadratic(
    quadratic: Quadratic,
    mask: np.ndarray | None = None,
    options: MapOptions | None = None,
    rng: np.random.Generator | None = None,
    starts: np.ndarray | None = None,
    budget: int | None = None,
) -> MapResult:
    r"""Search for the matching with the largest ``<A, X B X'> + <C, X>``.

    FAQ (Vogelstein et al. 2015) climbs from the centre of the polytope, from random points and from
    spectral similarities, then robust tabu search (Taillard 1991) from each end. Then Frank-Wolfe
    from each matching, which moves along cycles that swaps cannot follow through a mask, alternates
    with swaps while that gains anything. If fewer than half of these restarts end at the best
    value, and no bound proves it, independent populations follow (see `population`), until four of
    them end at the best value of all. Forbidden pairs are never used.

    Args:
        quadratic: The problem; rectangular ones leave the surplus of the longer side unmatched.
        mask: (n, m) booleans, True where allowed, pruned; or None.
        options: Settings.
        rng: The source of randomness.
        starts: (k, n) additional matchings to start from.
        budget: The most swap differences of all populations together; None: `default_budget`, or
            all that ``max_seconds`` leaves time for.

    Returns:
        The best matching. A Frank-Wolfe step counts as two evaluations (gradient and curvature),
        and every swap difference, computed or updated, as one.
    """
    options = options or MapOptions()
    rng = rng or np.random.default_rng(0)
    n, m = quadratic.shape
    square = quadratic.padded().symmetrised()
    size = max(n, m)
    allowed = np.ones((size, size), bool)
    if mask is not None:
        allowed[:n, :m] = mask
    search = _Search(square, allowed, options)
    spectral = spectral_starts(square, allowed, options.num_restarts // 4)
    num_random = options.num_restarts - len(spectral)
    random = relaxed_starts(num_random, (size, size), allowed, rng)
    perms = search.frank_wolfe(np.concatenate([random, spectral]))
    if starts is not None:
        given = Neighbourhood(allowed[:n, :m]).padded(np.asarray(starts)[:, None])[:, 0]
        perms = np.concatenate([perms, search.from_matchings(given)])
    if options.polish == "tabu":
        perms = search.tabu(perms, rng)
    if options.polish != "none":
        perms = search.settle(perms)
    bound = upper_bound(square, allowed)
    independent, best, confirmed = perms, None, False
    if options.polish == "tabu" and not search.is_settled(perms, bound):
        if budget is None:
            budget = default_budget(size) if options.max_seconds is None else sys.maxsize
        ends, best, confirmed = search.evolve(perms, budget, rng)
        independent = np.concatenate([perms, ends])
    values = square.values(independent)
    best = independent[np.argmax(values)] if best is None else best
    value = float(square.values(best))
    return MapResult(
        np.where(best < m, best, -1)[:n],
        values,
        search.num_evaluations + len(independent),
        optimal=value >= bound - _REACHED * max(1.0, abs(bound)),
        finished=options.polish != "none",
        value=value,
        agreed=confirmed or agree(values[: len(perms)], value),
        bound=bound,
        ends=np.where(independent < m, independent, -1)[:, :n],
    )


class _Search:
    """The parts of the search in a square problem, which count their evaluations."""

    def __init__(self, quadratic: Quadratic, allowed: np.ndarray, options: MapOptions) -> None:
        self._quadratic, self._allowed, self._options = quadratic, allowed, options
        arrays = (np.ascontiguousarray(array) for array in (quadratic.A, quadratic.B, quadratic.C))
        self._arrays = (*arrays, quadratic.is_symmetric)
        A, B, C = (float(np.abs(M).max()) for M in (quadratic.A, quadratic.B, quadratic.C))
        self._tolerance = _RELATIVE_TOLERANCE * (4 * len(allowed) * A * B + 4 * C)
        self._num_pairs = len(allowed) * (len(allowed) - 1) // 2
        limit = options.max_seconds
        self._deadline = np.inf if limit is None else time.monotonic() + limit
        self.num_evaluations = 0

    def is_settled(self, perms: np.ndarray, bound: float) -> bool:
        """Return whether restarts that ended at permutations (r, n) leave nothing to search."""
        values = self._quadratic.values(perms)
        best = float(values.max())
        reached = best >= bound - _REACHED * max(1.0, abs(bound))
        return reached or len(self._allowed) < 4 or agree(values, best)

    def frank_wolfe(self, starts: np.ndarray) -> np.ndarray:
        """Climb from relaxed matchings (r, n, n) to permutations (r, n)."""
        line_search = exact_line_search(self._quadratic)
        vertices = best_matrices(self._allowed)
        limit = self._options.max_iter
        found = frank_wolfe(self._quadratic.gradient, vertices, line_search, starts, limit, ARRIVED)
        self.num_evaluations += 2 * found.num_gradients
        return solve(found.X, self._allowed)

    def tabu(self, perms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the best permutations (r, n) that tabu search finds from each."""
        streams = rng.spawn(len(perms))
        with pool(len(perms)) as threads:
            tasks = threads.map(
                lambda perm, stream: self._tabu(perm[None], stream, _STEPS_PER_ROW), perms, streams
            )
            found, costs = zip(*tasks, strict=True)
        self.num_evaluations += sum(costs)
        return np.concatenate(found)

    def _tabu(
        self, perms: np.ndarray, rng: np.random.Generator, steps_per_row: int
    ) -> tuple[np.ndarray, int]:
        """Run tabu search from permutations (r, n); also return the number of differences."""
        from permvi.inference.map.tabu_kernels import tabu_search

        n = perms.shape[1]
        if n < 2:
            return perms, 0
        num_steps = max(n, min(steps_per_row * n, _DIFFERENCES // self._num_pairs))
        low, high = (max(1, round(factor * n)) for factor in _TENURE)
        found, cost = [], 0
        for perm in perms:
            if time.monotonic() > self._deadline:
                found.append(perm)
                continue
            tenures = rng.integers(low, high, size=(num_steps, 2), endpoint=True)
            end, swaps = tabu_search(
                *self._arrays, self._allowed, perm.copy(), tenures, _PATIENCE * n * n
            )
            found.append(end)
            cost += self._num_pairs * (swaps + 1)
        return np.stack(found), cost

    def evolve(
        self, perms: np.ndarray, budget: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return where islands ended, (r, n), the best (n,), and whether islands agree on it."""
        islands = Islands(
            self._quadratic.values,
            lambda members, stream: self._tabu(members, stream, _STEPS_PER_MEMBER),
            self._allowed,
            len(self._allowed) * self._tolerance,
            self._deadline,
        )
        found = islands.run(perms, budget, os.cpu_count() or 1, rng)
        self.num_evaluations += found.num_differences
        settled = self.settle(np.concatenate([found.best[None], found.ends]))
        everything = np.concatenate([settled, perms])
        best = everything[np.argmax(self._quadratic.values(everything))]
        values = self._quadratic.values(np.stack([found.best, best]))
        return settled[1:], best, found.agreed and num_best(values[:1], float(values[1])) == 1

    def from_matchings(self, perms: np.ndarray) -> np.ndarray:
        """Return the permutations (r, n), or what Frank-Wolfe reaches from them if better."""
        return self._better(perms, self.frank_wolfe(matrices(perms, perms.shape[1])))

    def settle(self, perms: np.ndarray) -> np.ndarray:
        """Improve permutations (r, n) until neither a swap nor Frank-Wolfe gains anything."""
        perms = self._swap(perms)
        for _ in range(_MAX_ROUNDS):
            found = self._swap(self.from_matchings(perms))
            if (found == perms).all():
                break
            perms = found
        return perms

    def _better(self, perms: np.ndarray, others: np.ndarray) -> np.ndarray:
        values, other_values = self._quadratic.values(perms), self._quadratic.values(others)
        self.num_evaluations += 2 * len(perms)
        return np.where((other_values > values + self._tolerance)[:, None], others, perms)

    def _swap(self, perms: np.ndarray) -> np.ndarray:
        from permvi.inference.map.tabu_kernels import swap_ascent

        perms = perms.copy()
        for perm in perms:
            swaps = swap_ascent(*self._arrays, self._allowed, perm, self._tolerance)
            self.num_evaluations += self._num_pairs * (1 + swaps)
        return perms
