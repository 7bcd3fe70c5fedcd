"""Verdicts on linear models that are too broad for a search, by the answer of method "linear"."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from permvi.inference.verdict import audit
from permvi.inference.verdict.coverage import examine
from permvi.problem.prepare import prepare


def test_noise_is_the_mean_distance_of_frequencies_from_their_law(rng):
    p = rng.dirichlet(np.ones(5), size=3)
    num = 2000
    drawn = np.stack([rng.multinomial(num, row, size=2000) for row in p]) / num
    distances = 0.5 * np.abs(drawn - p[:, None]).sum(axis=-1)
    error = distances.std(axis=1) / np.sqrt(2000)
    assert (np.abs(audit.noise(p, num) - distances.mean(axis=1)) < 5 * error).all()


@pytest.fixture(scope="module", params=["square", "partial", "sites"])
def broad(request):
    rng = np.random.default_rng(7)
    if request.param == "sites":
        return pv.models.LinearMatching(rng.normal(size=(2, 9, 9)))
    unmatched = {"row_unmatched": 0.5, "col_unmatched": 0.0} if request.param == "partial" else {}
    return pv.models.LinearMatching(rng.normal(size=(12, 12)), **unmatched)


def test_a_search_alone_cannot_tell(broad):
    problem = prepare(broad).problem
    layout = problem.layout
    start = np.broadcast_to(np.arange(layout.num_rows), layout.event_shape)
    assert not examine(problem, start[None]).closed


@pytest.mark.parametrize("method", ["map", "sinkhorn", "bethe", "naive"])
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_the_bias_that_decides_is_the_true_one(broad, method):
    found, exact = pv.fit(broad, method), pv.fit(broad, "exact")
    error = pv.metrics.total_variation_per_row(
        found.marginals, exact.marginals, found.p_unmatched_rows, exact.p_unmatched_rows
    )
    bias = found.diagnostics.bias_by_row
    # The answer to compare with is exact here, but for what "linear" may leave out.
    np.testing.assert_allclose(bias, error, atol=1e-6)
    if error.mean() > 0.1:
        assert found.diagnostics.verdict == "do not trust"
    elif error.mean() > 0.03 or error.max() > 0.05:
        assert found.diagnostics.verdict == "check"
    else:
        assert found.diagnostics.verdict == "trust"


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_a_search_that_finds_everything_decides():
    """Two matchings that differ in two rows, 2 to 1, and all others less than e^-16 of them."""
    modes = np.tile(np.arange(10)[::-1], (2, 1))
    modes[1, :2] = modes[0, 1::-1]

    def log_density(X):
        first, second = (X[np.arange(10), mode].sum() for mode in modes)
        return jnp.logaddexp(8 * first, 8 * second - np.log(2))

    found = pv.fit(log_density, "map", n=10)
    error = [1 / 3, 1 / 3, *[0.0] * 8]
    np.testing.assert_allclose(found.diagnostics.bias_by_row, error, atol=1e-4)
    assert found.diagnostics.verdict == "check"


def test_answers_that_were_sampled_count_up_to_their_error():
    model = pv.models.LinearMatching(2 * np.random.default_rng(1).normal(size=(26, 26)))
    # A table for the true marginals: chains with many more steps and another seed.
    truth = pv.fit(model, "linear", seed=5, tolerance=0.001)
    assert truth.diagnostics.sampling_error_by_row.mean() > 0
    with pytest.warns(pv.FitWarning):
        found = pv.fit(model, "sinkhorn")
    error = pv.metrics.total_variation_per_row(found.marginals, truth.marginals)
    assert found.diagnostics.bias_by_row.mean() == pytest.approx(error.mean(), abs=0.015)


def two_copies():
    half = np.random.default_rng(3).normal(size=(7, 7))
    whole = np.kron(np.eye(2), half + half.T)
    return pv.models.GraphMatching(whole, whole)


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_modes_that_lie_far_apart_count_in_other_models():
    # The copies may be exchanged, so that half of the posterior is nowhere near any one matching.
    found = pv.fit(two_copies(), "map")
    np.testing.assert_allclose(found.diagnostics.bias_by_row, 0.5, atol=0.03)
    assert found.diagnostics.verdict == "do not trust"


@pytest.mark.parametrize("noise", [0.5, 2.0])
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_small_models_of_any_kind_are_compared_with_exact(noise):
    rng = np.random.default_rng(4)
    A = rng.normal(size=(6, 6))
    model = pv.models.GraphMatching(A, A[::-1, ::-1] + 0.3 * rng.normal(size=(6, 6)), scale=noise)
    found, exact = pv.fit(model, "map"), pv.fit(model, "exact")
    error = pv.metrics.total_variation_per_row(found.marginals, exact.marginals)
    np.testing.assert_allclose(found.diagnostics.bias_by_row, error, atol=1e-9)


def test_slow_functions_are_not_called_for_all_matchings():
    calls = 0

    def log_density(perm):
        nonlocal calls
        calls += 1
        return -float(np.abs(perm - np.arange(8)).sum())

    model = pv.models.CallableModel(log_density, 8, input="perm", jax=False)
    with pytest.warns(pv.FitWarning):
        pv.fit(model, "map")
    assert calls < 20_000


@pytest.mark.parametrize("seed", [0, 1])
def test_chains_that_stay_in_one_of_two_modes_are_found_out(seed):
    scores = 12 * (np.eye(8) + np.roll(np.eye(8), 1, 1))
    options = {"proposal": "none", "start": "map", "num_steps": 2000}
    with pytest.warns(pv.FitWarning):
        found = pv.fit(pv.models.LinearMatching(scores), "mcmc", seed, **options)
    np.testing.assert_allclose(found.diagnostics.bias_by_row, 0.5, atol=0.01)
    assert found.diagnostics.verdict == "do not trust"


def test_weighted_draws_that_are_right_are_trusted():
    # A search finds both modes and cannot tell that the draws have weighed them well.
    scores = 12 * (np.eye(8) + np.roll(np.eye(8), 1, 1))
    found = pv.fit(pv.models.LinearMatching(scores), "stick_breaking_discrete")
    np.testing.assert_allclose(found.diagnostics.bias_by_row, 0.0, atol=0.01)
    assert found.diagnostics.verdict == "trust"


# In these tables of sharp scores the second mode differs from the first by a cycle of four to six
# rows, no part of which is probable: climbs by exchanges do not lead there.
_CYCLES = [(14, 3), (14, 7), (14, 40), (14, 59), (12, 9), (12, 31)]


def sharp_table(n, seed):
    return 20.0 * np.random.default_rng((99 if n == 14 else 97, n, seed)).normal(size=(n, n))


@pytest.mark.parametrize("method", ["map", "bethe", "sinkhorn"])
@pytest.mark.parametrize(("n", "seed"), _CYCLES)
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_a_mode_behind_a_cycle_is_not_overlooked_in_a_table(n, seed, method):
    model = pv.models.LinearMatching(sharp_table(n, seed))
    found, exact = pv.fit(model, method), pv.fit(model, "exact")
    error = pv.metrics.total_variation_per_row(found.marginals, exact.marginals)
    np.testing.assert_allclose(found.diagnostics.bias_by_row, error, atol=1e-6)
    assert error.max() > 0.05
    assert found.diagnostics.verdict != "trust"


@pytest.mark.parametrize(("n", "seed"), _CYCLES)
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_a_mode_behind_a_cycle_is_not_overlooked_by_a_search(n, seed):
    scores = sharp_table(n, seed)
    model = pv.models.CallableModel(
        lambda perm: float(scores[np.arange(n), perm].sum()), n, input="perm", jax=False
    )
    found = pv.fit(model, "map")
    truth = pv.fit(pv.models.LinearMatching(scores), "exact")
    np.testing.assert_array_equal(found.mode, truth.mode)
    assert found.diagnostics.verdict != "trust"


def test_matchings_through_each_pair_are_tried_at_all_sites():
    """Two sites of a function that is the sum of a table: the best through each pair is known."""
    tables = np.random.default_rng(3).normal(scale=20.0, size=(2, 6, 6))
    problem = dataclasses.replace(prepare(pv.models.LinearMatching(tables)).problem, scores=None)
    places = np.arange(6)
    found = examine(problem, np.tile(places, (1, 2, 1)))
    seen = {tuple(map(tuple, perms)) for perms in found.perms.tolist()}
    every = pv.permutations.enumerate_permutations(6)
    values = np.array([table[places, every].sum(axis=-1) for table in tables])
    best = every[values.argmax(axis=1)]
    for s, i, j in np.ndindex(2, 6, 6):
        through = np.flatnonzero(every[:, i] == j)
        wanted = best.copy()
        wanted[s] = every[through[values[s, through].argmax()]]
        assert tuple(map(tuple, wanted.tolist())) in seen
