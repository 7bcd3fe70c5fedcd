"""Neurons of NeuroPAL tails, identified with an atlas of other animals.

    python -m benchmarks.atlas --out results/atlas

Each animal is left out once. Methods: "assignment" (the best matching, certain), "rows" (densities
normalised over labels, cell by cell), "bethe", and "permvi" (`pv.fit` with its defaults), all on
the same densities. "unaligned" is `align="similarity"` after a turn of up to 180 degrees about the
long axis and 20 degrees about the others, a scale of 0.8 to 1.2, a shift of up to a quarter of the
body and the loss of 20 % of the cells; "aligned" has the same cells in the frame of the atlas, and
"frame of true labels" in the frame that fits best if all labels are known. ``near_aligned`` is the
share of animals whose ``posterior.mode`` is right in at most .03 fewer cells than if aligned.

"head" are five raw heads, each in its own frame and with an atlas of the other four, which share
frames by their labels: all cells, those without a name as unmatched, or the named ones only.

Probabilities are mixed with 1 % of a uniform law for the log score, because annotators err.
Accuracy is the mean over animals, of the most probable label of each cell ("accuracy") and of
``posterior.mode`` ("accuracy_mode"); ``ece`` has ten bins of equal mass.
"""

import argparse
import os
import shlex
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation
from scipy.special import softmax

import permvi as pv
from benchmarks.run import machine
from permvi import metrics
from permvi.experiments.results import write_rows, write_summary
from permvi.inference.alignment.search import NUM_ANGLES
from permvi.models import Animal, Atlas, AtlasMatching, align_animals
from permvi.models.atlas.frames import ALIGNMENTS, FrameModel, start_rotations

FILE = Path("neuropal", "aligned_worms_tail.mat")
FEATURES = {"colour": ("x", "y", "z", "red", "green", "blue"), "position": ("x", "y", "z")}
LEVEL = 0.95
MISTAKES = 0.01
MOVED = ("unaligned", "frame of true labels", "not aligned")
NEAR = 0.03
# A slice of the raw heads in pixels, by the sizes of the heads along both axes.
SLICE = 6.0


class Answer(NamedTuple):
    """Probabilities (n, m), the matching (n,), the true labels (n,), and how it was found."""

    marginals: np.ndarray
    mode: np.ndarray
    truth: np.ndarray
    verdict: str
    check: str
    seconds: float


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


def fitted(animal: Animal, atlas: Atlas, align: Any, truth: np.ndarray) -> Answer:
    """Fit one animal."""
    began = time.process_time()
    model = AtlasMatching(animal, atlas, align=align)
    posterior = pv.fit(model)
    seconds = time.process_time() - began
    check = posterior.check(model)
    verdict = posterior.diagnostics.verdict
    return Answer(posterior.marginals, posterior.mode, truth, verdict, check.verdict, seconds)


def in_true_frame(animal: Animal, atlas: Atlas, truth: np.ndarray) -> Animal:
    """Return the animal in the frame that fits best if its labels (n,) are known."""
    frames = FrameModel(atlas, animal.cells, "similarity")
    found, _ = frames.settle(frames.starts(start_rotations(frames, NUM_ANGLES)), truth)
    best = int(np.argmax(frames.log_joint(found, truth)))
    return Animal(frames.in_atlas(found)[best], animal.names, animal.features)


def answers(
    animal: Animal, atlas: Atlas, moved: bool, rng: np.random.Generator
) -> Iterator[tuple[str, Answer]]:
    """Yield the answer of each method for one animal."""
    if moved:
        here, there = disturbed(animal, rng)
        truth = np.array([atlas.labels.index(name) for name in here.names])
        yield "aligned", fitted(here, atlas, None, truth)
        yield "unaligned", fitted(there, atlas, "similarity", truth)
        yield "frame of true labels", fitted(in_true_frame(there, atlas, truth), atlas, None, truth)
        yield "not aligned", fitted(there, atlas, None, truth)
        return
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


def read_heads() -> list[Animal]:
    """Return raw heads, with slices in pixels and logs of intensities."""
    heads = []
    for path in sorted((Path(os.environ["PERMVI_DATA"]) / "neuropal").glob("neuropal_worm*.csv")):
        (head,) = pv.models.read_animals(path)
        cells = np.column_stack([head.cells[:, :3] * [1, 1, SLICE], np.log(head.cells[:, 3:])])
        heads.append(Animal(cells, head.names, head.features))
    return heads


def answers_of_head(heads: Sequence[Animal], left_out: int) -> Iterator[tuple[str, Answer]]:
    """Yield answers for a raw head, given an atlas of the others; the last label is "none"."""
    atlas = Atlas.fit(align_animals([head for k, head in enumerate(heads) if k != left_out]))
    names, m = heads[left_out].names, len(atlas.labels)
    truth = np.array([atlas.labels.index(n) if n in atlas.labels else m for n in names])
    for align in ALIGNMENTS:
        began = time.process_time()
        model = AtlasMatching(heads[left_out], atlas, align=align)
        posterior = pv.fit(model)
        seconds = time.process_time() - began
        table = np.column_stack([posterior.marginals, posterior.p_unmatched_rows])
        mode = np.where(posterior.mode < 0, m, posterior.mode)
        words = posterior.diagnostics.verdict, posterior.check(model).verdict, seconds
        yield f"head, {align}", Answer(table, mode, truth, *words)
        named = truth < m
        yield f"head, {align}, named cells", Answer(table[named], mode[named], truth[named], *words)


