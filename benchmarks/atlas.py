"""Neurons of NeuroPAL worms, identified with an atlas of other animals.

    python -m benchmarks.atlas --out results/atlas

Part "left-out": each tail is left out once. Methods: "assignment" (the best matching, certain),
"rows" (densities normalised over labels, cell by cell), "bethe", and "permvi" (`pv.fit` with its
defaults), all on the same densities.

Part "frames": "unaligned" is `align="similarity"` after a turn of up to 180 degrees about the long
axis and 20 degrees about the others, a scale of 0.8 to 1.2, a shift of up to a quarter of the body
and the loss of 20 % of the cells; "aligned" has the same cells in the frame of the atlas, and
"frame of true labels" in the frame that fits best if all labels are known. ``near_aligned`` is the
share of draws in which ``posterior.mode`` is right in at most .03 fewer cells than if aligned, and
``near_aligned_mean`` the share of animals for which that holds on average over their draws.

Part "points" has models with one standard deviation for each feature, see
`benchmarks.atlas_points`.

Part "heads" are five raw heads, each in its own frame and with an atlas of the other four, which
share frames by their labels: all cells, those without a name as unmatched, the named ones only, or
the cell of each name that was given.
Part "heads-simulated" are made-up heads, see `benchmarks.atlas_heads`.

Probabilities are mixed with 1 % of a uniform law for the log score, because annotators err.
Accuracy is the mean over animals, of the most probable label of each cell ("accuracy") and of
``posterior.mode`` ("accuracy_mode"); ``ece`` has ten bins of equal mass.
"""

import argparse
import os
import shlex
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation
from scipy.special import softmax

import permvi as pv
from benchmarks import atlas_heads, atlas_points
from benchmarks.atlas_scores import Answer, fitted, losses, row_of, summarised
from benchmarks.run import machine
from permvi.experiments.results import write_rows, write_summary
from permvi.inference.alignment.search import NUM_ANGLES
from permvi.models import Animal, Atlas, AtlasMatching
from permvi.models.atlas.frames import FrameModel, start_rotations

FILE = Path("neuropal", "aligned_worms_tail.mat")
FEATURES = {"colour": ("x", "y", "z", "red", "green", "blue"), "position": ("x", "y", "z")}
MOVED = ("unaligned", "frame of true labels", "not aligned")
PARTS = ("left-out", "frames", "points", "heads", "heads-simulated")
# Features, an animal and a draw, a method, and its answer.
Found = Iterator[tuple[str, dict[str, Any], str, Answer]]


def disturbed(animal: Animal, rng: np.random.Generator) -> tuple[Animal, Animal]:
    """Return 80 % of the cells, as they are and in another frame."""
    kept = np.flatnonzero(rng.random(len(animal)) > 0.2)
    cells = animal.cells.copy()
    places = cells[:, :3]
    center, body = places.mean(axis=0), np.ptp(places[:, 0])
    degrees = [rng.uniform(-180, 180), *rng.uniform(-20, 20, 2)]
    turn = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    shift = rng.uniform(-0.25, 0.25, 3) * body
    cells[:, :3] = rng.uniform(0.8, 1.2) * (places - center) @ turn.T + center + shift
    names = tuple(animal.names[i] for i in kept)
    return (
        Animal(animal.cells[kept], names, animal.features),
        Animal(cells[kept], names, animal.features),
    )


def in_true_frame(animal: Animal, atlas: Atlas, truth: np.ndarray) -> Animal:
    """Return the animal in the frame that fits best if its labels (n,) are known."""
    frames = FrameModel(atlas, animal.cells, "similarity")
    found, _ = frames.settle(frames.starts(start_rotations(frames, NUM_ANGLES)), truth)
    best = int(np.argmax(frames.log_joint(found, truth)))
    return Animal(frames.in_atlas(found)[best], animal.names, animal.features)


def in_frames(
    animal: Animal, atlas: Atlas, rng: np.random.Generator, *, again: bool
) -> Iterator[tuple[str, Answer]]:
    """Yield answers for an animal that is moved at random; what is not aligned only once."""
    here, there = disturbed(animal, rng)
    truth = np.array([atlas.labels.index(name) for name in here.names])
    yield "aligned", fitted(here, atlas, None, truth)
    yield "unaligned", fitted(there, atlas, "similarity", truth)
    yield "frame of true labels", fitted(in_true_frame(there, atlas, truth), atlas, None, truth)
    if not again:
        yield "not aligned", fitted(there, atlas, None, truth)


