"""Record linkage: ``permvi match --pairs`` for tables of candidate pairs of any size."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._cli import commands, options, terminal

if TYPE_CHECKING:
    from permvi._cli.outputs import Outputs
    from permvi.linkage import Linkage

More = Annotated[
    list[Path] | None,
    typer.Argument(metavar="MORE", help="With --pairs: more files of the same table."),
]
ItemCol = Annotated[
    str | None, options.takes_name(help="With --pairs: the column of left records.")
]
LabelCol = Annotated[
    str | None, options.takes_name(help="With --pairs: the column of right records.")
]
ScoreCol = Annotated[str | None, options.takes_name(help="With --pairs: the column of scores.")]
Threshold = Annotated[
    float | None,
    typer.Option(
        metavar="P", help="With --pairs: leave out pairs whose own probability is below P."
    ),
]
OneToOne = Annotated[
    bool,
    typer.Option("--one-to-one", help="With --pairs: at most one match for a record (default)."),
]
OneToMany = Annotated[
    bool,
    typer.Option(
        "--one-to-many",
        help="With --pairs: a left record may have several matches, a right one at most one.",
    ),
]
ManyToOne = Annotated[bool, typer.Option("--many-to-one", help="The reverse of --one-to-many.")]
Dedupe = Annotated[
    bool,
    typer.Option(
        "--dedupe",
        help="With --pairs: both columns are of one table; a record has at most one duplicate.",
    ),
]
SeparateIds = Annotated[
    bool,
    typer.Option(
        "--separate-ids", help="With --pairs: equal ids left and right are different records."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="With --pairs: write all tables as Parquet. A run that was killed resumes there.",
    ),
]
Workers = Annotated[
    int | None,
    options.takes_count(
        min=1,
        help="With --pairs: start Dask workers on this machine, which use one core each. Without, "
        "the threads of one process use all cores.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="With --pairs: the address of a Dask scheduler."),
]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --pairs: fit temperature and offset of the scores to known pairs: two columns "
        "of records and one that is 1 for matches and 0 for others.",
    ),
]

_SHOWN_REVIEWS = 5
# More pairs are written by --out, part by part.
_MOST_PAIRS = 2_000_000
_SHOWN_THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `permvi match` that only linkage has."""

    more: list[Path] | None
    item_col: str | None
    label_col: str | None
    score_col: str | None
    threshold: float | None
    one_to_one: bool
    one_to_many: bool
    many_to_one: bool
    dedupe: bool
    separate_ids: bool
    out: Path | None
    workers: int | None
    cluster: str | None
    calibrate: Path | None

    def given(self) -> list[str]:
        """Return the options that were given, as they are typed; "a third file" for more files."""
        return [
            "a third file" if field.name == "more" else f"--{field.name.replace('_', '-')}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) not in (None, False)
        ]

    @property
    def rule(self) -> str:
        """The rule of the linking; raise ``ValueError`` if several are given."""
        flags = ("one_to_one", "one_to_many", "many_to_one", "dedupe")
        chosen = [name.replace("_", "-") for name in flags if getattr(self, name)]
        if len(chosen) > 1:
            raise ValueError(f"--{chosen[0]} must come alone, got --{chosen[1]} too.")
        return chosen[0] if chosen else "one-to-one"


def is_wanted(table: Path, labels: Path | None, asked: Asked, *, pairs: bool) -> bool:
    """Return whether a call is linkage, and not a small list for the usual tables.

    It is, if it has an option of linkage or several files, if a file is not plain CSV, or if its
    header has other columns than an item, a label and a number.
    """
    if not pairs:
        if asked.given():
            raise ValueError(f"{asked.given()[0]} must go with --pairs, got it without.")
        return False
    # Imported here because they load NumPy.
    from permvi._csv import read_rows
    from permvi.linkage.sources import is_columnar

    if asked.given() or labels is not None or table.is_dir() or is_columnar(table):
        return True
    rows = read_rows(table, several=True).rows
    header = [cell.strip().lower() for cell in next(rows).cells]
    return len(header) > 3 or header[:2] == ["unique_id_l", "unique_id_r"]


def link(
    files: list[Path],
    asked: Asked,
    *,
    numbers: Mapping[str, Any],
    unmatched: str | None,
    refused: Mapping[str, Any],
    outputs: "Outputs",
    seed: int,
) -> None:
    """Link the records of some files, and show a summary.

    Args:
        files: The files of pairs.
        asked: The options of linkage.
        numbers: ``kind`` and ``temperature``, None where they are not given.
        unmatched: The number that a pair has to beat.
        refused: Other options of the command, which must not be given.
        outputs: What to write and print.
        seed: The seed of chains.
    """
    for option, value in refused.items():
        if value not in (None, False):
            raise ValueError(f"--{option} must not be given for a linkage of pairs, got it.")
    rule = asked.rule
    kind, temperature = numbers["kind"], numbers["temperature"]
    if kind == "row-probabilities":
        raise ValueError("--kind must not be row-probabilities for a linkage of pairs.")
    with terminal.progress(quiet=outputs.quiet or outputs.as_json) as progress:
        progress("reading", 0, 1)
        from permvi.linkage import match_pairs

        found = match_pairs(
            files,
            out=asked.out,
            rule=rule,
            item_col=asked.item_col,
            label_col=asked.label_col,
            score_col=asked.score_col,
            kind=kind,
            temperature=1.0 if temperature is None else temperature,
            unmatched=0.0 if unmatched is None else _beaten(unmatched, kind),
            threshold=asked.threshold,
            separate_ids=asked.separate_ids,
            calibrate=asked.calibrate,
            seed=seed,
            workers=asked.workers,
            scheduler=asked.cluster,
            progress=progress,
        )
        from permvi.report import linkage as pages

        outputs.note(f"assumed: {text}." for text in found.assumptions)
        asked_for = {"input": [str(file) for file in files], "command": commands.as_typed()}
        outputs.write(
            {
                "report": lambda path: pages.write(found, path, asked_for),
                "probabilities": outputs.table(lambda: _pairs_of(found)),
            }
        )
    outputs.show(lambda: found.summary, lambda: _show(found, asked.out))
    distrusted = found.summary["verdicts"]["do not trust"]
    outputs.judge(found.summary["verdict"], f"{distrusted} components have this verdict")


