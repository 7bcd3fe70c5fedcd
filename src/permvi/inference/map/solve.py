"""The most probable matching of linear problems, and of densities that can only be evaluated."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi._programmes import jit
from permvi.inference.map.local_search import Neighbourhood, hill_climb
from permvi.inference.map.polytope import best_matrices, frank_wolfe, relaxed_starts, solve
from permvi.inference.map.quadratic import ARRIVED
from permvi.inference.map.result import RESTARTS, MapOptions, MapResult, agree
from permvi.problem.evaluation import Evaluate, Evaluations, filled
from permvi.problem.problem import Problem
from permvi.problem.unmatched import LogWeights, best_matchings, random_matchings


def solve_linear(
    scores: np.ndarray, mask: np.ndarray | None = None, constant: float = 0.0
) -> MapResult:
    """Return the best matching under scores (n, m) or (S, n, m); no density is evaluated."""
    perm = solve(scores, mask)
    chosen = np.take_along_axis(scores, np.maximum(perm, 0)[..., None], axis=-1)[..., 0]
    value = constant + chosen[perm >= 0].sum()
    return MapResult(perm, np.array([value]), 0, optimal=True, finished=True)


def solve_linear_partial(tables: np.ndarray, constant: float = 0.0) -> MapResult:
    """Return the best partial matching under grounded (S, n+1, m+1) tables: an assignment each."""
    perms = best_matchings(tables)
    value = constant + sum(
        float(LogWeights(table).of(perm)) for table, perm in zip(tables, perms, strict=True)
    )
    perm = perms[0] if len(perms) == 1 else perms
    return MapResult(perm, np.array([value]), 0, optimal=True, finished=True)


_MAX_EVALUATIONS = {True: 200_000, False: 20_000}
# Iterated local search: the fewest random swaps, and the rounds without a gain that end it.
_MIN_SHAKE = 3
_MAX_STALE = 5
# The steps that a line search tries; the last one does not move.
_STEPS = np.array([1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.0])


def solve_density(
    problem: Problem,
    log_density_batch: Evaluate,
    options: MapOptions | None = None,
    rng: np.random.Generator | None = None,
    starts: np.ndarray | None = None,
) -> MapResult:
    """Search for the best matching of a density that can be evaluated, and perhaps differentiated.

    If the relaxed density has a gradient and all items are matched, half of the restarts begin
    where Frank-Wolfe ends; all others begin at random matchings. Then they climb by swaps, several
    sites in turn. Unless ``polish`` is "swap", random swaps shake each end and it climbs again,
    keeping the better end, until the best value has not risen for a few rounds (iterated local
    search: Lourenço, Martin and Stützle 2003).

    Args:
        problem: The problem, for its shape, mask and relaxed density.
        log_density_batch: (k, n) or (k, S, n) matchings -> (k,) log densities.
        options: Settings.
        rng: The source of randomness.
        starts: (k, n) or (k, S, n) additional matchings to start from.

    Returns:
        The best matching. Log densities and gradients count as one evaluation each.
    """
    options = options or MapOptions()
    rng = rng or np.random.default_rng(0)
    shape = problem.layout.table_shape
    mask = None if problem.mask is None else np.asarray(problem.mask)
    budget = options.max_evaluations or _MAX_EVALUATIONS[problem.traceable]
    given = [] if starts is None else [starts]
    num = max(1, min(options.num_restarts or RESTARTS, budget // _climb_length(shape)))
    spent = 0
    partial = problem.is_partial
    if problem.log_density is not None and problem.traceable and not partial:
        relaxed = relaxed_starts((num + 1) // 2, shape, mask, rng)
        density = _Relaxed(problem, len(relaxed))
        vertices, limit = best_matrices(mask), options.max_iter
        ascent = frank_wolfe(
            density.gradient, vertices, density.line_search, relaxed, limit, ARRIVED
        )
        spent = density.num_evaluations
        given.append(solve(ascent.X, mask))
        num //= 2
    if num:
        given.append(random_matchings(num, problem, rng))
    perms = np.concatenate(given)
    if options.polish == "none":
        values = log_density_batch(perms)
        best = perms[np.argmax(values)]
        return MapResult(best, values, spent + len(perms), optimal=False, finished=False)
    hood = Neighbourhood(problem.table_mask, partial=partial)
    memory = Evaluations(log_density_batch, problem.shape[1], max(len(perms), budget))
    ends, finished = hill_climb(memory, perms, hood)
    if options.polish == "tabu":
        ends = _climb_again(memory, ends, hood, rng)
    spent += memory.num_evaluations
    values = memory.values[ends]
    agreed = agree(values, float(memory.values.max()))
    return MapResult(memory.best, values, spent, optimal=False, finished=finished, agreed=agreed)


def _climb_again(
    memory: Evaluations, ends: np.ndarray, hood: Neighbourhood, rng: np.random.Generator
) -> np.ndarray:
    """Repeat local search from the places ``ends`` in the memory; return where it ends."""
    size = (-1, hood.num_sites, hood.num_rows)
    strongest = max(_MIN_SHAKE, hood.num_sites * hood.num_rows // 3)
    stale = 0
    while stale < _MAX_STALE and memory.left > 0:
        best = memory.values.max()
        num_swaps = int(rng.integers(_MIN_SHAKE, strongest, endpoint=True))
        places = hood.padded(memory.matchings[ends].reshape(size))
        shaken = hood.plain(hood.shaken(places, num_swaps, rng))
        found = hill_climb(memory, shaken, hood).ends
        values = np.append(memory.values, -np.inf)
        ends = np.where(values[found] > values[ends], found, ends)
        stale = 0 if memory.values.max() > best else stale + 1
    return ends


def _climb_length(shape: tuple[int, ...]) -> int:
    """Return about how many evaluations a climb takes: n / 2 steps that try all swaps."""
    size = max(shape[-2:])
    return max(1, int(np.prod(shape[:-1])) * size * size // 4)


class _Relaxed:
    """The gradient and line search of a relaxed density, which count their evaluations.

    Batches are filled up to one size, so that each function is compiled once.
    """

    def __init__(self, problem: Problem, batch_size: int) -> None:
        self._arguments = problem.log_density, problem.data
        self._batch_size = batch_size
        self.num_evaluations = 0

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """Return the gradients (r, ..., n, m) at points (r, ..., n, m)."""
        self.num_evaluations += len(X)
        found = _gradient(*self._arguments, filled(X, self._batch_size))
        return np.asarray(found, dtype=np.float64)[: len(X)]

    def line_search(self, X: np.ndarray, vertices: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Return the best (r,) of a few steps."""
        del slopes
        self.num_evaluations += len(_STEPS) * len(X)
        sizes = _STEPS.reshape(-1, *(1 for _ in X.shape))
        tried = filled(X, self._batch_size) + sizes * filled(vertices - X, self._batch_size)
        values = np.asarray(_density(*self._arguments, tried))[:, : len(X)]
        return _STEPS[np.argmax(np.where(np.isnan(values), -np.inf, values), axis=0)]


@functools.partial(jit, static_argnums=0)
def _density(log_density: Any, data: Any, X: jax.Array) -> jax.Array:
    return log_density(data, X)


@functools.partial(jit, static_argnums=0)
def _gradient(log_density: Any, data: Any, X: jax.Array) -> jax.Array:
    return jax.grad(lambda relaxed: jnp.sum(log_density(data, relaxed)))(X)
