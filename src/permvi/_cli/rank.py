"""``permvi rank``: the order behind rankings or comparisons, from a file."""

from pathlib import Path
from typing import Annotated

import typer

from permvi._cli import options, running, terminal
from permvi.inference import registry as methods

# Beyond what is exact, chains: steps of each of them for each item. A step costs next to nothing.
_MAX_EXACT = 9
_STEPS_PER_ITEM = 1000


def rank(
    rankings: Annotated[
        Path,
        typer.Argument(
            metavar="RANKINGS",
            help="CSV below a header: in each row items, the best one first (with --ranks: ranks, "
            "a column for each item); or winner,loser and perhaps how often.",
        ),
    ],
    *,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Rows hold ranks, 1 for the best, not items.")
    ] = False,
    others_below: Annotated[
        bool,
        typer.Option(
            "--others-below",
            help="Items that a row does not list come after those it lists (best-of lists); by "
            "default they did not take part.",
        ),
    ] = False,
    method: options.Method = methods.AUTO,
    seed: options.Seed = 0,
    level: Annotated[float, typer.Option(help="Probability of the intervals of ranks.")] = 0.95,
    csv_file: options.CsvFile = None,
    save: options.Save = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the probabilities of all ranks (png, pdf, svg)."),
    ] = None,
    report: options.Report = None,
    as_json: options.AsJson = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Say in which order items are, with probabilities.

    Each ranking is taken for the true order with mistakes: the fewer pairs are the other way round,
    the more probable it is (a Mallows model). How reliable rankings are is inferred.
    """
    methods.check_method(method)
    options.check_level(level)
    written = {"csv": csv_file, "save": save, "plot": plot, "report": report}
    options.check_outputs(written)
    with terminal.progress(quiet=quiet or as_json) as bar:
        bar("reading", 0, 1)
        from permvi._cli import orders, results
        from permvi._cli.consensus import consensus, model_of
        from permvi._cli.rankings import read_rankings

        found = read_rankings(rankings, as_ranks=ranks, others_below=others_below)
        behind = consensus(found)
        model, offset = model_of(behind, found.items)
        asked = {"input": str(rankings), "ranks": ranks, "others_below": others_below}
        bar("computing", 0, 1)
        of_method = {}
        if method == methods.AUTO and len(found.items) > _MAX_EXACT:
            method, of_method = "mcmc", {"num_steps": _STEPS_PER_ITEM * len(found.items)}
        posterior = running.fit(model, method, seed, bar, asked, **of_method)
        posterior = orders.with_dispersion(posterior, behind, offset)
        items = orders.orders_of(posterior, orders.log_worths(found), level)
        bar("writing", 0, 1)
        running.write(posterior, level, {**written, "csv": None})
        if csv_file is not None:
            results.write_csv(csv_file, orders.rows_of(items))
    if as_json:
        results.print_object(orders.as_object(posterior, items, level))
    elif not quiet:
        orders.show(posterior, items, level)
    if strict:
        running.exit_unless_trusted(posterior.diagnostics.verdict, posterior.diagnostics.reasons[0])
