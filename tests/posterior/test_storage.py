import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from permvi.posterior import Diagnostics, ExactLaw, Latent, Posterior, diagnose, load, storage
from tests.posterior import cases

NASTY = ["<b>&\"'", "日本語", "", "naïve\ttab\nline", "a/b", "🐛"]

# Everything a posterior can tell, as exact text: floats by their hexadecimal digits.
SUMMARISE = """
import json, sys
import numpy as np

def plain(value):
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), value.tobytes().hex()]
    if isinstance(value, (list, tuple)):
        return [plain(x) for x in value]
    if isinstance(value, dict):
        return {name: plain(x) for name, x in value.items()}
    if isinstance(value, float):
        return value.hex()
    return value

def summarise(p):
    d = p.diagnostics
    found = {name: getattr(p, name) for name in (
        "marginals", "p_unmatched_rows", "p_unmatched_cols", "mode", "log_evidence",
        "log_evidence_kind", "log_evidence_se", "labels", "method", "settings", "seed",
        "fingerprint", "version", "num_evaluations", "seconds", "entropy", "joint_entropy")}
    found["sample"] = p.sample(50, seed=4)
    found["top"] = p.top(7)
    found["sets"] = p.credible_sets(0.9)
    found["loss"] = [p.expected_loss("hamming"), p.expected_loss("footrule")]
    found["diagnostics"] = {name: getattr(d, name) for name in d.__dataclass_fields__}
    found["latents"] = {k: [v.mean, v.sd, v.draws] for k, v in p.latents.items()}
    found["repr"] = [repr(p), p._repr_html_()]
    try:
        found["log_prob"] = p.log_prob(p.sample(20))
    except ValueError as error:
        found["log_prob"] = str(error)
    return json.dumps(plain(found), sort_keys=True)
"""
namespace: dict = {}
exec(SUMMARISE, namespace)
summarise = namespace["summarise"]


def rich(law, problem, rng):
    """A posterior with something in every field."""
    shape = problem["scores"].shape[-2:]
    return cases.make(
        law,
        problem,
        rng,
        labels=(NASTY[: shape[0]], None),
        method="test",
        settings={"steps": 3, "name": "ü", "nested": {"x": [1.5, None, True]}},
        seed=7,
        fingerprint="ab" * 32,
        num_evaluations=12,
        seconds=0.1 + 0.2,
        latents={
            "W/scope": Latent(rng.normal(size=(2, 3)), np.ones((2, 3))),
            "sigma": Latent.from_draws(rng.normal(size=400)),
        },
        diagnostics=diagnose(
            ess_per_draw=0.3,
            disagreement_by_row=rng.random(shape[0]) * 0.01,
            converged=True,
            elbo_trace=rng.normal(size=(2, 10)),
            k_hat=np.inf,
            r_hat=np.nan,
            extras={"accept/rate": rng.random(3), "empty": np.zeros(0)},
        ),
    )


@pytest.mark.parametrize("law", cases.LAWS)
@pytest.mark.parametrize(
    "problem", [cases.masked, cases.partial, cases.two_sites, cases.two_sites_partial]
)
def test_round_trip_is_exact(law, problem, rng, tmp_path):
    posterior = rich(law, problem(rng), rng)
    posterior.save(tmp_path / "fit.nc")
    assert summarise(load(tmp_path / "fit.nc")) == summarise(posterior)
    assert os.listdir(tmp_path) == ["fit.nc"]


def test_a_fresh_process_reads_the_same(rng, tmp_path):
    paths, expected = [], []
    for law in cases.LAWS:
        posterior = rich(law, cases.two_sites_partial(rng), rng)
        paths.append(str(tmp_path / f"{law}.nc"))
        posterior.save(paths[-1])
        expected.append(summarise(posterior))
    code = (
        SUMMARISE + "\nfrom permvi.posterior import load\n"
        "print(json.dumps([summarise(load(path)) for path in sys.argv[1:]]))"
    )
    command = [sys.executable, "-W", "error", "-c", code, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected


def test_subset_programme_is_solved_alike_again(rng, tmp_path):
    posterior = cases.make("exact", {"scores": rng.normal(size=(9, 9))}, rng)
    posterior.save(tmp_path / "fit.nc")
    assert summarise(Posterior.load(tmp_path / "fit.nc")) == summarise(posterior)


def test_bare_posterior_and_minimal_diagnostics(tmp_path):
    posterior = Posterior.from_draws(
        [[0]], shape=(1, 1), diagnostics=Diagnostics("check", ("because",))
    )
    posterior.save(tmp_path / "fit")
    again = load(str(tmp_path / "fit"))
    assert summarise(again) == summarise(posterior)
    assert again.diagnostics.elbo_trace is None
    assert again.labels == (None, None)


def test_saving_again_replaces(rng, tmp_path):
    path = tmp_path / "fit.nc"
    for seed in (1, 2):
        cases.make("draws", cases.square(rng), rng, seed=seed).save(path)
    assert load(path).seed == 2
    assert os.listdir(tmp_path) == ["fit.nc"]


def test_more_text_than_an_attribute_of_old_could_hold(rng, tmp_path):
    settings = {"note": "x" * 200_000}
    cases.make("draws", cases.square(rng), rng, settings=settings).save(tmp_path / "fit.nc")
    assert load(tmp_path / "fit.nc").settings == settings


def test_other_tools_can_read_it(rng, tmp_path):
    import xarray as xr

    posterior = rich("exact", cases.partial(rng), rng)
    posterior.save(tmp_path / "fit.nc")
    with xr.open_dataset(tmp_path / "fit.nc", engine="h5netcdf") as dataset:
        np.testing.assert_array_equal(dataset["marginals"], posterior.marginals)
        assert dataset["marginals"].dims == ("item", "label")
        assert dataset["row_labels"].values.tolist() == NASTY[:4]
        assert dataset.attrs["permvi_version"] == posterior.version
        assert json.loads(dataset.attrs["record"])["seed"] == 7


@pytest.mark.parametrize("left", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_truncated_file(left, rng, tmp_path):
    path = tmp_path / "fit.nc"
    rich("draws", cases.square(rng), rng).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(left * len(content))])
    one_sentence(path, ValueError, "which is damaged or something else")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_flipped_bits_change_nothing_unnoticed(rng, tmp_path):
    """h5netcdf stumbles once more over what it could not open when it is collected."""
    path = tmp_path / "fit.nc"
    posterior = rich("draws", cases.square(rng), rng)
    posterior.save(path)
    content, expected = path.read_bytes(), summarise(posterior)
    noticed = 0
    for place in rng.integers(len(content), size=30).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            again = load(path)
        except ValueError:
            noticed += 1
        else:
            assert summarise(again) == expected
    gc.collect()
    assert noticed > 0


