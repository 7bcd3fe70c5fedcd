"""``permvi match``: which item has which label, from files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from permvi._checks import one_of
from permvi._cli import linkage, options, results, terminal
from permvi._cli.options import INFER, KINDS, NOISES
from permvi._cli.outputs import Outputs, files_of
from permvi.inference import registry as methods

if TYPE_CHECKING:
    from permvi._cli.match_inputs import Files, Unpaired

_KINDS_HELP = "; ".join(f"{name}: {what}" for name, what in KINDS.items())


def match(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="CSV table with a row for each item, a column for each label and a number for "
            "each pair. With LABELS: a column for each feature.",
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Argument(metavar="LABELS", help="CSV table of labels by the same features."),
    ] = None,
    more: linkage.More = None,
    *,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="TABLE is a list with columns item,label,number. Other pairs are forbidden. Also "
            "Parquet, Arrow or compressed CSV, with more columns and in several files.",
        ),
    ] = False,
    kind: Annotated[
        str | None,
        options.takes_name(
            help=f"The meaning of the numbers in TABLE. {_KINDS_HELP}.",
            show_default="scores",
            autocompletion=options.starting(KINDS),
        ),
    ] = None,
    temperature: Annotated[
        float | None, options.takes_number(help="Divides scores and costs.", show_default="1")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="With LABELS: standard deviation of the noise: one number, one for each feature "
            f"separated by commas, or {INFER!r}. For student_t, divide a "
            "standard deviation by 1.41 (if --df is 4).",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        options.takes_name(
            help=f"With LABELS: distribution of the noise, {' or '.join(NOISES)}.",
            show_default=NOISES[0],
            autocompletion=options.starting(NOISES),
        ),
    ] = None,
    df: Annotated[
        float | None,
        options.takes_number(help="Degrees of freedom of student_t.", show_default="4"),
    ] = None,
    unmatched: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="Allow unmatched items. An item stays unmatched rather than take a pair worse "
            "than VALUE. Or the name of a column of TABLE with a value for each item. With LABELS: "
            "a distance in standard deviations: 3 is one that 1 of 370 right labels exceeds.",
            show_default="every item is matched",
        ),
    ] = None,
    unused: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="Allow unused labels, with the weight of a pair of VALUE. Or the name of a row of "
            "TABLE with a value for each label. With LABELS: the probability that a label has no "
            "item.",
            show_default="weight 1 with --unmatched",
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV table of items by labels: 1 allowed, 0 forbidden."),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV list of known pairs: a header, then item,label."),
    ] = None,
    prior: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV table of items by labels: prior weights."),
    ] = None,
    prior_kind: Annotated[
        str | None,
        options.takes_name(
            help="The meaning of the numbers in --prior, as for --kind.",
            show_default="scores",
            autocompletion=options.starting(KINDS),
        ),
    ] = None,
    method: options.Method = methods.AUTO,
    option: options.Settings = None,
    seed: options.Seed = 0,
    level: options.Level = 0.95,
    top: Annotated[
        int | None,
        options.takes_count(
            min=0,
            help="Number of most probable matchings to list.",
            show_default="3, none above 500 items or labels",
        ),
    ] = None,
    csv_file: options.CsvFile = None,
    probabilities: options.Probabilities = None,
    wide: options.Wide = False,
    raw_csv: options.RawCsv = False,
    save: options.Save = None,
    plot: options.Plot = None,
    report: options.Report = None,
    item_col: linkage.ItemCol = None,
    label_col: linkage.LabelCol = None,
    score_col: linkage.ScoreCol = None,
    threshold: linkage.Threshold = None,
    one_to_one: linkage.OneToOne = False,
    one_to_many: linkage.OneToMany = False,
    many_to_one: linkage.ManyToOne = False,
    dedupe: linkage.Dedupe = False,
    separate_ids: linkage.SeparateIds = False,
    calibrate: linkage.Calibrate = None,
    out: linkage.Out = None,
    workers: linkage.Workers = None,
    cluster: linkage.Cluster = None,
    as_json: options.AsJson = False,
    json_file: options.JsonFile = None,
    everything: options.All = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Infer which item has which label, with probabilities.

    A matching gives each item at most one label and each label at most one item. Its probability is
    proportional to the product of the weights of its pairs.
    """
    one_of("method", method, methods.NAMES)
    options.check_level(level)
    of_method = options.settings_of(option)
    written = files_of(csv_file, probabilities, save, plot, report, json_file)
    outputs = Outputs(written, as_json, raw_csv, wide, quiet, everything, strict)
    outputs.check()
    asked = linkage.Asked(
        more=more, item_col=item_col, label_col=label_col, score_col=score_col,
        threshold=threshold, one_to_one=one_to_one, one_to_many=one_to_many,
        many_to_one=many_to_one, dedupe=dedupe, separate_ids=separate_ids, out=out,
        workers=workers, cluster=cluster, calibrate=calibrate,
    )  # fmt: skip
    if linkage.is_wanted(table, labels, asked, pairs=pairs):
        linkage.link(
            [table, *([labels] if labels else []), *(more or [])],
            asked,
            numbers={"kind": kind, "temperature": temperature},
            unmatched=unmatched,
            refused={
                "scale": scale, "noise": noise, "df": df, "unused": unused, "mask": mask,
                "known": known, "prior": prior, "top": top, "csv": csv_file, "save": save,
                "plot": plot, "wide": wide,
                "option": option, "all": everything,
                "method": None if method == methods.AUTO else method,
            },
            outputs=outputs,
            seed=seed,
        )  # fmt: skip
        return
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        from permvi._cli import input_notes
        from permvi._cli.match_inputs import Files, Unpaired

        of_pairs = {"pairs": pairs or None, "kind": kind, "temperature": temperature}
        of_features = {"scale": scale, "noise": noise, "df": df}
        files, unpaired = (
            Files(mask, known, prior, prior_kind or "scores"),
            Unpaired(unmatched, unused),
        )
        if labels is None:
            _refuse(of_features, "go with a file of LABELS, got it without one")
            problem = _from_pairs(table, files, unpaired, of_pairs)
        else:
            _refuse(of_pairs, "go with a table of pairs, got it with a file of LABELS")
            problem = _from_features(table, labels, files, unpaired, of_features)
        progress("computing", 0, 1)
        settings = problem.settings | unpaired._asdict() | files.named()
        posterior = results.fit(problem.model, method, seed, progress, settings, **of_method)
        certain = input_notes.of_certainty(posterior, problem.values, kind, temperature)
        of_prior = [] if prior is None or prior_kind else input_notes.of_prior(prior)
        notes = [*problem.notes, *of_prior, *certain]
        outputs.note(notes)
        progress("writing", 0, 1)
        outputs.write(outputs.makers(posterior, level))
    outputs.finish(posterior, level=level, top=top, notes=notes)


