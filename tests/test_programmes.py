"""Programmes on disk: found again where they are the same, and nowhere else."""

import functools
import gc
import json
import os
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from permvi import _cache, _programmes
from permvi.inference import method
from permvi.problem import evaluation, prepare


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache that keeps everything, and no programmes in memory."""
    monkeypatch.setattr(_cache, "folder_in_use", tmp_path)
    before = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    for programmes in (method._split_key, evaluation._evaluate):
        monkeypatch.setattr(programmes, "_known", {})
    yield tmp_path
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


def names(folder):
    return sorted(path.name for path in folder.glob("*-programme"))


def never(*arguments, **named):
    raise AssertionError("nothing should be traced")


def test_a_programme_from_disk_computes_the_same_without_tracing(folder, monkeypatch, rng):
    problem = prepare.prepare(pv.models.LinearMatching(rng.normal(size=(5, 5)))).problem
    perms = np.array([rng.permutation(5) for _ in range(8)])
    expected = evaluation.log_densities(problem, perms)
    assert [name.partition("-")[0] for name in names(folder)] == ["evaluation._evaluate"]
    monkeypatch.setattr(evaluation._evaluate, "_known", {})
    monkeypatch.setattr(evaluation._evaluate, "_function", never)
    np.testing.assert_array_equal(evaluation.log_densities(problem, perms), expected)
    # Other data of the same shape, by the same programme.
    other = prepare.prepare(pv.models.LinearMatching(np.eye(5))).problem
    found = evaluation.log_densities(other, perms)
    np.testing.assert_allclose(found, (perms == np.arange(5)).sum(axis=1), atol=1e-6)


def test_programmes_are_never_made_of_what_jax_has_read_from_its_own_cache(folder, monkeypatch):
    """XLA would write such a programme without some of its functions."""
    key = jax.random.key(3)
    for _ in range(3):
        # Another version of the code: nothing is found here, but the text is the same for JAX.
        monkeypatch.setattr(_programmes, "_surroundings", functools.partial(tuple, [os.urandom(8)]))
        for _ in range(2):
            monkeypatch.setattr(method._split_key, "_known", {})
            found = jnp.stack(method._split_key(key, 3))
            np.testing.assert_array_equal(
                jax.random.key_data(found), jax.random.key_data(jax.random.split(key, 3))
            )


def test_threads_that_ask_at_once_share_a_programme(folder, monkeypatch):
    keys, seen = [jax.random.key(seed) for seed in range(4)], []
    find = method._split_key._find
    monkeypatch.setattr(method._split_key, "_find", lambda *given: seen.append(1) or find(*given))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda key: method._split_key(key, 3), keys))
    assert len(seen) == 1
    for key, three in zip(keys, found, strict=True):
        assert (jnp.stack(three) == jax.random.split(key, 3)).all()


def test_programmes_from_disk_are_forgotten_with_all_others(folder):
    """A long process kept them, whatever it dropped otherwise, until it had no memory maps left."""
    expected = jax.random.key_data(jnp.stack(method._split_key(jax.random.key(3), 3)))
    gone = [weakref.ref(each.run) for each in method._split_key._known.values()]
    _programmes.forget()
    gc.collect()
    assert [ref() for ref in gone] == [None]
    found = jax.random.key_data(jnp.stack(method._split_key(jax.random.key(3), 3)))
    np.testing.assert_array_equal(found, expected)
    assert len(names(folder)) == 1


def test_keys_and_static_arguments(folder, monkeypatch):
    key = jax.random.key(3)
    for _ in range(2):
        for num in (2, 3):
            np.testing.assert_array_equal(
                jax.random.key_data(jnp.stack(method._split_key(key, num))),
                jax.random.key_data(jax.random.split(key, num)),
            )
        monkeypatch.setattr(method._split_key, "_known", {})
    assert len(names(folder)) == 2


def path_of(programmes, *arguments):
    """The file of a programme of one static argument and others."""
    given = programmes._signature.bind(*arguments).arguments
    static = {name: given.pop(name) for name in programmes._static}
    leaves, structure = jax.tree.flatten(given)
    return programmes._path(static, structure, map(jax.typeof, leaves)).name


def test_whatever_changes_a_programme_changes_its_name(folder, monkeypatch):
    def path(model, perms, density=None):
        problem = prepare.prepare(model).problem
        density = density or problem.log_density_of
        return path_of(evaluation._evaluate, density, problem.data, perms, {})

    points = np.arange(10.0).reshape(5, 2)
    square = pv.models.LinearMatching(np.eye(5))
    perms = np.arange(5)[None]
    base = path(square, perms)
    # Values and labels are no part of the programme.
    labelled = pv.models.LinearMatching(np.ones((5, 5)), labels=(list("abcde"), None))
    assert path(labelled, perms + 0) == base
    others = [
        path(pv.models.LinearMatching(np.eye(6)), perms),
        path(square, np.repeat(perms, 2, axis=0)),
        path(square, perms.astype(np.int8)),
        path(pv.models.LinearMatching(np.eye(5), known=[0, -1, -1, -1, -1]), perms),
        path(pv.models.PointMatching(points, points, scale=1.0), perms),
        path(square, perms, prepare._log_density),
    ]
    with jax.default_matmul_precision("float32"):
        others.append(path(square, perms))
    monkeypatch.setattr(_programmes, "_surroundings", lambda: ("other code",))
    others.append(path(square, perms))
    assert len({base, *others}) == 1 + len(others)
    weak, strong = (path_of(method._split_key, one, 2) for one in (1, np.int64(1)))
    assert weak != strong


class Mine(pv.models.LinearMatching):
    """A model of the user's, whose code may change between processes."""


