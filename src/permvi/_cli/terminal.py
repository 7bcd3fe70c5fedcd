"""Output to the terminal: progress and notes on standard error, tables on standard output."""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from permvi.inference.method import Progress

_WIDTH_IN_A_PIPE = 130
# Wide enough for every row to fit on one line.
_NO_LIMIT = 100_000


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator["Progress"]:
    """Show a progress bar on standard error while the block runs, if that is a terminal.

    A stage that has not said how much there is to do, ``(what, 0, 1)``, has a bar that only moves.
    """
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich import progress as bars
    from rich.console import Console

    with bars.Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            nonlocal task
            if (done, total) == (0, 1):
                bar.remove_task(task)
                task = bar.add_task(what, total=None)
            else:
                bar.update(task, description=what, completed=done, total=total)

        yield show


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""
    del what, done, total


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, fold: bool = True
) -> None:
    """Print a title and a table. Cells are plain text; markup in them is not interpreted.

    Columns whose header starts with ">" are aligned to the right. ``fold`` lets long cells take
    several lines in a pipe; on a terminal they always may.
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
    # Rich would fold a title of its own to the width of the columns.
    console.print(title, style="italic", soft_wrap=True)
    console.print(drawn)


def lines(texts: Iterable[str]) -> None:
    """Print lines of text without wrapping them."""
    for text in texts:
        sys.stdout.write(f"{_printable(text)}\n")


def paths(files: Iterable[Path]) -> None:
    """Print one path per line without wrapping it."""
    for file in files:
        sys.stdout.write(f"{file}\n")


def note(message: str) -> None:
    """Print a message in one line on standard error."""
    sys.stderr.write(f"permvi: {_printable(' '.join(message.split()))}\n")
    sys.stderr.flush()


def _printable(text: str) -> str:
    """Replace control characters, which would act on the terminal."""
    return "".join("\N{REPLACEMENT CHARACTER}" if category(c) == "Cc" else c for c in text)
