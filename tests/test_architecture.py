"""The layers of the package: imports point down, never up, and importing costs nothing."""

import ast
import importlib
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import permvi
from permvi.inference import registry
from permvi.posterior import laws

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "permvi"

# Lowest first. A module may import from its own layer's package and from lower layers.
LAYERS = [
    [
        "_version",
        "_checks",
        "_compiled",
        "_csv",
        "_files",
        "_jax",
        "_memory",
        "_numerics",
        "_sources",
    ],
    ["_cache", "_cluster", "_tables", "_threads"],
    ["permutations"],
    ["_assignment", "_programmes", "assignment"],
    ["transforms"],
    ["distributions"],
    ["metrics", "models"],
    ["problem"],
    ["posterior"],
    ["inference"],
    ["_fit", "_compare", "_estimator", "_rank", "linkage"],
    ["_figures", "plots", "report"],
    ["datasets", "experiments"],
    ["_cli", "cli"],
]
LAYER = {name: level for level, names in enumerate(LAYERS) for name in names}
# Methods plot() and report() load what they need when they are called.
SHORTCUTS = [(part, other) for part in ("posterior", "_rank") for other in ("plots", "report")]


def part_of(path):
    """The top-level part of the package that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    """The parts of permvi that a file imports when it is loaded, and those it imports lazily."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "permvi":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("permvi."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("permvi."))


FILES = sorted(
    path for path in SOURCE.rglob("*.py") if path.name != "__init__.py" or path.parent != SOURCE
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path):
    own = part_of(path)
    assert own in LAYER, f"{own} has no place in the layers of this test"
    for other in set(imports(path)) - {own}:
        if (own, other) in SHORTCUTS:
            continue
        assert LAYER[other] <= LAYER[own], f"{own} must not import {other}"


def modules_outside(*folders):
    """The files of the package that are in none of these folders or files, with their text."""
    homes = [SOURCE / folder for folder in folders]
    for path in FILES:
        if not any(home in (path, *path.parents) for home in homes):
            yield path, path.read_text()


