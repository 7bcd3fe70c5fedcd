"""The static parts of a report, as HTML."""

import base64
import importlib.metadata
import io
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from permvi._tables import csv_text, inert
from permvi._version import __version__
from permvi.report import diagnosis
from permvi.report.words import CERTAIN, best_probabilities, count, number, sentence

if TYPE_CHECKING:
    from permvi.posterior import Posterior
    from permvi.posterior.diagnostics import Verdict

_EVIDENCE = {
    "exact": "exact",
    "bound": "a lower bound: the true value is at least this",
    "estimate": "an estimate",
}
_GRADES = {"good": "fine", "check": "look", "bad": "bad", "info": "for information"}
# The smallest probability of the best label, the class in the style sheet, and the words.
_BANDS = (
    (0.99, "band-4", "at 99% or more"),
    (0.95, "band-3", "at 95 to 99%"),
    (0.80, "band-2", "at 80 to 95%"),
    (0.50, "band-1", "at 50 to 80%"),
    (0.00, "band-0", "below 50%"),
)
# The setting that holds the command, if the posterior comes from one.
COMMAND = "command"
_MAX_SETTING = 200
_MAX_LATENT_ENTRIES = 24
_LIBRARIES = ("numpy", "scipy", "jax", "numpyro")
# The plot of the evidence lower bound: its size, and what it shows.
_WIDTH, _HEIGHT = 600, 120
_MAX_POINTS = 300
# Percentiles: with the full range of the first steps, later ones would not show.
_SHOWN = (5.0, 99.0)


def title(posterior: "Posterior") -> str:
    """The default title: the numbers of items and labels."""
    n, m = posterior.shape
    sites = posterior.num_sites
    several = f", in {count(sites, 'permutation')}" if sites > 1 else ""
    return f"{count(n, 'item')} matched with {count(m, 'label')}{several}"


def lead(posterior: "Posterior", expected_loss: float) -> str:
    """The result in two or three sentences.

    ``expected_loss`` is the expected number of items that the best choice of labels has wrong.
    """
    best = best_probabilities(posterior)
    total, certain = len(best), int(np.count_nonzero(best >= CERTAIN))
    right = total - expected_loss
    shown = f"{right:,.1f}" if right < 1000 else f"{right:,.0f}"
    # Numbers that cannot be trusted are stated with a condition.
    doubt = posterior.diagnostics.verdict != "trust"
    start, has = ("If these probabilities were right, t", "would have") if doubt else ("T", "has")
    if certain == total:
        rest = f"Every item has a label with at least {CERTAIN:.0%} probability."
    elif certain == 0:
        rest = f"No item has a label with {CERTAIN:.0%} probability or more."
    else:
        rest = (
            f"{count(certain, 'item')} of {total:,} {'has' if certain == 1 else 'have'} a label "
            f"with at least {CERTAIN:.0%} probability."
        )
    return (
        f"Method <strong>{escape(posterior.method)}</strong>. {start}he best choice of labels "
        f"{has} <strong>{shown} of {count(total, 'item')}</strong> right on average. "
        f"{'' if doubt else rest}"
    )


def source(settings: Mapping[str, Any], method: str, written: datetime | None) -> str:
    """Where the numbers come from: the input file, the date, the method and the command."""
    given = settings.get("input")
    files = [given] if isinstance(given, str) else list(given or ())
    parts = [f"<bdi>{escape(PurePath(file).name)}</bdi>" for file in files]
    if written is not None:
        parts.append(f"{written:%d %B %Y, %H:%M}".lstrip("0"))
    parts.append(f"method {escape(method)}")
    command = settings.get(COMMAND)
    if command:
        parts.append(f"<code>{escape(str(command))}</code>")
    return f'<p class="source">{"".join(f"<span>{part}</span>" for part in parts)}</p>'


def verdict(posterior: "Posterior") -> str:
    """The verdict as a badge, and the reasons for it."""
    found = posterior.diagnostics
    return badge(found.verdict, found.reasons) + _model(posterior)


