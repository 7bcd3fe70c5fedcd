"""The page on what was tried: its commands run tests that exist, and its mutants still apply."""

import re
import shlex
from pathlib import Path

import pytest

from tests.mutants import MUTANTS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`((?:JAX_ENABLE_X64=0 )?pytest [^`]+)`", PAGE)))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_finds_tests(command):
    words = shlex.split(command.removeprefix("JAX_ENABLE_X64=0 "))[1:]
    wanted = words[words.index("-k") + 1].split(" or ") if "-k" in words else [""]
    files = [word for word in words if word.startswith("tests/")]
    assert files
    names = []
    for file in files:
        found = [ROOT / file] if file.endswith(".py") else (ROOT / file).rglob("test_*.py")
        for path in found:
            names += re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    for word in wanted:
        assert any(word in name for name in names), word


def test_every_target_of_the_page_is_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make ([\w-]+)", PAGE))
    assert {"fuzz", "mutate", "test-lowest", "test-wheel"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.parametrize("mutant", MUTANTS, ids=range(1, len(MUTANTS) + 1))
def test_every_mutant_has_its_place_and_its_tests(mutant):
    text = (ROOT / "src" / "permvi" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.before) == 1
    assert mutant.after not in text
    for name in mutant.tests:
        assert (ROOT / "tests" / name).exists()
