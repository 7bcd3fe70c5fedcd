"""Sequential importance sampling: its evidence, its weights and its draws against enumeration."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import permvi as pv
from permvi import permutations
from permvi.inference.discrete.family import log_prob_many
from permvi.inference.importance import ImportanceOptions, combine, population, run_importance
from permvi.inference.importance import method as run
from permvi.problem.evaluation import Evaluations, as_perms, log_densities
from permvi.problem.prepare import prepare

# One size for most tests, so that few are compiled.
OPTIONS = {"num_particles": 32, "num_populations": 200}
PERMS = permutations.enumerate_permutations(5)
# Three columns for each row, and thirteen matchings.
MASK = np.isin((np.arange(5) - np.arange(5)[:, None]) % 5, (0, 1, 3))
SCORES = np.random.default_rng(1).normal(size=(5, 5))
EDGES = np.random.default_rng(2).normal(size=(2, 5, 5))

TARGETS = {
    "sharp": pv.models.LinearMatching(4.0 * SCORES),
    "flat": pv.models.LinearMatching(0.3 * SCORES),
    "masked": pv.models.LinearMatching(SCORES, mask=MASK),
    "rectangular": pv.models.LinearMatching(SCORES[:3]),
    "quadratic": pv.models.GraphMatching(EDGES[0], EDGES[1], scale=0.4),
}
OTHERS = {
    "more rows": pv.models.LinearMatching(SCORES[:, :3]),
    "partial": pv.models.LinearMatching(SCORES[:3, :3], row_unmatched=-0.5, col_unmatched=0.2),
    "two sites": pv.models.LinearMatching(np.stack([SCORES[:3, :3], SCORES[2:, 2:]])),
}


# Each of these is compiled anew.
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]


def sample(model, seed, **options):
    problem = prepare(model).problem

    def evaluate(choices):
        return log_densities(problem, np.asarray(as_perms(choices, problem)))

    settings = ImportanceOptions(**{**OPTIONS, **options})
    return run_importance(problem, jax.random.key(seed), evaluate, settings)


def fit(model, seed=0, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "importance", seed, **options)


@pytest.mark.parametrize("resample_below", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", [*TARGETS, *SLOW])
def test_the_evidence_is_unbiased(name, resample_below):
    """Two hundred independent populations, each with an estimate of its own."""
    model = {**TARGETS, **OTHERS}[name]
    exact = pv.fit(model, "exact").log_evidence
    found = sample(model, seed=3, resample_below=resample_below).weighted
    ratios = np.exp(found.log_evidence_by_population - exact)
    assert len(ratios) == 200
    error = ratios.std(ddof=1) / np.sqrt(200)
    assert abs(ratios.mean() - 1) < 3 * error + 1e-9
    assert found.log_evidence == pytest.approx(exact + np.log(ratios.mean()), abs=1e-9)
    assert found.log_evidence_se == pytest.approx(error / ratios.mean(), rel=1e-6)


@pytest.mark.parametrize("name", ["flat", "masked", "quadratic"])
def test_weighted_frequencies_are_the_posterior(name):
    """Of every matching: within five standard errors, which come from the populations."""
    exact = pv.fit(TARGETS[name], "exact")
    p = np.exp(exact.log_prob(PERMS))
    found = sample(TARGETS[name], seed=4).weighted
    weights = np.exp(found.log_weights - found.log_evidence).reshape(200, 32)
    code = 10 ** np.arange(5)
    drawn = (found.perms @ code).reshape(200, 32)
    by_population = np.stack(
        [np.where(drawn == wanted, weights, 0.0).mean(axis=1) for wanted in PERMS @ code], axis=1
    )
    totals = weights.mean(axis=1)
    residuals = by_population - totals[:, None] * p
    errors = residuals.std(axis=0, ddof=1) / np.sqrt(200)
    # What was hardly ever drawn has no error to speak of.
    enough = (by_population > 0).sum(axis=0) >= 20
    assert enough.sum() >= 10
    assert (np.abs(residuals.mean(axis=0)) < 5 * errors)[enough].all()
    shares = by_population.sum(axis=0) / totals.sum()
    assert np.abs(shares - p)[~enough].max(initial=0.0) < 0.01


@pytest.mark.parametrize("name", ["flat", "masked"])
def test_particles_follow_the_law_of_the_guide(name):
    """Without resampling they are independent draws with known probabilities."""
    problem = prepare(TARGETS[name]).problem
    family = run._guide(problem, jax.random.key(0), Evaluations(None, 5), ImportanceOptions(), 0)
    drawn = population.draw_populations(family, jax.random.key(5), np.zeros(()), **OPTIONS)
    expected = np.exp(jax.jit(log_prob_many)(family, PERMS[:, None]))
    assert expected.sum() == pytest.approx(1)
    code = 10 ** np.arange(5)
    codes = np.asarray(drawn.choices).reshape(-1, 5) @ code
    counts = np.array([(codes == wanted).sum() for wanted in PERMS @ code])
    possible = expected > 0
    assert counts[possible].sum() == len(codes)
    common = possible & (len(codes) * expected >= 5)
    rest = possible & ~common
    pooled = [np.append(x[common], x[rest].sum()) for x in (counts, len(codes) * expected)]
    keep = pooled[1] > 0
    assert stats.chisquare(pooled[0][keep], pooled[1][keep]).pvalue > 1e-4


def test_resampling_happens_when_it_is_due():
    assert sample(TARGETS["masked"], seed=6, resample_below=0.0).num_resamplings == 0
    assert sample(TARGETS["masked"], seed=6, resample_below=1.0).num_resamplings > 1
    # Every weight is the same at each row: there is nothing to resample.
    assert sample(TARGETS["flat"], seed=6, resample_below=0.5).num_resamplings == 0


@pytest.mark.float32
def test_systematic_resampling_keeps_shares():
    log_weights = jnp.log(jnp.array([0.1, 0.4, 0.0, 0.3, 0.2])) + 7.0
    start = population.Population(
        jnp.arange(5)[:, None, None], log_weights, jnp.zeros(()), jnp.zeros((), jnp.int32)
    )
    carry = population._Carry(jnp.arange(5), jnp.zeros(5), start)
    resample = jax.jit(jax.vmap(population._resample, in_axes=(None, 0, None)))
    keys = jax.random.split(jax.random.key(7), 2000)
    states, _, found = resample(carry, keys, jnp.array(True))
    counts = (states[:, :, None] == jnp.arange(5)).sum(axis=1)
    expected = np.array([0.5, 2.0, 0.0, 1.5, 1.0])
    assert (np.abs(counts - expected) < 1).all()
    # Counts differ by one at most, so that their sd is a half at most.
    assert (np.abs(counts.mean(axis=0) - expected) < 4 * 0.5 / np.sqrt(2000)).all()
    np.testing.assert_allclose(found.log_scale, 7.0 - np.log(5), rtol=1e-6)
    assert not found.log_weights.any()
    same = resample(carry, keys[:1], jnp.array(False))[2]
    np.testing.assert_array_equal(same.log_weights[0], log_weights)


def test_populations_are_combined_by_their_evidence():
    perms = np.array([[[0, 1], [1, 0]], [[0, 1], [0, 1]], [[1, 0], [0, -1]], [[1, 0], [1, 0]]])
    weights = np.array([[1.0, 3.0], [2.0, 2.0], [4.0, 4.0], [0.0, 4.0]])
    with np.errstate(divide="ignore"):
        found = combine(perms, np.log(weights), 2)
    estimates = np.array([2.0, 2.0, 4.0, 2.0])
    assert found.log_evidence == pytest.approx(np.log(2.5))
    assert found.log_evidence_se == pytest.approx(estimates.std(ddof=1) / 2 / 2.5)
    assert found.ess_per_draw == pytest.approx(20**2 / 66 / 8)
    # Row 1 is column 1, column 0 or unmatched.
    table = np.array([[1, 3, 0], [4, 0, 0], [0, 4, 4], [0, 4, 0]]) / 2
    marginals = table.sum(axis=0) / 10
    residuals = (table - estimates[:, None] * marginals) / 10
    sd = np.sqrt((residuals**2).sum(axis=0) * 4 / 3)
    assert found.error_by_row[1] == pytest.approx(0.5 * np.sqrt(2 / np.pi) * sd.sum())
    halves = [part.sum(axis=0) / part.sum() for part in (table[:2], table[2:])]
    assert found.disagreement_by_row[1] <= 0.5 * np.abs(halves[0] - halves[1]).sum()


def test_the_stated_error_is_the_error():
    exact = pv.fit(TARGETS["quadratic"], "exact").marginals
    errors, stated = [], []
    for seed in range(20):
        found = sample(TARGETS["quadratic"], seed=100 + seed).weighted
        posterior = pv.Posterior.from_draws(found.perms, found.log_weights, shape=(5, 5))
        errors.append(0.5 * np.abs(posterior.marginals - exact).sum(axis=1).mean())
        stated.append(found.error_by_row.mean())
    spread = np.std(errors, ddof=1) / np.sqrt(20)
    assert abs(np.mean(errors) - np.mean(stated)) < 4 * spread


@pytest.mark.parametrize("name", ["partial", *SLOW[::2]])
def test_marginals_of_other_shapes(name):
    exact, posterior = pv.fit(OTHERS[name], "exact"), fit(OTHERS[name], **OPTIONS)
    error = 0.5 * np.abs(posterior.marginals - exact.marginals).sum(axis=-1)
    assert (error < 5 * posterior.diagnostics.sampling_error_by_row).all()
    assert posterior.log_evidence_kind == "estimate"
    assert abs(posterior.log_evidence - exact.log_evidence) < 4 * posterior.log_evidence_se
    assert posterior.diagnostics.verdict == "trust"


@pytest.mark.float32
def test_a_fit_counts_distinct_densities_and_knows_its_error():
    posterior = fit(TARGETS["sharp"], **OPTIONS)
    assert posterior.num_evaluations <= 2 * 120
    assert posterior.diagnostics.verdict == "trust"
    again = fit(TARGETS["sharp"], guide="uniform", **OPTIONS)
    assert again.log_evidence_se > 3 * posterior.log_evidence_se
    gap = abs(again.log_evidence - posterior.log_evidence)
    assert gap < 4 * np.hypot(again.log_evidence_se, posterior.log_evidence_se)


def test_a_density_on_the_host():
    exact = pv.fit(TARGETS["quadratic"], "exact")

    def density(perm):
        perm = np.asarray(perm)
        return 0.4 * float((EDGES[0] * EDGES[1][np.ix_(perm, perm)]).sum())

    model = pv.models.CallableModel(density, 5, "perm", jax=False)
    posterior = fit(model, **OPTIONS)
    assert abs(posterior.log_evidence - exact.log_evidence) < 4 * posterior.log_evidence_se


def test_impossible_densities_are_refused():
    model = pv.models.CallableModel(lambda perm: -np.inf, 5, "perm", jax=False)
    with pytest.raises(ValueError, match="finite for some matching, got -inf for all seen"):
        fit(model, **OPTIONS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_populations": 1}, "num_populations must be at least 2, got 1"),
        ({"num_particles": 0}, "num_particles must be an integer of at least 1, got 0"),
        ({"resample_below": 1.5}, "resample_below must be from 0 to 1, got 1.5"),
        ({"guide": "map"}, "guide must be 'auto' or 'uniform', got 'map'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        fit(TARGETS["flat"], **options)


def test_partial_matchings_that_particles_miss_are_not_trusted():
    """Unused labels cost 1e4, and which item stays unmatched is decided too early."""
    scores = [[-21.0, -16.0, -16.3], [-4.2, -27.8, -2.3], [-11.5, 10.7, 11.5], [16.7, 9.2, -0.6]]
    model = pv.models.LinearMatching(
        scores, row_unmatched=[0.9, 1.5, -0.7, 0.6], col_unmatched=-1e4
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        found = pv.fit(model, "importance")
    truth = pv.fit(model, "exact")
    off = np.abs(found.marginals - truth.marginals).sum(axis=1).max() / 2
    assert off < 0.1 or found.diagnostics.verdict == "do not trust"
