"""JAX is loaded when it is needed, and models are pytrees from then on."""

import subprocess
import sys

import numpy as np
import pytest

import permvi as pv


def run(code):
    """Run code in a fresh process and return what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


MODEL = (
    "import numpy as np, permvi as pv;"
    "model = pv.models.LinearMatching(np.arange(9.0).reshape(3, 3), known=[-1, -1, 2]);"
)
LEAVES = "print(len(jax.tree.leaves(model)), jax.tree.map(lambda a: 2 * a, model).scores[0, 1])"


@pytest.mark.parametrize(
    "code",
    [
        f"import jax; {MODEL} {LEAVES}",
        f"{MODEL} import jax; {LEAVES}",
        f"{MODEL} from jax import numpy; import jax; {LEAVES}",
        f"{MODEL} model.log_density_of(np.arange(3)); import jax; {LEAVES}",
    ],
    ids=["jax first", "jax last", "a submodule of jax last", "jax through a model"],
)
def test_models_are_pytrees_whoever_imports_jax_and_when(code):
    assert run(code) == "2 2.0"


def test_the_module_of_jax_looks_like_any_other():
    code = f"{MODEL} import jax; print(type(jax.__loader__).__module__, jax.__spec__.loader is jax.__loader__)"  # noqa: E501
    assert run(code) == "_frozen_importlib_external True"


@pytest.mark.parametrize(
    "fit",
    [
        "pv.fit(pv.models.LinearMatching(rng.normal(size=(6, 6))))",
        "pv.fit(pv.models.LinearMatching(rng.normal(size=(40, 40))), num_steps=200_000)",
        "pv.fit(pv.models.PointMatching(rng.normal(size=(30, 2)), rng.normal(size=(30, 2)), .1))",
        "pv.fit(pv.models.SparseMatching([0, 0, 1], [0, 1, 0], [1.0, 2.0, 0.0], shape=(2, 2)))",
    ],
    ids=["exact", "chains", "points", "pairs"],
)
def test_linear_fits_do_not_load_jax(fit):
    code = f"import sys, numpy as np, permvi as pv; rng = np.random.default_rng(0); {fit};"
    assert run(code + "print('jax' in sys.modules)") == "False"


def test_match_does_not_load_jax(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("item,a,b\nx,1,0\ny,0,1\n")
    code = (
        "import sys; from permvi import cli\n"
        f"sys.argv = ['permvi', 'match', {str(path)!r}, '--save', {str(tmp_path / 'fit.nc')!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "print('jax' in sys.modules)"
    )
    assert run(code).splitlines()[-1] == "False"


def test_fingerprints_do_not_depend_on_who_has_loaded_jax():
    model = pv.models.LinearMatching(np.arange(9.0).reshape(3, 3), known=[-1, -1, 2])
    code = f"{MODEL} print(pv.models.fingerprint(model))"
    assert run(code) == pv.models.fingerprint(model)