def covered(marginals: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return (n,) whether the smallest set of labels of at least 95 % holds the true one."""
    order = np.argsort(-marginals, axis=1)
    sums = np.cumsum(np.take_along_axis(marginals, order, axis=1), axis=1)
    sizes = (sums < LEVEL).sum(axis=1) + 1
    return (order == truth[:, None]).argmax(axis=1) < sizes


def row_of(answer: Answer) -> dict[str, Any]:
    """Return the numbers of one animal."""
    p, truth = answer.marginals, answer.truth
    mixed = (1 - MISTAKES) * p + MISTAKES / p.shape[1]
    return {
        "cells": len(truth),
        "accuracy": float((p.argmax(axis=1) == truth).mean()),
        "accuracy_mode": float((answer.mode == truth).mean()),
        "log_score": metrics.log_score(mixed, truth),
        "coverage": float(covered(p, truth).mean()),
        "verdict": answer.verdict,
        "check": answer.check,
        "cpu_seconds": answer.seconds,
    }


def summarised(rows: list[dict[str, Any]], found: list[Answer]) -> dict[str, float]:
    """Return the numbers of one method over all animals."""
    counts = [row["cells"] for row in rows]
    top = np.concatenate([answer.marginals.max(axis=1) for answer in found])
    right = np.concatenate([answer.marginals.argmax(axis=1) == answer.truth for answer in found])
    return {
        "accuracy": float(np.mean([row["accuracy"] for row in rows])),
        "accuracy_mode": float(np.mean([row["accuracy_mode"] for row in rows])),
        "log_score": float(np.average([row["log_score"] for row in rows], weights=counts)),
        "coverage": float(np.average([row["coverage"] for row in rows], weights=counts)),
        "ece": metrics.calibration_error(top, right),
        "trusted": float(np.mean([row["verdict"] == "trust" for row in rows])),
        "fits": float(np.mean([row["check"] == "fits" for row in rows])),
        "cpu_seconds": float(np.max([row["cpu_seconds"] for row in rows])),
    }


def main() -> None:
    """Read the command line, run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1, help="leave out every k-th animal only")
    parser.add_argument("--parts", nargs="+", default=["left-out", "frames"])
    options = parser.parse_args()
    animals = pv.models.read_animals(Path(os.environ["PERMVI_DATA"]) / FILE)
    rows: list[dict[str, Any]] = []
    found: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    warnings.simplefilter("ignore", pv.FitWarning)
    heads = read_heads() if "heads" in options.parts else []
    for features in FEATURES if heads else ():
        kept = heads[0].features[: None if features == "colour" else 3]
        some = [head.using(kept) for head in heads]
        for left_out in range(len(heads)):
            for method, answer in answers_of_head(some, left_out):
                found[features, method].append(answer)
                where = {"features": features, "animal": left_out, "method": method}
                rows.append({**where, **row_of(answer)})
    parts = [part for part in options.parts if part != "heads"]
    for features, names in FEATURES.items() if parts else ():
        for left_out in range(0, len(animals), options.every):
            others = [animal.using(names) for k, animal in enumerate(animals) if k != left_out]
            atlas = Atlas.fit(others)
            for part in parts:
                rng = np.random.default_rng(left_out)
                animal = animals[left_out].using(names)
                for method, answer in answers(animal, atlas, part == "frames", rng):
                    found[features, method].append(answer)
                    where = {"features": features, "animal": left_out, "method": method}
                    rows.append({**where, **row_of(answer)})
    summary = []
    for (features, method), of_method in found.items():
        mine = [row for row in rows if (row["features"], row["method"]) == (features, method)]
        numbers = summarised(mine, of_method)
        aligned = [row for row in rows if (row["features"], row["method"]) == (features, "aligned")]
        if aligned and method in MOVED:
            lost = [
                a["accuracy_mode"] - b["accuracy_mode"] for a, b in zip(aligned, mine, strict=True)
            ]
            numbers["near_aligned"] = float(np.mean(np.array(lost) <= NEAR))
        print(features, method, {name: round(value, 4) for name, value in numbers.items()})
        setting = {"features": features, "animals": len(mine)}
        summary += [
            {"study": "atlas", "method": method, "setting": setting, "metric": name, "mean": value,
             "sem": None, "n": len(mine), "paper": None}
            for name, value in numbers.items()
        ]  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    write_rows(options.out, rows)
    write_summary(options.out, summary)
    command = shlex.join(["python", "-m", "benchmarks.atlas", *sys.argv[1:]])
    print(f"{command}\n{machine()}")


if __name__ == "__main__":
    main()
