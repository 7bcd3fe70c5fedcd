"""One task of the study: runs of one family and objective, trained side by side and scored."""

import base64
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi.experiments.runner import Row
from permvi.experiments.vae import evaluation, images, training
from permvi.experiments.vae.settings import Settings, settings_of

SHOWN = 4
"""Number of reconstructions of an image in Figure 5."""
_PRIOR_DRAWS = 16
_DIGITS = (0, 1, 2, 3, 4)
_BLOCK = 500


def run(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """Train and score the runs of a configuration from `permvi.experiments.vae.study.tasks`.

    A checkpoint is written to ``scratch`` every ``config["every"]`` steps. The rows have the kinds
    "score" (one per run) and "curve" (training objectives), and for the first run of each method
    "reconstruction" and "prior" (codes and images).
    """
    data = images.load(config["images"])
    design = training.Design(
        family=config["family"],
        objective=config["objective"],
        latents=config["latents"],
        categories=config["categories"],
        widths=tuple(config["widths"]),
        batch=config["batch"],
        steps=config["steps"],
    )
    seeds = [run["seed"] for run in config["runs"]]
    settings = _stacked(config)
    path = scratch / "checkpoint.npz"
    trained = training.train(design, seeds, settings, data.train, path, config["every"])
    params = trained.state.params
    found = evaluation.evaluate(
        design,
        params,
        jnp.asarray(seeds),
        settings,
        _blocks(data.test),
        num_samples=config["samples"],
    )
    # On the host, picking one run compiles nothing.
    scores, on_host = jax.tree.map(np.asarray, (found, (params, settings)))
    identities = [_identity(config, run) for run in config["runs"]]
    rows = []
    for index, identity in enumerate(identities):
        means = {name: float(np.mean(values[index])) for name, values in scores._asdict().items()}
        rows.append({"kind": "score", **identity, **means})
    for point, values in enumerate(trained.curve):
        step = min((point + 1) * config["every"], design.steps)
        rows += [
            {"kind": "curve", **identity, "step": step, "value": float(value)}
            for identity, value in zip(identities, values, strict=True)
        ]
    for method in dict.fromkeys(run["method"] for run in config["runs"]):
        index = next(k for k, run in enumerate(config["runs"]) if run["method"] == method)
        own_params, own = jax.tree.map(operator.itemgetter(index), on_host)
        rows += _pictures(design, own_params, own, data, identities[index])
    return rows


def _stacked(config: Mapping[str, Any]) -> Settings:
    """Return the settings of all runs as arrays of shape (runs,)."""
    each = [
        settings_of(run["method"], config["objective"], run["schedule"], run["pixels"])
        for run in config["runs"]
    ]
    dtype = jnp.result_type(float)
    return Settings(*(jnp.asarray(values, dtype) for values in zip(*each, strict=True)))


def _blocks(test: np.ndarray) -> jax.Array:
    """Return (2, blocks, block, pixels) bytes: grey images, and their binarisation for all runs.

    The last images that fill no block are left out.
    """
    drawn = np.random.default_rng(0).uniform(0, 255, test.shape) < test
    size = min(_BLOCK, len(test))
    both = np.stack([test, 255 * drawn.astype(np.uint8)])[:, : len(test) // size * size]
    return jnp.asarray(both.reshape(2, -1, size, test.shape[-1]))


def _identity(config: Mapping[str, Any], run: Mapping[str, Any]) -> Row:
    return {"method": run["method"], "objective": config["objective"], **run}


def _pictures(
    design: training.Design, params: Any, settings: Settings, data: images.Images, identity: Row
) -> list[Row]:
    """Decode codes of some digits, drawn from q, and codes drawn from the prior."""
    rng = np.random.default_rng(0)
    chosen = [int(np.flatnonzero(data.test_labels == digit)[0]) for digit in _DIGITS]
    truth = data.test[chosen]
    q = np.asarray(evaluation.probabilities(design, params, settings, jnp.asarray(truth)))
    # Inversion: the category is the number of cumulative probabilities below a uniform draw.
    uniform = rng.uniform(size=(SHOWN, *q.shape[:-1], 1))
    from_q = np.sum(uniform > np.cumsum(q, axis=-1)[..., :-1], axis=-1)
    from_prior = rng.integers(design.categories, size=(_PRIOR_DRAWS, design.latents))
    codes = np.concatenate([from_q.reshape(-1, design.latents), from_prior])
    pictures = np.asarray(
        evaluation.decoded(design, params, jnp.asarray(codes), data.test.shape[-1])
    )
    rows: list[Row] = [
        {
            "kind": "reconstruction",
            **identity,
            "digit": digit,
            "truth": _text(truth[row]),
            "code": "".join(map(str, from_q[draw, row].tolist())),
            "image": _text(pictures[draw * len(_DIGITS) + row]),
        }
        for row, digit in enumerate(_DIGITS)
        for draw in range(SHOWN)
    ]
    fresh = pictures[-_PRIOR_DRAWS:]
    return rows + [{"kind": "prior", **identity, "image": _text(image)} for image in fresh]


def _text(image: Any) -> str:
    """Encode an image as text, since rows are saved as JSON."""
    return base64.b64encode(np.asarray(image, np.uint8).tobytes()).decode("ascii")
