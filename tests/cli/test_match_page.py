"""What the page on ``permvi match`` shows is what the commands print."""

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "match.md"
BLOCK = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def stripped(text):
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_page(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = 0
    for language, title, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "csv":
            Path(title).write_text(content, encoding="utf-8")
        elif language == "console":
            printed = []
            commands = [line for line in content.splitlines() if line.startswith("$ ")]
            for command in commands:
                result = run(*shlex.split(command.removeprefix("$ permvi ")))
                printed += [command, *stripped(result.stderr + result.stdout)]
            assert printed == stripped(content)
            shown += len(commands)
    assert shown >= 5
