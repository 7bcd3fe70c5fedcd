"""What the commands show: progress and notes on standard error, tables on standard output."""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from permvi._methods.context import Progress

_WIDTH_IN_A_PIPE = 130
# So wide that no row takes a second line.
_NO_LIMIT = 100_000


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator["Progress"]:
    """Show a progress bar on standard error while the block runs, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich import progress as bars
    from rich.console import Console

    with bars.Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""
    del what, done, total


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, fold: bool = True
) -> None:
    """Print a table; whatever is in its cells stays text.

    Args:
        title: Printed above.
        columns: Headers; those that start with ">" hold numbers and are aligned to the right.
        rows: Cells.
        fold: In a pipe, whether long cells take several lines; on a terminal they always may.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    in_a_pipe = _WIDTH_IN_A_PIPE if fold else _NO_LIMIT
    width = None if sys.stdout.isatty() else in_a_pipe
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numeric = column.startswith(">")
        drawn.add_column(column.removeprefix(">"), justify="right" if numeric else "left")
    for row in rows:
        drawn.add_row(*map(_printable, row))
    # A title of the table itself would be folded to the width of its columns.
    console.print(title, style="italic", soft_wrap=True)
    console.print(drawn)


def lines(texts: Iterable[str]) -> None:
    """Print lines of text, never wrapped."""
    for text in texts:
        sys.stdout.write(f"{_printable(text)}\n")


def paths(files: Iterable[Path]) -> None:
    """Print one path a line, never wrapped."""
    for file in files:
        sys.stdout.write(f"{file}\n")


def note(message: str) -> None:
    """Tell the user something in one line on standard error."""
    sys.stderr.write(f"permvi: {_printable(' '.join(message.split()))}\n")


def _printable(text: str) -> str:
    """The text without control characters, which would steer the terminal."""
    return "".join("\N{REPLACEMENT CHARACTER}" if category(c) == "Cc" else c for c in text)
