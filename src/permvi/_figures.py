"""The shared style of all figures, and saving them atomically."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from permvi._files import write_bytes

# Okabe and Ito (2008): distinguishable with any of the common colour vision deficiencies.
PALETTE = (
    "#D55E00",
    "#0072B2",
    "#F0E442",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#000000",
)
INK = "#1F2430"
FAINT = "#C9CED8"
CLOUD = "#4A6FA5"
# White to dark blue: prints well and separates zero from small values.
PROBABILITY = LinearSegmentedColormap.from_list(
    "probability",
    [(0, "#FFFFFF"), (0.1, "#CFE0F1"), (0.4, "#8DB5DA"), (0.7, "#3D7AB6"), (1, "#0B2E5C")],
)

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "mathtext.fontset": "stix",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 0.9,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Text stays text in the PDF, and equal figures give identical files.
    "pdf.fonttype": 42,
    "svg.hashsalt": "permvi",
}
_UNDATED = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def plain(text: str) -> str:
    """Return a text that Matplotlib shows as it is: dollar signs in names begin no formula."""
    return text.replace("$", r"\$")


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Apply the shared style inside the block and restore the caller's settings after it."""
    with mpl.rc_context(_STYLE):
        yield


def save(
    figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "pdf"), dpi: int = 300
) -> list[Path]:
    """Save a figure as ``folder/name.png`` and so on; return the paths."""
    paths = []
    for form in formats:
        if form not in _UNDATED:
            raise ValueError(f"formats must be among {', '.join(_UNDATED)}, got {form!r}.")
        drawn = io.BytesIO()
        with styled():
            figure.savefig(drawn, format=form, dpi=dpi, metadata=_UNDATED[form])
        paths.append(write_bytes(folder / f"{name}.{form}", drawn.getvalue()))
    return paths
