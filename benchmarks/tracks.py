"""Tracks of simulated crowds beside trackpy, and beside this library two frames at a time.

    python -m benchmarks.tracks --out results/tracks

Particles walk at random or go on in their direction in a box with walls; 5 % of them are missed in
every frame, and 5 % as many false points are added. trackpy gets the best of many search ranges
and memories, chosen by the truth. Columns of the summary: ``f1`` of the links, ``ece`` of the
chosen links (ten bins of equal mass), ``log_score``, the mean log probability of the link of a
point with the frame before it, or of having none.
"""

import argparse
import csv
import itertools
import json
import platform
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

import permvi as pv

MISSED = FALSE = 0.05
# Multiples of the typical step that trackpy is given as search ranges.
RANGES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
MEMORIES = (0, 1, 2, 3)
# Two frames at a time are only run up to this many points in all.
MAX_PAIRWISE = 10_000


class Setting(NamedTuple):
    name: str
    n: int
    frames: int
    d: int
    # The distance of neighbours in units of the step.
    spacing: float
    motion: str


SETTINGS = (
    Setting("walk-2d", 50, 30, 2, 6.0, "walk"),
    Setting("walk-2d-crowded", 50, 30, 2, 4.0, "walk"),
    Setting("walk-3d", 50, 30, 3, 5.0, "walk"),
    Setting("walk-few", 20, 20, 2, 8.0, "walk"),
    Setting("walk-long", 20, 200, 2, 6.0, "walk"),
    Setting("cross-2d", 50, 30, 2, 4.0, "cross"),
    Setting("cross-3d", 50, 30, 3, 3.0, "cross"),
    Setting("walk-3d-long", 20, 200, 3, 5.0, "walk"),
    Setting("walk-many", 200, 50, 2, 6.0, "walk"),
    Setting("cross-few", 20, 20, 2, 4.0, "cross"),
    Setting("cross-long", 20, 200, 2, 4.0, "cross"),
    Setting("cross-3d-long", 20, 200, 3, 3.0, "cross"),
    Setting("walk-large", 500, 100, 2, 6.0, "walk"),
    Setting("walk-3d-large", 500, 100, 3, 5.0, "walk"),
    Setting("cross-large", 500, 100, 2, 5.0, "cross"),
)


class Movie(NamedTuple):
    frames: list[np.ndarray]
    ids: list[np.ndarray]


def simulate(setting: Setting, seed: int) -> Movie:
    """Frames of points with the particle of each, -1 for false ones."""
    rng = np.random.default_rng(seed)
    n, d = setting.n, setting.d
    side = setting.spacing * n ** (1 / d)
    x, v = side * rng.random((n, d)), rng.normal(size=(n, d))
    frames, ids = [], []
    for t in range(setting.frames):
        if t and setting.motion == "walk":
            x = x + rng.normal(size=(n, d))
        elif t:
            v = v + 0.1 * rng.normal(size=(n, d))
            x = x + v
        over = (x < 0) | (x > side)
        v = np.where(over, -v, v)
        x = np.where(x < 0, -x, np.where(x > side, 2 * side - x, x))
        there = np.flatnonzero(rng.random(n) > MISSED)
        false = side * rng.random((rng.poisson(FALSE * n), d))
        order = rng.permutation(len(there) + len(false))
        frames.append(np.concatenate([x[there], false])[order])
        ids.append(np.concatenate([there, np.full(len(false), -1)])[order])
    return Movie(frames, ids)


def links_of(ids: list[np.ndarray]) -> set[tuple[int, int]]:
    """The links between consecutive points of each particle, points counted through all frames."""
    last: dict[int, int] = {}
    links = set()
    for k, i in enumerate(np.concatenate(ids).tolist()):
        if i >= 0:
            if i in last:
                links.add((last[i], k))
            last[i] = k
    return links


def f1(found: set[tuple[int, int]], truth: set[tuple[int, int]]) -> float:
    return 2 * len(found & truth) / max(len(found) + len(truth), 1)


def log_score(links: dict[tuple[int, int], float], truth: set, movie: Movie) -> float:
    """The mean log probability of each point's link with the frame before, or of having none."""
    firsts = np.cumsum([0, *map(len, movie.frames)])
    frame = np.repeat(np.arange(len(movie.frames)), np.diff(firsts))
    total = np.zeros(len(frame))
    own = np.zeros(len(frame))
    for (j, i), p in links.items():
        if frame[i] - frame[j] == 1:
            total[i] += p
            if (j, i) in truth:
                own[i] = p
    linked = {i for j, i in truth if frame[i] - frame[j] == 1}
    right = np.array([own[i] if i in linked else 1 - total[i] for i in range(len(frame))])
    return float(np.log(np.clip(right[firsts[1] :], 1e-4, 1.0)).mean())


