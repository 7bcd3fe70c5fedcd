"""The host solver as a foreign function of XLA: answers, errors, and programmes kept on disk."""

import functools
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from permvi import assignment
from permvi._assignment import foreign, host

FLOAT = np.float64 if jax.config.jax_enable_x64 else np.float32


def by_scipy(scores, mask=None, *, maximize=True):
    flat = np.where(True if mask is None else mask, scores, -np.inf if maximize else np.inf)
    found = [linear_sum_assignment(one, maximize)[1] for one in flat.reshape(-1, *flat.shape[-2:])]
    return np.reshape(found, flat.shape[:-1])


@pytest.mark.float32
@pytest.mark.parametrize("maximize", [True, False])
def test_programmes_get_scipys_answer_under_nested_vmap(rng, maximize):
    scores = rng.normal(size=(2, 3, 4, 5, 5)).astype(FLOAT)
    mask = rng.random((3, 5, 5)) < 0.6
    mask |= np.eye(5, dtype=bool)

    def solve(scores, mask):
        return assignment.solve(scores, mask, maximize, backend="host")

    plain = jax.jit(jax.vmap(jax.vmap(lambda s: assignment.solve(s, None, maximize, "host"))))
    np.testing.assert_array_equal(plain(scores), by_scipy(scores, maximize=maximize))
    # The outer map leaves the mask alone, the inner one takes it along.
    masked = jax.jit(jax.vmap(jax.vmap(solve), in_axes=(0, None)))(scores, mask)
    expected = by_scipy(scores, np.broadcast_to(mask[:, None], scores.shape), maximize=maximize)
    np.testing.assert_array_equal(masked, expected)


def test_threads_register_a_solver_once(monkeypatch):
    """XLA refuses a name that it has for another function; then no programme could call either."""
    registered = []
    monkeypatch.setattr(foreign, "_registered", functools.cache(foreign._registered.__wrapped__))
    monkeypatch.setattr(jax.ffi, "register_ffi_target", lambda *a, **k: registered.append(a))
    # Long enough for the other threads to come in between.
    monkeypatch.setattr(foreign, "_handler", lambda f: time.sleep(0.1) or foreign._Handler(id))
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(foreign.target, maximize=True, solver="auto") for _ in range(4)]
    assert {each.result() for each in found} == {"permvi_assignment_auto_max"}
    assert len(registered) == 1


@pytest.mark.float32
def test_no_problems_at_all():
    solve = jax.jit(lambda scores: assignment.solve(scores, backend="host"))
    assert solve(jnp.zeros((0, 3, 3), FLOAT)).shape == (0, 3)


@pytest.mark.float32
def test_gradients_inside_programmes(rng):
    psi = jnp.asarray(rng.normal(size=(2, 4, 4)), FLOAT)
    weights = jnp.asarray(rng.normal(size=(4, 4)), FLOAT)

    def value(layer, psi):
        return jnp.sum(weights * layer(psi, backend="host"))

    one = jax.jit(jax.vmap(jax.grad(value, argnums=1), in_axes=(None, 0)), static_argnums=0)
    none = one(assignment.nearest_permutation, psi)
    np.testing.assert_array_equal(none, np.zeros((2, 4, 4)))
    through = one(assignment.nearest_permutation_straight_through, psi)
    np.testing.assert_array_equal(through, np.broadcast_to(weights, (2, 4, 4)))


def test_programmes_name_the_solver_and_hold_no_callback(rng):
    scores = jnp.asarray(rng.normal(size=(4, 4)))
    text = jax.jit(lambda s: assignment.solve(s, backend="host")).lower(scores).as_text()
    assert "permvi_assignment_compiled_max" in text
    assert "callback" not in text


def test_an_error_in_the_solver_is_an_error_of_the_programme(monkeypatch):
    def fail(*arguments, **settings):
        raise MemoryError("no room for the board")

    solve = jax.jit(lambda s: assignment.solve(s, backend="host"))
    host.compile_for(np.dtype(float))
    monkeypatch.setattr(host, "compile_for", lambda dtype: None)
    monkeypatch.setattr(host, "solve", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="MemoryError: no room for the board"):
        jax.block_until_ready(solve(jnp.zeros((3, 3))))
    monkeypatch.undo()
    np.testing.assert_array_equal(solve(jnp.zeros((3, 3))), np.arange(3))


FITS = """
import json, sys, warnings
import numpy as np, jax.monitoring, permvi as pv

pv.enable_cache(sys.argv[1], small=True)
found = {"programmes": 0, "loaded": 0}

def on_duration(event, seconds, **_):
    found["programmes"] += event == "/jax/core/compile/backend_compile_duration"

def on_event(event, **_):
    found["loaded"] += event == "/jax/compilation_cache/cache_hits"

jax.monitoring.register_event_duration_secs_listener(on_duration)
jax.monitoring.register_event_listener(on_event)
warnings.simplefilter("ignore")
model = pv.models.PointMatching(np.eye(4), np.eye(4) + 0.1, scale=0.5)
short = {"num_steps": 4, "num_restarts": 1, "num_draws": 8}
found["rounding"] = pv.fit(model, "rounding", **short).marginals.tolist()
found["mallows"] = pv.fit(model, "mallows").marginals.tolist()
print(json.dumps(found))
"""


def test_the_next_process_compiles_nothing(tmp_path):
    """Whatever the order of its sets, which the hash seed decides."""
    env = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    first, second = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", FITS, str(tmp_path)],
                env=env | {"PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for seed in ("0", "3")
    )
    assert first["programmes"] > first["loaded"]
    assert second["programmes"] == second["loaded"] > 0
    for method in ("rounding", "mallows"):
        np.testing.assert_array_equal(first[method], second[method])
