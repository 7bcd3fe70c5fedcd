"""Identify the neurons in a worm's tail with an atlas of other worms.

Each worm is left out once. An atlas of the others gives every neuron a mean and a covariance of
position and colour. The neurons of the left-out worm are scored by the resulting predictive
density, a multivariate t. Labels of neurons that were not seen in a worm stay unused, and all
identities of a worm are inferred together.

The data are NeuroPAL worms (Yemini et al. 2021) in ``$PERMVI_DATA/neuropal``; without the file a
made-up population is used. Run ``python examples/neurons.py``.
"""
# ruff: noqa: T201

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.io import loadmat
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax
from scipy.stats import multivariate_normal, multivariate_t

import permvi as pv
from permvi import metrics

FILE = Path("neuropal", "aligned_worms_tail.mat")
# Weight of the average covariance as a number of worms; chosen for each left-out worm.
STRENGTHS = (2.0, 5.0, 10.0, 20.0)
# Pairs whose best matching is more than this many nats below the best overall are left out. The
# widest gate that leaves blocks small enough for the exact answer is used.
GATES = (14.0, 12.0, 10.0, 8.0, 6.0, 4.0, 2.0, 0.0)
LARGEST_BLOCK = 16
# One label in a hundred is assumed to be an annotator's mistake.
MISTAKES = 0.01


class Atlas(NamedTuple):
    """Statistics of every neuron in several worms.

    Attributes:
        mean: (m, d) means.
        scatter: (m, d, d) sums of squares around the means.
        num_seen: (m,) number of worms in which each neuron was seen.
        num_worms: Number of worms.
    """

    mean: np.ndarray
    scatter: np.ndarray
    num_seen: np.ndarray
    num_worms: int


def build_atlas(worms: np.ndarray) -> Atlas:
    """Return the atlas of worms (num, m, d), which are NaN where a neuron was not seen."""
    mean = np.nanmean(worms, axis=0)
    residual = np.nan_to_num(worms - mean)
    scatter = np.einsum("wni,wnj->nij", residual, residual)
    return Atlas(mean, scatter, seen(worms).sum(axis=0), len(worms))


def seen(worms: np.ndarray) -> np.ndarray:
    """Return (..., m) booleans, True where a neuron was seen."""
    return ~np.isnan(worms).any(axis=-1)


def covariances(atlas: Atlas, strength: float) -> np.ndarray:
    """Return (m, d, d) covariances, each shrunk towards the average of all neurons."""
    average = atlas.scatter.sum(axis=0) / (atlas.num_seen - 1).sum()
    weight = atlas.num_seen - 1 + strength
    return (atlas.scatter + strength * average) / weight[:, None, None]


def log_predictive(points: np.ndarray, atlas: Atlas, strength: float) -> np.ndarray:
    """Return (n, m) log t densities of points (n, d); t because the atlas is a finite sample."""
    widths = covariances(atlas, strength) * (1 + 1 / atlas.num_seen)[:, None, None]
    freedom = atlas.num_seen + strength
    laws = map(multivariate_t, atlas.mean, widths, freedom)
    return np.stack([law.logpdf(points) for law in laws], axis=-1)


def log_gaussian(points: np.ndarray, atlas: Atlas, strength: float) -> np.ndarray:
    """Return (n, m) log densities of the usual Gaussian atlas, which ignores estimation error."""
    laws = map(multivariate_normal, atlas.mean, covariances(atlas, strength))
    return np.stack([law.logpdf(points) for law in laws], axis=-1)


def choose_strength(worms: np.ndarray, folds: int = 5) -> float:
    """Return the strength that best predicts the neurons of held-out worms."""

    def score(strength: float) -> float:
        total = 0.0
        for fold in range(folds):
            held_out = np.arange(len(worms)) % folds == fold
            atlas = build_atlas(worms[~held_out])
            for worm in worms[held_out]:
                there = seen(worm)
                total += log_predictive(worm[there], atlas, strength)[:, there].trace()
        return total

    return max(STRENGTHS, key=score)


def gaps(scores: np.ndarray) -> np.ndarray:
    """Return (n, m) gaps between the best matching and the best one that contains each pair."""

    def best(table: np.ndarray) -> float:
        return float(table[linear_sum_assignment(table, maximize=True)].sum())

    found = np.empty(scores.shape)
    for i, others in enumerate(np.delete(scores, i, axis=0) for i in range(len(scores))):
        for j in range(scores.shape[1]):
            found[i, j] = scores[i, j] + best(np.delete(others, j, axis=1))
    return best(scores) - found


