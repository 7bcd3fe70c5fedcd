"""``permvi rank``: the order behind rankings, ratings or comparisons, from a file."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._cli import advice, commands, options, results, terminal
from permvi._cli.outputs import Outputs, files_of

if TYPE_CHECKING:
    from permvi._rank import RankedItem, Ranking
    from permvi.inference.rankings.groups import Groups

_KINDS = "mallows, generalised_mallows, footrule, spearman, cayley, plackett_luce or davidson"

# What --option sets.
_SETTINGS = ("num_sweeps", "num_draws", "num_resamples", "max_seconds")


def rank(
    rankings: Annotated[
        Path,
        typer.Argument(
            metavar="RANKINGS",
            help="A file of PrefLib (soc, soi, toc, toi), or CSV with a header: rows that list "
            "items, the best first; a column of ranks or ratings for each item; or columns "
            "winner,loser and optionally a count.",
        ),
    ],
    *,
    model: Annotated[
        str, options.takes_name(help=f"{_KINDS}; auto: the one of largest evidence.")
    ] = "mallows",
    format: Annotated[
        str,
        options.takes_name(
            help="The form of the file: preflib, arrows, orders, ranks, ratings or comparisons; "
            "auto finds out and says which."
        ),
    ] = "auto",
    ranks: Annotated[bool, typer.Option("--ranks", help="Short for --format ranks.")] = False,
    others_below: Annotated[
        bool,
        typer.Option(
            "--others-below",
            help="Items that a row does not list come after those it lists (best-of lists). By "
            "default they did not take part.",
        ),
    ] = False,
    robust: Annotated[
        bool | None,
        typer.Option(
            "--robust/--no-robust",
            help="Show probabilities of a bootstrap over the rankings, or those of the model. By "
            "default the bootstrap if the model does not fit.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        options.takes_number(
            help="Look for this many groups of voters, each with an order of its own; auto "
            "compares 1, 2, ... by their evidence. For all models but davidson.",
        ),
    ] = None,
    method: Annotated[
        str, options.takes_name(help="auto, exact or mcmc, for Mallows models.")
    ] = "auto",
    option: Annotated[
        list[str] | None,
        options.settings_option("num_sweeps=50000, num_draws, num_resamples or max_seconds"),
    ] = None,
    seed: options.Seed = 0,
    level: Annotated[
        float, options.takes_number(help="Probability of the credible intervals of ranks.")
    ] = 0.95,
    csv_file: options.CsvFile = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the probability of each rank of each item, in the formats of --csv.",
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="--probabilities as a table: a row for each item, a column for each rank.",
        ),
    ] = False,
    raw_csv: options.RawCsv = False,
    save: options.Save = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot mean ranks with intervals (png, pdf, svg)."),
    ] = None,
    report: options.Report = None,
    as_json: options.AsJson = False,
    json_file: options.JsonFile = None,
    everything: options.All = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Infer the order of items from rankings, with probabilities.

    Each ranking is a noisy copy of the true order. How noisy is inferred, too. A check tells
    whether the rankings are as the model says, and the Kemeny order is found with a proof.
    """
    options.check_level(level)
    if groups is not None and groups != "auto" and not groups.isdecimal():
        raise ValueError(f"--groups must be a whole number or auto, got {groups!r}.")
    num_groups = int(groups) if groups is not None and groups.isdecimal() else groups
    of_method = options.settings_of(option, _SETTINGS)
    written = files_of(csv_file, probabilities, save, plot, report, json_file)
    outputs = Outputs(written, as_json, raw_csv, wide, quiet, everything, strict)
    outputs.check()
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        import permvi as pv
        from permvi._cli import input_notes

        data = pv.models.Rankings.read(
            rankings, "ranks" if ranks else format, "below" if others_below else "absent"
        )
        data.note = advice.in_commands(data.note)
        notes = input_notes.of_rankings(rankings.name, data.note, given=ranks or format != "auto")
        asked = {"input": str(rankings), "note": data.note, "command": commands.as_typed()}
        found = pv.rank(
            data, model, robust=robust, groups=num_groups, method=method, seed=seed,
            settings=asked, progress=progress, **of_method,
        )  # fmt: skip
        items, untranslated = found.table(level), found.posterior
        found = dataclasses.replace(found, posterior=advice.translated(found.posterior))
        outputs.note(notes)
        progress("writing", 0, 1)
        outputs.write(
            {
                "save": untranslated.save,
                "csv": outputs.table(lambda: [item._asdict() for item in items]),
                "probabilities": outputs.table(
                    lambda: results.probabilities_of(
                        found.shown, wide=outputs.wide, names=("item", "rank")
                    )
                ),
                "plot": lambda path: results.save_figure(found.plot(level).figure, path),
                "report": lambda path: found.report(path, level),
            }
        )
    outputs.show(
        lambda: {**as_object(found, items, level), "notes": notes},
        lambda: show(found, items, level, everything=everything),
    )
    diagnostics = found.posterior.diagnostics
    outputs.judge(diagnostics.verdict, diagnostics.reasons[0])


