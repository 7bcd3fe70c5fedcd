"""A posterior as text, HTML, pandas frames, an xarray dataset and ArviZ data."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.sparse import issparse

from permvi._checks import whole
from permvi.posterior.items import Item
from permvi.posterior.laws import DrawsLaw

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from permvi.posterior.posterior import Posterior

By = Literal["items", "pairs"]

_ITEMS_IN_TEXT = 3
_ITEMS_IN_HTML = 10
_LABELS_IN_MODE = 12
_DEFAULT_DRAWS = 1000


def text(posterior: "Posterior") -> str:
    """Return a headline and one line each for verdict, evidence, mode and least certain items."""
    lines = [_headline(posterior), *(f"  {name:<14}{value}" for name, value in _facts(posterior))]
    return "\n".join(lines)


def html(posterior: "Posterior") -> str:
    """Return the facts of :func:`text` as HTML, with a table of the most uncertain items."""
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
    if posterior.model_check is not None:
        facts.append(("model", str(posterior.model_check)))
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


def to_frame(columns: Mapping[str, list], *, several: bool) -> "pd.DataFrame":
    """Return a frame of fields by name, a row per item or pair; ``several`` keeps the sites."""
    import pandas as pd

    # The index is the row, and a single permutation needs no site.
    left_out = ("row",) if several else ("site", "row")
    return pd.DataFrame({k: values for k, values in columns.items() if k not in left_out})


def to_xarray(posterior: "Posterior") -> "xr.Dataset":
    """Return marginals and probabilities of staying unmatched, with names as coordinates."""
    import xarray as xr

    sides = zip(("item", "label"), posterior.labels, posterior.shape, strict=True)
    coords = {dim: np.arange(n) if names is None else list(names) for dim, names, n in sides}
    site = () if posterior.num_sites == 1 else ("site",)
    found = posterior.marginals
    variables = {
        "marginals": ((*site, "item", "label"), found.toarray() if issparse(found) else found),
        "p_unmatched_items": ((*site, "item"), posterior.p_unmatched_rows),
        "p_unmatched_labels": ((*site, "label"), posterior.p_unmatched_cols),
    }
    attrs = {"method": posterior.method, "verdict": posterior.diagnostics.verdict}
    return xr.Dataset(variables, coords=coords, attrs=attrs)


def to_arviz(posterior: "Posterior", num: int | None, seed: int) -> Any:
    """Return one chain of draws of ``perm`` and of the latents that have draws."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ, got none; try pip install arviz.") from error
    import xarray as xr

    perms, latents = _joint_draws(posterior, num, seed)
    event_dims = ("row",) if posterior.num_sites == 1 else ("site", "row")
    variables = {"perm": (("chain", "draw", *event_dims), perms[None])}
    for site, draws in latents.items():
        # In the name of a DataTree variable a slash would mean another group.
        name = site.replace("/", ".")
        dims = tuple(f"{name}_dim_{axis}" for axis in range(draws.ndim - 1))
        variables[name] = (("chain", "draw", *dims), draws[None])
    names = posterior.labels[0]
    sizes = {"chain": 1, "draw": len(perms), "site": posterior.num_sites}
    coords = {dim: np.arange(size) for dim, size in sizes.items()}
    coords["row"] = np.arange(posterior.shape[0]) if names is None else np.array(names)
    if posterior.num_sites == 1:
        del coords["site"]
    attrs = {
        "inference_library": "permvi",
        "inference_library_version": posterior.version,
        "method": posterior.method,
        "verdict": posterior.diagnostics.verdict,
    }
    group = xr.Dataset(variables, coords=coords, attrs=attrs)
    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(posterior=group)
    return xr.DataTree.from_dict({"posterior": group})


def _joint_draws(
    posterior: "Posterior", num: int | None, seed: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draw permutations and latents, jointly where they were drawn jointly."""
    rng = np.random.default_rng(seed)
    law = posterior.law
    kept = {
        name: latent.draws for name, latent in posterior.latents.items() if latent.draws is not None
    }
    if num is None:
        num = len(law.draws) if isinstance(law, DrawsLaw) else _DEFAULT_DRAWS
    num = whole("num", num)
    if isinstance(law, DrawsLaw):
        chosen = np.sort(law.choose(num, rng))
        perms = law.draws[chosen].astype(np.int64)
        together = {name: draws for name, draws in kept.items() if len(draws) == len(law.draws)}
    else:
        chosen, together = np.zeros(0, dtype=np.int64), {}
        perms = law.sample(num, rng)
    return perms, {
        name: draws[chosen if name in together else rng.integers(len(draws), size=num)]
        for name, draws in kept.items()
    }
