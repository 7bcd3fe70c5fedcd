"""Tempered chains that judge other answers, and that "auto" takes for functions."""

import time
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from benchmarks import verdicts
from permvi.inference import auto
from permvi.inference.mcmc import tempered
from permvi.inference.verdict.audit import audited_estimate
from permvi.posterior import Diagnostics
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import prepare

N = 16


@pytest.fixture(scope="module")
def two_modes():
    """A function of 16 items with two far modes, whose marginals are those of two tables."""
    return verdicts.mixture(1.0, N, np.random.default_rng(5))


def quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(*arguments, **options)


def error(posterior, model):
    by_row = pv.metrics.total_variation_per_row(posterior.marginals, verdicts.truth_of(model))
    return by_row.mean()


def test_a_family_that_holds_one_mode_is_not_trusted(two_modes):
    found = quietly(two_modes, "sequential")
    assert error(found, two_modes) > 0.1
    assert found.diagnostics.verdict == "do not trust"
    assert "differ from an independent answer" in found.diagnostics.reasons[0]
    assert found.log_evidence_se is None
    # The user's limit on evaluations is one for the verdict, too.
    limited = quietly(two_modes, "sequential", max_evaluations=2_000)
    assert limited.num_evaluations <= 2_000


@pytest.mark.slow
def test_the_default_weighs_both_modes(two_modes):
    found = pv.fit(two_modes)
    assert (found.method, found.diagnostics.verdict) == ("mcmc", "trust")
    assert found.diagnostics.reasons[-1] == "method 'sequential' was tried first: do not trust"
    stated = found.diagnostics.sampling_error_by_row.mean()
    # All rows are off together where the weights of the modes are, and the mean absolute value of a
    # normal error is .8 standard deviations: three of these.
    assert error(found, two_modes) <= 3 / 0.8 * stated
    assert error(found, two_modes) <= 0.05
    with pytest.warns(pv.FitWarning):
        pv.fit(two_modes, num_steps=50)


@pytest.mark.slow
def test_a_batch_gets_what_each_of_its_models_would(two_modes):
    table = pv.models.LinearMatching(np.random.default_rng(0).normal(size=(6, 6)))
    alone, together = pv.fit(two_modes), pv.fit_many([table, two_modes])[1]
    np.testing.assert_array_equal(alone.marginals, together.marginals)
    assert together.diagnostics.reasons == alone.diagnostics.reasons


def test_chains_start_anywhere_and_at_the_best_matching():
    # A needle that no chain would find, were it not the best one uphill: 5 nats for each right row.
    def log_density(perm):
        return 5.0 * (perm == jnp.arange(N)).sum()

    model = pv.models.CallableModel(log_density, N, input="perm")
    posterior = quietly(model, "mcmc", start="both", num_chains=4, num_steps=2_000, warmup=0)
    np.testing.assert_array_equal(posterior.mode, np.arange(N))


def test_settings_follow_the_density(monkeypatch):
    monkeypatch.setattr(tempered, "_timed", timed(1e-9))
    weak, strong = (
        tempered.ladder(
            prepare(
                pv.models.CallableModel(
                    lambda perm, k=k: k * jnp.sin(perm * jnp.arange(40.0)).sum(), 40, input="perm"
                )
            )
        )
        for k in (0.1, 100.0)
    )
    assert weak.hottest == 3.0
    assert weak.may_be_trusted
    # Forty sines with variance one half.
    assert strong.hottest == pytest.approx(100 * np.sqrt(20), rel=0.25)
    assert not strong.may_be_trusted
    assert strong.settings()["num_temperatures"] == 16 > weak.settings()["num_temperatures"]
    assert weak.settings(3)["num_steps"] == 3 * weak.num_steps == 3 * 160_000


def timed(seconds):
    """Let evaluations take so many seconds."""
    return lambda problem, perms: (seconds, log_densities(problem, perms))


def on_host(n, function=lambda perm: float(perm[0])):
    return pv.models.CallableModel(function, n, input="perm", jax=False)


@pytest.mark.parametrize(
    ("seconds", "of_jax", "of_host"),
    [
        (1e-9, 100_000, 25_000),
        (2.5e-6, 50_000, 25_000),
        (1e-5, 12_500, 12_500),
        (1e-4, 3_125, 3_125),
        (2e-4, None, None),
    ],
)
def test_the_longer_a_call_takes_the_fewer_there_are(monkeypatch, seconds, of_jax, of_host):
    monkeypatch.setattr(tempered, "_timed", timed(seconds))
    jax_function = pv.models.CallableModel(lambda perm: perm[0] * 1.0, 12, input="perm")
    for model, steps in ((jax_function, of_jax), (on_host(12), of_host)):
        found = tempered.ladder(prepare(model))
        assert (found and found.num_steps) == steps
        assert found is None or found.fast == (steps == 100_000)


