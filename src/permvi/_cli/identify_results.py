"""The results of ``permvi identify``, worm by worm: JSON, CSV, figures, reports and tables."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from permvi import _figures, plots
from permvi._cli import results, terminal
from permvi._cli.identify_files import Recording
from permvi._files import STANDARD
from permvi.models import SharedDynamics
from permvi.posterior import Diagnostics, Posterior
from permvi.posterior.laws import DrawsLaw, Law
from permvi.posterior.marginal_law import MarginalsLaw

# The size of one worm's heatmap in inches, and the number of heatmaps side by side.
_PANEL = (5.6, 4.8)
_PANELS_IN_A_ROW = 3


class Worm(NamedTuple):
    """The result for one worm."""

    name: str
    known: np.ndarray  # (n,) whether the identity of each neuron was given
    posterior: Posterior  # the posterior of this worm's identities


def by_worm(
    posterior: Posterior, recordings: Sequence[Recording], known: Sequence[np.ndarray]
) -> list[Worm]:
    """Split the posterior by worms, without the rows that pad it to the largest recording.

    ``known`` holds (n,) canonical neurons for each worm, -1 for unknown.
    """
    return [
        Worm(
            recording.worm,
            pairs >= 0,
            _of_worm(posterior, site, np.arange(len(recording.neurons)), recording.neurons),
        )
        for site, (recording, pairs) in enumerate(zip(recordings, known, strict=True))
    ]


def _of_worm(
    posterior: Posterior, site: int, rows: np.ndarray, names: tuple[str, ...]
) -> Posterior:
    """Return the posterior of some rows of one permutation, in this order and with these names.

    The evidence and other latents belong to all worms together and are left out.
    """
    S, (n, m) = posterior.num_sites, posterior.shape
    marginals = posterior.marginals.reshape(S, n, m)[site, rows]
    unmatched = posterior.p_unmatched_rows.reshape(S, n)[site, rows]
    unused = np.clip(1.0 - marginals.sum(axis=0), 0.0, 1.0)
    law: Law
    if isinstance(posterior.law, DrawsLaw):
        draws = posterior.law.draws.reshape(-1, S, n)[:, site, rows]
        with np.errstate(divide="ignore"):
            law = DrawsLaw(draws, np.log(posterior.law.weights))
    else:
        law = MarginalsLaw(marginals, unmatched, unused)
    found = posterior.diagnostics
    return dataclasses.replace(
        posterior,
        law=law,
        marginals=marginals,
        p_unmatched_rows=unmatched,
        p_unmatched_cols=unused,
        mode=posterior.mode.reshape(S, n)[site, rows],
        labels=(names, posterior.labels[1]),
        diagnostics=Diagnostics(verdict=found.verdict, reasons=found.reasons),
        latents={},
        log_evidence=None,
        log_evidence_kind=None,
        log_evidence_se=None,
    )


def neurons_of(worm: Worm, level: float) -> list[dict[str, Any]]:
    """Summarise each neuron of a worm."""
    items = results.items_of(worm.posterior, level)
    return [
        {
            "neuron": item["item"],
            "identity": item["best"],
            **{
                name: item[name]
                for name in ("probability", "runner_up", "runner_up_probability", "credible_set")
            },
            "entropy": item["entropy"],
            "known": bool(known),
        }
        for item, known in zip(items, worm.known, strict=True)
    ]


def scales_of(posterior: Posterior, model: SharedDynamics) -> dict[str, dict[str, Any]]:
    """Standard deviations of noise and weights, and whether they were learned.

    A method that learns them says in its diagnostics what it found; others keep the model's.
    """
    extras = posterior.diagnostics.extras
    names = ("noise", "noise_scale", model.learned[1]), ("weight", "weight_scale", model.learned[0])
    return {
        f"{what}_sd": {"value": float(extras.get(name, getattr(model, name))), "learned": learned}
        for what, name, learned in names
    }


def as_object(
    posterior: Posterior, model: SharedDynamics, worms: Sequence[Worm], level: float
) -> dict[str, Any]:
    """Return the whole result as one JSON object."""
    _, identities = results.names_of(worms[0].posterior)
    return {
        **results.verdict_of(posterior),
        "worms": [
            {
                "worm": worm.name,
                "neurons": neurons_of(worm, level),
                "identities": [
                    {"identity": name, "p_unrecorded": p}
                    for name, p in zip(
                        identities, worm.posterior.p_unmatched_cols.tolist(), strict=True
                    )
                ],
            }
            for worm in worms
        ],
        **scales_of(posterior, model),
        **results.record_of(posterior, level),
    }


def rows_of(worms: Sequence[Worm], level: float) -> list[dict[str, Any]]:
    """Return the neurons of all worms."""
    return [{"worm": worm.name, **row} for worm in worms for row in neurons_of(worm, level)]


def pairs_of(worms: Sequence[Worm], wide: bool) -> list[dict[str, Any]]:  # noqa: FBT001
    """Return the probabilities of all identities of all neurons, see `results.probabilities_of`."""
    named = ((worm.name, worm.posterior) for worm in worms)
    return results.probabilities_of_each("worm", named, wide=wide, names=("neuron", "identity"))


def curation_of(found: Sequence[Worm], level: float) -> list[dict[str, Any]]:
    """Return a table to curate, the most doubtful cells first.

    The column ``decision`` is empty but for cells that were known; filled in, the file is what
    ``--known`` takes.
    """
    rows = []
    for worm in found:
        table = neurons_of(worm, level)
        for row in sorted(table, key=lambda row: (row["known"], row["probability"])):
            decision = row["identity"] if row["known"] else ""
            kept = {name: value for name, value in row.items() if name not in ("entropy", "known")}
            rows.append({"worm": worm.name, **kept, "decision": decision})
    return rows


def weights_of(posterior: Posterior, model: SharedDynamics) -> list[dict[str, Any]]:
    """Return the weight of each edge and its standard deviation, if the method infers them."""
    if "W" not in posterior.latents:
        raise ValueError(
            f"--weights must go with a method that infers them, got {posterior.method!r}."
        )
    names = posterior.labels[1] or ()
    found = posterior.latents["W"]
    edges = np.asarray(model.edges).tolist()
    return [
        {"from": names[b], "to": names[a], "weight": mean, "sd": sd}
        for (a, b), mean, sd in zip(edges, found.mean.tolist(), found.sd.tolist(), strict=True)
    ]


def write_reports(path: Path, worms: Sequence[Worm]) -> list[Path]:
    """Write a report; with several worms one for each, with its name added to the file's."""
    if path == STANDARD and len(worms) > 1:
        raise ValueError(f"--report must be a file for {len(worms)} worms, got '-'.")
    paths = []
    for worm in worms:
        target = results.part_of(path, None if len(worms) == 1 else worm.name)
        n, m = worm.posterior.shape
        title = f"{worm.name}: {n} recorded neurons, {m} identities"
        paths.append(worm.posterior.report(target, title=title))
    return paths