def test_the_posterior_loads_no_solver():
    code = (
        "import sys, permvi.posterior;"
        "print([m for m in sys.modules if m.startswith('permvi.inference') or m == 'numba'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_one_room_knows_dynamics():
    # The registry has a line for the room, and `collapsed` is the name that users know it by.
    allowed = ("inference/dynamics", "inference/collapsed.py", "experiments")
    for path, text in modules_outside(*allowed):
        assert "permvi.inference.dynamics" not in text, path
    allowed = ("inference/dynamics", "inference/registry.py", "models")
    for path, text in modules_outside(*allowed):
        assert "shared_regression" not in text, path


def definitions(*names):
    """Where in the package functions of these names are defined."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name in names:
                yield f"{path.relative_to(SOURCE)}:{node.name}"


def test_what_may_stay_unmatched_is_defined_once():
    found = sorted(definitions("unmatched_weights", "random_matchings", "grounded"))
    home = "problem/unmatched.py"
    assert found == [f"{home}:{n}" for n in ("grounded", "random_matchings", "unmatched_weights")]
    # Whether weights were given is a question for the rule, and for the models that take them.
    given = re.compile(r"(row|col)_unmatched(\)|) is (not )?None")
    for path, text in modules_outside("problem", "models"):
        assert not given.search(text), path


def test_only_one_function_writes_files():
    writing = re.compile(
        r"open\([^)]*[\"'][wax]b?\+?[\"']|\.(write_text|write_bytes)\(|to_netcdf\(temp"
    )
    for path, text in modules_outside("_files.py"):
        assert not writing.search(text), path


def test_every_method_has_one_room():
    rooms = {}
    for path in (SOURCE / "inference").rglob("*.py"):
        if not re.search(r"^METHODS\b", path.read_text(), re.MULTILINE):
            continue
        module = ".".join(("permvi", *path.relative_to(SOURCE).with_suffix("").parts))
        for name in importlib.import_module(module).METHODS:
            rooms.setdefault(name, set()).add(module.removeprefix("permvi.inference."))
    assert sorted(rooms) == sorted([*registry.names_for(), "collapsed", "gibbs"])
    for name, modules in rooms.items():
        # Shared dynamics, rankings and frames have variants of some methods in their own rooms.
        variants = {"dynamics", "rankings", "alignment"}
        folders = {module.split(".")[0] for module in modules} - variants
        assert len(folders) == 1 or name == "collapsed"
    # A law that is stored with a posterior lives with its method, or in posterior.
    for kind, home in laws._HOMES.items():
        assert home.split(".")[1] in ("inference", "posterior"), kind


def test_files_and_lines_stay_few():
    files = list(SOURCE.rglob("*.py"))
    assert len(files) <= 388
    # The first 39,000 lines came in 257 files. Since then: engines for linear and quadratic models,
    # rankings and tracks, checks of models, precautions against faults, linkage, atlases, forms of
    # functions, groups of voters of all models, chains that judge functions, and notes on misread
    # files.
    assert sum(len(path.read_text().splitlines()) for path in files) <= 71_200


@pytest.mark.parametrize("command", ["match", "rank", "track"])
def test_commands_share_what_they_note_and_write(command):
    text = (SOURCE / "_cli" / f"{command}.py").read_text()
    assert "input_notes" in text
    assert "from permvi._cli.outputs import Outputs" in text
    # Nothing of it is opened or printed beside them.
    assert "open(" not in text
    assert "csv.writer" not in text


def test_the_public_names_load_and_no_others():
    for name in permvi.__all__:
        assert getattr(permvi, name) is not None
    assert dir(permvi) == sorted(permvi.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        permvi.nonsense  # noqa: B018


def test_importing_permvi_loads_nothing_heavy():
    code = "import permvi, sys; print([m for m in ('jax', 'numpyro', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_everything_changes_no_configuration():
    code = (
        "import jax, logging; before = jax.config.jax_enable_x64, logging.root.handlers[:];"
        "import permvi; [getattr(permvi, name) for name in permvi.__all__];"
        "assert before == (jax.config.jax_enable_x64, logging.root.handlers[:])"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_stay_small():
    long = {str(p): n for p in FILES if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_paths_in_the_documents_exist():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            if target.startswith("gallery/"):
                continue  # made when the documentation is built, which tests/test_docs.py checks
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


# Small files that every walk passes: checks, the numba decorator, reading and writing files,
# pytrees, memory and threads, and where compiled programmes are kept.
LEAVES = {
    "__init__", "_cache", "_checks", "_compiled", "_csv", "_files", "_jax", "_memory",
    "_programmes", "_sources", "_threads",
}  # fmt: skip
# Calls whose first entries into modules are recorded, apart from what runs at import.
WALKS = {
    "rounding": "import permvi as pv, numpy as np; model = pv.models.LinearMatching(np.eye(4))\n"
    "def call(): pv.fit(model, 'rounding', num_steps=20)",
    "match": "import sys, permvi.cli; sys.argv = ['permvi', 'match', TABLE, '--report', PAGE]\n"
    "def call():\n"
    "    try: permvi.cli.main()\n"
    "    except SystemExit as done: assert not done.code",
}
RECORD = """
import sys, threading, warnings
warnings.simplefilter("ignore")
entered = []
def enter(frame, event, argument):
    name = frame.f_code.co_filename
    if not name.startswith(SOURCE) or not frame.f_code.co_flags & 1:
        return
    caller = frame.f_back
    for _ in range(6):
        if caller and caller.f_code.co_name == "<module>" and SOURCE in caller.f_code.co_filename:
            return
        caller = caller and caller.f_back
    entered.append(name[len(SOURCE):-3])
# Tracing hears of calls of Python functions only, a third of what profiling hears of.
sys.settrace(enter)
threading.settrace(enter)
call()
sys.settrace(None)
print("ENTERED", *sorted(set(entered)))
"""


def walk(title):
    """The files of a walk in CONTRIBUTING, one list for each step."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("### Two walks through the code")[1]
    part = text.split("`permvi match scores.csv", 1)[title == "match"]
    return [re.findall(r"`([\w/]+)\.py`", line) for line in re.findall(r"^\d+\. .*$", part, re.M)]


@pytest.mark.parametrize("title", WALKS)
def test_a_reader_changes_package_seldom(title, tmp_path):
    steps = walk(title)
    files = [file for step in steps for file in step]
    assert all((SOURCE / f"{file}.py").exists() for file in files)
    packages = [file.split("/")[0] for file in files]
    changes = sum(a != b for a, b in itertools.pairwise(packages))
    assert changes <= 15
    table = tmp_path / "scores.csv"
    table.write_text("item,A,B,C\nx,1,2,3\ny,2,1,0\nz,0,0,1\n")
    names = f"SOURCE, TABLE, PAGE = {[f'{SOURCE}/', str(table), str(tmp_path / 'page.html')]}"
    code = f"{names}\n{WALKS[title]}\n{RECORD}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    entered = set(done.stdout.split("ENTERED ")[1].split()) - LEAVES
    assert entered == set(files) - {"problem/reduction"}
