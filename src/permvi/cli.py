"""The command line. A command is a function in ``permvi._cli`` and a line below."""

import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from permvi._cli import terminal
from permvi._cli.bench import bench
from permvi._cli.demo import demo
from permvi._cli.identify import identify
from permvi._cli.match import match
from permvi._cli.methods import methods
from permvi._cli.rank import rank
from permvi._cli.report import report
from permvi._cli.reproduce import reproduce
from permvi._cli.track import track
from permvi._version import __version__

_COMMANDS = (match, rank, track, identify, report, methods, demo, reproduce, bench)

# What shells report of a program that a signal has ended.
_INTERRUPTED = 128 + signal.SIGINT


class _InterruptedError(Exception):
    """The user pressed Ctrl-C; Typer would answer a KeyboardInterrupt in its own words."""


class _OneLineErrors(TyperGroup):
    """Answers a mistake of the user with one line on standard error and exit status 2."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run, and exit unless the caller has switched Typer's ``standalone_mode`` off."""
        if not kwargs.get("standalone_mode", True) or os.environ.get("PERMVI_TRACEBACK"):
            return super().main(*args, **kwargs)
        try:
            status = super().main(*args, **(kwargs | {"standalone_mode": False}))
            # Or a closed pipe would come up when Python exits, where nobody can answer it.
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes once more at its end: into nothing.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = 1
        except (_InterruptedError, KeyboardInterrupt):
            terminal.note("interrupted; files that were finished are kept.")
            status = _INTERRUPTED
        except Exception as error:
            message = _message(error)
            if message is None:
                raise
            if message:
                terminal.note(message)
            status = 2
        sys.exit(status)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _InterruptedError from error


def _message(error: Exception) -> str | None:
    """What to tell the user about an error of theirs, or None if it is ours."""
    # Typer's own errors have no base class that all of its releases export.
    if hasattr(error, "format_message"):
        # Empty when there were no arguments at all and the help has been printed instead.
        message = error.format_message().rstrip(".")
        return message and f"{message} (see permvi --help)."
    if isinstance(error, ValueError | TypeError | OSError):
        return str(error) or type(error).__name__
    return None


def _print_version(value: bool) -> None:  # noqa: FBT001 (Typer passes the option's value)
    if value:
        sys.stdout.write(f"permvi {__version__}\n")
        raise typer.Exit


app = typer.Typer(
    cls=_OneLineErrors,
    no_args_is_help=True,
    epilog="Set PERMVI_TRACEBACK=1 to see where an error comes from.",
)


@app.callback()
def _permvi(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Bayesian inference over permutations: who matches whom, with probabilities."""
    del version


for _command in _COMMANDS:
    app.command()(_command)


def main() -> None:
    """Run the command line; the entry point of the ``permvi`` script."""
    app()
