"""What commands that compute a posterior do with it."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from permvi._cli import terminal

if TYPE_CHECKING:
    from permvi.experiments.results import Progress
    from permvi.posterior import Posterior

NOT_TRUSTED = 3


def fit(
    model: Any,
    method: str,
    seed: int,
    progress: "Progress",
    settings: Mapping[str, Any],
    **options: Any,
) -> "Posterior":
    """The posterior of a model, with the settings of the command in its record.

    Args:
        model: The model.
        method: The method's name.
        seed: The seed.
        progress: Called as ``progress(what, done, total)``.
        settings: What the user asked for, None for what they did not.
        **options: Of the method.
    """
    import permvi as pv

    with warnings.catch_warnings():
        # The verdict is shown anyway.
        warnings.simplefilter("ignore", pv.FitWarning)
        posterior = pv.fit(model, method=method, seed=seed, progress=progress, **options)
    given = {name: value for name, value in settings.items() if value is not None}
    return dataclasses.replace(posterior, settings={**posterior.settings, **given})


def write(posterior: "Posterior", level: float, files: Mapping[str, Path | None]) -> None:
    """Write what was asked for, one file after the other, each whole or not at all."""
    if files["save"] is not None:
        posterior.save(files["save"])
    if files["csv"] is not None:
        from permvi._cli import results

        results.write_csv(files["csv"], results.items_of(posterior, level))
    if files["plot"] is not None:
        save_figure(posterior.plot().figure, files["plot"])
    if files["report"] is not None:
        posterior.report(files["report"])


def save_figure(figure: Any, path: Path) -> None:
    """Save a figure in the format that the file's name ends in."""
    from permvi import _figures

    _figures.save(figure, path.parent, path.stem, [path.suffix.lstrip(".")])


def part_of(path: Path, part: str | None) -> Path:
    """The name of one of several files: ``fit.html`` becomes ``fit-PART.html``."""
    return path if part is None else path.with_stem(f"{path.stem}-{part}")


def exit_unless_trusted(verdict: str, reason: str) -> None:
    """End with a status of its own, and one line, if the verdict is the worst one."""
    if verdict == "do not trust":
        terminal.note(f"verdict 'do not trust': {reason}.")
        raise typer.Exit(NOT_TRUSTED)
