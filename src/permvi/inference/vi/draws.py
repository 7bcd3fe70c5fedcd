"""From a fitted relaxed family to draws of permutations."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers

from permvi import assignment
from permvi.inference.vi.objective import SITE, Config, Numbers, last_stage, relaxed_guide
from permvi.inference.vi.prepare import RelaxedProblem

# Relaxed draws are made and rounded so many numbers at a time, 160 MB in float64.
_NUMBERS_AT_ONCE = 20_000_000


class Drawn(NamedTuple):
    """Draws from every fit; all leaves have the shape (problems, restarts, draws, ...).

    Attributes:
        perms: (..., S, n) integers, -1 for the rows that are left over.
        distance: (..., S) root mean square distance of the rows of X from those of the permutation.
        latents: The other latents by name.
        relaxed: (..., S, N, N), or None if they are not to be kept.
    """

    perms: np.ndarray
    distance: np.ndarray
    latents: dict[str, np.ndarray]
    relaxed: np.ndarray | None

    def marginals(self, num_cols: int) -> np.ndarray:
        """(problems, restarts, S, n, m) matching frequencies."""
        columns = [(self.perms == j).mean(axis=2) for j in range(num_cols)]
        return np.stack(columns, axis=-1)


def draw_permutations(
    problems: RelaxedProblem,
    params: dict[str, jax.Array],
    config: Config,
    numbers: Numbers,
    rng_key: jax.Array,
    num_draws: int,
    *,
    keep_relaxed: bool,
) -> Drawn:
    """Sample every fit at its final temperature and round by linear assignment.

    ``params`` have problems and restarts in front.
    """
    fits = jax.tree.leaves(params)[0].shape[:2]
    per_draw = fits[0] * fits[1] * problems.num_sites * problems.size**2
    num = min(num_draws, max(1, _NUMBERS_AT_ONCE // per_draw))
    parts = []
    for part in range(-(-num_draws // num)):
        keys = jax.random.split(jax.random.fold_in(rng_key, part), fits)
        values = _draw_relaxed(config, problems, numbers, params, keys, num)
        values = jax.tree.map(np.asarray, values)
        X = values.pop(SITE)
        perms, distance = _round(X, problems)
        parts.append(Drawn(perms, distance, values, X if keep_relaxed else None))
    return jax.tree.map(lambda *each: np.concatenate(each, axis=2)[:, :, :num_draws], *parts)


def _round(X: np.ndarray, problems: RelaxedProblem) -> tuple[np.ndarray, np.ndarray]:
    mask = None if problems.mask is None else np.asarray(problems.mask)
    if mask is not None:
        # (problems, [S,] N, N) -> with axes for restarts, draws and, where missing, sites.
        mask = mask[:, None, None] if mask.ndim == 4 else mask[:, None, None, None]
    n, m = problems.shape
    perms = np.asarray(assignment.solve(X, mask))
    chosen = np.take_along_axis(X, perms[..., None], axis=-1)[..., 0]
    # |X - P|^2 = |X|^2 - 2 <X, P> + N, which rounding could make negative.
    squares = (X**2).sum(axis=(-2, -1)) - 2 * chosen.sum(axis=-1) + X.shape[-1]
    distance = np.sqrt(np.maximum(squares, 0) / X.shape[-1])
    perms = perms[..., :n]
    return np.where(perms < m, perms, -1), distance


@functools.partial(jax.jit, static_argnames=("config", "num"))
def _draw_relaxed(
    config: Config,
    problems: RelaxedProblem,
    numbers: Numbers,
    params: dict[str, jax.Array],
    keys: jax.Array,
    num: int,
) -> dict[str, jax.Array]:
    """Relaxed draws of all sites by name, (problems, restarts, num, ...)."""

    def one(problem: RelaxedProblem, values: dict[str, jax.Array], key: jax.Array) -> Any:
        guide = handlers.substitute(relaxed_guide, values)
        trace = handlers.trace(handlers.seed(guide, key)).get_trace(
            problem, numbers, last_stage(numbers), config=config
        )
        return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}

    # From the inside: draws, restarts, problems.
    many = jax.vmap(one, in_axes=(None, None, 0))
    many = jax.vmap(jax.vmap(many, in_axes=(None, 0, 0)))
    return many(problems, params, jax.vmap(jax.vmap(lambda key: jax.random.split(key, num)))(keys))
