"""``permvi rank``: the order behind rankings or comparisons, from a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from permvi._checks import one_of
from permvi._cli import options, results, terminal
from permvi.inference import registry as methods

if TYPE_CHECKING:
    import numpy as np

    from permvi.models import Rankings
    from permvi.posterior import Posterior

# Draws behind the probability that an item comes before the next one.
_NUM_DRAWS = 4000


def rank(
    rankings: Annotated[
        Path,
        typer.Argument(
            metavar="RANKINGS",
            help="CSV with a header. Each row lists items, best first (with --ranks: a column of "
            "ranks for each item). Or columns winner,loser and optionally a count.",
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
            help="Items that a row does not list come after those it lists (best-of lists). By "
            "default they did not take part.",
        ),
    ] = False,
    method: options.Method = methods.AUTO,
    seed: options.Seed = 0,
    level: Annotated[
        float, typer.Option(help="Probability of the credible intervals of ranks.")
    ] = 0.95,
    csv_file: options.CsvFile = None,
    save: options.Save = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot the probabilities of all ranks (png, pdf, svg)."),
    ] = None,
    report: options.Report = None,
    as_json: options.AsJson = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Infer the order of items from rankings, with probabilities.

    Each ranking is a noisy copy of the true order: the more pairs it reverses, the less probable it
    is (a Mallows model). The reliability of the rankings is inferred, too.
    """
    one_of("method", method, methods.NAMES)
    options.check_level(level)
    written = {"csv": csv_file, "save": save, "plot": plot, "report": report}
    options.check_outputs(written)
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        from permvi._cli.rank_files import read_rankings

        model = read_rankings(rankings, as_ranks=ranks, others_below=others_below)
        asked = {"input": str(rankings), "ranks": ranks, "others_below": others_below}
        progress("computing", 0, 1)
        posterior = results.fit(model, method, seed, progress, asked)
        items = ranked_items(posterior, log_worths(model), level)
        progress("writing", 0, 1)
        results.write(posterior, level, {**written, "csv": None})
        if csv_file is not None:
            results.write_csv(csv_file, [item._asdict() for item in items])
    if as_json:
        results.print_object(as_object(posterior, items, level))
    elif not quiet:
        show(posterior, items, level)
    if strict:
        results.exit_unless_trusted(posterior.diagnostics.verdict, posterior.diagnostics.reasons[0])


class RankedItem(NamedTuple):
    """An item and its rank; the fields are the keys in JSON and the columns in CSV."""

    item: str
    rank: int  # its rank from 1 in the order with the least expected distance between ranks
    probability: float  # the probability of this rank
    low: int  # the best rank of its credible interval
    high: int  # the worst rank of its credible interval
    p_first: float  # the probability that it is the best of all
    # The probability that it is better than the item of the next rank; None for the last item.
    p_before_next: float | None
    # Its log worth in a Plackett-Luce model, None if the rankings do not determine it.
    log_worth: float | None


def log_worths(model: "Rankings") -> "np.ndarray | None":
    """(n,) log worths of the Plackett-Luce model of largest likelihood, None if there is none."""
    from permvi.inference.plackett_luce import fit_rankings

    try:
        return fit_rankings(
            model.orders, model.counts, num_items=len(model.items), unranked=model.unranked
        ).log_worths
    except ValueError:
        # A group of items came before all others in every ranking.
        return None


def ranked_items(
    posterior: "Posterior", worths: "np.ndarray | None", level: float
) -> list[RankedItem]:
    """All items, best first."""
    import numpy as np

    names, _ = results.names_of(posterior)
    draws = posterior.sample(_NUM_DRAWS, posterior.seed or 0)
    order = np.argsort(posterior.expected_loss("footrule").perm)
    cumulative = np.cumsum(posterior.marginals, axis=1)
    found = []
    for rank, item in enumerate(order.tolist()):
        # Each tail outside the interval has at most half of the remaining probability.
        low, high = np.searchsorted(cumulative[item], [(1 - level) / 2, (1 + level) / 2 - 1e-9])
        after = None
        if rank + 1 < len(order):
            after = float(np.mean(draws[:, item] < draws[:, order[rank + 1]]))
        found.append(
            RankedItem(
                names[item],
                rank + 1,
                float(posterior.marginals[item, rank]),
                int(low) + 1,
                min(int(high), len(order) - 1) + 1,
                float(posterior.marginals[item, 0]),
                after,
                None if worths is None else float(worths[item]),
            )
        )
    return found


def as_object(
    posterior: "Posterior", items: Sequence[RankedItem], level: float
) -> Mapping[str, Any]:
    """The whole result as one JSON object."""
    theta = posterior.latents["theta"]
    return {
        **results.verdict_of(posterior),
        "items": [item._asdict() for item in items],
        "theta": {name: float(getattr(theta, name)) for name in ("mean", "sd")},
        **results.record_of(posterior, level),
    }


def show(posterior: "Posterior", items: Sequence[RankedItem], level: float) -> None:
    """Print the items in their order, then the verdict."""
    with_worth = items[0].log_worth is not None
    terminal.table(
        "In which order?",
        [">rank", "item", ">p", f">{100 * level:g} % ranks", ">p first", ">p before next"]
        + [">log worth"] * with_worth,
        [
            [
                str(item.rank),
                item.item,
                f"{item.probability:.3f}",
                str(item.low) if item.low == item.high else f"{item.low} to {item.high}",
                f"{item.p_first:.3f}",
                "" if item.p_before_next is None else f"{item.p_before_next:.3f}",
                *([] if item.log_worth is None else [f"{item.log_worth:.2f}"]),
            ]
            for item in items
        ],
        fold=False,
    )
    terminal.lines(results.facts_of(posterior))
