"""Commands as the command line sees them: help without noise, examples, and ``--json=FILE``."""

import shlex
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from permvi._cli.options import JSON_FILE

# Two examples for each command, and what they do.
EXAMPLES = {
    "match": (
        ("permvi match scores.csv --report fit.html", "a table of scores"),
        ("permvi match costs.csv --kind costs --unmatched 5 --csv found.csv", "items may be new"),
    ),
    "rank": (
        ("permvi rank votes.soc", "a file of PrefLib"),
        ("permvi rank ratings.csv --format ratings --model auto", "larger is better"),
    ),
    "track": (
        ("permvi track points.csv --csv tracks.csv", "columns frame, x, y"),
        ("permvi track spots.csv --motion velocity --report tracks.html", "straight paths"),
    ),
    "identify": (
        ("permvi identify worm.csv --positions places.csv --tolerance 0.05", "one recording"),
        ("permvi identify a.npz b.npz --known known.csv --report worms.html", "two recordings"),
    ),
    "report": (
        ("permvi report fit.nc", "writes fit.html"),
        ("permvi report fit.nc --probabilities all.parquet", "also all probabilities"),
    ),
    "compare": (
        ("permvi compare a.nc b.nc", "where two posteriors differ"),
        ("permvi compare a.nc b.nc --report both.html", "side by side"),
    ),
    "ask": (
        ('permvi ask fit.nc "r1=Anna,r2!=Bea"', "both at once"),
        ('permvi ask fit.nc "r1=unmatched" --json', "one item"),
    ),
    "methods": (
        ("permvi methods", "a table"),
        ("permvi methods --json", "with references"),
    ),
    "demo": (
        ("permvi demo --out out", "figures and a report"),
        ("permvi demo --out out --json", "the comparison as JSON"),
    ),
    "reproduce": (
        ("permvi reproduce transforms --out out", "seconds"),
        ("permvi reproduce matching --size paper --out out", "full size"),
    ),
    "bench": (
        ("permvi bench --quick", "a check that they run"),
        ("permvi bench --only assignment --json bench.json", "one group"),
    ),
    "cache": (
        ("permvi cache", "where it is, and its size"),
        ("permvi cache --clear", "empties it"),
    ),
}


# The command that is running, as one would type it.
_GIVEN: ContextVar[str | None] = ContextVar("command", default=None)


def as_typed() -> str | None:
    """Return the command that is running; None outside of commands."""
    return _GIVEN.get()


def epilog(command: str) -> str:
    """Return the examples of a command, one a paragraph so that each keeps its line."""
    lines = [f"{text}  ({what})" for text, what in EXAMPLES[command]]
    return "\n\n".join(["Examples:", *lines])


def without_types_of_flags(params: list[Any]) -> list[Any]:
    """Let the help of flags show no type, since a flag takes no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command whose help is easy to read in a terminal, and whose ``--json`` may name a file."""

    def __init__(self, *args: Any, help: str | None = None, **kwargs: Any) -> None:
        """Join the lines of each paragraph of the help, which is as wide as the terminal."""
        paragraphs = (help or "").split("\n\n")
        joined = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        super().__init__(*args, help=joined, **kwargs)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; a flag takes no value, so its help shows none."""
        return without_types_of_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; ``--json=FILE`` and ``--json FILE.json`` name a file."""
        _GIVEN.set(shlex.join(["permvi", str(ctx.info_name), *args]))
        if any(JSON_FILE in param.opts for param in self.params):
            args = _with_json_file(args)
        return super().parse_args(ctx, args)


def _with_json_file(args: list[str]) -> list[str]:
    found: list[str] = []
    for text in args:
        if text.startswith("--json="):
            found += [JSON_FILE, text.removeprefix("--json=")]
        elif found and found[-1] == "--json" and _is_file_to_write(text):
            found[-1:] = [JSON_FILE, text]
        else:
            found.append(text)
    return found


def _is_file_to_write(text: str) -> bool:
    """Return whether a text after ``--json`` is meant as its file: it has an ending, or is new."""
    path = Path(text)
    if text.startswith("-") or not path.suffix:
        return False
    return path.suffix == ".json" or not path.exists()