def badge(verdict: "Verdict", reasons: Iterable[str]) -> str:
    """A verdict on a computation as a badge, and the reasons for it."""
    word, meaning = diagnosis.VERDICTS[verdict]
    listed = "".join(f"<li>{escape(sentence(reason))}</li>" for reason in reasons)
    kind = verdict.replace(" ", "-")
    return (
        f'<div class="verdict {kind}" id="verdict"><p><span class="badge">{word}</span> '
        f"{meaning}</p><ul>{listed}</ul></div>"
    )


def _model(posterior: "Posterior") -> str:
    """The second verdict: whether the model fits, as a badge with reasons; nothing if unknown."""
    found = posterior.model_check
    if found is None:
        return ""
    kind, word, meaning = diagnosis.MODEL_VERDICTS[found.verdict]
    reasons = "".join(f"<li>{escape(sentence(reason))}</li>" for reason in found.reasons)
    return (
        f'<div class="verdict {kind}" id="model"><p><span class="badge">{word}</span> '
        f"{meaning}</p><ul>{reasons}</ul></div>"
    )


def certainty(posterior: "Posterior") -> str:
    """A bar that shows the numbers of items by the probability of their best label."""
    best = best_probabilities(posterior)
    parts, keys, upper = [], [], np.inf
    for least, kind, words in _BANDS:
        num = int(np.count_nonzero((best >= least) & (best < upper)))
        upper = least
        if num:
            parts.append(f'<span class="{kind}" style="flex-grow:{num}"></span>')
            keys.append(f'<li><span class="swatch {kind}"></span>{num:,} {words}</li>')
    return (
        '<div class="certainty"><h2>How probable is the best label?</h2>'
        f'<div class="strip" aria-hidden="true">{"".join(parts)}</div>'
        f'<ul class="keys">{"".join(keys)}</ul></div>'
    )


def diagnostics(posterior: "Posterior") -> str:
    """The verdict, every signal with its meaning, and the cost of the fit."""
    found = posterior.diagnostics
    word, meaning = diagnosis.VERDICTS[found.verdict]
    reasons = "; ".join(found.reasons)
    facts = [("Verdict", f"<strong>{word}.</strong> {meaning} {escape(sentence(reasons))}")]
    if posterior.log_evidence is not None:
        error = posterior.log_evidence_se
        spread = "" if error is None else f" ± {number(error, 2)}"
        kind = _EVIDENCE[str(posterior.log_evidence_kind)]
        facts.append(("Log evidence", f"{number(posterior.log_evidence, 6)}{spread}, {kind}"))
    if posterior.joint_entropy is not None:
        facts.append(
            (
                "Entropy of the matching",
                f"{number(posterior.joint_entropy)} nats, as much as a choice among "
                f"{number(np.exp(min(posterior.joint_entropy, 700.0)))} equally probable matchings",
            )
        )
    if posterior.num_evaluations is not None:
        facts.append(("Evaluations", f"{posterior.num_evaluations:,} log densities"))
    if posterior.seconds is not None:
        facts.append(("Time", f"{number(posterior.seconds)} s"))
    rows = [
        (
            escape(signal.name),
            f"<strong>{escape(signal.value)}</strong>",
            f'<span class="grade {signal.grade}">{_GRADES[signal.grade]}</span>',
            escape(signal.meaning),
        )
        for signal in diagnosis.signals(found)
    ]
    table = table_of(("Signal", "Value", "", "Meaning"), rows, "signals") if rows else ""
    return section("Can this be trusted?", facts_of(facts) + table + trace_figure(found.elbo_trace))


def latents(posterior: "Posterior", names: Mapping[str, Sequence[str]] | None = None) -> str:
    """Means and standard deviations of other latent variables; ranges for large arrays.

    ``names`` may hold names of the entries of a variable.
    """
    if not posterior.latents:
        return ""
    rows = []
    for key, latent in posterior.latents.items():
        mean, sd = latent.mean, latent.sd
        if mean.size <= _MAX_LATENT_ENTRIES:
            rows += [
                (
                    escape(key + _subscript(place, (names or {}).get(key))),
                    number(float(mean[place]), 4),
                    number(float(sd[place])),
                )
                for place in np.ndindex(mean.shape)
            ]
        else:
            size = " × ".join(map(str, mean.shape))
            means = f"{number(mean.min(), 4)} to {number(mean.max(), 4)}"
            sds = f"{number(sd.min())} to {number(sd.max())}"
            rows.append((f"{escape(key)} ({size} numbers)", means, sds))
    table = table_of(("Name", "Mean", "Standard deviation"), rows, "latents")
    return section("Other latent variables", table)


