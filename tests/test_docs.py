"""The documentation: its code runs, its commands print what it shows, no public name is missing."""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import permvi as pv
from permvi import cli
from permvi.inference import registry
from tests.cli.test_match_page import BLOCK, stripped

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))


def blocks(page, *languages):
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(title, code) for kind, title, code in BLOCK.findall(text) if kind in languages]


def public_modules():
    """The modules whose names are public: those that `permvi` exports, and each engine."""
    names = [name for name in pv.__all__ if inspect.ismodule(getattr(pv, name))]
    engines = pkgutil.iter_modules(pv.inference.__path__, "permvi.inference.")
    return [f"permvi.{name}" for name in [*names, "datasets"]] + [
        info.name for info in engines if not info.name.rpartition(".")[2].startswith("_")
    ]


def public_names(module):
    """Public names of a module and their values: its own, and what a package offers."""
    exported = getattr(module, "__all__", None)
    for name, value in vars(module).items():
        if name.startswith("_") or inspect.ismodule(value):
            continue
        home = getattr(value, "__module__", None)
        is_package = hasattr(module, "__path__")
        offered = is_package and (str(home).startswith("permvi.") or name.isupper())
        inside = home == module.__name__ or offered
        if name in exported if exported is not None else inside:
            yield name, value


def described(page):
    """The objects that the directives of a page describe."""
    text = page.read_text(encoding="utf-8")
    for path, members in re.findall(
        r"^::: ([\w.]+)\n(?:    options:\n      members: \[([^\]]*)\])?", text, re.MULTILINE
    ):
        value = resolve(path)
        yield value
        if members:
            yield from (getattr(value, name.strip()) for name in members.split(","))
        elif inspect.ismodule(value):
            yield from (v for _, v in public_names(value))


def resolve(path):
    """What a dotted path names, a module or something in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        home, _, name = path.rpartition(".")
        return getattr(importlib.import_module(home), name)


TUTORIAL = "docs/tutorial.md"
PAGES = ["README.md"] + [
    str(page.relative_to(ROOT))
    for page in sorted(DOCS.rglob("*.md"))
    if "```python" in page.read_text() and page != ROOT / TUTORIAL
]
# Full fits by every kind of method, and three compilations of NumPyro's inference.
SLOW = ["docs/methods.md", "docs/numpyro.md"]


@pytest.mark.filterwarnings("ignore::permvi._fit.FitWarning")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in PAGES]
)
def test_the_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for _, code in blocks(page, "python"):
        exec(compile(code, page, "exec"), names)


def test_the_readme_shows_what_its_example_prints(capsys):
    code, shown = next(
        (code, shown)
        for (_, code), (_, shown) in zip(
            blocks("README.md", "python", "text")[:-1],
            blocks("README.md", "python", "text")[1:],
            strict=True,
        )
        if "print(" in code
    )
    exec(compile(code, "README.md", "exec"), {})
    assert stripped(capsys.readouterr().out) == stripped(shown)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/linkage.md"])
def test_the_commands_print_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner, shown = CliRunner(), 0
    for title, content in blocks(page, "csv", "console"):
        if title:
            Path(title).write_text(content, encoding="utf-8")
            continue
        command = re.match(r"\$ (?:\.venv/bin/)?permvi (match .*)\n", content)
        if command:
            result = runner.invoke(cli.app, shlex.split(command[1]))
            assert stripped(result.output) == stripped(content[command.end() :])
            shown += 1
    assert shown >= 1


def test_the_tutorial_tells_one_story(tmp_path, monkeypatch, capsys):
    """All files, commands and code in their order; later parts need what earlier ones wrote."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / TUTORIAL).read_text(encoding="utf-8")
    printed, seen = None, []
    for kind, title, content in BLOCK.findall(text):
        seen.append(kind)
        if kind == "csv":
            Path(title).write_text(content, encoding="utf-8")
        elif kind == "console":
            command = re.match(r"\$ permvi (.*)\n", content)
            result = CliRunner().invoke(cli.app, shlex.split(command[1]))
            assert result.exit_code == 0
            assert stripped(result.output) == stripped(content[command.end() :])
        elif kind == "python":
            capsys.readouterr()
            exec(compile(content, TUTORIAL, "exec"), {})
            printed = capsys.readouterr().out
        else:
            assert stripped(printed) == stripped(content)
    assert [seen.count(kind) for kind in ("csv", "console", "python", "text")] == [3, 5, 1, 1]
    assert Path("herd.html").read_text(encoding="utf-8").startswith("<!doctype html>")


NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.py"))


