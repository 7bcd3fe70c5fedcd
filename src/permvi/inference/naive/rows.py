r"""Naive variational inference: rows are independent and know nothing of each other.

The baseline of the paper's worm study (Linderman et al. 2018, section 5): every row of X is a
probability vector over the allowed columns, and nothing keeps two rows from the same column.

* Linear models: :math:`q(X) = \prod_i \mathrm{Cat}(x_i; \mathrm{softmax}(s_i))` is what is left of
  the posterior when the columns are forgotten, in closed form.
* Others: :math:`q(X) = \prod_i \mathrm{Dir}(x_i; a_i)`, fitted to the relaxed density by pathwise
  gradients through gamma variates (Naesseth et al. 2017), against a symmetric Dirichlet prior.
  Other latents have independent normals in unconstrained space.

Draws of rows are taken to the nearest permutation by linear assignment.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from scipy.special import softmax

from permvi import assignment
from permvi.inference.gumbel_sinkhorn import PathwiseResult, pathwise_result
from permvi.inference.method import StepProgress
from permvi.inference.naive.gamma import log_gamma
from permvi.inference.pathwise import PathwiseOptions, ascend
from permvi.inference.vi.objective import latent_guide, latent_start, latent_start_scale
from permvi.inference.vi.relaxed_problem import RelaxedProblem
from permvi.inference.vi.run import LatentDraws
from permvi.problem.unmatched import complete

# Log gammas of smaller concentrations leave float32.
_SMALLEST_CONCENTRATION = 1e-2
# Rows are drawn and taken to permutations so many numbers at a time.
_NUMBERS_AT_ONCE = 20_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class NaiveOptions(PathwiseOptions):
    """How to fit; the other options are those of `permvi.inference.pathwise.PathwiseOptions`.

    Linear models use ``num_draws`` only.

    Attributes:
        prior_concentration: The concentration of the Dirichlet prior of a row, for each entry.
    """

    prior_concentration: float = 0.1


class _RowProblem(NamedTuple):
    """A problem with the entries that its rows may use; gamma variates of others would be wasted.

    Attributes:
        problem: The problem.
        columns: (S, n, K) the allowed columns of each row, with others behind them.
        allowed: (S, n, K) booleans, which of them are allowed.
    """

    problem: RelaxedProblem
    columns: jax.Array
    allowed: jax.Array

    def spread(self, rows: jax.Array) -> jax.Array:
        """(..., S, n, K) entries in their columns: (..., S, n, N)."""
        zeros = jnp.zeros((*rows.shape[:-1], self.problem.size), rows.dtype)
        columns = jnp.broadcast_to(self.columns, rows.shape)
        return jnp.put_along_axis(zeros, columns, rows, axis=-1, inplace=False)


class _Params(NamedTuple):
    """Variational parameters, all of them real.

    Attributes:
        rows: (S, n, K) of the concentrations.
        latents: Locations and scales of other latents by name.
    """

    rows: jax.Array
    latents: dict[str, tuple[jax.Array, jax.Array]]


@dataclasses.dataclass(frozen=True)
class _RelaxedElbo:
    """The ELBO of Dirichlet rows, and of normals for other latents."""

    num_samples: int

    def __call__(
        self, params: _Params, rows: Any, prior: jax.Array, fraction: jax.Array, key: jax.Array
    ) -> jax.Array:
        del fraction
        key_rows, key_latents = jax.random.split(key)
        a = concentration(params.rows)
        X = rows.spread(_dirichlet(key_rows, a, rows.allowed, self.num_samples))
        latents, log_ratio = _draw_latents(rows.problem, params, key_latents, self.num_samples)
        values = jax.vmap(rows.problem.value)(X, **latents) + log_ratio
        return jnp.mean(values) - jnp.sum(dirichlet_divergence(a, prior, rows.allowed))


def _draw_latents(
    problem: RelaxedProblem, params: _Params, key: jax.Array, num: int
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Draws (num, ...) of other latents by name, and (num,) ``log p - log q`` of all of them."""
    drawn, log_ratio = {}, jnp.zeros(num)
    for index, (name, prior) in enumerate(problem.latents.items()):
        guide = latent_guide(prior, *params.latents[name])
        value, inner = guide.sample_with_intermediates(jax.random.fold_in(key, index), (num,))
        terms = prior.log_prob(value) - guide.log_prob(value, inner)
        drawn[name] = value
        log_ratio = log_ratio + jnp.sum(terms.reshape(num, -1), axis=1)
    return drawn, log_ratio


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
    on_progress: StepProgress | None = None,
) -> tuple[list[PathwiseResult], np.ndarray]:
    """Fit Dirichlet rows to problems of one shape at once and draw permutations.

    Args:
        problems: Made by `permvi.inference.vi.relaxed_problem.relax`, with an axis over problems in
            front of all leaves.
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
    m = problems.shape[1]
    rows: Any = _row_problems(problems, num_problems)
    ascent = ascend(
        _RelaxedElbo(options.num_samples),
        _start(rows, key_start, options),
        rows,
        jnp.asarray(options.prior_concentration, float),
        key_fit,
        num_steps=options.num_steps,
        learning_rate=options.learning_rate,
        on_progress=on_progress,
    )
    results, means = [], []
    for b in range(num_problems):
        one = jax.tree.map(lambda leaf, b=b: leaf[b], rows)
        params = jax.tree.map(lambda leaf, b=b: leaf[b], ascent.params)
        best = int(ascent.best[b])
        perms, latents = _draw_matchings(
            one, params, best, jax.random.fold_in(key_draw, b), options.num_draws
        )
        a = np.asarray(concentration(params.rows[best]), np.float64)
        weights = np.where(np.asarray(one.allowed), a, 0.0)
        mean = one.spread(jnp.asarray(weights / weights.sum(axis=-1, keepdims=True)))
        means.append(np.asarray(mean, np.float64)[..., :m])
        results.append(
            pathwise_result(
                perms,
                problems,
                elbo_trace=ascent.elbo_trace[b],
                best_restart=best,
                converged=bool(ascent.converged[b]),
                num_evaluations=ascent.elbo_trace[b].size * options.num_samples,
                params=np.asarray(params.rows),
                latents=latents,
            )
        )
    return results, np.stack(means)


def _row_problems(problems: RelaxedProblem, num_problems: int) -> _RowProblem:
    """Problems with an axis in front, and the columns of their rows."""
    n = problems.shape[0]
    shape = (num_problems, problems.num_sites, n, problems.size)
    allowed = np.ones(shape, bool)
    if problems.mask is not None:
        mask = np.asarray(problems.mask)[..., :n, :]
        allowed = np.broadcast_to(mask.reshape(num_problems, -1, *shape[2:]), shape)
    columns = np.argsort(~allowed, axis=-1, kind="stable")[..., : allowed.sum(axis=-1).max()]
    return _RowProblem(
        problems, jnp.asarray(columns), jnp.asarray(np.take_along_axis(allowed, columns, axis=-1))
    )


def _start(rows: _RowProblem, rng_key: jax.Array, options: NaiveOptions) -> _Params:
    """Random parameters with problems and restarts in front."""
    spread = jnp.asarray(options.start_spread, float)

    def one(problem: _RowProblem, key: jax.Array) -> _Params:
        key_rows, key_latents = jax.random.split(key)
        raw = spread * jax.random.normal(key_rows, problem.columns.shape)
        latents = {}
        for index, (name, prior) in enumerate(problem.problem.latents.items()):
            loc = latent_start(prior, jax.random.fold_in(key_latents, index), spread)
            latents[name] = loc, latent_start_scale(loc)
        return _Params(raw, latents)

    keys = jax.random.split(rng_key, (len(rows.columns), options.num_restarts))
    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(rows, keys)


def _draw_matchings(
    rows: _RowProblem, params: _Params, best: int, rng_key: jax.Array, num_draws: int
) -> tuple[np.ndarray, dict[str, LatentDraws]]:
    """Matchings (restarts, num, S, n) of all restarts, and other latents of the best one."""
    problem = rows.problem
    size = problem.size
    square = np.ones((size, size), bool) if problem.mask is None else np.asarray(problem.mask)
    if problem.row_alone is None:
        square = square[..., : problem.shape[0], :]
    num = max(1, min(num_draws, _NUMBERS_AT_ONCE // (params.rows[..., 0].size * size)))
    parts = []
    for part in range(-(-num_draws // num)):
        key = jax.random.fold_in(rng_key, part)
        X = np.moveaxis(np.asarray(_draw(key, params.rows, rows, num)), 0, 1)
        parts.append(nearest_matchings(X, square, problem.shape[1]))
    perms = np.concatenate(parts, axis=1)[:, :num_draws]
    chosen = jax.tree.map(lambda leaf: leaf[best], params)
    drawn, _ = _draw_latents(problem, chosen, jax.random.fold_in(rng_key, len(parts)), num_draws)
    values = {name: np.asarray(value) for name, value in drawn.items()}
    return perms, {
        name: LatentDraws(value, value.mean(axis=0), value.std(axis=0))
        for name, value in values.items()
    }


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
        table: (n+1, m+1) grounded log weights, see `permvi.problem.unmatched.grounded`.
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


@functools.partial(jax.jit, static_argnames="num")
def _draw(key: jax.Array, raw: jax.Array, rows: _RowProblem, num: int) -> jax.Array:
    """(num, restarts, S, n, N) rows."""
    return rows.spread(_dirichlet(key, concentration(raw), rows.allowed, num))


def _dirichlet(key: jax.Array, a: jax.Array, allowed: jax.Array, num: int) -> jax.Array:
    """(num, ..., n, N) rows on their allowed entries, as normalised gamma variates in logs."""
    log_gammas = log_gamma(key, a, (num, *a.shape))
    return jax.nn.softmax(jnp.where(allowed, log_gammas, -jnp.inf), axis=-1)
