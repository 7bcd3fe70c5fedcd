"""The folder of compiled programmes, each in a process of its own since JAX has one setting."""

import os
import subprocess
import sys

import pytest

from permvi import _cache

PROGRAMME = "jit_f-0123-cache"


def run(*arguments, **environment):
    command = [sys.executable, *arguments]
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAX_COMPILATION_CACHE_DIR", "PERMVI_CACHE")
    }
    return subprocess.run(
        command, env=variables | environment, capture_output=True, text=True, check=True
    ).stdout


def permvi(*arguments, **environment):
    return run("-c", "from permvi.cli import main; main()", *arguments, **environment)


def test_what_is_compiled_is_kept(tmp_path):
    folder = tmp_path / "new" / "folder"
    code = (
        f"import permvi as pv; print(pv.enable_cache({str(folder)!r}))\n"
        "import jax, jax.numpy as jnp\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
        "print(jax.jit(lambda x: jnp.sort(x * 2))(jnp.arange(3.0)))"
    )
    assert run("-c", code).splitlines() == [str(folder), "[0. 2. 4.]"]
    assert [path for path in folder.iterdir() if path.name.endswith("-cache")]


def test_the_command_shows_and_clears_its_own_files(tmp_path):
    for name in (PROGRAMME, "jit_f-0123-atime", "mine.txt"):
        (tmp_path / name).write_text("1234")
    shown = permvi("cache", PERMVI_CACHE=str(tmp_path))
    assert shown == f"{tmp_path}: 1 compiled programmes, 0.0 MB\n"
    cleared = permvi("cache", "--clear", PERMVI_CACHE=str(tmp_path))
    assert cleared == f"{tmp_path}: deleted 1 compiled programmes, 0.0 MB\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


SHOW = (
    "import sys; from permvi.cli import app\n"
    "app(['methods', '--json'], standalone_mode=False)\n"
    "import jax; print('cache:', jax.config.jax_compilation_cache_dir)"
)


@pytest.mark.parametrize("case", ["default", "not a folder"])
def test_commands_keep_what_they_compile(case, tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    wanted = tmp_path if case == "default" else None
    shown = run("-c", SHOW, PERMVI_CACHE=str(wanted or taken))
    assert f"cache: {wanted}\n" in shown


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, True),
        ({"PERMVI_CACHE": "folder"}, True),
        ({"PERMVI_CACHE": ""}, False),
        ({"JAX_COMPILATION_CACHE_DIR": "own"}, False),
        ({"JAX_COMPILATION_CACHE_DIR": "own", "PERMVI_CACHE": "folder"}, False),
    ],
)
def test_commands_keep_nothing_if_told_so(monkeypatch, variables, wanted):
    for name in ("PERMVI_CACHE", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _cache.is_wanted() is wanted
