"""The command line. Each command is a function in ``permvi._cli``, listed in `_COMMANDS`."""

import contextlib
import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from permvi._cache import enable_cache, is_wanted
from permvi._cli import advice, commands, terminal
from permvi._cli.cache import cache
from permvi._cli.identify import identify
from permvi._cli.match import match
from permvi._cli.methods import methods
from permvi._cli.rank import rank
from permvi._cli.saved import ask, compare, report
from permvi._cli.studies import bench, demo, reproduce
from permvi._cli.track import track
from permvi._version import __version__

_COMMANDS = (
    match,
    rank,
    track,
    identify,
    report,
    compare,
    ask,
    methods,
    demo,
    reproduce,
    bench,
    cache,
)

# The exit status that shells report for a program ended by a signal.
_INTERRUPTED = 128 + signal.SIGINT


class _InterruptedError(Exception):
    """The user pressed Ctrl-C. Typer would print its own message for a KeyboardInterrupt."""


class _OneLineErrors(TyperGroup):
    """Prints errors in the input as one line on standard error and exits with status 2."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, as the help of `commands.Command` shows them."""
        return commands.without_types_of_flags(super().get_params(ctx))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line, and exit unless Typer's ``standalone_mode`` is off."""
        if not kwargs.get("standalone_mode", True) or os.environ.get("PERMVI_TRACEBACK"):
            return super().main(*args, **kwargs)
        try:
            status = super().main(*args, **(kwargs | {"standalone_mode": False}))
            # Raises here if the pipe is closed, not when Python exits and it cannot be caught.
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes again when it exits; send that to the null device.
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
        """Run the command and mark an interrupt as ours."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _InterruptedError from error


def _message(error: Exception) -> str | None:
    """Return the message for an error in the input, or None for a bug in permvi."""
    # Typer's errors have no base class that all of its releases export.
    if hasattr(error, "format_message"):
        # Empty if there were no arguments and the help has been printed instead.
        message = error.format_message().rstrip(".")
        path = getattr(getattr(error, "ctx", None), "command_path", None) or "permvi"
        # The name of the script may be another one.
        command = " ".join(["permvi", *path.split()[1:]])
        return message and f"{message} (see {command} --help)."
    if isinstance(error, ValueError | TypeError | OSError):
        return advice.in_commands(str(error)) or type(error).__name__
    return None


def _print_version(value: bool) -> None:  # noqa: FBT001 (Typer passes the option's value)
    if value:
        sys.stdout.write(f"permvi {__version__}\n")
        raise typer.Exit


app = typer.Typer(
    cls=_OneLineErrors,
    no_args_is_help=True,
    epilog="Set PERMVI_TRACEBACK=1 to see the traceback of an error.",
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
    """Bayesian inference over permutations: matchings, orders and identities with probabilities."""
    del version
    if is_wanted():
        # A command without a cache is slow, one that ends here is useless.
        with contextlib.suppress(OSError):
            enable_cache(small=True)


for _command in _COMMANDS:
    app.command(cls=commands.Command, epilog=commands.epilog(_command.__name__))(_command)


def main() -> None:
    """Run the command line; the entry point of the ``permvi`` script."""
    app()
