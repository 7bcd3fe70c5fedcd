r"""Naive variational inference: rows are independent and know nothing of each other.

The baseline of the paper's worm study (Linderman et al. 2018, section 5): every row of X is a
probability vector over the allowed columns, and nothing keeps two rows from the same column.

* Linear models: :math:`q(X) = \prod_i \mathrm{Cat}(x_i; \mathrm{softmax}(s_i))` is what is left of
  the posterior when the columns are forgotten, in closed form.
* Others: :math:`q(X) = \prod_i \mathrm{Dir}(x_i; a_i)`, fitted to the relaxed density by pathwise
  gradients through the gamma variates (Figurnov et al. 2018), against a symmetric Dirichlet prior.

Draws of rows are taken to the nearest permutation by linear assignment.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from scipy.special import softmax

from permvi import assignment
from permvi.distributions._arguments import positive_int
from permvi.inference.gumbel_sinkhorn import PathwiseResult, pathwise_result
from permvi.inference.partial import complete
from permvi.inference.pathwise import Progress, ascend
from permvi.inference.vi.prepare import RelaxedProblem

# Log gammas of smaller concentrations leave float32.
_SMALLEST_CONCENTRATION = 1e-2


@dataclasses.dataclass(frozen=True, kw_only=True)
class NaiveOptions:
    """How to fit; linear models use ``num_draws`` only.

    Attributes:
        prior_concentration: Of the Dirichlet prior of a row, for each of its entries.
        learning_rate: Of Adam, at the start.
        num_steps: Number of steps, rounded up to whole chunks.
        num_samples: Monte Carlo samples of the ELBO in each step.
        num_restarts: Independent fits, of which the one with the best ELBO is kept.
        start_spread: Standard deviation of the random start.
        num_draws: Permutations drawn from each restart.
    """

    prior_concentration: float = 0.1
    learning_rate: float = 0.1
    num_steps: int = 500
    num_samples: int = 8
    num_restarts: int = 4
    start_spread: float = 0.1
    num_draws: int = 2000

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_samples", "num_restarts", "num_draws"):
            positive_int(name, getattr(self, name))
        for name in ("prior_concentration", "learning_rate"):
            value = getattr(self, name)
            if not 0 < value < np.inf:
                raise ValueError(f"{name} must be a positive number, got {value!r:.60}.")
        if not 0 <= self.start_spread < np.inf:
            raise ValueError(f"start_spread must be at least 0, got {self.start_spread!r:.60}.")


@dataclasses.dataclass(frozen=True)
class _RelaxedElbo:
    """The ELBO of Dirichlet rows."""

    num_samples: int

    def __call__(
        self,
        raw: jax.Array,
        problem: RelaxedProblem,
        prior: jax.Array,
        fraction: jax.Array,
        key: jax.Array,
    ) -> jax.Array:
        del fraction
        allowed = _allowed_rows(problem)
        a = concentration(raw)
        X = _dirichlet(key, a, allowed, self.num_samples)
        values = jax.vmap(problem.value)(X)
        return jnp.mean(values) - jnp.sum(dirichlet_divergence(a, prior, allowed))


def concentration(raw: jax.Array) -> jax.Array:
    """Positive concentrations of real parameters."""
    return _SMALLEST_CONCENTRATION + jax.nn.softplus(raw)


def dirichlet_divergence(a: jax.Array, prior: Any, allowed: jax.Array) -> jax.Array:
    """KL from a symmetric Dirichlet(prior) to Dirichlet(a) over the allowed entries of rows.

    Shapes (..., n, m) -> (..., n).
    """
    number = jnp.sum(allowed, axis=-1)
    total = jnp.sum(jnp.where(allowed, a, 0.0), axis=-1)
    entries = gammaln(prior) - gammaln(a) + (a - prior) * (digamma(a) - digamma(total)[..., None])
    log_ratio = gammaln(total) - gammaln(number * prior)
    return log_ratio + jnp.sum(jnp.where(allowed, entries, 0.0), axis=-1)


def fit_naive(
    problems: RelaxedProblem,
    rng_key: jax.Array,
    options: NaiveOptions | None = None,
    on_progress: Progress | None = None,
) -> tuple[list[PathwiseResult], np.ndarray]:
    """Fit Dirichlet rows to problems of one shape at once and draw permutations.

    Args:
        problems: Made by `permvi.inference.vi.prepare.prepare`, with an axis over problems in front
            of all leaves. Other latents are not looked at.
        rng_key: A JAX random key.
        options: Settings.
        on_progress: Called as ``on_progress(step, total, elbo)``.

    Returns:
        One result for each problem, and (problems, S, n, m) means of the rows of the best restarts:
        their columns need not sum to one.
    """
    options = options or NaiveOptions()
    key_start, key_fit, key_draw = jax.random.split(rng_key, 3)
    num_problems = jax.tree.leaves(problems)[0].shape[0]
    n, m = problems.shape
    shape = (num_problems, options.num_restarts, problems.num_sites, n, problems.size)
    ascent = ascend(
        _RelaxedElbo(options.num_samples),
        options.start_spread * jax.random.normal(key_start, shape),
        problems,
        jnp.asarray(options.prior_concentration, float),
        key_fit,
        num_steps=options.num_steps,
        learning_rate=options.learning_rate,
        on_progress=on_progress,
    )
    results, means = [], []
    for b in range(num_problems):
        problem = jax.tree.map(lambda leaf, b=b: leaf[b], problems)
        allowed = np.asarray(_allowed_rows(problem))
        a = concentration(ascent.params[b])
        X = _draw(jax.random.fold_in(key_draw, b), a, allowed, options.num_draws)
        square = allowed if problem.row_alone is None else np.asarray(problem.mask)
        perms = nearest_matchings(np.moveaxis(np.asarray(X), 0, 1), square, m)
        best = int(ascent.best[b])
        weights = np.where(allowed, np.asarray(a[best], np.float64), 0.0)
        means.append((weights / weights.sum(axis=-1, keepdims=True))[..., :m])
        results.append(
            pathwise_result(
                perms,
                problems,
                elbo_trace=ascent.elbo_trace[b],
                best_restart=best,
                converged=bool(ascent.converged[b]),
                num_evaluations=ascent.elbo_trace[b].size * options.num_samples,
                params=np.asarray(ascent.params[b]),
            )
        )
    return results, np.stack(means)


def draw_categorical_rows(
    scores: np.ndarray, mask: np.ndarray | None, num: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Independent rows of a linear model, taken to permutations.

    Args:
        scores: (n, m) log weights of pairs.
        mask: (n, m) booleans, the pairs that are allowed, or None.
        num: How many draws.
        rng: A NumPy generator.

    Returns:
        (num, n) matchings, -1 for rows left over, and (n, m) probabilities of the rows; where
        n > m, what a row lacks of one is the probability of its being left over.
    """
    n, m = scores.shape
    wide = np.pad(scores, ((0, 0), (0, max(n - m, 0))))
    allowed = np.ones_like(wide, bool)
    if mask is not None:
        allowed[:, :m] = mask
    log_weights = np.where(allowed, wide, -np.inf)
    # The columns that stand for being left over share one log weight of zero.
    log_weights[:, m:] -= np.log(max(n - m, 1))
    return _rounded_rows(log_weights, allowed, m, num, rng)