@pytest.mark.slow
def test_far_modes_of_plain_python_are_not_missed():
    """One of two modes had been trusted with an error of .4."""
    model = verdicts.python_mixture(1.0, N, np.random.default_rng(5))
    found = quietly(model, "sequential")
    assert error(found, model) > 0.1
    assert found.diagnostics.verdict == "do not trust"


def test_functions_that_are_too_slow_to_judge_are_not_trusted():
    calls = []

    def log_density(perm):
        calls.append(1)
        time.sleep(3e-4)
        return -0.3 * float(np.abs(perm - np.arange(12)).max())

    model = on_host(12, log_density)
    assert tempered.ladder(prepare(model)) is None
    # The first look at so slow a function is a short one.
    assert len(calls) <= 12
    found = quietly(model, "sequential", num_steps=10, max_evaluations=None, num_draws=200)
    assert found.diagnostics.verdict != "trust"


def test_an_interrupt_keeps_the_answer_that_was_to_be_judged(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tempered, "answer", interrupt)
    model = on_host(12, lambda perm: -float(np.abs(perm - np.arange(12)).max()))
    found = quietly(model, "sequential", num_steps=20)
    assert found.diagnostics.verdict == "do not trust"
    assert found.diagnostics.reasons[0].startswith("interrupted")


def test_chains_that_need_great_heat_are_not_trusted():
    """Frozen chains of two point masses had agreed on weights of .61 and .39 for .78 and .22."""
    sharp = verdicts.mixture(1e3, 12, np.random.default_rng(5))
    settings = tempered.ladder(prepare(sharp)).settings() | {"num_steps": 2_000}
    assert settings["max_temperature"] > 1_000
    found = quietly(sharp, "mcmc", **settings)
    assert found.diagnostics.verdict != "trust"
    assert "seldom exchange far modes" in found.diagnostics.reasons[0]


UNSUITED = {
    "too many rows": pv.models.CallableModel(lambda perm: perm[0] * 1.0, 65, input="perm"),
    "other unknowns": pv.models.PointMatching(np.eye(4, 2), np.eye(4, 2), scale=None),
}


@pytest.mark.parametrize("model", UNSUITED.values(), ids=UNSUITED)
def test_densities_that_chains_do_not_take_are_left_alone(model):
    prepared = prepare(model)
    assert tempered.ladder(prepared) is None
    assert list(auto.others(prepared, "sequential")) == []


@pytest.mark.parametrize(
    ("n", "method", "hot"),
    [(24, "sequential", False), (25, "mcmc", True), (100, "mcmc", True), (129, "mcmc", False)],
)
def test_the_default_for_functions_by_size(monkeypatch, n, method, hot):
    monkeypatch.setattr(tempered, "_timed", timed(1e-7))
    weights = jnp.arange(float(n))

    def log_density(perm):
        return -0.01 * jnp.maximum(jnp.cumsum(weights[perm]) - n * weights, 0.0).sum()

    prepared = prepare(pv.models.CallableModel(log_density, n, input="perm"))
    name, options = auto.choose(prepared)
    assert (name, options.get("num_temperatures", 1) > 1) == (method, hot)


@pytest.mark.parametrize(
    ("hottest", "r_hat", "verdict"),
    [
        (50.0, 1.0, "trust"),
        (50.0, 1.2, "check"),
        # Of two modes at a scale of 1000, one had been trusted with errors of .26 and .32.
        (500.0, 1.0, "check"),
    ],
)
def test_chains_that_mix_slowly_confirm_nothing(monkeypatch, hottest, r_hat, verdict):
    perms = np.array([np.random.default_rng(0).permutation(12) for _ in range(50)])
    model = on_host(12, lambda perm: 0.0)

    def posterior(verdict, r_hat):
        said = Diagnostics(verdict, (verdict,), r_hat=r_hat)
        return pv.Posterior.from_draws(perms, shape=(12, 12), diagnostics=said)

    monkeypatch.setattr(tempered, "ladder", lambda _: tempered.Ladder(5_000, hottest, True))
    monkeypatch.setattr(tempered, "answer", lambda *_: posterior("check", r_hat))
    found = audited_estimate(prepare(model), posterior("trust", 1.0), "")
    assert found.diagnostics.verdict == verdict
    assert (verdict == "trust") != ("mix too slowly" in found.diagnostics.reasons[0])