def identify(scores: np.ndarray) -> pv.Posterior:
    """Return the exact posterior of all identities among the pairs within the gate."""
    distance = gaps(scores)
    for gate in GATES:
        model = pv.models.LinearMatching(scores, mask=distance <= gate + 1e-9)
        blocks = pv.assignment.blocks(model.mask)
        if max(len(rows) for rows, _ in blocks) <= LARGEST_BLOCK:
            break
    return pv.fit(model, "exact")


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


def predict(worms: np.ndarray, left_out: int) -> dict[str, Prediction]:
    """Return the predictions of each method for the worm that is left out."""
    others, worm = np.delete(worms, left_out, axis=0), worms[left_out]
    truth = np.flatnonzero(seen(worm))
    atlas, strength = build_atlas(others), choose_strength(others)
    gaussian = log_gaussian(worm[truth], atlas, strength)
    scores = log_predictive(worm[truth], atlas, strength)

    # The weight of a label in use is its density times the odds that its neuron is seen at all.
    p_seen = (atlas.num_seen + 0.5) / (atlas.num_worms + 1)
    posterior = identify(scores + np.log(p_seen / (1 - p_seen)))

    assigned = linear_sum_assignment(gaussian, maximize=True)[1]
    tables = {
        "assignment": (assigned, softmax(gaussian, axis=1)),
        "row by row": (scores.argmax(axis=1), softmax(scores, axis=1)),
        "permvi": (posterior.expected_loss("hamming").perm, np.asarray(posterior.marginals)),
    }
    return {
        name: Prediction(labels, (1 - MISTAKES) * table + MISTAKES / table.shape[1], truth)
        for name, (labels, table) in tables.items()
    }


def summarise(found: Sequence[Prediction], baseline: Sequence[Prediction]) -> dict[str, float]:
    """Return accuracy, its paired difference to a baseline, log score and calibration error."""

    def accuracies(of: Sequence[Prediction]) -> np.ndarray:
        return np.array([metrics.accuracy(one.labels, one.truth) for one in of])

    promised = [one.marginals[np.arange(len(one.labels)), one.labels] for one in found]
    kept = [one.labels == one.truth for one in found]
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


def made_up_worms(num: int = 16, m: int = 14, seed: int = 0) -> np.ndarray:
    """Return (num, m, 6) simulated worms: three coordinates and three colours per neuron."""
    rng = np.random.default_rng(seed)
    worms = rng.normal(size=(m, 6)) + rng.normal(scale=0.35, size=(num, m, 6))
    worms[rng.random((num, m)) < 0.15] = np.nan
    return worms


def load_worms() -> tuple[np.ndarray, str]:
    """Return (num, m, 6) worms and a description of them."""
    path = Path(os.environ.get("PERMVI_DATA", "")) / FILE
    if not path.is_file():
        return made_up_worms(), f"made-up worms, since $PERMVI_DATA/{FILE.as_posix()} is not there"
    return np.moveaxis(loadmat(path)["M"], 2, 0), f"NeuroPAL worms, {FILE.name}"


def run(*, quick: bool = False) -> dict[tuple[str, str], dict[str, float]]:
    """Print the table and return its numbers by (features, method)."""
    worms, what = load_worms()
    print(f"{what}: {len(worms)} worms, {worms.shape[1]} neurons")
    chosen = range(0, len(worms), 13 if quick else 1)
    results = {}
    for features, used in (("position and colour", slice(6)), ("position", slice(3))):
        found = [predict(worms[..., used], left_out) for left_out in chosen]
        print(f"\n{features:22} accuracy  against assignment  log score    ECE")
        for name in found[0]:
            row = summarise([one[name] for one in found], [one["assignment"] for one in found])
            results[features, name] = row
            print(
                f"{name:22} {row['accuracy']:8.3f}  {row['difference']:+9.3f} ± "
                f"{row['standard error']:.3f}   {row['log score']:9.3f}  {row['ECE']:5.3f}"
            )
    return results


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Identify neurons, leaving one worm out.")
    parser.add_argument("--quick", action="store_true", help="every thirteenth worm only")
    run(quick=parser.parse_args().quick)


if __name__ == "__main__":
    main()
