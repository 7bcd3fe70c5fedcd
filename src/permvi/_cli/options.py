"""Options that several commands share; nothing heavy is imported for the help to list them."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated

import typer

from permvi.inference import registry as methods

_FIGURES = (".png", ".pdf", ".svg")


def starting(names: Collection[str]) -> Callable[[str], list[str]]:
    """Completion of one of these names, for shells."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


Method = Annotated[
    str,
    typer.Option(
        help="How to compute it: auto, or a name that permvi methods lists.",
        autocompletion=starting(methods.names()),
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same results.")]
Level = Annotated[float, typer.Option(help="Probability of the credible sets.")]
CsvFile = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write the table of items.")
]
Save = Annotated[Path | None, typer.Option(metavar="FILE", help="Save the posterior as netCDF.")]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the probabilities of all pairs (png, pdf, svg)."),
]
Report = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a report to look at, as HTML.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with status 3 if the verdict is 'do not trust'.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, notes or tables.")]


def check_level(level: float) -> None:
    """Refuse a probability of credible sets that is none."""
    if not 0 < level <= 1:
        raise ValueError(f"level must be in (0, 1], got {level:g}.")


def check_outputs(files: Mapping[str, Path | None]) -> None:
    """Refuse before any work is done what could not be written after it."""
    for option, path in files.items():
        if path is None:
            continue
        if path.is_dir():
            raise ValueError(f"--{option} must be a file, got the folder {str(path)!r}.")
        if not path.parent.is_dir():
            raise ValueError(f"--{option} must lie in an existing folder, got {str(path)!r}.")
    plot = files.get("plot")
    if plot is not None and plot.suffix not in _FIGURES:
        raise ValueError(f"--plot must end in {', '.join(_FIGURES)}, got {str(plot)!r}.")


def number(option: str, text: str, otherwise: str = "") -> float:
    """The number that an option gives; ``otherwise`` says what else it might have given."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} must be a number{otherwise}, got {text!r}.") from None


def numbers(option: str, text: str, otherwise: str = " or numbers with commas between") -> list:
    """The numbers that an option gives, separated by commas."""
    return [number(option, part, otherwise) for part in text.split(",")]


def check_positive(option: str, *values: float | None) -> None:
    """Refuse numbers that are given and not positive."""
    for value in values:
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{option} must be positive, got {value:g}.")
