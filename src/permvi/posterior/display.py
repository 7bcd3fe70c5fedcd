"""A posterior in a few lines, as text and as HTML."""

from html import escape
from typing import TYPE_CHECKING

from permvi.posterior.items import Item

if TYPE_CHECKING:
    from permvi.posterior.posterior import Posterior

_ITEMS_IN_TEXT = 3
_ITEMS_IN_HTML = 10
_LABELS_IN_MODE = 12


def text(posterior: "Posterior") -> str:
    """A headline, and one line each for verdict, evidence, mode and what is most uncertain."""
    lines = [_headline(posterior), *(f"  {name:<14}{value}" for name, value in _facts(posterior))]
    return "\n".join(lines)


def html(posterior: "Posterior") -> str:
    """The same with a small table of the most uncertain items."""
    facts = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in _facts(posterior)
    )
    several = posterior.num_sites > 1
    head = ["site"] * several + ["item", "best", "p", "runner-up", "p", "unmatched"]
    rows = [
        [str(item.site)] * several
        + [str(item.item), str(item.best), f"{item.probability:.3f}"]
        + [str(item.runner_up), f"{item.runner_up_probability:.3f}", f"{item.p_unmatched:.3f}"]
        for item in posterior.most_uncertain(_ITEMS_IN_HTML)
    ]
    table = "".join(
        "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
        for tag, cells in [("th", head), *(("td", row) for row in rows)]
    )
    total = posterior.num_sites * posterior.shape[0]
    shown = f"the {len(rows)} most uncertain of {total} items" if total > len(rows) else "items"
    return (
        f"<div><b>{escape(_headline(posterior))}</b><table>{facts}</table>"
        f"<table><caption>{shown}</caption>{table}</table></div>"
    )


def _headline(posterior: "Posterior") -> str:
    n, m = posterior.shape
    sites = f"{posterior.num_sites} x " if posterior.num_sites > 1 else ""
    return f"Posterior of {sites}{n} items and {m} labels by {posterior.method!r}"


def _facts(posterior: "Posterior") -> list[tuple[str, str]]:
    diagnostics = posterior.diagnostics
    facts = [("verdict", f"{diagnostics.verdict}: {'; '.join(diagnostics.reasons)}")]
    if posterior.log_evidence is not None:
        error = "" if posterior.log_evidence_se is None else f" ± {posterior.log_evidence_se:.2g}"
        kind = posterior.log_evidence_kind
        facts.append(("log evidence", f"{posterior.log_evidence:.6g}{error} ({kind})"))
    facts.append(("mode", _mode(posterior)))
    total = posterior.num_sites * posterior.shape[0]
    correct = total - posterior.expected_loss("hamming").expected_loss
    facts.append(("certainty", f"{correct:.4g} of {total} items right on average"))
    unsure = [item for item in posterior.most_uncertain(_ITEMS_IN_TEXT) if item.entropy > 0]
    if unsure:
        facts.append(("least certain", "; ".join(_unsure(item) for item in unsure)))
    if posterior.latents:
        facts.append(("latents", ", ".join(posterior.latents)))
    return facts


def _mode(posterior: "Posterior") -> str:
    names = posterior.labels[1]
    columns = posterior.mode.ravel()
    shown = [
        str(column) if names is None or column < 0 else names[column]
        for column in columns[:_LABELS_IN_MODE]
    ]
    return " ".join(shown) + (" ..." if len(columns) > _LABELS_IN_MODE else "")


def _unsure(item: Item) -> str:
    return (
        f"{item.item} is {item.best} ({item.probability:.2f}) "
        f"or {item.runner_up} ({item.runner_up_probability:.2f})"
    )
