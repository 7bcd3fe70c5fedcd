"""Chains end to end: options, diagnosis, tempering, short cuts, other latents, and `fit`."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.diagnostics
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import softmax

import permvi as pv
from permvi.inference.mcmc import MCMCOptions, loop, run_mcmc, summarise_chains, swap_steps
from permvi.inference.mcmc.result import effective_sizes, split_r_hat
from permvi.problem.prepare import prepare
from tests.inference.mcmc_cases import linear_problem, on_host, p_value, row_by_row

N = 6
OTHER = np.array([1, 2, 3, 4, 5, 0])


@pytest.fixture(scope="module")
def scores():
    return np.random.default_rng(3).normal(size=(4, 4))


def fit(model, seed=0, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "mcmc", seed, **options)


def two_modes(perm):
    """Quadratic in the overlaps with two matchings that have no pair in common."""
    first = (perm == jnp.arange(N)).sum()
    second = (perm == jnp.asarray(OTHER)).sum()
    return 0.4 * first**2 + 0.42 * second**2


# --- tempering ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_chains", "num"), [(1, 50), (2, 7), (4, 301), (8, 1116)])
def test_diagnostics_of_chains_agree_with_numpyro(num_chains, num):
    rng = np.random.default_rng(num)
    values = rng.normal(size=(num_chains, num, 4))
    # A random walk, noise, an indicator that changes now and then, and alternating draws.
    values[..., 0] = values[..., 0].cumsum(axis=1)
    values[..., 2] = values[..., 2].cumsum(axis=1) > 1
    values[..., 3] = np.arange(num) % 2
    sizes, within = effective_sizes(values)
    centred = values - values.mean(axis=1, keepdims=True)
    most = num_chains * num
    for found, given in ((sizes, values), (within, centred)):
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = numpyro.diagnostics.effective_sample_size(given)
        expected = np.where((expected > 0) & (expected < most), expected, most)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    expected = numpyro.diagnostics.split_gelman_rubin(values)
    np.testing.assert_allclose(split_r_hat(values), expected, rtol=1e-12)


def test_tempering_finds_both_modes_where_swaps_do_not_mix():
    model = pv.models.CallableModel(two_modes, N, "perm")
    exact = pv.fit(model, "exact")
    problem = prepare(model).problem
    plain = run_mcmc(problem, jax.random.key(0), MCMCOptions(num_steps=4000))
    assert summarise_chains(plain.draws, N).r_hat > 1.5
    options = MCMCOptions(num_steps=4000, num_temperatures=5, max_temperature=8.0)
    tempered = run_mcmc(problem, jax.random.key(0), options)
    summary = summarise_chains(tempered.draws, N)
    assert summary.r_hat < 1.1
    for mode in (np.arange(N), OTHER):
        hits = (tempered.draws == mode).all(axis=-1)
        expected = np.exp(exact.log_prob(mode))
        size = summary.ess_per_draw * hits.size
        error = np.sqrt(expected * (1 - expected) / size)
        assert error < 0.05
        assert abs(hits.mean() - expected) < 4 * error
    assert 0 < tempered.acceptance["exchange"] < 1


# --- diagnosis ------------------------------------------------------------------------------------


def independent_chains(num_chains, num, seed=0):
    """Uniform permutations of three, all independent."""
    rng = np.random.default_rng(seed)
    return np.argsort(rng.random((num_chains, num, 3)), axis=-1)


def test_independent_draws_are_worth_themselves():
    found = summarise_chains(independent_chains(8, 500), 3)
    assert found.r_hat == pytest.approx(1.0, abs=0.01)
    assert found.ess_per_draw > 0.8
    assert (found.disagreement_by_row < 0.01).all()


def test_repeated_draws_are_worth_less():
    repeated = np.repeat(independent_chains(8, 100), 5, axis=1)
    found = summarise_chains(repeated, 3)
    # The least of nine estimates, each with an error of about 1/sqrt(160) of itself.
    assert 0.12 < found.ess_per_draw < 0.22
    assert (found.disagreement_by_row < 0.03).all()


def test_chains_that_are_constant_and_agree_have_converged():
    found = summarise_chains(np.tile([1, 0, -1], (4, 10, 1)), 2)
    assert found.r_hat == 1.0
    assert found.ess_per_draw == 1.0
    np.testing.assert_array_equal(found.disagreement_by_row, 0)


def test_chains_that_are_constant_and_differ_have_not():
    draws = np.tile([0, 1, 2], (4, 10, 1))
    draws[2:] = [1, 0, 2]
    found = summarise_chains(draws, 3)
    assert found.r_hat == np.inf
    assert found.ess_per_draw < 0.2
    np.testing.assert_allclose(found.disagreement_by_row, [1, 1, 0])


def test_a_single_chain_agrees_with_nobody():
    assert summarise_chains(independent_chains(1, 50), 3).disagreement_by_row is None


def test_draws_that_alternate_are_not_worth_more_than_themselves():
    draws = np.tile([[0, 1], [1, 0]], (25, 1))[None].repeat(4, axis=0)
    assert summarise_chains(draws, 2).ess_per_draw == 1.0


# --- the engine -----------------------------------------------------------------------------------


def test_the_same_key_gives_the_same_draws(scores):
    runs = [run_mcmc(linear_problem(scores), jax.random.key(k)) for k in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0].draws, runs[1].draws)
    assert (runs[0].draws != runs[2].draws).any()


def test_a_shape_is_compiled_once(scores):
    run_mcmc(linear_problem(scores), jax.random.key(0))
    before = loop._advance._cache_size()
    run_mcmc(linear_problem(scores + 1), jax.random.key(0), MCMCOptions(max_temperature=3.0))
    assert loop._advance._cache_size() == before


def test_evaluations_are_counted(scores):
    calls = []
    problem = on_host(linear_problem(scores))
    density_of = problem.log_density_of

    def counted(data, perms):
        calls.append(len(perms))
        return density_of(data, perms)

    object.__setattr__(problem, "log_density_of", counted)
    for start in ("random", "map"):
        calls.clear()
        options = MCMCOptions(num_chains=4, num_steps=100, start=start)
        assert run_mcmc(problem, jax.random.key(0), options).num_evaluations == sum(calls)
    result = run_mcmc(linear_problem(scores), jax.random.key(0), MCMCOptions(num_steps=100))
    assert result.num_evaluations == 8 * 101


def test_the_mode_and_the_densities_are_those_of_the_model(scores):
    result = run_mcmc(linear_problem(scores), jax.random.key(0))
    rows = np.arange(4)
    np.testing.assert_allclose(result.log_densities, scores[rows, result.draws].sum(-1), rtol=1e-5)
    best = pv.fit(pv.models.LinearMatching(scores), "exact").mode
    np.testing.assert_array_equal(result.mode, best)
    assert result.mode_log_density == pytest.approx(scores[rows, best].sum())


@pytest.mark.parametrize("host", [pytest.param(False, marks=pytest.mark.slow), True])
def test_chains_can_start_uphill(scores, host):
    problem = linear_problem(scores)
    problem = on_host(problem) if host else problem
    options = MCMCOptions(num_chains=4, num_steps=200, warmup=0, start="map", thin=1)
    result = run_mcmc(problem, jax.random.key(0), options)
    assert (result.draws[:, 0] != result.mode).sum(axis=-1).max() <= 2


def test_a_linear_problem_starts_at_its_best_matching():
    table = np.random.default_rng(0).normal(size=(7, 7))
    model = pv.models.LinearMatching(table, row_unmatched=-0.5, col_unmatched=-0.5)
    result = run_mcmc(
        prepare(model).problem,
        jax.random.key(0),
        MCMCOptions(num_chains=2, num_steps=4, warmup=0, thin=1, start="map"),
    )
    np.testing.assert_array_equal(result.mode, pv.fit(model, "exact").mode)


def test_chains_leave_matchings_of_density_zero():
    # Only three of 24 matchings are possible, and not by the mask.
    table = np.where(np.eye(4) + np.roll(np.eye(4), 1, 1) > 0, 0.0, -np.inf)
    table[:2, :2] = 0.0
    problem = linear_problem(table)
    result = run_mcmc(problem, jax.random.key(0))
    assert result.mode_log_density == 0
    assert (result.log_densities == 0).mean() > 0.8


@pytest.mark.parametrize(("bad", "host"), [(np.nan, False), (np.inf, False), (np.nan, True)])
def test_densities_that_are_no_densities_are_refused(scores, bad, host):
    table = scores.copy()
    table[0, 0] = bad
    problem = on_host(linear_problem(table)) if host else linear_problem(table)
    options = MCMCOptions(num_steps=100) if host else MCMCOptions()
    with pytest.raises(ValueError, match=r"finite or -inf, got (nan|inf) at \[0"):
        run_mcmc(problem, jax.random.key(0), options)


def test_impossible_problems_are_refused(scores):
    with pytest.raises(ValueError, match="finite for some matching"):
        run_mcmc(linear_problem(np.full((4, 4), -np.inf)), jax.random.key(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_chains": 0}, "num_chains must be an integer of at least 1, got 0"),
        ({"warmup": 1.0}, r"warmup must be in \[0, 1\), got 1.0"),
        ({"max_temperature": 1.0}, "max_temperature must be a number above 1, got 1.0"),
        ({"start": "maps"}, "start must be .* did you mean 'map'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        MCMCOptions(**options)


def test_too_few_draws_are_refused(scores):
    with pytest.raises(ValueError, match="at least 4 draws in each chain, got 2 of 3 steps"):
        run_mcmc(linear_problem(scores), jax.random.key(0), MCMCOptions(num_steps=3, warmup=0.4))


def test_temperatures_are_geometric():
    options = MCMCOptions(num_temperatures=3, max_temperature=16.0)
    np.testing.assert_allclose(options.inverse_temperatures, [1, 1 / 4, 1 / 16])


# --- short cuts -----------------------------------------------------------------------------------

DELTAS = {
    "square": ((5, 5), {}),
    "known": ((5, 5), {"known": [-1, 3, -1, -1, -1], "prior_scores": np.eye(5)}),
    "tall": ((5, 3), {"prior_scores": np.ones((5, 3))}),
    "sites": ((2, 4, 4), {"known": [-1, -1, 0, -1]}),
}


@pytest.mark.float32
@pytest.mark.parametrize("name", DELTAS)
def test_deltas_are_differences_of_densities(name, rng):
    shape, constraints = DELTAS[name]
    problem = prepare(pv.models.LinearMatching(rng.normal(size=shape), **constraints)).problem
    (n, m), S = problem.shape, problem.num_sites
    drawn = np.argsort(rng.random((S, max(n, m))), axis=-1)[:, :n]
    perm = np.where(drawn < m, drawn, -1)
    perm = perm[0] if S == 1 else perm
    sites = [()] if S == 1 else [(s,) for s in range(S)]
    for site in sites:
        for i in range(n):
            for k in range(n):
                swapped = perm.copy()
                swapped[(*site, i)], swapped[(*site, k)] = perm[(*site, k)], perm[(*site, i)]
                values = problem.log_density_of(
                    problem.data, jnp.asarray(np.stack([perm, swapped]))
                )
                gain = problem.delta(problem.data, jnp.asarray(perm), i, k, *site)
                np.testing.assert_allclose(gain, values[1] - values[0], atol=1e-5)


@pytest.mark.parametrize("shape", [pytest.param((4, 4), marks=pytest.mark.slow), (4, 3)])
def test_chains_with_deltas_have_the_exact_law(shape):
    table = np.random.default_rng(1).normal(size=shape)
    problem = prepare(pv.models.LinearMatching(table)).problem
    assert problem.delta is not None
    options = MCMCOptions(num_chains=6000, num_steps=150, warmup=0, num_draws=48_000)
    result = run_mcmc(problem, jax.random.key(0), options)
    assert p_value(linear_problem(table), result.draws[:, -1]) > 1e-3
    values = problem.log_density_of(problem.data, jnp.asarray(result.draws))
    np.testing.assert_allclose(result.log_densities, values, atol=1e-4)


# --- other latents --------------------------------------------------------------------------------


class NoisyPoints:
    """Points seen through an unknown precision, Gamma(2, 1) beforehand."""

    num_sites = 1
    relaxed = False

    def __init__(self, observations, centers):
        self.squares = (observations[:, None] - centers) ** 2
        self.shape = self.squares.shape
        self.latents = {"precision": dist.Gamma(2.0, 1.0)}

    def log_density_of(self, perm, precision):
        n = perm.shape[-1]
        squares = jnp.asarray(self.squares)[jnp.arange(n), perm].sum(-1)
        return 0.5 * n * jnp.log(precision) - 0.5 * precision * squares

    def log_density(self, X, precision):
        squares = jnp.sum(jnp.asarray(self.squares) * X, axis=(-2, -1))
        return 0.5 * X.shape[-2] * jnp.log(precision) - 0.5 * precision * squares


def test_swaps_alternate_with_updates_of_other_latents(rng):
    n, num_chains = 4, 4000
    centers = np.arange(4.0)
    model = NoisyPoints(centers + 0.8 * rng.normal(size=n), centers)
    problem = prepare(model).problem

    def sweep(state, key):
        perms, precisions = state
        perm_key, precision_key = jax.random.split(key)
        perms = swap_steps(problem, perms, perm_key, 6, {"precision": precisions})
        squares = jnp.asarray(model.squares)[jnp.arange(n), perms].sum(-1)
        # The gamma prior is conjugate.
        precisions = jax.random.gamma(precision_key, 2 + n / 2, (num_chains,)) / (1 + squares / 2)
        return (perms, precisions), None

    start = jnp.tile(jnp.arange(n), (num_chains, 1)), jnp.ones(num_chains)
    keys = jax.random.split(jax.random.key(0), 40)
    (perms, precisions), _ = jax.jit(lambda s: jax.lax.scan(sweep, s, keys))(start)

    every = pv.permutations.enumerate_permutations(n)
    squares = model.squares[np.arange(n), every].sum(-1)
    probs = softmax(-(2 + n / 2) * np.log(1 + squares / 2))
    codes = (np.asarray(every) * 4 ** np.arange(n)).sum(-1)
    drawn = (np.asarray(perms) * 4 ** np.arange(n)).sum(-1)
    counts = (drawn[:, None] == codes).sum(axis=0)
    assert stats.chisquare(counts, num_chains * probs).pvalue > 1e-3
    mean = (probs * (2 + n / 2) / (1 + squares / 2)).sum()
    error = np.std(precisions) / np.sqrt(num_chains)
    assert abs(np.mean(precisions) - mean) < 4 * error


def test_swaps_ask_for_all_latents(rng):
    problem = prepare(NoisyPoints(rng.normal(size=3), np.arange(3.0))).problem
    with pytest.raises(ValueError, match=r"those of the problem, \['precision'\], got \[\]"):
        swap_steps(problem, np.arange(3)[None], jax.random.key(0), 1)


def test_swap_steps_honour_masks():
    ring = np.eye(4, dtype=bool) | np.roll(np.eye(4, dtype=bool), 1, axis=1)
    problem = linear_problem(np.zeros((4, 4)), mask=ring)
    perms = swap_steps(problem, np.tile(np.arange(4), (2000, 1)), jax.random.key(0), 100)
    share = (np.asarray(perms) == np.arange(4)).all(axis=1).mean()
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / 2000)


# --- fit ------------------------------------------------------------------------------------------


def test_the_posterior_is_close_and_trusted(scores):
    model = pv.models.LinearMatching(scores)
    exact, posterior = pv.fit(model, "exact"), pv.fit(model, "mcmc")
    assert posterior.diagnostics.verdict == "trust"
    size = posterior.diagnostics.ess_per_draw * len(posterior.law.draws)
    error = 4 * np.sqrt(exact.marginals * (1 - exact.marginals) / size)
    assert (np.abs(posterior.marginals - exact.marginals) < error).all()
    np.testing.assert_array_equal(posterior.mode, exact.mode)
    assert posterior.log_evidence_kind == "bound"
    # All 24 matchings were seen.
    assert posterior.log_evidence == pytest.approx(exact.log_evidence, abs=1e-3)
    assert 18_000 < posterior.num_evaluations <= 20_200
    assert posterior.diagnostics.extras["acceptance_independence"] > 0.7


@pytest.mark.slow
def test_a_fitted_proposal_mixes_better_than_swaps(scores):
    model = pv.models.LinearMatching(3 * scores)
    with_q, without = fit(model), fit(model, proposal="none")
    assert with_q.diagnostics.ess_per_draw > 2 * without.diagnostics.ess_per_draw


@pytest.mark.slow
def test_partial_masked_and_known_together():
    rng = np.random.default_rng(0)
    mask = rng.random((5, 6)) < 0.6
    mask[0, 2] = True
    model = pv.models.LinearMatching(
        rng.normal(size=(5, 6)),
        mask=mask,
        known=[2, -1, -1, -1, -1],
        row_unmatched=-0.5,
        col_unmatched=-0.5,
    )
    exact, posterior = pv.fit(model, "exact"), fit(model)
    size = posterior.diagnostics.ess_per_draw * len(posterior.law.draws)
    error = 4.5 * np.sqrt(exact.marginals * (1 - exact.marginals) / size) + 1e-3
    assert (np.abs(posterior.marginals - exact.marginals) < error).all()
    assert posterior.diagnostics.disagreement_by_row[0] == 0
    assert posterior.log_evidence <= exact.log_evidence + 1e-6


@pytest.mark.slow
def test_stuck_chains_are_not_trusted():
    model = pv.models.CallableModel(lambda perm: 5.0 * two_modes(perm), N, "perm")
    posterior = fit(model)
    assert posterior.diagnostics.verdict == "do not trust"
    assert not posterior.diagnostics.converged


def test_functions_on_the_host_are_sampled():
    def density(perm):
        return -0.3 * float(np.abs(np.diff(perm)).sum())

    model = pv.models.CallableModel(density, 4, "perm", jax=False)
    exact = pv.fit(model, "exact")
    posterior = fit(model, num_steps=400)
    size = posterior.diagnostics.ess_per_draw * len(posterior.law.draws)
    error = 4.5 * np.sqrt(exact.marginals * (1 - exact.marginals) / size)
    assert (np.abs(posterior.marginals - exact.marginals) < error).all()


def test_many_models_run_together(scores):
    models = [pv.models.LinearMatching(scores), pv.models.LinearMatching(-scores)]
    posteriors = pv.fit_many(models, "mcmc")
    assert posteriors[0].seconds == posteriors[1].seconds
    for model, posterior in zip(models, posteriors, strict=True):
        exact = pv.fit(model, "exact")
        np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=0.05)
        np.testing.assert_array_equal(posterior.mode, exact.mode)


def test_other_latents_are_refused(rng):
    with pytest.raises(ValueError, match="no other latents for method 'mcmc', got 'precision'"):
        pv.fit(NoisyPoints(rng.normal(size=3), np.arange(3.0)), "mcmc")


def test_unknown_proposals_are_refused(scores):
    with pytest.raises(ValueError, match=r"proposal must be .* did you mean 'sequential'"):
        pv.fit(pv.models.LinearMatching(scores), "mcmc", proposal="sequentail")


def test_the_simple_proposal_of_these_tests_sums_to_one():
    proposal = row_by_row(np.random.default_rng(0).normal(size=(4, 4)))
    every = jnp.asarray(pv.permutations.enumerate_permutations(4))
    key = jax.random.key(0)
    values = jax.vmap(lambda perm: proposal.sample(proposal.params, key, perm)[2])(every)
    assert float(jnp.exp(values).sum()) == pytest.approx(1.0, abs=1e-5)


def test_chains_that_start_together_are_no_independent_evidence():
    # A function, since the answer to a linear model would be known.
    scores = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))
    model = pv.models.CallableModel(lambda X: jnp.sum(scores * X), 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        posterior = pv.fit(model, "mcmc", start="map", proposal="none")
    assert posterior.diagnostics.verdict == "check"
    assert "no independent fit" in posterior.diagnostics.reasons[0]