def my_density(data, perms):
    return perms.sum(axis=-1)


@pytest.mark.parametrize("case", ["class", "function", "lambda", "patched"])
def test_code_from_elsewhere_is_left_to_jax(folder, monkeypatch, case):
    model = pv.models.LinearMatching(np.eye(3))
    if case == "patched":
        monkeypatch.setattr(
            pv.models.LinearMatching, "log_density_of", lambda self, perm: perm.sum()
        )
    if case == "class":
        jax.tree_util.register_pytree_node(
            Mine, lambda model: ((), None), lambda static, children: Mine(np.eye(3))
        )
        model = Mine(np.eye(3))
    problem = prepare.prepare(model).problem
    density = {"function": my_density, "lambda": lambda data, perms: perms.sum(axis=-1)}.get(
        case, problem.log_density_of
    )
    with pytest.raises(_programmes._UnknownError):
        path_of(evaluation._evaluate, density, problem.data, np.arange(3)[None], {})
    found = evaluation._evaluate(my_density, None, np.arange(3)[None], {})
    assert found.tolist() == [3]
    assert names(folder) == []


def test_functions_of_jax_models_are_not_kept(folder):
    fitted = pv.fit(lambda X: X[0, 0], "mcmc", n=3, num_steps=200)
    assert fitted.shape == (3, 3)
    assert not [name for name in names(folder) if name.startswith(("evaluation", "loop"))]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_replaced(folder, monkeypatch, damage):
    key = jax.random.key(0)
    expected = jax.random.key_data(jnp.stack(method._split_key(key, 2)))
    (path,) = folder.glob("*-programme")
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    path.write_bytes({"cut": whole[:middle], "flipped": flipped, "empty": b""}[damage])
    monkeypatch.setattr(method._split_key, "_known", {})
    np.testing.assert_array_equal(
        jax.random.key_data(jnp.stack(method._split_key(key, 2))), expected
    )
    assert _programmes._load(path, 1) is not None


def test_a_full_or_missing_folder_is_no_error(folder, monkeypatch):
    monkeypatch.setattr(_cache, "folder_in_use", folder / "gone")
    assert len(method._split_key(jax.random.key(0), 2)) == 2


def test_programmes_with_callbacks_are_not_kept(folder):
    def call(x):
        return jax.pure_callback(lambda x: np.asarray(x) + 1, jax.ShapeDtypeStruct((), x.dtype), x)

    lowered = jax.jit(call).lower(1.0)
    path = folder / "call-programme"
    structure = jax.tree.structure(0)
    _programmes._keep(path, lowered.compile(), lowered.as_text(), structure)
    assert not path.exists()


def test_solvers_are_found_in_the_text(rng):
    lowered = jax.jit(lambda s: pv.assignment.solve(s, backend="host")).lower(
        rng.normal(size=(4, 4))
    )
    dtype = "float64" if jax.config.jax_enable_x64 else "float32"
    assert _programmes._solvers(lowered.as_text()) == [("compiled", "max", dtype)]


@pytest.mark.parametrize("option", ["xla_backend_optimization_level", "xla_no_such_option"])
def test_light_programmes_compute_the_same_with_or_without_the_options(monkeypatch, option):
    monkeypatch.setattr(_programmes, "_LIGHT", {option: 1})
    _programmes._knows_options.cache_clear()
    light = _programmes.light_jit(lambda x, power: (x**power).sum(), static_argnums=1)
    x = np.arange(6.0)
    assert float(light(x, 2)) == 55.0
    assert light._cache_size() == 1
    # Inside other programmes, which have options of their own.
    assert float(jax.jit(functools.partial(light, power=2))(x)) == 55.0
    assert _programmes._knows_options() == (option == "xla_backend_optimization_level")
    _programmes._knows_options.cache_clear()


FIT = """
import json, sys, warnings
import numpy as np, jax.monitoring, permvi as pv

pv.enable_cache(sys.argv[1], small=True)
seconds = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, taken, **_: seconds.append(taken) if event.endswith("trace_duration") else None
)
warnings.simplefilter("ignore")
model = pv.models.PointMatching(np.eye(4), np.eye(4) + 0.1, scale=0.5)
short = {"num_steps": 400, "num_chains": 2}
found = pv.fit(model, "mcmc", **short)
print(json.dumps([found.marginals.tolist(), found.log_evidence, sum(seconds)]))
"""


def test_the_next_process_has_the_same_answer_and_traces_next_to_nothing(tmp_path):
    env = {name: value for name, value in os.environ.items() if "CACHE" not in name}

    def fit():
        command = [sys.executable, "-c", FIT, str(tmp_path)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    first, second = fit(), fit()
    assert first[:2] == second[:2]
    assert second[2] < first[2] / 4


LOAD = """
import sys
from pathlib import Path
import numpy as np
from permvi import _programmes

table = np.float32([[2.0, 1.0], [1.0, 2.0]])
print(_programmes._load(Path(sys.argv[1]), 1)([table]).tolist())
"""


def test_a_process_that_has_not_traced_linear_algebra_can_run_it(folder):
    """The functions of LAPACK were null pointers there, and the process ended."""

    def eigenvalues(x):
        return [jnp.linalg.eigvalsh(x)]

    # A new name, so that JAX does not read it from its own cache, which loses functions.
    eigenvalues.__name__ += os.urandom(8).hex()
    lowered = jax.jit(eigenvalues).lower(np.eye(2, dtype=np.float32))
    path = folder / "eigenvalues-programme"
    _programmes._keep(path, lowered.compile(), lowered.as_text(), jax.tree.structure(0))
    env = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    command = [sys.executable, "-c", LOAD, str(path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), [1.0, 3.0], rtol=1e-6)
