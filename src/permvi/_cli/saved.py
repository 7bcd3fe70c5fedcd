"""``permvi report`` and ``permvi ask``: a page about a saved posterior, and answers from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._cli import results, terminal

if TYPE_CHECKING:
    from permvi.posterior import Posterior


def report(
    fit: Annotated[
        Path, typer.Argument(metavar="FIT", help="Posterior saved by --save or posterior.save.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The report.", show_default="FIT with the ending .html"),
    ] = None,
    level: Annotated[
        float, typer.Option(help="With --json: probability of the credible sets.")
    ] = 0.95,
    top: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --json: number of most probable matchings to list.",
            show_default="3, none above 500 items or labels",
        ),
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Also print the JSON object of permvi match --json.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the path.")] = False,
) -> None:
    """Write an HTML report of a saved posterior, one file that needs no network."""
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        from permvi.posterior import load

        posterior = load(fit)
        progress("writing", 0, 1)
        path = fit.with_suffix(".html") if out is None else out
        posterior.report(path)
    if as_json:
        results.print_json(posterior, level=level, top=top)
    elif not quiet:
        terminal.paths([path])


def ask(
    fit: Annotated[
        Path, typer.Argument(metavar="FIT", help="Posterior saved by --save or posterior.save.")
    ],
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