def test_notebooks_are_in_the_navigation_and_hold_no_outputs():
    listed = re.findall(r"notebooks/(\w+\.py)", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == [path.name for path in NOTEBOOKS]
    assert len(listed) == 5
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "execute: true" in settings
    # Kept outputs would be those of an earlier version of permvi.
    assert "cache: false" in settings
    assert not list((DOCS / "notebooks").glob("*.ipynb"))
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# %% [markdown]\n# # ")
        assert "shared/" not in text
        # Links lead to pages, and a cell of text follows each heading.
        for target in re.findall(r"\]\((\.\./[\w/.]+)\)", text):
            assert (path.parent / target).is_file(), target


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path):
    """`make docs` executes them as notebooks; here they are plain scripts."""
    subprocess.run(
        [sys.executable, path], cwd=tmp_path, env={**os.environ, "MPLBACKEND": "agg"}, check=True
    )


def test_the_gallery_shows_what_is_drawn_at_the_build():
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    assert set(re.findall(r"gallery/(\w+)\.png", text)) == set(gallery.PICTURES)
    linked = text + (ROOT / TUTORIAL).read_text(encoding="utf-8")
    assert set(re.findall(r"gallery/(\w+)\.html", linked)) == set(gallery.PAGES)
    source = (DOCS / "gallery.py").read_text(encoding="utf-8")
    for mark in re.findall(r"gallery\.py:(\w+)", text):
        assert f"[start:{mark}]" in source
        assert f"[end:{mark}]" in source
    # One picture, without the others: no file of it is kept.
    assert gallery._png(gallery.marginals()).startswith(b"\x89PNG")
    assert not (DOCS / "gallery").exists()


def test_what_newcomers_look_for_is_in_its_place():
    first_pages = [(ROOT / "README.md").read_text(), (DOCS / "index.md").read_text()]
    for text in first_pages:
        # The cache, and how to install it from an index and until then.
        assert "pv.enable_cache()" in text
        assert "`pip install permvi`" in text
        assert "`pip install .` in a clone" in text
    coming_from = (DOCS / "coming_from.md").read_text()
    for tool in ("linear_sum_assignment", "Splink", "trackpy", "PyMC"):
        assert re.search(rf"^## .*{tool}", coming_from, re.MULTILINE), tool
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    # Pages of their own, and headings above several.
    for page in ("tutorial.md", "gallery.md", "coming_from.md", "sizes.md"):
        assert re.search(rf"^  - .*: {page}$", navigation, re.MULTILINE), page
    for heading in ("Notebooks", "Studies", "Reference"):
        assert re.search(rf"^  - {heading}:\n      - .*\n      - ", navigation, re.MULTILINE), (
            heading
        )
    assert f"\n## [{pv.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_warnings_of_the_documentation_are_errors():
    """MkDocs counts no warnings with --quiet, and then --strict means nothing."""
    (line,) = re.findall(r"mkdocs build.*", (ROOT / "Makefile").read_text())
    assert "--strict" in line
    assert "-q" not in line


def test_every_public_name_is_in_the_reference_and_has_a_docstring():
    known = {id(value) for page in REFERENCE for value in described(page)}
    text = "".join(page.read_text(encoding="utf-8") for page in REFERENCE)
    missing, silent = [], []
    everything = [("permvi", name, getattr(pv, name)) for name in pv.__all__]
    for path in public_modules():
        module = importlib.import_module(path)
        everything += [(path, name, value) for name, value in public_names(module)]
    for path, name, value in everything:
        if callable(value):
            if id(value) not in known:
                missing.append(f"{path}.{name}")
            if not (value.__doc__ or "").strip():
                silent.append(f"{path}.{name}")
        elif not re.search(rf"\b{name}\b", text):
            missing.append(f"{path}.{name}")
    assert not missing, f"not in the reference: {missing}"
    assert not silent, f"without a docstring: {silent}"


def test_the_protocol_lists_every_member_that_the_page_on_extending_names():
    section = (DOCS / "extending.md").read_text().split("## Write a relaxation")[0]
    named = set(re.findall(r"`(\w+)(?:\(\w*\))?`", section)) - {"n", "map", "convex", "fit"}
    named -= {"log_evidence", "auto"}
    assert {"quadratic", "delta", "scores", "auto_method"} <= named
    assert not {name for name in named if f"``{name}``" not in pv.models.Model.__doc__} - {
        "shape", "num_sites", "log_density",
    }  # fmt: skip


def test_the_pages_name_all_methods_that_take_other_latents():
    takes = [name for name in registry.names_for() if registry.method(name).latents]
    text = (DOCS / "choosing.md").read_text()
    sentences = [part for part in re.split(r"\n\n|(?<=\.)\s", text) if "latent" in part]
    for name in takes:
        assert any(f"`{name}`" in sentence for sentence in sentences), name
