"""``permvi methods``: a table of the methods of inference."""

import dataclasses
import json
import sys
import textwrap
from typing import Annotated

import typer

from permvi._cli import terminal
from permvi.inference import registry

# Narrower than most terminals.
_WIDTH = 79


def methods(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list instead of a table.")
    ] = False,
) -> None:
    """List the methods of inference: what each one needs, returns, supports and costs."""
    found = registry.methods()
    if as_json:
        sys.stdout.write(json.dumps([dataclasses.asdict(info) for info in found], indent=2) + "\n")
        return
    terminal.lines(["Methods of inference; auto computes exactly where that is affordable.", ""])
    for info in found:
        supports = [
            word
            for word, given in (("forbidden pairs", info.masks), ("unmatched items", info.partial))
            if given
        ]
        facts = {
            "needs": info.needs,
            "gives": info.gives,
            "takes": " and ".join(supports) or "complete matchings without forbidden pairs only",
            "cost": info.cost,
        }
        terminal.lines([info.name])
        for name, text in facts.items():
            first = f"  {name:<6} "
            terminal.lines(
                textwrap.wrap(
                    text, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first)
                )
            )