def settings(posterior: "Posterior") -> str:
    """The settings and versions that reproduce the fit."""
    given = [
        (escape(str(key)), f"<code>{escape(_shorten(value))}</code>")
        for key, value in posterior.settings.items()
    ]
    facts = [("Method", f"<code>{escape(posterior.method)}</code>"), *given]
    if posterior.seed is not None:
        facts.append(("Seed", f"<code>{posterior.seed}</code>"))
    if posterior.fingerprint is not None:
        facts.append(("Fingerprint of the data", f"<code>{escape(posterior.fingerprint)}</code>"))
    facts.append(("Computed by", f"permvi {escape(posterior.version)}"))
    others = ", ".join(f"{library} {_version(library)}" for library in _LIBRARIES)
    facts.append(
        (
            "Report written by",
            f"permvi {__version__}, Python {platform.python_version()}, {escape(others)}",
        )
    )
    return section("Settings and versions", facts_of(facts))


def trace_figure(elbo: np.ndarray | None) -> str:
    """Plot evidence lower bounds (..., steps), a line for each restart; nothing without a trace."""
    if elbo is None:
        return ""
    lines = np.atleast_2d(np.asarray(elbo, dtype=np.float64))
    if not lines.size:
        return ""
    lines = lines.reshape(-1, lines.shape[-1])
    steps = np.unique(np.linspace(0, lines.shape[1] - 1, _MAX_POINTS).astype(int))
    lines = lines[:, steps]
    finite = lines[np.isfinite(lines)]
    if len(steps) < 2 or not finite.size:
        return ""
    low, high = np.percentile(finite, _SHOWN)
    scale = (_HEIGHT - 8) / max(high - low, np.finfo(float).tiny)
    x = steps * (_WIDTH / steps[-1])
    drawn = "".join(
        f'<polyline points="{_points(x, _HEIGHT - 4 - scale * (np.clip(line, low, high) - low))}"/>'
        for line in lines
    )
    return (
        f'<figure class="trace"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Evidence lower bound over the steps">{drawn}</svg>'
        f"<figcaption>The evidence lower bound over {steps[-1] + 1:,} steps, from "
        f"{number(low, 4)} to {number(high, 4)}: flat where the fit has settled."
        "</figcaption></figure>"
    )


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True) if np.isfinite(b))


def section(heading: str, content: str, tools: str = "") -> str:
    """Return a part of the page under a heading, with links beside it."""
    head = f"<h2>{heading}</h2>"
    if tools:
        head = f'<div class="title-row">{head}<div class="controls">{tools}</div></div>'
    return f"<section>{head}{content}</section>"


def facts_of(facts: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values; both are HTML already."""
    pairs = "".join(f"<div><dt>{key}</dt><dd>{value}</dd></div>" for key, value in facts)
    return f'<dl class="facts">{pairs}</dl>'


def table_of(header: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> str:
    """Return a table; its cells are HTML already."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def scrolled(header: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> str:
    """Return a table of HTML cells that scrolls on narrow screens, where its words stay whole."""
    return f'<div class="scrolled">{table_of(header, rows, kind)}</div>'


def save_table(file: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a link that saves a table as CSV, without a script."""
    cells = ([inert(cell) for cell in row] for row in rows)
    return _save(file, "Table as CSV", "text/csv", csv_text([*map(inert, header)], cells).encode())


def save_picture(file: str, figure: Any) -> str:
    """Return a link that saves a figure of Matplotlib as PNG, without a script."""
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=150)
    return _save(file, "Picture as PNG", "image/png", memory.getvalue())


def _save(file: str, label: str, kind: str, content: bytes) -> str:
    data = base64.b64encode(content).decode()
    return f'<a class="small" download="{file}" href="data:{kind};base64,{data}">{label}</a>'


def _subscript(place: tuple[int, ...], names: Sequence[str] | None) -> str:
    if names is not None:
        return f" of {names[place[0]]}"
    return f"[{', '.join(map(str, place))}]" if place else ""


def _shorten(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MAX_SETTING else f"{text[:_MAX_SETTING]}…"


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
