"""Pages of the documentation whose commands print numbers that come from draws."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_match_page import BLOCK, stripped

DOCS = Path(__file__).parents[2] / "docs"
NUMBER = re.compile(r"-?\d+\.\d+|\d+(?=%)")


def check_page(run, name, error):
    """Run the Python of a page, write its CSV files, and compare what its commands print.

    Words are those that the page shows, and numbers up to the relative and absolute error.

    Returns:
        How many commands there were.
    """
    shown = 0
    for language, title, content in BLOCK.findall((DOCS / name).read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(content, name, "exec"), {})
        elif title:
            Path(title).write_text(content, encoding="utf-8")
        elif language == "console":
            command, *expected = stripped(content)
            result = run(*shlex.split(command.removeprefix("$ permvi ")))
            found = stripped(result.stderr + result.stdout)
            words = ([NUMBER.sub("#", line).split() for line in text] for text in (found, expected))
            assert next(words) == next(words)
            numbers = (map(float, NUMBER.findall("\n".join(text))) for text in (found, expected))
            for got, printed in zip(*numbers, strict=True):
                assert got == pytest.approx(printed, rel=error, abs=error)
            shown += 1
    return shown
