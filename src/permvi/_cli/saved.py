"""``permvi report``, ``compare`` and ``ask``: saved posteriors as pages and as answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._cli import commands, options, results, terminal
from permvi._cli.outputs import Outputs

if TYPE_CHECKING:
    from permvi.posterior import Posterior
    from permvi.report.comparison import Comparison


_Fit = Annotated[
    Path, typer.Argument(metavar="FIT", help="Posterior saved by --save or posterior.save.")
]


def report(
    fit: _Fit,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The report.", show_default="FIT with the ending .html"),
    ] = None,
    level: Annotated[
        float, options.takes_number(help="With --json and --csv: probability of the credible sets.")
    ] = 0.95,
    top: Annotated[
        int | None,
        options.takes_count(
            min=0,
            help="With --json: number of most probable matchings to list.",
            show_default="3, none above 500 items or labels",
        ),
    ] = None,
    *,
    csv_file: options.CsvFile = None,
    probabilities: options.Probabilities = None,
    wide: options.Wide = False,
    raw_csv: options.RawCsv = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Also print the JSON object of permvi match --json.")
    ] = False,
    json_file: options.JsonFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the path.")] = False,
) -> None:
    """Write an HTML report of a saved posterior, one file that needs no network."""
    options.check_level(level)
    path = fit.with_suffix(".html") if out is None else out
    files = {"csv": csv_file, "probabilities": probabilities, "out": path, "json": json_file}
    asked = Outputs(files, as_json, raw_csv, wide, quiet)
    asked.check()
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        from permvi.posterior import load

        posterior = load(fit)
        progress("writing", 0, 1)
        makers = asked.makers(posterior, level)
        asked.write({**makers, "out": makers["report"]})
    asked.show(
        lambda: results.as_object(posterior, level=level, top=top), lambda: terminal.paths([path])
    )


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Posterior saved by --save.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one, of the same items.")],
    *,
    csv_file: options.CsvFile = None,
    probabilities: options.Probabilities = None,
    wide: options.Wide = False,
    raw_csv: options.RawCsv = False,
    report: options.Report = None,
    as_json: options.AsJson = False,
    json_file: options.JsonFile = None,
    everything: options.All = False,
    quiet: options.Quiet = False,
) -> None:
    """Show where two saved posteriors of the same items and labels differ.

    An item's difference is the total variation distance: the probability that one posterior has on
    other labels than the other.
    """
    files = {"csv": csv_file, "probabilities": probabilities, "report": report, "json": json_file}
    asked = Outputs(files, as_json, raw_csv, wide, quiet, everything)
    asked.check()
    from permvi.posterior import load
    from permvi.report import comparison

    names = [path.name for path in (first, second)]
    found = comparison.compare(load(first), load(second), names)
    rows = [row._asdict() for row in found.rows]
    asked.write(
        {
            "csv": asked.table(lambda: rows),
            "probabilities": asked.table(
                lambda: results.probabilities_of_each(
                    "posterior", zip("AB", found.posteriors, strict=True), wide=wide
                )
            ),
            "report": lambda path: comparison.write(found, path, commands.as_typed()),
        }
    )
    asked.show(
        lambda: {
            "posteriors": [
                {"file": name, **results.verdict_of(one)}
                for name, one in zip(names, found.posteriors, strict=True)
            ],
            "mean_difference": found.mean_difference,
            "items": rows,
        },
        lambda: _show_comparison(found, everything=everything),
    )


def _show_comparison(found: "Comparison", *, everything: bool) -> None:
    shown = found.rows if everything else found.rows[: results.MAX_ROWS]
    a, b = found.names
    terminal.table(
        f"{a} and {b}: where they differ most",
        ["item", "best in A", ">p", "best in B", ">p", ">difference"],
        [
            [
                row.item,
                row.best_a or results.UNMATCHED,
                f"{row.probability_a:.3f}",
                row.best_b or results.UNMATCHED,
                f"{row.probability_b:.3f}",
                f"{row.difference:.3f}",
            ]
            for row in shown
        ],
        fold=False,
    )
    if len(shown) < len(found.rows):
        terminal.lines(
            [
                f"The other {len(found.rows) - len(shown):,} items differ by "
                f"{found.rows[len(shown)].difference:.3f} at most (--all shows them)."
            ]
        )
    terminal.lines([found.summary])
    for name, one in zip("AB", found.posteriors, strict=True):
        terminal.lines(f"{name}: {fact}" for fact in results.facts_of(one))


def ask(
    fit: _Fit,
    statements: Annotated[
        list[str],
        typer.Argument(
            metavar="STATEMENT...",
            help="Pairs that hold together, such as 'r1=Anna,r2!=Bea'; '!=' for not, 'unmatched' "
            "as a label for none. Without names, items and labels are numbers from 0.",
        ),
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of lines.")
    ] = False,
) -> None:
    """Print how probable statements about several items are, from a saved posterior."""
    from permvi.posterior import load

    posterior = load(fit)
    answers = [(text, posterior.probability(*_parsed(posterior, text))) for text in statements]
    if as_json:
        listed = [{"statement": t, "probability": float(p), "se": p.se} for t, p in answers]
        results.print_object({**results.verdict_of(posterior), "statements": listed})
        return
    terminal.lines([f"p({text}) = {answer!r}" for text, answer in answers])


def _parsed(posterior: "Posterior", text: str) -> tuple[dict[Any, Any], dict[Any, list[Any]]]:
    """Return the pairs that must hold, and those that must not."""
    pairs: dict[Any, Any] = {}
    excluding: dict[Any, list[Any]] = {}
    for part in text.split(","):
        item, equals, label = (piece.strip() for piece in part.partition("="))
        negated = item.endswith("!")
        item = item.removesuffix("!").strip()
        if not (item and equals and label):
            raise ValueError(f"statements must be like 'r1=Anna,r2!=Bea', got {text!r}.")
        key, value = (
            _index(each, names) for each, names in zip((item, label), posterior.labels, strict=True)
        )
        if negated:
            excluding.setdefault(key, []).append(value)
        elif key in pairs:
            raise ValueError(f"a statement must give an item one label, got {text!r}.")
        else:
            pairs[key] = value
    return pairs, excluding


def _index(text: str, names: Sequence[str] | None) -> Any:
    """Return a name as it is, or a number where there are no names."""
    return int(text) if names is None and text.isdigit() else text