def joint(movie: Movie, truth: set, seed: int) -> dict[str, float]:
    began = time.process_time()
    found = pv.track(movie.frames, seed=seed)
    seconds = time.process_time() - began
    later = np.flatnonzero(found.previous >= 0)
    chosen = [(int(found.previous[i]), int(i)) for i in later]
    right = np.array([link in truth for link in chosen], float)
    p = found.p_previous[later]
    bins = np.array_split(np.argsort(p), 10)
    ece = sum(abs(p[b].mean() - right[b].mean()) * len(b) for b in bins) / len(p)
    pairs = zip(found.cands.tolist(), found.tails.tolist(), strict=True)
    links = dict(zip(pairs, found.p_links.tolist(), strict=True))
    score = log_score(links, truth, movie)
    sds = [mean for name, (mean, _) in found.summary().items() if name.startswith("sd_")]
    return {
        "f1": f1(set(chosen), truth),
        "ece": float(ece),
        "log_score": score,
        "cpu_seconds": seconds,
        "verdict": found.verdict,
        "sd": float(np.mean(sds)) if sds else 1.0,
    }


def pairwise(movie: Movie, truth: set, sd: float) -> dict[str, float]:
    """Two frames at a time, with the step that was inferred from all, or the true one."""
    tracks = pv.models.Tracks(movie.frames, sd)
    posteriors = [pv.fit(step, seed=0) for step in tracks.steps]
    firsts = np.cumsum([0, *map(len, movie.frames)])
    links = {}
    for t, posterior in enumerate(posteriors):
        marginals = np.asarray(posterior.marginals)
        for i, j in np.argwhere(marginals > 1e-6):
            links[int(firsts[t] + j), int(firsts[t + 1] + i)] = float(marginals[i, j])
    linked = tracks.link(posteriors)
    chosen = {
        (int(firsts[p.frame - 1] + p.previous), int(firsts[p.frame] + p.row))
        for p in linked.points
        if p.previous is not None
    }
    return {"f1": f1(chosen, truth), "log_score": log_score(links, truth, movie)}


def best_of_trackpy(movie: Movie, truth: set) -> dict[str, float]:
    """The best F1 of trackpy over search ranges and memories."""
    import pandas as pd
    import trackpy

    trackpy.quiet()
    names = ["x", "y", "z"][: movie.frames[0].shape[1]]
    table = pd.DataFrame(np.concatenate(movie.frames), columns=names)
    table["frame"] = np.repeat(np.arange(len(movie.frames)), [len(f) for f in movie.frames])
    best: dict[str, float] = {"f1": 0.0}
    for reach, memory in itertools.product(RANGES, MEMORIES):
        try:
            linked = trackpy.link(
                table,
                reach * len(names) ** 0.5,
                memory=memory,
                pos_columns=names,
                adaptive_stop=0.3 * reach,
                adaptive_step=0.9,
            )
        except trackpy.SubnetOversizeException:
            continue
        value = f1(links_of([linked.sort_index()["particle"].to_numpy()]), truth)
        if value > best["f1"]:
            best = {"f1": value, "search_range": reach * len(names) ** 0.5, "memory": memory}
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/tracks"))
    parser.add_argument("--settings", nargs="*", default=[s.name for s in SETTINGS])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--beside", nargs="*", default=["pairwise", "trackpy"])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "rows.csv"
    fields = ["setting", "seed", "method", "f1", "ece", "log_score", "cpu_seconds", "verdict"]
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, extrasaction="ignore", lineterminator="\n")
        if new:
            writer.writeheader()
        chosen = [s for s in SETTINGS if s.name in arguments.settings]
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        for setting, seed in itertools.product(chosen, seeds):
            movie = simulate(setting, seed)
            truth = links_of(movie.ids)
            rows = {"joint": joint(movie, truth, seed)}
            if "pairwise" in arguments.beside and setting.n * setting.frames <= MAX_PAIRWISE:
                rows["pairwise"] = pairwise(movie, truth, rows["joint"]["sd"])
            if "trackpy" in arguments.beside:
                rows["trackpy"] = best_of_trackpy(movie, truth)
            for method, row in rows.items():
                print(setting.name, seed, method, row, flush=True)
                writer.writerow({"setting": setting.name, "seed": seed, "method": method, **row})
            file.flush()
    summarise(path, arguments.out / "summary.json")


def summarise(path: Path, target: Path) -> None:
    """Write the means of all rows in the form of the other studies."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    sizes = {setting.name: setting._asdict() for setting in SETTINGS}
    summary = []
    for name, method in dict.fromkeys((row["setting"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["setting"], row["method"]) == (name, method)]
        for metric in ("f1", "ece", "log_score", "cpu_seconds"):
            values = np.array([float(row[metric]) for row in mine if row[metric]])
            if len(values):
                spread = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else None
                summary.append(
                    {
                        "study": "tracks",
                        "method": method,
                        "setting": sizes[name],
                        "metric": metric,
                        "mean": float(values.mean()),
                        "sem": spread,
                        "n": len(values),
                        "paper": None,
                        "machine": platform.machine(),
                    }
                )
    target.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