def test_foreign_files(tmp_path):
    import xarray as xr

    path = tmp_path / "other.nc"
    xr.Dataset({"x": ("t", np.arange(3))}).to_netcdf(path, engine="h5netcdf")
    one_sentence(path, ValueError, "must be a posterior saved by permvi, got another file")
    path.write_text("item,label\na,b\n")
    one_sentence(path, ValueError, "which is damaged or something else")


def test_later_format(rng, tmp_path, monkeypatch):
    path = tmp_path / "fit.nc"
    monkeypatch.setattr(storage, "FORMAT_VERSION", 3)
    cases.make("draws", cases.square(rng), rng, version="9.9").save(path)
    monkeypatch.undo()
    one_sentence(path, ValueError, "in format 3 of permvi 9.9; update permvi")


def test_file_that_was_tampered_with(rng, tmp_path):
    import xarray as xr

    path = tmp_path / "fit.nc"
    rich("draws", cases.square(rng), rng).save(path)
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        whole = dataset.load()
    whole.drop_vars("law_draws").to_netcdf(path, engine="h5netcdf")
    one_sentence(path, ValueError, "must be a whole posterior, got .*changed")
    whole["marginals"][0] = whole["marginals"][1]
    whole.to_netcdf(path, engine="h5netcdf")
    one_sentence(path, ValueError, "must be a whole posterior, got .*changed")
    del whole.attrs["record"]
    whole.to_netcdf(path, engine="h5netcdf")
    one_sentence(path, ValueError, "must be a whole posterior, got .*record")


def test_folders_and_missing_files(rng, tmp_path):
    one_sentence(tmp_path, ValueError, "path must be a file, got the folder")
    one_sentence(tmp_path / "none.nc", FileNotFoundError, "which is missing")
    posterior = cases.make("draws", cases.square(rng), rng)
    with pytest.raises(ValueError, match="path must be a file, got the folder"):
        posterior.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="existing folder"):
        posterior.save(tmp_path / "none" / "fit.nc")


def test_failure_leaves_the_old_file_and_nothing_else(rng, tmp_path, monkeypatch):
    path = tmp_path / "fit.nc"
    posterior = cases.make("draws", cases.square(rng), rng, seed=1)
    posterior.save(path)

    def fail(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        posterior.save(path)
    with pytest.raises(OSError, match="no space left"):
        posterior.save(tmp_path / "new.nc")
    assert os.listdir(tmp_path) == ["fit.nc"]
    assert load(path).seed == 1


def one_sentence(path, error, message):
    with pytest.raises(error, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_file_of_an_earlier_version_loads():
    # Written before marginals had coordinates, by permvi 0.1.0.dev0.
    posterior = load(Path(__file__).parent / "data" / "written_by_0_1_dev.nc")
    assert posterior.labels == (("r1", "r2"), ("Anna", "Bea", "Cleo"))
    scores = np.array([[1.0, 2, 0], [0.5, 0, 1]])
    law = ExactLaw(scores, row_unmatched=0.0)
    np.testing.assert_allclose(posterior.marginals, law.summary().marginals, atol=1e-12)
    assert posterior.log_evidence == pytest.approx(law.summary().log_evidence)
    assert posterior.mode.tolist() == [1, 2]
    assert posterior.diagnostics.verdict == "trust"


@pytest.mark.parametrize("labels", [(["a", "b"], ["x", "y", "z"]), (None, None)])
def test_other_programs_see_names_as_coordinates(tmp_path, rng, labels):
    posterior = Posterior.from_exact(ExactLaw(rng.normal(size=(2, 3))), labels=labels)
    posterior.save(tmp_path / "fit.nc")
    with xr.open_dataset(tmp_path / "fit.nc", engine="h5netcdf") as dataset:
        assert dataset["marginals"].dims == ("item", "label")
        if labels[0] is None:
            assert "item" not in dataset.coords
            found = dataset["marginals"].isel(item=1, label=2)
        else:
            found = dataset["marginals"].sel(item="b", label="z")
        assert found.item() == posterior.marginals[1, 2]
    assert load(tmp_path / "fit.nc").labels == posterior.labels