def as_object(found: "Ranking", items: "Sequence[RankedItem]", level: float) -> Mapping[str, Any]:
    """The whole result as one JSON object."""
    best = found.kemeny
    return {
        **results.verdict_of(found.posterior),
        "items": [item._asdict() for item in items],
        "shown": found.shown_as,
        "p_order": found.p_order,
        "models": [one._asdict() for one in found.compared],
        "latents": {
            name: {"mean": latent.mean.tolist(), "sd": latent.sd.tolist()}
            for name, latent in found.posterior.latents.items()
        },
        "kemeny": {
            "order": [found.items[i] for i in best.order],
            "contradicted": best.contradicted,
            "lower_bound": best.lower_bound,
            "proven": best.proven,
            "num_optimal": best.num_optimal,
        },
        **({} if found.groups is None else {"groups": _groups_as_object(found, found.groups)}),
        **results.record_of(found.posterior, level),
    }


def _groups_as_object(found: "Ranking", parts: "Groups") -> Mapping[str, Any]:
    return {
        "model": parts.model,
        "log_evidence": parts.log_evidence,
        "log_evidence_se": parts.log_evidence_se,
        "compared": [one._asdict() for one in found.compared_groups],
        "groups": [
            {
                "share": share[0], "share_low": share[1], "share_high": share[2],
                parts.scale: {"mean": theta[0], "sd": theta[1]},
                **_log_worths(found.items, parts, k),
                "order": found.group_order(k),
                "marginals": parts.orders[k].marginals.tolist(),
                **results.verdict_of(parts.orders[k]),
            }
            for k, (share, theta) in enumerate(
                zip(parts.shares.tolist(), parts.thetas.tolist(), strict=True)
            )
        ],
    }  # fmt: skip


def _log_worths(
    items: "Sequence[str]", parts: "Groups", group: int
) -> Mapping[str, Mapping[str, float]]:
    if parts.log_worths is None:
        return {}
    return {"log_worth": dict(zip(items, parts.log_worths[group].tolist(), strict=True))}


def show(
    found: "Ranking", items: "Sequence[RankedItem]", level: float, *, everything: bool = False
) -> None:
    """Print the first items in their order, the models compared, and the verdicts."""
    total = len(items)
    items = items if everything else items[: results.MAX_ROWS]
    with_worth = items[0].log_worth is not None
    terminal.table(
        "In which order?",
        [">rank", "item", ">p", ">mean", f">{100 * level:g} % ranks", ">p first", ">p top 3"]
        + [">p before next"]
        + [">log worth"] * with_worth,
        [
            [
                str(item.rank),
                item.item,
                f"{item.probability:.3f}",
                f"{item.mean:.1f}",
                str(item.low) if item.low == item.high else f"{item.low} to {item.high}",
                f"{item.p_first:.3f}",
                f"{item.p_top3:.3f}",
                "" if item.p_before_next is None else f"{item.p_before_next:.3f}",
                *([] if item.log_worth is None else [f"{item.log_worth:.2f}"]),
            ]
            for item in items
        ],
        fold=False,
    )
    if len(items) < total:
        terminal.lines(
            [f"These are the first {len(items)} of {total:,} items (--all shows the others)."]
        )
    if len(found.compared) > 1:
        terminal.table(
            "Which model?",
            ["model", ">log evidence", ""],
            [
                [one.name, "" if one.log_evidence is None else f"{one.log_evidence:.2f}", one.note]
                for one in found.compared
            ],
            fold=False,
        )
    if found.groups is not None:
        _show_groups(found, found.groups)
    facts = results.facts_of(found.posterior)
    terminal.lines([f"p is {found.shown_as}; whole order: p = {found.p_order:.2g}", *facts])
    terminal.lines([f"Kemeny order: {found.kemeny_in_words}"])


def _show_groups(found: "Ranking", parts: "Groups") -> None:
    """Print the groups of voters, and how many there are."""
    if found.compared_groups:
        terminal.table(
            "How many groups of voters?",
            [">groups", "model", ">log evidence"],
            [
                [str(one.num_groups), one.model, f"{one.log_evidence:.1f} ± {one.se:.2g}"]
                for one in found.compared_groups
            ],
        )
    terminal.table(
        "What does each group say?",
        [">group", ">voters", "95 % interval", f">{parts.scale}", "order", "verdict"],
        [
            [
                str(k + 1),
                f"{share:.1%}",
                f"{low:.1%} to {high:.1%}",
                parts.scale_in_words(k),
                _in_a_line(found.group_order(k)),
                parts.orders[k].diagnostics.verdict,
            ]
            for k, (share, low, high) in enumerate(parts.shares.tolist())
        ],
    )


def _in_a_line(names: "Sequence[str]", most: int = 8) -> str:
    return " > ".join([*names[:most], "..."] if len(names) > most else names)
