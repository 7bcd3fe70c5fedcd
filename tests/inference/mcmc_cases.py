"""Problems for chains, the exact law of each by plain recursion, and a test of fit."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import softmax

from permvi.inference.mcmc import MCMCOptions, Proposal, run_mcmc
from permvi.problem.problem import Problem
from tests.inference.exact_oracle import brute_force

NUM_CHAINS = 6000


def density_of(data, perm):
    """The sum of the scores of pairs, over all sites."""
    scores = data["scores"]
    sites = scores.ndim - 2
    rows = jnp.arange(scores.shape[-2])
    index = (jnp.arange(len(scores))[:, None], rows, perm) if sites else (rows, perm)
    total = jnp.where(perm >= 0, scores[index], 0.0)
    return total.sum(axis=-1 if not sites else (-2, -1))


def linear_problem(scores, **changes):
    """A problem without short cuts, so that every step evaluates densities."""
    scores = np.asarray(scores)
    fields = {
        "mask": None,
        "scores": None,
        "constant": 0.0,
        "row_unmatched": None,
        "col_unmatched": None,
        "latents": {},
        "log_density": None,
        "log_density_of": density_of,
        "shape": scores.shape[-2:],
        "num_sites": scores.shape[0] if scores.ndim == 3 else 1,
        "traceable": True,
    }
    return Problem(data={"scores": scores}, **{**fields, **changes})


def on_host(problem):
    """The same problem with a density that JAX cannot trace."""

    def log_density_of(data, perms):
        rows = np.arange(perms.shape[-1])
        return np.where(perms >= 0, data["scores"][rows, perms], 0.0).sum(axis=-1)

    changes = {"traceable": False, "log_density_of": log_density_of}
    return Problem(**{**vars(problem), **changes})


def exact_law(problem):
    """All matchings (count, S * n) of a linear problem and their probabilities."""
    scores = np.asarray(problem.data["scores"]).reshape(problem.num_sites, *problem.shape)
    names = ("mask", "row_unmatched", "col_unmatched")
    given = {name: getattr(problem, name) for name in names}
    laws = [[((), 0.0)]]
    for table in scores:
        found = brute_force(table.tolist(), **given)
        laws.append([(left + x, a + b) for left, a in laws[-1] for x, b in found.items()])
    matchings, weights = zip(*laws[-1], strict=True)
    return np.array(matchings), softmax(np.array(weights))


def p_value(problem, draws):
    """Of Pearson's chi-square test that independent draws (num, ...) have the exact law."""
    matchings, probs = exact_law(problem)
    place = {tuple(x): k for k, x in enumerate(matchings.tolist())}
    flat = np.asarray(draws).reshape(len(draws), -1).tolist()
    counts = np.bincount([place[tuple(x)] for x in flat], minlength=len(probs))
    expected = len(flat) * probs
    # Cells of fewer than five are pooled, as the approximation asks for.
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    there = expected > 0
    return stats.chisquare(observed[there], expected[there]).pvalue


def last_states(problem, num_steps, proposal=None, seed=0, num_chains=NUM_CHAINS, **options):
    """The last matchings of many independent chains."""
    options = MCMCOptions(
        num_chains=num_chains, num_steps=num_steps, warmup=0, num_draws=8 * num_chains, **options
    )
    result = run_mcmc(problem, jax.random.key(seed), options, proposal)
    return result.draws[:, -1]


def row_by_row(logits):
    """Rows choose columns in turn among those that are left: a simple law with a known pmf."""
    return Proposal({"logits": jnp.asarray(logits)}, _sample)


def _sample(params, rng_key, perm):
    drawn = _draw(params, rng_key)
    return drawn, _log_prob(params, drawn), _log_prob(params, perm)


def _draw(params, rng_key):
    logits = params["logits"]

    def step(free, inputs):
        row, key = inputs
        column = jax.random.categorical(key, jnp.where(free, row, -jnp.inf))
        return free.at[column].set(False), column

    free = jnp.ones(logits.shape[1], bool)
    return jax.lax.scan(step, free, (logits, jax.random.split(rng_key, len(logits))))[1]


def _log_prob(params, perm):
    def step(free, inputs):
        row, column = inputs
        return free.at[column].set(False), jax.nn.log_softmax(jnp.where(free, row, -jnp.inf))[
            column
        ]

    free = jnp.ones(params["logits"].shape[1], bool)
    return jax.lax.scan(step, free, (params["logits"], perm))[1].sum()
