"""Draw the figures of the documentation: ``python docs/figures.py`` writes docs/images."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import permvi as pv
from permvi import _figures
from permvi.transforms import simplex

FOLDER = Path(__file__).parent / "images"


def matrix(ax: Axes, values: np.ndarray, title: str) -> None:
    """Draw a small matrix with entries between 0 and 1."""
    ax.imshow(values, cmap="Blues", vmin=0.0, vmax=1.0)
    ax.set(title=title, xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(True)


def row_of(count: int, height: float = 1.6) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with axes side by side."""
    figure = Figure(figsize=(1.55 * count, height), layout="constrained")
    return figure, figure.subplots(1, count)


def stick_breaking() -> Figure:
    """Draw the image of one psi at falling temperatures."""
    psi = jax.random.normal(jax.random.key(3), (5, 5))
    figure, axes = row_of(5)
    matrix(axes[0], np.asarray(jax.nn.sigmoid(psi)), "sigmoid(psi)")
    for ax, temperature in zip(axes[1:], (2.0, 0.7, 0.2, 0.02), strict=True):
        X, _ = pv.transforms.stick_breaking(psi, temperature, centered=True)
        matrix(ax, np.asarray(X), f"X, temperature {temperature:g}")
    return figure


def rounding() -> Figure:
    """Draw one psi on its way to the nearest permutation."""
    key_mean, key_noise = jax.random.split(jax.random.key(5))
    mean = pv.transforms.sinkhorn(2 * jax.random.normal(key_mean, (6, 6)))
    psi = mean + 0.15 * jax.random.normal(key_noise, (6, 6))
    figure, axes = row_of(5)
    matrix(axes[0], np.asarray(mean), "mean")
    matrix(axes[1], np.asarray(psi), "psi = mean + noise")
    for ax, temperature in zip(axes[2:4], (0.5, 0.2), strict=True):
        X, _ = pv.transforms.rounding(psi, temperature)
        matrix(ax, np.asarray(X), f"X, temperature {temperature:g}")
    matrix(axes[4], np.asarray(pv.assignment.nearest_permutation(psi)), "round(psi)")
    return figure


def sinkhorn() -> Figure:
    """Draw a matrix after several Sinkhorn steps, and the error of its sums."""
    log_m = 2 * jax.random.normal(jax.random.key(1), (6, 6))
    figure, axes = row_of(5)
    matrix(axes[0], np.asarray(jnp.exp(log_m) / jnp.exp(log_m).max()), "exp(L), rescaled")
    for ax, steps in zip(axes[1:4], (1, 3, 10), strict=True):
        M = pv.transforms.sinkhorn(log_m, steps)
        matrix(ax, np.asarray(M), f"{steps} step{'s' * (steps > 1)}")
    counts = range(1, 41)
    errors = [pv.transforms.marginal_error(pv.transforms.sinkhorn(log_m, k)) for k in counts]
    axes[4].semilogy(counts, errors, color=_figures.PALETTE[1])
    axes[4].set(title="error of row sums", xlabel="steps")
    return figure


def simplex_clouds() -> Figure:
    """Plot draws of three relaxations of one categorical distribution, at two temperatures."""
    probabilities = jnp.array([0.5, 0.3, 0.2])
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])
    keys = jax.random.split(jax.random.key(0), 3)
    gumbel = jax.random.gumbel(keys[0], (700, 3))
    sticks = jax.random.normal(keys[1], (700, 2))
    noise = 0.25 * jax.random.normal(keys[2], (700, 3))
    rho = simplex.pi_to_rho(probabilities)[:-1]
    loc = jax.scipy.stats.norm.ppf(rho)
    draws = {
        "Gumbel-softmax": lambda t: jax.nn.softmax((jnp.log(probabilities) + gumbel) / t),
        "stick-breaking": lambda t: simplex.stick_breaking(loc + sticks, t)[0],
        "rounding": lambda t: simplex.rounding(probabilities + noise, t)[0],
    }
    figure = Figure(figsize=(6.6, 3.9), layout="constrained")
    grid = figure.subplots(2, 3)
    for column, (name, draw) in enumerate(draws.items()):
        for row, temperature in enumerate((1.0, 0.3)):
            ax = grid[row][column]
            cloud = np.asarray(draw(temperature)) @ corners
            ax.plot(*corners[[0, 1, 2, 0]].T, color=_figures.FAINT)
            ax.scatter(*cloud.T, s=2, color=_figures.CLOUD, alpha=0.4, linewidths=0)
            ax.set(title=f"{name}, temperature {temperature:g}", aspect="equal")
            ax.set(xlim=(-0.35, 1.35), ylim=(-0.25, 1.1))
            ax.set_axis_off()
    return figure


def posterior() -> Figure:
    """Draw the posterior of the README's example."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(6, 2))
    observations = centers[rng.permutation(6)] + 0.5 * rng.normal(size=(6, 2))
    found = pv.fit(pv.models.PointMatching(observations, centers, scale=0.5))
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    pv.plots.point_matching(found, observations, centers, left)
    left.set_title("observations, centres and probable pairs")
    pv.plots.marginals(found, right)
    return figure


def main() -> None:
    """Write all figures."""
    with _figures.styled():
        for name, draw in {
            "stick_breaking": stick_breaking,
            "rounding": rounding,
            "sinkhorn": sinkhorn,
            "simplex": simplex_clouds,
            "posterior": posterior,
        }.items():
            _figures.save(draw(), FOLDER, name, formats=("png",), dpi=170)


if __name__ == "__main__":
    main()
