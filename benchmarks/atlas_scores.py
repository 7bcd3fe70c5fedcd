"""What is measured of cells that were identified: accuracy, calibration, and what was lost."""

import time
from typing import Any, NamedTuple

import numpy as np

import permvi as pv
from permvi import metrics
from permvi.models import Animal, Atlas, AtlasMatching

LEVEL = 0.95
MISTAKES = 0.01
NEAR = 0.03


class Answer(NamedTuple):
    """Probabilities (n, m), the matching (n,), the true labels (n,), and how it was found."""

    marginals: np.ndarray
    mode: np.ndarray
    truth: np.ndarray
    verdict: str
    check: str
    seconds: float


def fitted(animal: Animal, atlas: Atlas, align: Any, truth: np.ndarray) -> Answer:
    """Fit one animal."""
    began = time.process_time()
    model = AtlasMatching(animal, atlas, align=align)
    posterior = pv.fit(model)
    seconds = time.process_time() - began
    check = posterior.check(model)
    verdict = posterior.diagnostics.verdict
    return Answer(posterior.marginals, posterior.mode, truth, verdict, check.verdict, seconds)


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
        "expected": float(top.mean()),
        "log_score": float(np.average([row["log_score"] for row in rows], weights=counts)),
        "coverage": float(np.average([row["coverage"] for row in rows], weights=counts)),
        "ece": metrics.calibration_error(top, right),
        "trusted": float(np.mean([row["verdict"] == "trust" for row in rows])),
        "fits": float(np.mean([row["check"] == "fits" for row in rows])),
        "cpu_seconds": float(np.max([row["cpu_seconds"] for row in rows])),
    }


def losses(rows: list[dict[str, Any]], aligned: list[dict[str, Any]]) -> dict[str, float]:
    """Return how often the accuracy is near that of the same cells in the frame of the atlas.

    An animal has too few cells for one draw to tell a loss of .03, so that means over its draws
    count as well. ``surely_lost`` is the share of animals whose mean loss is above .03 by more than
    two standard errors.
    """
    of_aligned = {(row["animal"], row["draw"]): row["accuracy_mode"] for row in aligned}
    by_animal: dict[int, list[float]] = {}
    for row in rows:
        lost = of_aligned[row["animal"], row["draw"]] - row["accuracy_mode"]
        by_animal.setdefault(row["animal"], []).append(lost)
    every = np.concatenate(list(by_animal.values()))
    means = np.array([np.mean(lost) for lost in by_animal.values()])
    found = {
        "near_aligned": float((every <= NEAR).mean()),
        "near_aligned_mean": float((means <= NEAR).mean()),
        "lost": float(means.mean()),
        "lost_sd_of_animals": float(means.std(ddof=1)),
        "lost_sd_of_draws": float(every.std(ddof=1)),
    }
    if min(map(len, by_animal.values())) > 1:
        errors = [np.std(lost, ddof=1) / np.sqrt(len(lost)) for lost in by_animal.values()]
        found["surely_lost"] = float((means - 2 * np.array(errors) > NEAR).mean())
    return found
