"""Memory is asked for before it is taken."""

import numpy as np
import pytest

import permvi as pv
from permvi import _memory
from permvi.inference import registry
from permvi.problem.prepare import prepare


def test_what_is_free_is_a_positive_number_of_bytes():
    assert 1e6 < _memory.available() < 1e16


@pytest.mark.parametrize(
    ("method", "model", "advice"),
    [
        ("rounding", pv.models.LinearMatching(np.eye(300)), "try method='linear'"),
        ("sequential", pv.models.LinearMatching(np.eye(300)), "try method='linear'"),
        ("linear", pv.models.LinearMatching(np.eye(300)), "models.SparseMatching"),
        ("mcmc", pv.models.GraphMatching(np.eye(300), np.eye(300)), "fewer items"),
    ],
)
def test_too_large_problems_are_refused_before_they_begin(monkeypatch, method, model, advice):
    monkeypatch.setattr(_memory, "available", lambda: 1e6)
    message = rf"method '{method}' on 300 by 300 pairs needs about .* GB .* are free; .*{advice}"
    with pytest.raises(ValueError, match=message):
        pv.fit(model, method)


def test_models_that_are_fitted_together_need_memory_together(monkeypatch):
    models = [pv.models.LinearMatching(np.eye(30)) for _ in range(40)]
    one = 8 * 30**2 * registry.method("sequential").tables
    monkeypatch.setattr(_memory, "available", lambda: 39.0 * one)
    message = "method 'sequential' on 40 models of 30 by 30 pairs needs .* fewer of them at once"
    with pytest.raises(ValueError, match=message):
        pv.fit_many(models, "sequential")
    # One of them, or 39, would fit.
    registry.method("sequential").check_memory(prepare(models[0]), 39)


@pytest.mark.parametrize(("used", "dropped"), [(0.5, 0), (0.7, 1)])
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_programmes_are_dropped_before_memory_maps_run_out(monkeypatch, used, dropped):
    calls = []
    monkeypatch.setattr(_memory, "maps_used", lambda: used)
    monkeypatch.setattr("jax.clear_caches", lambda: calls.append(used))
    models = [pv.models.LinearMatching(np.eye(3) + k) for k in range(2)]
    pv.fit(models[0], "perturb_and_map", num_draws=10)
    assert len(calls) == dropped
    pv.fit_many(models, "perturb_and_map", num_draws=10)
    assert len(calls) >= 2 * dropped
    # The host's methods compile nothing.
    calls.clear()
    pv.fit(models[0], "exact")
    assert not calls


def test_memory_maps_are_counted():
    assert 0 <= _memory.maps_used() < 0.9


def test_a_container_may_have_less_than_the_machine(monkeypatch, tmp_path):
    limit, used = tmp_path / "limit", tmp_path / "used"
    limit.write_text("5000000\n")
    used.write_text("4000000\n")
    monkeypatch.setattr(_memory, "_LIMITS", ((str(limit), str(used)),))
    assert _memory.available() == 1e6
    limit.write_text("max\n")
    assert _memory.available() > 1e6