def draw(worms: Sequence[Worm]) -> Figure:
    """Plot the probabilities of all pairs, a panel for each worm; neurons by their identities."""
    cols = min(len(worms), _PANELS_IN_A_ROW)
    rows = -(-len(worms) // cols)
    with _figures.styled():
        figure = Figure(figsize=(cols * _PANEL[0], rows * _PANEL[1]), layout="constrained")
        for k, worm in enumerate(worms, 1):
            names, _ = results.names_of(worm.posterior)
            order = np.argsort(worm.posterior.mode, kind="stable")
            drawn = _of_worm(worm.posterior, 0, order, tuple(names[i] for i in order))
            ax = plots.marginals(drawn, ax=figure.add_subplot(rows, cols, k))
            ax.set(title=worm.name, xlabel="identity", ylabel="recorded neuron")
    return figure


def show(
    posterior: Posterior,
    model: SharedDynamics,
    worms: Sequence[Worm],
    level: float,
    *,
    everything: bool = False,
) -> None:
    """Print the neurons of all worms, or the least certain of many; the verdict and the scales."""
    several, any_known = len(worms) > 1, any(worm.known.any() for worm in worms)
    names = [*["worm"] * several, "neuron", *["known"] * any_known]
    listed = rows_of(worms, level)
    shown = listed
    if len(listed) > results.MAX_ROWS and not everything:
        shown = sorted(listed, key=lambda row: -row["entropy"])[: results.MAX_ROWS]
    rows = []
    for row in shown:
        known = ["yes" if row["known"] else ""] * any_known
        cells = results.label_cells({**row, "best": row["identity"]})
        rows.append([*[row["worm"]] * several, row["neuron"], *known, *cells])
    terminal.table(
        "Which neuron is it?", [*names, "identity", *results.label_columns(level)], rows, fold=False
    )
    if len(shown) < len(listed):
        terminal.lines(
            [
                f"These are the {len(shown)} least certain of {len(listed):,} neurons (--all shows "
                "the others)."
            ]
        )
    terminal.lines(results.facts_of(posterior))
    for name, scale in scales_of(posterior, model).items():
        how = "learned" if scale["learned"] else "given"
        terminal.lines([f"{name.replace('_', ' ')}: {scale['value']:.4g} ({how})"])