def _refuse(given: Mapping[str, Any], why: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"--{option} must {why}.")


class _Problem(NamedTuple):
    """A model, the settings that it was built from, and notes on the input."""

    model: Any
    settings: dict[str, Any]
    notes: list[str]
    values: Any = None  # the numbers of a table of pairs


def _from_pairs(
    path: Path, files: "Files", unpaired: "Unpaired", given: Mapping[str, Any]
) -> _Problem:
    from permvi._cli import input_notes, match_inputs
    from permvi._cli.csv_tables import PairList, Table, read_list, read_table

    kind = given["kind"] or "scores"
    temperature = 1.0 if given["temperature"] is None else given["temperature"]
    numbers: dict[str, Any] = {"kind": kind, "temperature": temperature}
    model: Any
    table: Table | PairList
    if given["pairs"]:
        from permvi._cli import match_lists

        table = read_list(path)
        model = match_lists.model_of_list(table, files, unpaired, **numbers)
    else:
        table = read_table(path, of_pairs=True)
        model = match_inputs.model_of_pairs(table, files, unpaired, **numbers)
    match_inputs.check_conflicts(path, model, unpaired)
    notes = input_notes.of_table(table, given["kind"], given["temperature"], model.shape, unpaired)
    if given["pairs"] and unpaired.unmatched is None:
        notes.append(
            f"{path}: every {'item' if model.shape[0] <= model.shape[1] else 'label'} is taken to "
            "have a match in the list; use --unmatched 0 or, for linked records, --one-to-one if "
            "it may have none."
        )
    settings = {"input": str(path), "kind": kind, "temperature": temperature}
    return _Problem(model, settings, notes, table.values)


def _from_features(
    items: Path, labels: Path, files: "Files", unpaired: "Unpaired", given: Mapping[str, Any]
) -> _Problem:
    from permvi._cli import input_notes, match_inputs
    from permvi._cli.csv_tables import read_table

    if given["scale"] is None:
        raise ValueError(
            "--scale must be given with a file of LABELS: how far an item may be from its label, "
            f"a standard deviation for each feature, or {INFER!r}."
        )
    settings = {"scale": given["scale"], "noise": given["noise"] or NOISES[0]}
    if given["df"] is not None:
        settings["df"] = given["df"]
    tables = read_table(items), read_table(labels)
    model = match_inputs.model_of_features(*tables, files, unpaired, **settings)
    match_inputs.check_conflicts(items, model, unpaired)
    notes = [
        note
        for table in tables
        for note in (*input_notes.of_reading(table), *input_notes.of_names(table))
    ]
    notes += input_notes.of_spreads(*tables, settings["scale"])
    notes += input_notes.of_sizes(items, model.shape, unpaired)
    if model.scale_prior is not None and unpaired.unmatched is not None:
        notes.append(
            f"--unmatched: distances are in units of {float(model.scale_prior[0]):.3g}, a quarter "
            "of the spread of the labels, since the scale is inferred."
        )
    elif unpaired.unmatched is not None:
        notes += input_notes.of_distance(float(unpaired.unmatched))
    return _Problem(model, {"input": str(items), "labels": str(labels), **settings}, notes)
