"""``permvi match``: who matches whom, from files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from permvi._cli import options, running, terminal
from permvi._cli.kinds import INFER, KINDS, NOISES
from permvi.inference import registry as methods

if TYPE_CHECKING:
    from permvi._cli.matching import Alone, Files

_KINDS_HELP = "; ".join(f"{name}: {what}" for name, what in KINDS.items())


def match(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="CSV: items down, labels across, a number for each pair. With LABELS: items down, "
            "features across.",
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Argument(metavar="LABELS", help="CSV: labels down, the same features across."),
    ] = None,
    *,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="TABLE is a list: item,label,number for each pair that is possible.",
        ),
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            help=f"What the numbers of TABLE mean. {_KINDS_HELP}.",
            show_default="scores",
            autocompletion=options.starting(KINDS),
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Scores and costs are divided by it.", show_default="1")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="With LABELS: standard deviation of the noise, one number, or one for each "
            f"feature with commas between them, or {INFER!r}.",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help=f"With LABELS: {' or '.join(NOISES)}.",
            show_default=NOISES[0],
            autocompletion=options.starting(NOISES),
        ),
    ] = None,
    df: Annotated[
        float | None, typer.Option(help="Degrees of freedom of student_t.", show_default="4")
    ] = None,
    unmatched: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="Items may stay unmatched, which counts as much as a pair of this number; or the "
            "name of a column with a number for each item. With LABELS: a distance in standard "
            "deviations.",
            show_default="every item is matched",
        ),
    ] = None,
    unused: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="The same for labels without an item, a number or the name of a row. With LABELS: "
            "the probability that a label has no item.",
            show_default="free if items may stay unmatched",
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV of items by labels: 1 allowed, 0 forbidden."),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV of certain pairs: a header, then item,label."),
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV of items by labels: what was known before."),
    ] = None,
    prior_kind: Annotated[
        str,
        typer.Option(
            help="What its numbers mean, as --kind.", autocompletion=options.starting(KINDS)
        ),
    ] = "scores",
    method: options.Method = methods.AUTO,
    seed: options.Seed = 0,
    level: options.Level = 0.95,
    top: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many of the most probable matchings to list.",
            show_default="3, none above 500 items or labels",
        ),
    ] = None,
    csv_file: options.CsvFile = None,
    save: options.Save = None,
    plot: options.Plot = None,
    report: options.Report = None,
    as_json: options.AsJson = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Say which item is which label, with probabilities.

    A matching gives each item at most one label and each label at most one item. Its probability is
    proportional to the product of what its pairs count.
    """
    methods.check_method(method)
    options.check_level(level)
    written = {"csv": csv_file, "save": save, "plot": plot, "report": report}
    options.check_outputs(written)
    with terminal.progress(quiet=quiet or as_json) as bar:
        bar("reading", 0, 1)
        from permvi._cli import results
        from permvi._cli.matching import Alone, Files

        of_pairs = {"pairs": pairs or None, "kind": kind, "temperature": temperature}
        of_features = {"scale": scale, "noise": noise, "df": df}
        files, alone = Files(mask, known, prior, prior_kind), Alone(unmatched, unused)
        if labels is None:
            _refuse(of_features, "go with a file of LABELS, got it without one")
            problem = _from_pairs(table, files, alone, of_pairs)
        else:
            _refuse(of_pairs, "go with a table of pairs, got it with a file of LABELS")
            problem = _from_features(table, labels, files, alone, of_features)
        bar("computing", 0, 1)
        asked = problem.settings | alone._asdict() | files.named()
        posterior = running.fit(problem.model, method, seed, bar, asked)
        bar("writing", 0, 1)
        running.write(posterior, level, written)
    if problem.note and not quiet:
        terminal.note(problem.note)
    if as_json:
        results.print_json(posterior, level=level, top=top)
    elif not quiet:
        results.show(posterior, level=level, top=top)
    if strict:
        found = posterior.diagnostics
        running.exit_unless_trusted(found.verdict, found.reasons[0])


def _refuse(given: Mapping[str, Any], why: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"--{option} must {why}.")


class _Problem(NamedTuple):
    """A model, what it was made of, and what its user should perhaps be told."""

    model: Any
    settings: dict[str, Any]
    note: str | None = None


def _from_pairs(path: Path, files: "Files", alone: "Alone", given: Mapping[str, Any]) -> _Problem:
    from permvi._cli import matching, weights
    from permvi._cli.csv_pairs import read_list
    from permvi._cli.csv_tables import read_table

    kind = given["kind"] or "scores"
    temperature = 1.0 if given["temperature"] is None else given["temperature"]
    table = read_list(path) if given["pairs"] else read_table(path)
    model = matching.of_pairs(table, files, alone, kind=kind, temperature=temperature)
    note = None
    if kind == "probabilities" and weights.look_like_distributions(table):
        note = (
            f"every row of {path} adds up to 1: if a row is a distribution over labels, "
            "--kind row-probabilities is right, and this answer is too sure."
        )
    return _Problem(model, {"input": str(path), "kind": kind, "temperature": temperature}, note)


def _from_features(
    items: Path, labels: Path, files: "Files", alone: "Alone", given: Mapping[str, Any]
) -> _Problem:
    from permvi._cli import matching
    from permvi._cli.csv_tables import read_table

    if given["scale"] is None:
        raise ValueError(
            "--scale must be given with a file of LABELS: how far an item may be from its label, "
            f"a standard deviation for each feature, or {INFER!r}."
        )
    settings = {"scale": given["scale"], "noise": given["noise"] or NOISES[0]}
    if given["df"] is not None:
        settings["df"] = given["df"]
    model = matching.of_features(read_table(items), read_table(labels), files, alone, **settings)
    return _Problem(model, {"input": str(items), "labels": str(labels), **settings})
