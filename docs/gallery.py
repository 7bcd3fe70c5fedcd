"""MkDocs hook that draws the pictures of the gallery and writes its reports.

`docs/gallery.md` shows the functions between the marks, so that the code on the page is the code
that has made the picture. ``python docs/gallery.py FOLDER`` writes everything to a folder.
"""

import contextlib
import io
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from typer.testing import CliRunner

import permvi as pv
from permvi import _figures, cli
from permvi.posterior.tracks import TrackPosterior

_FOLDER = "gallery"


# --8<-- [start:points]
def points() -> Axes:
    """Draw eight noisy points, the places they may come from, and how probable each pair is."""
    rng = np.random.default_rng(2)
    centers = rng.normal(size=(8, 2))
    observations = centers[rng.permutation(8)] + 0.45 * rng.normal(size=(8, 2))
    found = pv.fit(pv.models.PointMatching(observations, centers, scale=0.45))
    return pv.plots.point_matching(found, observations, centers)


# --8<-- [end:points]


# --8<-- [start:marginals]
def marginals() -> Axes:
    """Draw the probability of every pair; items may stay unmatched, labels unused."""
    scores = np.array([[2.2, 2.1, -3, -1], [2.1, 0, -2, 1.5], [-4, -1, 0.5, 0.2]])
    labels = ["r1", "r2", "r3"], ["Anna", "Bea", "Carl", "Dora"]
    model = pv.models.LinearMatching(scores, labels=labels, row_unmatched=0.0, col_unmatched=0.0)
    return pv.plots.marginals(pv.fit(model))


# --8<-- [end:marginals]


# --8<-- [start:top]
def top() -> Axes:
    """Draw the most probable matchings; after the first, what changes."""
    rng = np.random.default_rng(1)
    model = pv.models.LinearMatching(2 * rng.normal(size=(9, 9)))
    return pv.plots.top_matchings(pv.fit(model), k=8)


# --8<-- [end:top]


# --8<-- [start:band]
def band() -> Axes:
    """Draw 300 dates that were read with errors, matched with 300 known ones."""
    rng = np.random.default_rng(3)
    dates = np.sort(rng.uniform(0, 300, size=300))
    read = np.sort(dates + 2 * rng.normal(size=300))
    costs = (read[:, None] - dates) ** 2 / 8
    model = pv.models.LinearMatching(costs=np.where(costs < 12, costs, np.inf))
    return pv.plots.marginals(pv.fit(model))


# --8<-- [end:band]


# --8<-- [start:ranking]
def election() -> pv.Ranking:
    """Return the order behind 30 votes on seven cities."""
    rng = np.random.default_rng(4)
    cities = ["Rome", "Paris", "Lima", "Oslo", "Kyiv", "Bonn", "Cairo"]
    liking = np.linspace(2, 0, 7) + rng.gumbel(size=(30, 7))
    return pv.rank([[cities[k] for k in np.argsort(-row)] for row in liking])


def ranking() -> Axes:
    """Draw mean ranks with intervals that hold the rank with probability 0.95."""
    return election().plot()


def before() -> Axes:
    """Draw the probability that one item is better than another."""
    return pv.plots.before(election())


# --8<-- [end:ranking]


# --8<-- [start:tracks]
def film() -> TrackPosterior:
    """Return the tracks of fifteen particles in twenty frames."""
    rng = np.random.default_rng(5)
    steps = rng.normal(size=(20, 15, 2)).cumsum(axis=0)
    places = 24 * rng.random((15, 2)) + steps
    frames = [frame[rng.random(15) > 0.05] for frame in places]
    return pv.track(frames, motion="walk")


def tracks() -> Figure:
    """Draw tracks, uncertain links in red."""
    return film().plot()


# --8<-- [end:tracks]


# --8<-- [start:elbo]
def elbo() -> Axes:
    """Draw how a variational fit of a row-by-row family settles."""
    model = pv.models.LinearMatching(np.random.default_rng(6).normal(size=(6, 6)))
    return pv.plots.elbo_trace(pv.fit(model, method="sequential"))


# --8<-- [end:elbo]


def _match_report(path: Path) -> None:
    rng = np.random.default_rng(7)
    names = [f"pot {k}" for k in range(1, 13)], [f"seed {k}" for k in "ABCDEFGHIJKL"]
    seeds = rng.normal(size=(12, 2))
    pots = seeds[rng.permutation(12)] + 0.4 * rng.normal(size=(12, 2))
    model = pv.models.PointMatching(pots, seeds, scale=0.4, labels=names)
    found = pv.fit(model)
    found.check(model)
    found.report(path, title="Twelve plants whose labels have faded")


def _tutorial_report(path: Path) -> None:
    """Follow the tutorial's last command with the tutorial's files."""
    tutorial = (Path(__file__).parent / "tutorial.md").read_text(encoding="utf-8")
    for file, content in re.findall(r'```csv title="(.*?)"\n(.*?)```', tutorial, re.DOTALL):
        (path.parent / file).write_text(content, encoding="utf-8")
    (command,) = re.findall(r"\$ permvi (match .* --report herd\.html) --top 1", tutorial)
    with contextlib.chdir(path.parent):
        done = CliRunner().invoke(cli.app, [*shlex.split(command), "--quiet"])
    if done.exit_code:
        raise RuntimeError(f"the tutorial's command failed: {done.output}")


PICTURES: dict[str, Callable[[], Axes | Figure]] = {
    "points": points,
    "marginals": marginals,
    "top": top,
    "band": band,
    "ranking": ranking,
    "before": before,
    "tracks": tracks,
    "elbo": elbo,
}
PAGES: dict[str, Callable[[Path], Any]] = {
    "match": _match_report,
    "herd": _tutorial_report,
    "rank": lambda path: election().report(path),
    "track": lambda path: film().report(path, title="Fifteen particles in twenty frames"),
}


def _png(made: Axes | Figure) -> bytes:
    figure = made if isinstance(made, Figure) else made.figure
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=150)
    return memory.getvalue()


def contents() -> dict[str, bytes]:
    """Return all pictures and pages by their paths below the documentation."""
    with _figures.styled():
        made = {f"{_FOLDER}/{name}.png": _png(draw()) for name, draw in PICTURES.items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, write in PAGES.items():
            path = Path(folder) / f"{name}.html"
            write(path)
            made[f"{_FOLDER}/{path.name}"] = path.read_bytes()
    return made


def on_files(files: Any, config: Any) -> Any:
    """Add the pictures and pages to the files of the documentation."""
    from mkdocs.structure.files import File

    for path, content in contents().items():
        files.append(File.generated(config, path, content=content))
    return files


if __name__ == "__main__":
    for name, data in contents().items():
        target = Path(sys.argv[1]) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