def left_out(animal: Animal, atlas: Atlas) -> Iterator[tuple[str, Answer]]:
    """Yield the answer of each method for one animal."""
    truth = np.array([atlas.labels.index(name) for name in animal.names])
    model = AtlasMatching(animal, atlas)
    best = linear_sum_assignment(model.scores, maximize=True)[1]
    certain = np.eye(len(atlas.labels))[best]
    yield "assignment", Answer(certain, best, truth, "", "", 0.0)
    rows = softmax(model.scores, axis=1)
    yield "rows", Answer(rows, rows.argmax(axis=1), truth, "", "", 0.0)
    bethe = pv.fit(model, "bethe")
    yield "bethe", Answer(bethe.marginals, bethe.mode, truth, bethe.diagnostics.verdict, "", 0.0)
    yield "permvi", fitted(animal, atlas, None, truth)


def of_tails(options: argparse.Namespace) -> Found:
    """Yield the answers for tails, each with an atlas of the others."""
    animals = pv.models.read_animals(Path(os.environ["PERMVI_DATA"]) / FILE)
    for features in options.features:
        used = [animal.using(FEATURES[features]) for animal in animals]
        for k in range(0, len(animals), options.every):
            if "points" in options.parts:
                for method, answer in atlas_points.left_out(used, k):
                    yield features, {"animal": k, "draw": 0}, method, answer
            if not {"left-out", "frames"} & set(options.parts):
                continue
            atlas = Atlas.fit([animal for j, animal in enumerate(used) if j != k])
            if "left-out" in options.parts:
                for method, answer in left_out(used[k], atlas):
                    yield features, {"animal": k, "draw": 0}, method, answer
            for draw in range(options.draws if "frames" in options.parts else 0):
                rng = np.random.default_rng([options.stream, k, draw])
                for method, answer in in_frames(used[k], atlas, rng, again=draw > 0):
                    yield features, {"animal": k, "draw": draw}, method, answer


def of_heads(options: argparse.Namespace) -> Found:
    """Yield the answers for raw heads, each with an atlas of the others."""
    heads = atlas_heads.read_heads()
    for features in options.features:
        kept = heads[0].features[: None if features == "colour" else 3]
        some = [head.using(kept) for head in heads]
        for k in range(len(heads)):
            for method, answer in atlas_heads.answers_of_head(some, k):
                yield features, {"animal": k, "draw": 0}, method, answer


def summary_of(
    rows: list[dict[str, Any]], found: dict[tuple[str, str], list[Answer]]
) -> list[dict[str, Any]]:
    """Return the numbers of each method over all animals, and print them."""
    summary = []
    for (features, method), of_method in found.items():
        mine = [row for row in rows if (row["features"], row["method"]) == (features, method)]
        numbers = summarised(mine, of_method)
        aligned = [row for row in rows if (row["features"], row["method"]) == (features, "aligned")]
        if aligned and method in MOVED:
            numbers |= losses(mine, aligned)
        print(features, method, {name: round(value, 4) for name, value in numbers.items()})
        setting = {"features": features, "animals": len({row["animal"] for row in mine})}
        summary += [
            {"study": "atlas", "method": method, "setting": setting, "metric": name, "mean": value,
             "sem": None, "n": len(mine), "paper": None}
            for name, value in numbers.items()
        ]  # fmt: skip
    return summary


def main() -> None:
    """Read the command line, run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", default=["left-out", "frames"], choices=PARTS)
    parser.add_argument("--features", nargs="+", default=list(FEATURES), choices=list(FEATURES))
    parser.add_argument("--every", type=int, default=1, help="leave out every k-th tail only")
    parser.add_argument("--draws", type=int, default=1, help="of frames and of missing cells")
    parser.add_argument("--stream", type=int, default=0, help="of random numbers")
    kinds = list(atlas_heads.VARIANTS)
    parser.add_argument("--variants", nargs="+", default=kinds, choices=kinds, help="made-up heads")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    found: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    warnings.simplefilter("ignore", pv.FitWarning)
    parts: list[Found] = []
    if {"left-out", "frames", "points"} & set(options.parts):
        parts.append(of_tails(options))
    if "heads" in options.parts:
        parts.append(of_heads(options))
    if "heads-simulated" in options.parts:
        parts.append(atlas_heads.of_simulated(options.draws, options.stream, options.variants))
    options.out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        for features, where, method, answer in part:
            found[features, method].append(answer)
            rows.append({"features": features, **where, "method": method, **row_of(answer)})
            write_rows(options.out, rows)
    write_summary(options.out, summary_of(rows, found))
    print(f"{shlex.join(['python', '-m', 'benchmarks.atlas', *sys.argv[1:]])}\n{machine()}")


if __name__ == "__main__":
    main()
