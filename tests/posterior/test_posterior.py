import pickle
import subprocess
import sys

import numpy as np
import pytest

from permvi.posterior import DrawsLaw, ExactLaw, Latent, Posterior
from tests.posterior import cases


def test_arrays_are_float64_and_read_only(rng):
    posterior = cases.make("exact", cases.square(rng), rng)
    for array in (posterior.marginals, posterior.p_unmatched_rows, posterior.p_unmatched_cols):
        assert array.dtype == np.float64
        assert not array.flags.writeable
    assert posterior.mode.dtype == np.int64
    with pytest.raises(AttributeError):
        posterior.mode = None


def test_fields_become_plain_python(rng):
    posterior = cases.make(
        "draws",
        cases.square(rng),
        rng,
        seed=np.int32(3),
        seconds=np.float32(0.5),
        settings={"steps": np.int64(5), "bounds": (0.1, np.float64(0.2)), "eta": np.ones(2)},
        labels=([1, 2, 3, 4], None),
    )
    assert posterior.settings == {"steps": 5, "bounds": [0.1, 0.2], "eta": [1.0, 1.0]}
    assert type(posterior.seed) is int
    assert type(posterior.seconds) is float
    assert posterior.labels == (("1", "2", "3", "4"), None)
    assert posterior.diagnostics.verdict == "check"


def test_pickles(rng):
    posterior = cases.make("exact", cases.partial(rng), rng, method="exact")
    again = pickle.loads(pickle.dumps(posterior))
    assert repr(again) == repr(posterior)
    np.testing.assert_array_equal(again.sample(5), posterior.sample(5))


half = np.full((2, 2), 0.5)
law = DrawsLaw([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"marginals": half + 1e-5},
            "marginals must sum to one in each row.* got 1.00002 in row 0",
        ),
        ({"marginals": [[0.9, 0.1], [0.9, 0.1]]}, "sum to one in each column.* got 1.8 in column"),
        ({"marginals": np.stack([half, 0.9 * half])}, "in row 0 of site 1"),
        ({"marginals": [[2.0, -1.0], [-1.0, 2.0]]}, "marginals must be probabilities, got 2"),
        ({"marginals": half * np.nan}, "marginals must be probabilities, got nan"),
        ({"marginals": half[0]}, r"marginals must have shape \(n, m\), or"),
        ({"p_unmatched_rows": [0.0]}, r"p_unmatched_rows must have shape \(2,\)"),
        ({"mode": [0, 0]}, "mode must take each column at most once, got 0 twice"),
        ({"mode": [0, 2]}, "mode must hold columns 0 to 1 or -1, got 2"),
        ({"mode": [[0, 1], [1, 0]]}, r"mode must have shape \(2,\)"),
        ({"log_evidence": 1.0}, "log_evidence and log_evidence_kind must come together"),
        ({"log_evidence": 1.0, "log_evidence_kind": "exakt"}, "did you mean 'exact'"),
        ({"labels": (["a"], None)}, "labels must name each of 2 rows, got 1"),
        ({"labels": (None, ["a", "b\0"])}, "labels must be Unicode text without NUL"),
        ({"labels": (None, ["a", "\ud800"])}, "labels must be Unicode text without NUL"),
    ],
)
def test_bad_fields_are_answered_in_one_sentence(fields, message):
    good = {"law": law, "marginals": half, "mode": [0, 1]}
    with pytest.raises(ValueError, match=message) as caught:
        Posterior(**good | fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: Posterior.from_draws([[0]], shape=(1, 1), latents={"w": 1.0}), TypeError,
         "latents must be Latent objects"),
        (lambda p: p.sample(0), ValueError, "num must be an integer of at least 1"),
        (lambda p: p.top(1.5), TypeError, "k must be an integer"),
        (lambda p: p.log_prob([0, 1]), ValueError, r"perm must have shape \(..., 4\)"),
        (lambda p: p.log_prob([0, 1, 2, 4]), ValueError, "perm must hold columns 0 to 3"),
        (lambda p: p.credible_sets(0), ValueError, r"level must be in \(0, 1\], got 0"),
        (lambda p: p.expected_loss("haming"), ValueError, "did you mean 'hamming'"),
        (lambda p: Posterior.from_draws([[0, 0]], shape=(2, 2)), ValueError, "got 0 twice"),
        (lambda p: Posterior.from_draws([[0, 1, 2]], shape=(2, 3)), ValueError, "draws must have"),
        (lambda p: cases.make("exact", {"scores": p.marginals}, None, settings={"f": len}),
         TypeError, "settings must be JSON values"),
    ],
)  # fmt: skip
def test_bad_arguments_are_answered_in_one_sentence(call, error, message, rng):
    with pytest.raises(error, match=message) as caught:
        call(cases.make("exact", cases.square(rng), rng))
    assert "\n" not in str(caught.value)


def test_latents_keep_weighted_moments(rng):
    draws = rng.normal(size=(5, 2, 3))
    log_weights = rng.normal(size=5)
    weights = np.exp(log_weights) / np.exp(log_weights).sum()
    latent = Latent.from_draws(draws, log_weights)
    np.testing.assert_allclose(latent.mean, np.average(draws, axis=0, weights=weights))
    variance = np.average((draws - latent.mean) ** 2, axis=0, weights=weights)
    np.testing.assert_allclose(latent.sd, np.sqrt(variance))
    np.testing.assert_array_equal(latent.draws, draws)
    assert Latent.from_draws([1.0, 3.0]).mean == 2.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(2), np.zeros(3)), "sd must have the shape"),
        ((np.zeros(2), np.zeros(2), np.zeros((4, 3))), "draws must be a non-empty stack"),
        ((np.zeros(2), np.zeros(2), np.zeros((0, 2))), "draws must be a non-empty stack"),
    ],
)
def test_latents_of_wrong_shape_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Latent(*arguments)


def test_importing_and_exact_use_load_nothing_heavy():
    code = (
        "import sys, numpy as np, permvi.metrics, permvi.posterior as p\n"
        "q = p.Posterior.from_exact(p.ExactLaw(np.eye(4)))\n"
        "repr(q), q._repr_html_(), q.top(3), q.sample(3), q.expected_loss('footrule')\n"
        "heavy = {'jax', 'numba', 'xarray', 'pandas', 'arviz', 'matplotlib', 'h5py'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_exact_law_is_solved_once(rng, monkeypatch):
    solved = ExactLaw(**cases.square(rng))
    posterior = Posterior.from_exact(solved)
    first = solved.result
    posterior.sample(3)
    posterior.log_prob(posterior.mode)
    assert solved.result is first
