"""Variational inference with relaxed permutations: accuracy, behaviour, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from vi_cases import (
    exact_marginals,
    gaussian_density,
    linear_density,
    linear_problem,
    map_error,
    matching_batch,
    problem,
)

from permvi.inference.vi import VIOptions, objective, run, run_vi, run_vi_batch

FAMILIES = ["rounding", "stick_breaking"]


def quick(family, **changes):
    options = {"num_steps": 200, "chunk_size": 50, "num_samples": 2, "num_restarts": 2}
    return VIOptions.calibrated(family).replace(**{**options, "num_draws": 200, **changes})


@pytest.mark.parametrize(
    ("family", "density"),
    [
        pytest.param("rounding", gaussian_density, marks=pytest.mark.slow),
        pytest.param("stick_breaking", linear_density, marks=pytest.mark.slow),
        pytest.param("rounding", linear_density, marks=pytest.mark.slow),
        pytest.param("stick_breaking", gaussian_density, marks=pytest.mark.slow),
    ],
)
def test_marginals_of_a_hundred_fresh_matching_problems_in_one_call(family, density):
    # Seeds other than those on which the defaults were calibrated.
    easy, exact_easy = matching_batch(50, 0.25, seed=2018, density=density)
    hard, exact_hard = matching_batch(50, 0.5, seed=2019, density=density)
    data = {name: np.concatenate([easy.data[name], hard.data[name]]) for name in easy.data}
    options = VIOptions.calibrated(family).replace(num_restarts=1, num_samples=4)
    both = problem(data, density, (6, 6))
    results = run_vi_batch(both, jax.random.key(0), family, options)
    found = np.stack([result.marginals[0] for result in results])
    assert np.abs(found[:50] - exact_easy).mean() < 0.03
    assert np.abs(found[50:] - exact_hard).mean() < map_error(exact_hard).mean()


@pytest.mark.parametrize("family", FAMILIES)
class TestOneProblem:
    """One compilation for each family: all fits here have the same shapes."""

    @pytest.fixture
    def case(self, rng):
        return linear_problem(2 * rng.normal(size=(4, 4)))

    def test_result(self, case, family):
        result = run_vi(case, jax.random.key(0), family, quick(family, keep_relaxed=True))
        assert result.draws.shape == (200, 4)
        assert (np.sort(result.draws, axis=1) == np.arange(4)).all()
        assert result.relaxed_draws.shape == (200, 4, 4)
        assert result.elbo_trace.shape == (2, 200)
        assert result.marginals.shape == (2, 4, 4)
        np.testing.assert_allclose(result.marginals.sum(axis=-1), 1)
        np.testing.assert_allclose(result.marginals.sum(axis=-2), 1)
        own = (result.draws[:, :, None] == np.arange(4)).mean(axis=0)
        np.testing.assert_allclose(result.marginals[result.best_restart], own)
        assert result.num_evaluations == 2 * 200 * 2
        assert 0 < result.vertex_distance < 1
        assert not result.interrupted
        chosen = np.eye(4)[result.draws]
        distance = np.sqrt(((result.relaxed_draws - chosen) ** 2).sum((-2, -1)) / 4)
        assert result.vertex_distance == pytest.approx(distance.mean(), rel=1e-5)

    def test_elbo_rises_and_the_best_restart_is_kept(self, case, family):
        result = run_vi(case, jax.random.key(0), family, quick(family))
        first, last = result.elbo_trace[:, :20].mean(1), result.elbo_trace[:, -50:].mean(1)
        assert (last > first).all()
        assert result.best_restart == last.argmax()

    def test_same_key_same_bits(self, case, family):
        one, two, other = (
            run_vi(case, jax.random.key(seed), family, quick(family)) for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(one.draws, two.draws)
        np.testing.assert_array_equal(one.elbo_trace, two.elbo_trace)
        assert (one.elbo_trace != other.elbo_trace).any()

    def test_new_data_and_numbers_compile_nothing(self, rng, family):
        counts = []
        for scale in (1.0, 2.0, 0.5):
            case = linear_problem(scale * rng.normal(size=(4, 4)))
            changes = {"temperature": 0.9, "prior_width": scale / 3, "learning_rate": 0.02}
            run_vi(case, jax.random.key(0), family, quick(family, **changes))
            counts.append(objective.advance_fits._cache_size())
        assert counts[0] == counts[-1]

    def test_progress_and_interruption_return_the_fit_so_far(self, case, family):
        seen = []

        def on_progress(step, total, elbo):
            seen.append((step, total, elbo))
            if step == 100:
                raise KeyboardInterrupt

        result = run_vi(case, jax.random.key(0), family, quick(family), on_progress)
        assert [step for step, _, _ in seen] == [50, 100]
        assert all(total == 200 and np.isfinite(elbo) for _, total, elbo in seen)
        assert result.interrupted
        assert result.elbo_trace.shape == (2, 100)
        assert result.draws.shape == (200, 4)

    def test_early_stop(self, case, family):
        options = quick(family, num_steps=2000, patience=2)
        result = run_vi(case, jax.random.key(0), family, options)
        assert result.converged
        assert result.num_steps < 2000
        if options.temperature_schedule != "constant":
            assert result.num_steps > 1000


def test_interruption_before_the_first_chunk_is_passed_on(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "advance_fits", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_vi(linear_problem(np.eye(4)), jax.random.key(0), "rounding", quick("rounding"))


@pytest.mark.slow
def test_more_rows_than_columns(rng):
    scores = 3 * rng.normal(size=(4, 2))
    options = quick("stick_breaking")
    result = run_vi(linear_problem(scores), jax.random.key(0), "stick_breaking", options)
    assert ((result.draws >= 0).sum(axis=1) == 2).all()
    exact, found = exact_marginals(scores.T).T, result.marginals[result.best_restart]
    assert np.abs(found - exact).mean() < 0.08


def test_masks_sites_and_fewer_rows_than_columns(rng):
    mask = np.ones((2, 3, 4), bool)
    mask[0, 0, 1:] = False
    mask[1, :2, 2:] = False
    scores = 3 * rng.normal(size=(2, 3, 4))
    case = problem({"scores": scores}, _sum_over_sites, (3, 4), mask=mask, num_sites=2)
    result = run_vi(case, jax.random.key(0), "rounding", quick("rounding"))
    assert result.draws.shape == (200, 2, 3)
    assert result.marginals.shape == (2, 2, 3, 4)
    sites, rows = np.arange(2)[:, None], np.arange(3)
    assert mask[sites, rows, result.draws].all()
    assert all(len(set(perm)) == 3 for perm in result.draws.reshape(-1, 3))
    exact = np.stack([exact_marginals(s, m) for s, m in zip(scores, mask, strict=True)])
    likely = exact > 0.8
    assert likely.any()
    assert (result.marginals[result.best_restart][likely] > 0.5).all()


def _sum_over_sites(data, X):
    return jnp.sum(data["scores"] * X, axis=(-3, -2, -1))


# Latents of quicker fits are compared with their posteriors in the tests of dynamics.
@pytest.mark.slow
@pytest.mark.parametrize("family", ["rounding", "stick_breaking"])
def test_other_latents_and_data_inside_the_density(rng, family):
    c, perm = 2 * rng.normal(size=(5, 2)), rng.permutation(5)
    y = c[perm] + np.array([0.5, -0.3]) + 0.1 * rng.normal(size=(5, 2))
    latents = {"shift": dist.Normal(jnp.zeros(2), 1.0), "scale": dist.LogNormal(-2.0, 0.5)}

    def density(data, X, *, shift, scale):
        return jnp.sum(dist.Normal(0.0, scale).log_prob(y - X @ c - shift))

    case = problem({}, density, (5, 5), latents=latents)
    options = quick(family, num_steps=800, num_samples=4)
    result = run_vi(case, jax.random.key(0), family, options)
    assert (result.draws == perm).mean() > 0.85
    shift, scale = result.latents["shift"], result.latents["scale"]
    assert shift.draws.shape == (200, 2)
    np.testing.assert_allclose(shift.mean, [0.5, -0.3], atol=0.2)
    assert (shift.sd > 0).all()
    assert (scale.draws > 0).all()


@pytest.mark.parametrize(
    ("changes", "family", "message"),
    [
        ({"mask": np.eye(4, dtype=bool)}, "stick_breaking", "must have no mask for stick_breaking"),
        ({"row_unmatched": np.zeros(4)}, "stick_breaking", "must match every item for stick_"),
        ({"traceable": False}, "rounding", "a log density that JAX can differentiate"),
        ({"mask": np.zeros((4, 4), bool)}, "rounding", "mask must allow an assignment"),
        ({}, "roundin", "family must be .*did you mean 'rounding'"),
    ],
)
def test_refusals(changes, family, message):
    with pytest.raises(ValueError, match=message):
        run_vi(linear_problem(np.eye(4), **changes), jax.random.key(0), family)


def test_density_that_is_nowhere_finite_is_refused():
    case = linear_problem(np.full((4, 4), np.nan))
    with pytest.raises(ValueError, match="log_density must be finite on relaxed matrices"):
        run_vi(case, jax.random.key(0), "rounding", quick("rounding"))


def test_batch_without_batch_axis_is_refused():
    case = problem({"a": np.zeros(3), "b": np.zeros(2)}, linear_density, (4, 4))
    with pytest.raises(ValueError, match="problems must have one batch axis"):
        run_vi_batch(case, jax.random.key(0))
