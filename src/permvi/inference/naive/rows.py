r"""Naive variational inference with independent rows.

The baseline of the paper's worm study (Linderman et al. 2018, section 5): every row of X is a
probability vector over the allowed columns, and two rows may take the same column.

* Linear models: :math:`q(X) = \prod_i \mathrm{Cat}(x_i; \mathrm{softmax}(s_i))`, the posterior
  without the constraint on columns, in closed form.
* Others: :math:`q(X) = \prod_i \mathrm{Dir}(x_i; a_i)`, fitted to the relaxed density by pathwise
  gradients through gamma variates (Naesseth et al. 2017), with a symmetric Dirichlet prior. Other
  latents have independent normals in unconstrained space.

Draws of rows are rounded to the nearest permutation by linear assignment.
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
from permvi._programmes import jit
from permvi.inference.method import StepProgress, split_key
from permvi.inference.pathwise import PathwiseOptions, PathwiseResult, ascend, pathwise_result
from permvi.inference.vi.objective import latent_guide, latent_start, latent_start_scale
from permvi.inference.vi.relaxed_problem import RelaxedProblem
from permvi.inference.vi.run import LatentDraws
from permvi.problem.unmatched import complete

# Log gammas of smaller concentrations overflow float32.
_SMALLEST_CONCENTRATION = 1e-2
# Rows are drawn and rounded this many numbers at a time.
_NUMBERS_AT_ONCE = 20_000_000
# B: fewer than 1 in 250 are rejected, and 1e6 draws do not show the correction.
_AUGMENTED = 8
# All are rejected with a probability below 1e-7; the last one is taken then.
_CANDIDATES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class NaiveOptions(PathwiseOptions):
    """How to fit; the other options are those of `permvi.inference.pathwise.PathwiseOptions`.

    Linear models use ``num_draws`` only.

    Attributes:
        prior_concentration: The concentration of the Dirichlet prior of a row, for each entry.
    """

    prior_concentration: float = 0.1


class _RowProblem(NamedTuple):
    """A problem with the columns that its rows may use, so that no gamma variates are wasted."""

    problem: RelaxedProblem
    columns: jax.Array  # (S, n, K) the allowed columns of each row first, then others
    allowed: jax.Array  # (S, n, K) booleans, which of them are allowed

    def spread(self, rows: jax.Array) -> jax.Array:
        """Put entries (..., S, n, K) into their columns (..., S, n, N)."""
        zeros = jnp.zeros((*rows.shape[:-1], self.problem.size), rows.dtype)
        columns = jnp.broadcast_to(self.columns, rows.shape)
        return jnp.put_along_axis(zeros, columns, rows, axis=-1, inplace=False)


class _Params(NamedTuple):
    """Real variational parameters of the concentrations, and of other latents by name."""

    rows: jax.Array  # (S, n, K)
    latents: dict[str, tuple[jax.Array, jax.Array]]  # locations and scales


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
    """Draw other latents (num, ...) by name; also return ``log p - log q`` (num,) of all."""
    drawn, log_ratio = {}, jnp.zeros(num)
    for index, (name, prior) in enumerate(problem.latents.items()):
        guide = latent_guide(prior, *params.latents[name])
        value, inner = guide.sample_with_intermediates(jax.random.fold_in(key, index), (num,))
        terms = prior.log_prob(value) - guide.log_prob(value, inner)
        drawn[name] = value
        log_ratio = log_ratio + jnp.sum(terms.reshape(num, -1), axis=1)
    return drawn, log_ratio


def concentration(raw: jax.Array) -> jax.Array:
    """Return the positive concentrations of real parameters."""
    return _SMALLEST_CONCENTRATION + jax.nn.softplus(raw)


def dirichlet_divergence(a: jax.Array, prior: Any, allowed: jax.Array) -> jax.Array:
    """KL (..., n) from Dirichlet(prior) to Dirichlet(a) over the allowed entries (..., n, m)."""
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
    """Fit Dirichlet rows to problems of one shape and draw permutations.

    Args:
        problems: Made by `permvi.inference.vi.relaxed_problem.relax`, with an axis over problems in
            front of all leaves.
        rng_key: A JAX random key.
        options: Settings.
        on_progress: Called as ``on_progress(step, total, elbo)``.

    Returns:
        One result for each problem, and the mean rows (problems, S, n, m) of the best restarts,
        whose columns need not sum to one.
    """
    options = options or NaiveOptions()
    key_start, key_fit, key_draw = split_key(rng_key, 3)
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
        fields = ascent.summary(b, options.num_samples)
        results.append(
            pathwise_result(
                perms, problems, params=np.asarray(params.rows), latents=latents, **fields
            )
        )
    return results, np.stack(means)


def _row_problems(problems: RelaxedProblem, num_problems: int) -> _RowProblem:
    """Return the problems with the columns of their rows."""
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
    """Return random parameters with problems and restarts in front."""
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
    """Draw matchings (restarts, num, S, n) of all restarts, and other latents of the best one."""
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
    """Draw independent rows of a linear model and round them to matchings.

    Args:
        scores: (n, m) log weights of pairs.
        mask: (n, m) booleans, True where allowed, or None.
        num: How many draws.
        rng: A NumPy generator.

    Returns:
        (num, n) matchings, -1 for unmatched rows, and (n, m) probabilities of the rows. Where
        n > m, a row is unmatched with the probability that its entries lack of one.
    """
    n, m = scores.shape
    wide = np.pad(scores, ((0, 0), (0, max(n - m, 0))))
    allowed = np.ones_like(wide, bool)
    if mask is not None:
        allowed[:, :m] = mask
    log_weights = np.where(allowed, wide, -np.inf)
    # The columns that stand for "unmatched" share one log weight of zero.
    log_weights[:, m:] -= np.log(max(n - m, 1))
    return _rounded_rows(log_weights, allowed, m, num, rng)


def draw_partial_rows(
    table: np.ndarray, num: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw independent rows of a linear model whose rows and columns may stay unmatched.

    The weight of a pair is taken relative to leaving its column unused.

    Args:
        table: (n+1, m+1) grounded log weights, see `permvi.problem.unmatched.grounded`.
        num: How many draws.
        rng: A NumPy generator.

    Returns:
        See `draw_categorical_rows`.
    """
    n, m = table.shape[0] - 1, table.shape[1] - 1
    square = complete(table)
    allowed = assignment.prune_mask(np.isfinite(square))
    log_weights = np.where(allowed[:n], square[:n], -np.inf)
    # Columns that have to be matched have no such weight.
    log_weights[:, :m] -= np.where(np.isfinite(table[n, :m]), table[n, :m], 0.0)
    return _rounded_rows(log_weights, allowed, m, num, rng)


