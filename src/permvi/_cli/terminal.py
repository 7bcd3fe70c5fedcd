"""What the commands show: progress on a terminal, tables on standard output."""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from permvi.experiments.results import Report

_WIDTH_IN_A_PIPE = 130


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator[Report]:
    """A bar on standard error while the block runs, and nothing where that is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table.

    Args:
        title: Printed above.
        columns: Headers; those that start with ">" hold numbers and are aligned to the right.
        rows: Cells.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else _WIDTH_IN_A_PIPE)
    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numeric = column.startswith(">")
        drawn.add_column(column.removeprefix(">"), justify="right" if numeric else "left")
    for row in rows:
        drawn.add_row(*row)
    console.print(drawn)


def paths(files: Iterable[Path]) -> None:
    """Print one path a line, never wrapped."""
    for file in files:
        sys.stdout.write(f"{file}\n")