def draw_partial_rows(
    table: np.ndarray, num: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Independent rows of a linear model whose rows and columns may stay unmatched.

    A row that takes a column saves what that would weigh unmatched, which rows know of each column
    even though they know nothing of each other.

    Args:
        table: (n+1, m+1) grounded log weights, see `permvi.inference.partial.grounded`.
        num: How many draws.
        rng: A NumPy generator.

    Returns:
        As `draw_categorical_rows`; what a row lacks of one is the probability of its being alone.
    """
    n, m = table.shape[0] - 1, table.shape[1] - 1
    square = complete(table)
    allowed = assignment.prune_mask(np.isfinite(square))
    log_weights = np.where(allowed[:n], square[:n], -np.inf)
    # Columns that have to be matched are so in every matching.
    log_weights[:, :m] -= np.where(np.isfinite(table[n, :m]), table[n, :m], 0.0)
    return _rounded_rows(log_weights, allowed, m, num, rng)


def _rounded_rows(
    log_weights: np.ndarray, allowed: np.ndarray, m: int, num: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of rows with log weights (n, N), as matchings, and their first m probabilities."""
    n, size = log_weights.shape
    probs = softmax(log_weights, axis=1)
    cumulative = np.cumsum(probs, axis=1)
    uniforms = rng.random((num, n, 1)) * cumulative[:, -1:]
    columns = (uniforms >= cumulative).sum(axis=-1)
    X = np.eye(size)[columns]
    # Among permutations that are equally near the more probable one.
    X = X + probs / (2 * n)
    return nearest_matchings(X, allowed, m), probs[:, :m]


def nearest_matchings(X: np.ndarray, allowed: np.ndarray, num_cols: int) -> np.ndarray:
    """The matchings nearest to matrices (..., n, N); columns from ``num_cols`` on are none.

    Rows of ``allowed`` beyond the n of X, if there are any, take what is left.
    """
    n, more = X.shape[-2], allowed.shape[-2] - X.shape[-2]
    square = np.pad(X, [(0, 0)] * (X.ndim - 2) + [(0, more), (0, 0)])
    perms = np.asarray(assignment.solve(square, np.broadcast_to(allowed, square.shape)))[..., :n]
    return np.where(perms < num_cols, perms, -1)


def _allowed_rows(problem: RelaxedProblem) -> jax.Array:
    """(S, n, N) the entries that a row of the problem may use."""
    n = problem.shape[0]
    shape = (problem.num_sites, n, problem.size)
    if problem.mask is None:
        return jnp.ones(shape, bool)
    return jnp.broadcast_to(problem.mask[..., :n, :], shape)


@functools.partial(jax.jit, static_argnames="num")
def _draw(key: jax.Array, a: jax.Array, allowed: jax.Array, num: int) -> jax.Array:
    return _dirichlet(key, a, allowed, num)


def _dirichlet(key: jax.Array, a: jax.Array, allowed: jax.Array, num: int) -> jax.Array:
    """(num, ..., n, N) rows on their allowed entries, as normalised gamma variates in logs."""
    log_gammas = jax.random.loggamma(key, a, (num, *a.shape))
    return jax.nn.softmax(jnp.where(allowed, log_gammas, -jnp.inf), axis=-1)
