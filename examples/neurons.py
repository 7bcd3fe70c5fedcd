"""Identify the neurons in a worm's tail with an atlas of other worms, from raw files to a report.

Each worm is left out once. An atlas is learnt from the others, and the identities of the left-out
worm's neurons are inferred together: `permvi.models.Atlas` and `permvi.models.AtlasMatching`. At
the end, one worm is turned into another frame of reference and identified there, and a report with
pictures of its cells is written if ``--report`` names a file.

The data are NeuroPAL worms (Yemini et al. 2021) in ``$PERMVI_DATA/neuropal``; without the file a
made-up population is used. Run ``python examples/neurons.py --report worm.html``. The command
``permvi identify --atlas labelled.mat --cells worm.csv --align similarity`` does the same.
"""
# ruff: noqa: T201

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax

import permvi as pv
from permvi import metrics
from permvi.models import Animal, Atlas, AtlasMatching
from permvi.report import cells as cells_report

FILE = Path("neuropal", "aligned_worms_tail.mat")
FEATURES = {
    "position and colour": ("x", "y", "z", "red", "green", "blue"),
    "position": ("x", "y", "z"),
}
# One label in a hundred is assumed to be an annotator's mistake.
MISTAKES = 0.01


class Prediction(NamedTuple):
    """Labels of one worm's neurons and their probabilities.

    Attributes:
        labels: (n,) one label for each neuron.
        marginals: (n, m) probabilities.
        truth: (n,) the true labels.
    """

    labels: np.ndarray
    marginals: np.ndarray
    truth: np.ndarray


def predict(worms: Sequence[Animal], left_out: int) -> dict[str, Prediction]:
    """Return the predictions of each method for the worm that is left out."""
    atlas = Atlas.fit([worm for k, worm in enumerate(worms) if k != left_out])
    worm = worms[left_out]
    model = AtlasMatching(worm, atlas)
    posterior = pv.fit(model)
    assigned = linear_sum_assignment(model.scores, maximize=True)[1]
    certain = np.eye(len(atlas.labels))[assigned]
    rows = softmax(model.scores, axis=1)
    tables = {
        "assignment": (assigned, certain),
        "row by row": (rows.argmax(axis=1), rows),
        "permvi": (posterior.mode, posterior.marginals),
    }
    truth = np.array([atlas.labels.index(str(name)) for name in worm.names])
    return {
        name: Prediction(labels, (1 - MISTAKES) * table + MISTAKES / table.shape[1], truth)
        for name, (labels, table) in tables.items()
    }


def summarise(found: Sequence[Prediction], baseline: Sequence[Prediction]) -> dict[str, float]:
    """Return accuracy, its paired difference to a baseline, log score and calibration error."""

    def accuracies(of: Sequence[Prediction]) -> np.ndarray:
        return np.array([metrics.accuracy(one.labels, one.truth) for one in of])

    promised = [one.marginals.max(axis=1) for one in found]
    kept = [one.marginals.argmax(axis=1) == one.truth for one in found]
    # Average over neurons, not over worms, because worms differ in their number of neurons.
    scores = [metrics.log_score(one.marginals, one.truth) for one in found]
    difference = accuracies(found) - accuracies(baseline)
    return {
        "accuracy": accuracies(found).mean(),
        "difference": difference.mean(),
        "standard error": difference.std(ddof=1) / np.sqrt(len(found)),
        "log score": np.average(scores, weights=[len(one.truth) for one in found]),
        "ECE": metrics.calibration_error(np.concatenate(promised), np.concatenate(kept)),
    }


def turned(worm: Animal, angle: float) -> Animal:
    """Return a worm that was turned about its long axis, enlarged and shifted."""
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]])
    cells = worm.cells.copy()
    cells[:, :3] = 1.1 * cells[:, :3] @ turn.T + 50.0
    return Animal(cells, worm.names, worm.features, worm.ids, worm.animal)


def identify_turned(worms: Sequence[Animal], report: Path | None) -> float:
    """Identify a worm in an unknown frame of reference; return its accuracy."""
    atlas, worm = Atlas.fit(worms[1:]), turned(worms[0], 2.5)
    model = AtlasMatching(worm, atlas, align="similarity")
    posterior = pv.fit(model)
    fits = posterior.check(model)
    right = [atlas.labels[j] if j >= 0 else None for j in posterior.mode]
    accuracy = float(np.mean([a == b for a, b in zip(right, worm.names, strict=True)]))
    print(f"\nturned by 143 degrees: accuracy {accuracy:.3f}, verdict "
          f"{posterior.diagnostics.verdict!r}, model {fits.verdict!r}")  # fmt: skip
    if report is not None:
        cells_report.write(
            posterior,
            report,
            places=model.in_atlas(posterior.latents["frame"].mean)[:, :3],
            axes=atlas.features[:3],
            title=f"{worm.animal}: {len(worm)} neurons",
        )
        print(f"wrote {report}")
    return accuracy


def made_up_worms(num: int = 16, m: int = 14, seed: int = 0) -> list[Animal]:
    """Return simulated worms: three coordinates and three colours per neuron."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(m, 6)) * [3, 1, 1, 1, 1, 1]
    features = FEATURES["position and colour"]
    worms = []
    for k in range(num):
        seen = np.flatnonzero(rng.random(m) > 0.15)
        cells = means[seen] + rng.normal(scale=0.4, size=(len(seen), 6))
        worms.append(Animal(cells, tuple(f"N{j:02d}" for j in seen), features, animal=f"worm {k}"))
    return worms


def load_worms() -> tuple[list[Animal], str]:
    """Return worms and a description of them."""
    path = Path(os.environ.get("PERMVI_DATA", "")) / FILE
    if not path.is_file():
        return made_up_worms(), f"made-up worms, since $PERMVI_DATA/{FILE.as_posix()} is not there"
    return pv.models.read_animals(path), f"NeuroPAL worms, {FILE.name}"


def run(*, quick: bool = False, report: Path | None = None) -> dict[tuple[str, str], dict]:
    """Print the tables and return their numbers by (features, method)."""
    worms, what = load_worms()
    names = {name for worm in worms for name in worm.names}
    print(f"{what}: {len(worms)} worms, {len(names)} neurons")
    chosen = range(0, len(worms), 7 if quick else 1)
    results = {}
    for features, used in FEATURES.items():
        some = [worm.using(used) for worm in worms]
        found = [predict(some, left_out) for left_out in chosen]
        print(f"\n{features:22} accuracy  against assignment  log score    ECE")
        for name in found[0]:
            row = summarise([one[name] for one in found], [one["assignment"] for one in found])
            results[features, name] = row
            print(
                f"{name:22} {row['accuracy']:8.3f}  {row['difference']:+9.3f} ± "
                f"{row['standard error']:.3f}   {row['log score']:9.3f}  {row['ECE']:5.3f}"
            )
    results["position and colour", "turned"] = {"accuracy": identify_turned(worms, report)}
    return results


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Identify neurons, leaving one worm out.")
    parser.add_argument("--quick", action="store_true", help="every seventh worm only")
    parser.add_argument("--report", type=Path, help="write an HTML report of one worm")
    options = parser.parse_args()
    run(quick=options.quick, report=options.report)


if __name__ == "__main__":
    main()
