"""``permvi methods``: a table of the methods of inference."""

import dataclasses
import json
import sys
from typing import Annotated

import typer

from permvi._cli import terminal
from permvi.inference import registry


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
    terminal.table(
        "Methods; auto computes exactly where that is affordable",
        ["method", "needs", "gives", "masks", "unmatched", "cost"],
        [
            [
                info.name,
                info.needs,
                info.gives,
                "yes" if info.masks else "no",
                "yes" if info.partial else "no",
                info.cost,
            ]
            for info in found
        ],
    )