def _rounded_rows(
    log_weights: np.ndarray, allowed: np.ndarray, m: int, num: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows with log weights (n, N) as matchings; also return their first m probabilities."""
    n, size = log_weights.shape
    probs = softmax(log_weights, axis=1)
    cumulative = np.cumsum(probs, axis=1)
    uniforms = rng.random((num, n, 1)) * cumulative[:, -1:]
    columns = (uniforms >= cumulative).sum(axis=-1)
    X = np.eye(size)[columns]
    # Of permutations that are equally near, take the more probable one.
    X = X + probs / (2 * n)
    return nearest_matchings(X, allowed, m), probs[:, :m]


def nearest_matchings(X: np.ndarray, allowed: np.ndarray, num_cols: int) -> np.ndarray:
    """Return the matchings nearest to matrices (..., n, N).

    Columns from ``num_cols`` on mean "unmatched"; rows of ``allowed`` beyond n take unused columns.
    """
    n, more = X.shape[-2], allowed.shape[-2] - X.shape[-2]
    square = np.pad(X, [(0, 0)] * (X.ndim - 2) + [(0, more), (0, 0)])
    perms = np.asarray(assignment.solve(square, np.broadcast_to(allowed, square.shape)))[..., :n]
    return np.where(perms < num_cols, perms, -1)


@functools.partial(jit, static_argnames="num")
def _draw(key: jax.Array, raw: jax.Array, rows: _RowProblem, num: int) -> jax.Array:
    """Draw rows (num, restarts, S, n, N)."""
    return rows.spread(_dirichlet(key, concentration(raw), rows.allowed, num))


def _dirichlet(key: jax.Array, a: jax.Array, allowed: jax.Array, num: int) -> jax.Array:
    """Draw rows (num, ..., n, N) on allowed entries, by normalising gamma variates in logs."""
    log_gammas = log_gamma(key, a, (num, *a.shape))
    return jax.nn.softmax(jnp.where(allowed, log_gammas, -jnp.inf), axis=-1)


def log_gamma(key: jax.Array, a: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    r"""Draw log gamma variates, differentiable in the concentrations ``a``, broadcast to a shape.

    JAX's sampler rejects one variate at a time and differentiates each by a series, which takes
    microseconds; a fit of Dirichlet rows draws a hundred thousand in every step. Here

    .. math::
        \log g_a = \log g_{a + B} + \sum_{i < B} \frac{\log u_i}{a + i} , \qquad
        g_{a + B} = d (1 + c z)^3, \quad d = a + B - \tfrac13, \; c = (9 d)^{-1/2}

    with uniform :math:`u_i` and z normal, accepted as by Marsaglia and Tsang (2000). At shapes of B
    and more nearly every z is accepted, so few candidates serve all variates at once. The gradient
    for fixed z and u is that of the mean up to a correction that vanishes as B grows (Naesseth et
    al. 2017).
    """
    keys = jax.random.split(key, 3)
    a = jnp.broadcast_to(a, shape)
    d = a + (_AUGMENTED - 1 / 3)
    normals = jax.random.normal(keys[0], (_CANDIDATES, *shape), a.dtype)
    tests = _log_uniform(keys[1], (_CANDIDATES, *shape), a.dtype)
    # Below -1 / c there is no candidate; normals do not get there in practice.
    cubed = 3 * jnp.log1p(jnp.maximum(normals / jnp.sqrt(9 * d), -0.99))
    accepted = tests < 0.5 * normals**2 + d * (1 - jnp.exp(cubed) + cubed)
    chosen = cubed[-1]
    for k in reversed(range(_CANDIDATES - 1)):
        chosen = jnp.where(accepted[k], cubed[k], chosen)
    steps = jnp.arange(_AUGMENTED, dtype=a.dtype).reshape(-1, *(1,) * len(shape))
    boosts = _log_uniform(keys[2], (_AUGMENTED, *shape), a.dtype) / (a + steps)
    return jnp.log(d) + chosen + jnp.sum(boosts, axis=0)


def _log_uniform(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    return -jax.random.exponential(key, shape, dtype)