def _pairs_of(found: "Linkage") -> list[dict[str, Any]]:
    """Return all pairs as they came, with their probabilities."""
    num = found.summary["pairs"]
    if num > _MOST_PAIRS:
        raise ValueError(
            f"--probabilities must go with at most {_MOST_PAIRS:,} pairs, got {num:,}; use --out "
            "FOLDER."
        )
    return found.table("pairs").to_pylist()


def _beaten(text: str, kind: str | None) -> float:
    """Return the log odds that a pair has to beat, from a number like those of the pairs."""
    import numpy as np

    value = options.number("unmatched", text)
    if kind == "probabilities":
        if not 0.0 < value < 1.0:
            raise ValueError(f"--unmatched must be a probability inside (0, 1), got {value:g}.")
        return float(np.log(value / (1.0 - value)))
    factor = {"log2-odds": float(np.log(2.0)), "costs": -1.0}.get(kind or "", 1.0)
    return factor * value


def _show(found: Any, out: Path | None) -> None:
    summary = found.summary
    if "records" in summary:
        records = f"{summary['records']:,} records"
    else:
        records = f"{summary['left_records']:,} + {summary['right_records']:,} records"
    low, high = summary["expected_matches_interval"]
    best, suggested = summary["best_linking"], summary["suggested"]
    lines = [
        f"rule: {summary['rule']}; {summary['pairs']:,} pairs of {records} in "
        f"{summary['components']:,} components, the largest of {summary['largest_component']:,} "
        "records",
        f"expected matches: {summary['expected_matches']:,.1f} (95 %: {low:,} to {high:,}); pair "
        f"by pair the scores claim {summary['expected_matches_pairwise']:,.1f}",
        f"best linking: {best['links']:,} links, {best['expected_right']:,.1f} of them expected to "
        "be right",
        f"suggested threshold: link pairs with p_link >= {suggested['threshold']:.4g}: "
        f"{suggested['links']:,} links, expected precision {suggested['precision']:.3f}, recall "
        f"{suggested['recall']:.3f}, F1 {suggested['f1']:.3f}"
        + (" (below 0.5, some may share a record)" if suggested["threshold"] <= 0.5 else ""),
    ]
    lines += _calibration_lines(summary.get("calibration"))
    terminal.lines(lines)
    _show_tables(found)
    for huge in summary["huge_components"]:
        glue = "; ".join(
            f"{pair['left']} - {pair['right']} joins {pair['joins'][0]} and {pair['joins'][1]} "
            "records"
            for pair in huge["glue"]
        )
        terminal.lines([
            f"huge component {huge['component']}: {huge['records']:,} records, {huge['pairs']:,} "
            f"pairs, verdict {huge['verdict']}; held together by {glue or 'no single pair'}"
        ])  # fmt: skip
    counts = summary["verdicts"]
    exact = f"{summary['solved_exactly']:,} of {summary['components']:,} components exactly"
    terminal.lines(
        [
            f"verdict: {summary['verdict']} (computed {exact}; "
            + ", ".join(f"{count:,} {name}" for name, count in counts.items())
            + ")",
            f"tables: {out}" if out is not None else "give --out FOLDER to keep all tables",
        ]
    )


def _calibration_lines(fit: Mapping[str, Any] | None) -> list[str]:
    if fit is None:
        return []
    return [
        f"calibration: temperature {fit['temperature']:.3g} ± {fit['temperature_se']:.2g}, offset "
        f"{fit['offset']:.3g} ± {fit['offset_se']:.2g}, from {fit['known_pairs']:,} known pairs "
        f"({fit['known_pairs_not_listed']:,} more are not candidates)",
        f"matches among known pairs: {fit['matches_observed']:,} observed, "
        f"{fit['matches_expected']:,.1f} ± {fit['matches_expected_sd']:.1f} expected "
        f"({fit['matches_expected_before']:,.1f} before the fit)",
    ]


def _show_tables(found: Any) -> None:
    from permvi._csv import read_rows

    rows = [row.cells for row in read_rows(found.folder / "thresholds.csv").rows][1:]
    chosen = [row for row in rows if float(row[0]) in _SHOWN_THRESHOLDS]
    terminal.table(
        "\nExpected quality of linking all pairs with at least this p_link",
        [">threshold", ">links", ">precision", ">recall", ">F1"],
        [[*row[:2], *map(_rounded, row[2:])] for row in chosen],
    )
    reviews = [row.cells for row in read_rows(found.folder / "review.csv").rows][1:]
    if reviews:
        terminal.table(
            f"Components worth a look, most informative first ({len(reviews)} in review.csv)",
            [">component", ">records", ">pairs", ">expected wrong", "ask about", "and", ">p_link"],
            [
                [*row[:3], _rounded(row[3]), *row[4:6], _rounded(row[7])]
                for row in reviews[:_SHOWN_REVIEWS]
            ],
        )


def _rounded(cell: str) -> str:
    return f"{float(cell):.3f}" if cell else ""
