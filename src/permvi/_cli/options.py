"""Options that commands share, their values and checks; loads no heavy library, so help is fast."""

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from permvi._checks import one_of
from permvi._files import STANDARD
from permvi.inference import registry as methods

# The meaning of the numbers in a table of pairs: name -> the weight of a pair in a matching.
KINDS = {
    "scores": "log weights (weight exp(score / temperature))",
    "costs": "weight exp(-cost / temperature)",
    "log-odds": "log odds that a pair is a match, each pair judged by itself",
    "probabilities": "p that a pair is a match, each pair judged by itself (weight p / (1 - p))",
    "row-probabilities": "each row is a distribution over labels (weight p)",
}
# The kinds that a temperature scales.
SCALED = ("scores", "costs")
NOISES = ("gaussian", "student_t")
# The value of --scale that asks to infer it.
INFER = "infer"
# The name of the built-in connectome.
CELEGANS = "celegans"

# The endings of files, by what is written.
_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".xlsx")
ENDINGS = {
    "csv": _TABLES,
    "probabilities": _TABLES,
    "links": _TABLES,
    "weights": _TABLES,
    "curate": _TABLES,
    "json": (".json",),
    "report": (".html", ".htm"),
    "out": (".html", ".htm"),
    "plot": (".png", ".pdf", ".svg"),
    "save": (".nc",),
    "save-atlas": (".npz",),
}
# What goes to standard output as text if the file is "-".
_PRINTED = ("csv", "probabilities", "links", "weights", "curate", "json", "report", "out")


# Options that take a number, a name or a whole number, and are shown so.
takes_number, takes_name, takes_count = (
    functools.partial(typer.Option, metavar=word) for word in ("NUMBER", "NAME", "N")
)


def starting(names: Collection[str]) -> Callable[[str], list[str]]:
    """Return a shell completion that offers these names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


Method = Annotated[
    str,
    takes_name(
        help="Method of inference: auto, or a name listed by permvi methods.",
        autocompletion=starting(methods.NAMES),
    ),
]
Seed = Annotated[int, takes_count(min=0, help="Seed; the same seed gives the same results.")]
Level = Annotated[float, takes_number(help="Probability of the credible sets.")]
CsvFile = Annotated[
    Path | None,
    typer.Option(
        "--csv",
        metavar="FILE",
        help="Write the table of items (csv, tsv, parquet or xlsx by its ending; - prints CSV).",
    ),
]
Probabilities = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write all probabilities, in the formats of --csv: a row for each item and each label "
        "that it may have.",
    ),
]
Wide = Annotated[
    bool,
    typer.Option(
        "--wide", help="--probabilities as a table: a row for each item, a column for each label."
    ),
]


def settings_option(example: str) -> Any:
    """Return ``--option``, with settings that there are in its help."""
    text = f"A setting of the method, such as {example}; may be given several times."
    return typer.Option("--option", metavar="NAME=VALUE", help=text)


Settings = Annotated[list[str] | None, settings_option("num_steps=5000")]
All = Annotated[
    bool, typer.Option("--all", help="Print every row of long tables, not only 20 of them.")
]
RawCsv = Annotated[
    bool,
    typer.Option(
        "--raw-csv",
        help="Write labels to CSV as they are, also those that a spreadsheet takes for formulas.",
    ),
]
Save = Annotated[Path | None, typer.Option(metavar="FILE", help="Save the posterior as netCDF.")]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Plot the probabilities of all pairs (png, pdf, svg)."),
]
Report = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write an HTML report (- prints it).")
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object instead of tables; --json=FILE writes it to a file."
    ),
]
# `--json=FILE` is turned into this one, because a flag takes no value.
JSON_FILE = "--json-file"
JsonFile = Annotated[Path | None, typer.Option(JSON_FILE, metavar="FILE", hidden=True)]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with status 3 if the verdict is 'do not trust'.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, notes or tables.")]


def check_level(level: float) -> None:
    """Raise ``ValueError`` if the probability of credible sets is out of range."""
    if not 0 < level <= 1:
        raise ValueError(f"level must be in (0, 1], got {level:g}.")


def check_outputs(files: Mapping[str, Path | None]) -> None:
    """Raise ``ValueError`` before the computation if an output file could not be written after.

    A file has to end in what it will hold. Text may go to standard output, which is ``-``.
    """
    printed = [option for option, path in files.items() if path == STANDARD]
    for option, path in files.items():
        if path is None:
            continue
        if path == STANDARD:
            if option not in _PRINTED:
                raise ValueError(f"--{option} must be a file, since it is not text, got '-'.")
            continue
        if path.is_dir():
            raise ValueError(f"--{option} must be a file, got the folder {str(path)!r}.")
        if not path.parent.is_dir():
            raise ValueError(f"--{option} must lie in an existing folder, got {str(path)!r}.")
        check_ending(option, path)
    if len(printed) > 1:
        listed = " and ".join(f"--{option}" for option in printed)
        raise ValueError(f"one output at most must be '-', got {listed}.")


def check_ending(option: str, path: Path) -> None:
    """Raise ``ValueError`` if a file does not end in what the option writes."""
    endings = ENDINGS[option]
    if not path.name.lower().endswith(endings):
        raise ValueError(f"--{option} must end in {', '.join(endings)}, got {str(path)!r}.")


def settings_of(
    given: Sequence[str] | None, known: Collection[str] | None = None
) -> dict[str, Any]:
    """Parse settings NAME=VALUE; values are JSON (numbers, true, false, null, lists) or text.

    ``known`` are the names that there are, where this does not depend on the method.
    """
    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name.isidentifier() and equals and value):
            raise ValueError(f"--option must be NAME=VALUE, got {text!r}.")
        if known is not None:
            one_of("--option", name, known)
        if name in found:
            raise ValueError(f"--option must give {name} once, got it again.")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def number(option: str, text: str, otherwise: str = "") -> float:
    """Parse the number of an option; ``otherwise`` names other valid values in the error."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} must be a number{otherwise}, got {text!r}.") from None


def numbers(
    option: str, text: str, otherwise: str = " or numbers separated by commas"
) -> list[float]:
    """Parse the numbers of an option, separated by commas."""
    return [number(option, part, otherwise) for part in text.split(",")]


def check_positive(option: str, *values: float | None) -> None:
    """Raise ``ValueError`` if a value is given and is not positive and finite."""
    for value in values:
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{option} must be positive, got {value:g}.")
