"""A small plot of the evidence lower bound over the steps of a fit."""

import numpy as np

from permvi.report.words import number

_WIDTH, _HEIGHT = 600, 120
_MAX_POINTS = 300
# Percentiles: with the full range of the first steps, later ones would not show.
_SHOWN = (5.0, 99.0)


def figure(elbo: np.ndarray | None) -> str:
    """Return an SVG with a line for each restart, or nothing if there is no trace.

    Args:
        elbo: (steps,) or (..., steps) evidence lower bounds.
    """
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
