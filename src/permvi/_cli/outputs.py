"""What a command was asked to write and print, for all commands in the same way."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from permvi._cli import advice, results, terminal
from permvi._cli.options import check_outputs
from permvi._files import STANDARD

if TYPE_CHECKING:
    from permvi.posterior import Posterior


def files_of(
    csv: Path | None,
    probabilities: Path | None,
    save: Path | None,
    plot: Path | None,
    report: Path | None,
    json: Path | None,
) -> dict[str, Path | None]:
    """Return the files of a posterior by option."""
    files = (csv, probabilities, save, plot, report, json)
    return dict(zip(("csv", "probabilities", "save", "plot", "report", "json"), files, strict=True))


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What a command was asked to write and print.

    Attributes:
        files: Files by option, None for those that were not asked for.
        as_json: Whether to print JSON in place of tables.
        raw_csv: Whether tables keep text that a spreadsheet takes for formulas.
        wide: Whether probabilities have a column for each label.
        quiet: Whether to print nothing but what was asked for.
        everything: Whether to print all rows of long tables.
        strict: Whether a verdict "do not trust" is an error.
    """

    files: Mapping[str, Path | None]
    as_json: bool = False
    raw_csv: bool = False
    wide: bool = False
    quiet: bool = False
    everything: bool = False
    strict: bool = False

    def check(self) -> None:
        """Raise ``ValueError`` if a file could not be written."""
        check_outputs(self.files)
        if self.as_json and STANDARD in self.files.values():
            raise ValueError("one output at most must be printed, got --json and a file '-'.")
        if self.wide and self.files.get("probabilities") is None:
            raise ValueError("--wide must go with --probabilities, got it without.")

    def write(self, makers: Mapping[str, Callable[[Path], Any]]) -> None:
        """Make the files that were asked for; each is complete or missing."""
        for option, make in makers.items():
            path = self.files.get(option)
            if path is not None:
                make(path)

    def table(self, rows: Callable[[], Sequence[Mapping[str, Any]]]) -> Callable[[Path], None]:
        """Return a maker of a file with these rows."""
        return lambda path: results.write_csv(path, rows(), raw=self.raw_csv)

    def show(self, as_object: Callable[[], Mapping[str, Any]], tables: Callable[[], None]) -> None:
        """Print or write the JSON object, or print the tables; nothing else on standard output."""
        path = self.files.get("json")
        if path is not None:
            results.write_object(path, as_object())
        elif self.as_json:
            results.print_object(as_object())
        if not (self.as_json or self.quiet or STANDARD in self.files.values()):
            tables()

    def note(self, notes: Iterable[str]) -> None:
        """Print notes on the input on standard error."""
        for text in () if self.quiet else notes:
            terminal.note(text)

    def judge(self, verdict: str, reason: str) -> None:
        """Exit with status 3 if the verdict is "do not trust" and the command is strict."""
        if self.strict:
            results.exit_unless_trusted(verdict, reason)

    def finish(
        self, posterior: "Posterior", *, level: float, top: int | None, notes: Sequence[str] = ()
    ) -> None:
        """Print the posterior of one permutation, with notes in the JSON, and judge it."""
        self.show(
            lambda: results.as_object(posterior, level=level, top=top) | {"notes": list(notes)},
            lambda: results.show(posterior, level=level, top=top, everything=self.everything),
        )
        found = posterior.diagnostics
        self.judge(found.verdict, advice.in_commands(found.reasons[0], posterior))

    def makers(self, posterior: "Posterior", level: float) -> dict[str, Callable[[Path], Any]]:
        """Return the makers of the files of the posterior of one permutation."""
        return {
            "save": posterior.save,
            "csv": self.table(lambda: results.items_of(posterior, level)),
            "probabilities": self.table(
                lambda: results.probabilities_of(posterior, wide=self.wide)
            ),
            "plot": lambda path: results.save_figure(posterior.plot().figure, path),
            "report": lambda path: advice.translated(posterior).report(path),
        }
