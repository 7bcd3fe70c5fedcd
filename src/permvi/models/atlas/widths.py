r"""How widely one animal scatters: animals differ, and all cells of one tell together.

The scatter of every label is multiplied by :math:`s_g` in an animal, one number for the coordinates
and one for the other features. Given labels or their probabilities, the posterior mode of
:math:`s_g^2` is

.. math:: s_g^2 = \frac{c + \sum_i w_i q_{gi}}{c + d_g \sum_i w_i'} ,

where q are squared distances in units of the atlas, w the weights of a t law, and c the weight of a
prior at one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from permvi.models.atlas.estimate import (
    Moments,
    Shape,
    choose_shape,
    expectation_maximisation,
    inverse_roots,
    log_background,
    log_t,
    predictive,
    square_distances,
)

if TYPE_CHECKING:
    from permvi.models.atlas.atlas import Atlas

# The weight of the prior at one, as a number of residuals.
WEIGHT = 30.0
# Rounds in which the widths of labelled animals and the moments are estimated in turn.
_ROUNDS = 2
_STEPS = 6
_CONVERGED = 1e-3
_SCALING_STEPS = 12
_BELIEF_STEPS = 30
# The least weight of all but one of the choices of a cell.
_LEAST = 1e-12


class Weighed(NamedTuple):
    """Probabilities of pairs (S, n, m) and of unmatched cells (S, n), and log evidences (S,)."""

    pairs: np.ndarray
    alone: np.ndarray
    log_evidence: np.ndarray


def scaled(pairs: np.ndarray, alone: np.ndarray) -> Weighed:
    """Scale log weights of pairs (S, n, m) and of unmatched cells (S, n) by Sinkhorn's steps.

    Unused labels have weight one. Log weights may be -inf where something is impossible. The result
    approximates the probabilities, and its log evidence is an upper bound.
    """
    top = np.maximum(pairs.max(axis=-1), alone)
    top = np.where(np.isfinite(top), top, 0.0)
    K, r = np.exp(pairs - top[..., None]), np.exp(alone - top)
    b = np.ones((len(K), K.shape[-1]))
    for _ in range(_SCALING_STEPS):
        a = 1.0 / np.maximum((K @ b[..., None])[..., 0] + r, 1e-300)
        b = 1.0 / ((a[:, None] @ K)[:, 0] + 1.0)
    a = 1.0 / np.maximum((K @ b[..., None])[..., 0] + r, 1e-300)
    evidence = (top - np.log(a)).sum(axis=-1) - np.log(b).sum(axis=-1)
    return Weighed(a[..., None] * K * b[:, None], a * r, evidence)


def believed(pairs: np.ndarray, alone: np.ndarray) -> np.ndarray:
    r"""Return probabilities of pairs (n, m) by belief propagation, from log weights as in `scaled`.

    With weights K of pairs and r of staying alone, messages are :math:`x_{ij} = 1 / (r_i +
    \sum_{k \ne j} K_{ik} y_{ik})` and :math:`y_{ij} = 1 / (1 + \sum_{l \ne i} K_{lj} x_{lj})`, and
    a pair has the odds :math:`K_{ij} x_{ij} y_{ij}`. Scaled weights are too even where cells
    compete for labels.
    """
    top = np.maximum(pairs.max(axis=1), alone)
    top = np.where(np.isfinite(top), top, 0.0)
    K, r = np.exp(pairs - top[:, None]), np.exp(alone - top)[:, None]
    y = np.ones(K.shape)
    for _ in range(_BELIEF_STEPS):
        to = K * y
        x = 1.0 / np.maximum(r + to.sum(axis=1, keepdims=True) - to, _LEAST)
        back = K * x
        y, before = 1.0 / (1.0 + np.maximum(back.sum(axis=0) - back, 0.0)), y
        # Messages may go back and forth.
        y = np.sqrt(y * before)
    odds = K * x * y
    return odds / (1.0 + odds)


def groups_of(num_positions: int, d: int) -> list[np.ndarray]:
    """Return the features that share a width: coordinates, and the others."""
    parts = np.arange(num_positions), np.arange(num_positions, d)
    return [part for part in parts if len(part)]


def _updated(
    widths: np.ndarray,
    residuals: np.ndarray,
    weights: np.ndarray,
    mass: float,
    scales: np.ndarray,
    num_positions: int,
    weight: float,
) -> np.ndarray:
    """Return new widths (d,), given residuals (..., m, d) and their weights (..., m)."""
    found = widths.copy()
    for group in groups_of(num_positions, len(widths)):
        roots = inverse_roots(scales[:, group[:, None], group])
        squares = square_distances(residuals[..., group], roots)
        found[group] = np.sqrt(
            (weight + float((weights * squares).sum())) / (weight + len(group) * mass)
        )
    return found


def learn(cells: np.ndarray, num_positions: int) -> tuple[np.ndarray, Moments, Shape]:
    """Return cells (num, m, d) of animals as if all scattered alike, their moments and shape."""
    even, shape = cells, choose_shape(cells)
    moments = expectation_maximisation(cells, shape)
    whole = moments.center, moments.spread
    for _ in range(_ROUNDS):
        found = np.stack([known_widths(animal, moments, shape, num_positions) for animal in cells])
        even = moments.means + (cells - moments.means) / found[:, None]
        shape = choose_shape(even)
        # What lies anywhere does so in the animals as they are.
        moments = expectation_maximisation(even, shape)._replace(center=whole[0], spread=whole[1])
    return even, moments, shape


def known_widths(
    cells: np.ndarray, moments: Moments, shape: Shape, num_positions: int, weight: float = WEIGHT
) -> np.ndarray:
    """Return the widths (d,) of an animal whose labels are known, cells (m, d) with NaN."""
    seen = np.isfinite(cells).all(axis=-1) & (moments.counts > 0)
    residuals = np.where(seen[:, None], cells - moments.means, 0.0)
    wrong = log_background(np.where(seen[:, None], cells, 0.0), moments.center, moments.spread)
    scales, df = predictive(moments, shape)
    widths = np.ones(cells.shape[1])
    for _ in range(_STEPS):
        roots = inverse_roots(scales * widths[:, None] * widths)
        weights, trusted = t_weights(residuals, roots, df, wrong, shape.mistakes)
        mass = float((trusted * seen).sum())
        before, widths = (
            widths,
            _updated(widths, residuals, weights * seen, mass, scales, num_positions, weight),
        )
        if np.abs(widths - before).max() < _CONVERGED:
            break
    return widths


def t_weights(
    residuals: np.ndarray, roots: np.ndarray, df: np.ndarray, wrong: np.ndarray, mistakes: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of residuals in a t law, and the probability that they belong to it."""
    right = log_t(residuals, roots, df) + np.log1p(-mistakes)
    trusted = 1.0 / (1.0 + np.exp(np.minimum(np.log(mistakes) + wrong - right, 700.0)))
    bounded = np.minimum(df, 1e9)
    squares = square_distances(residuals, roots)
    return trusted * (bounded + residuals.shape[-1]) / (bounded + squares), trusted


def infer_widths(atlas: Atlas, cells: np.ndarray, extra: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the widths (d,) of an animal with cells (n, d) of unknown labels.

    ``extra`` (n, m) is added to the log weights of pairs, -inf where one is impossible. Cells that
    miss a feature are left out.
    """
    d = cells.shape[1]
    widths = np.ones(d)
    whole = np.isfinite(cells).all(axis=1)
    if not np.isfinite(atlas.width_weight) or not whole.any():
        return widths
    table = cells[whole]
    prior = np.broadcast_to(extra, (len(cells), len(atlas.labels)))[whole]
    residuals = table[:, None] - atlas.means
    wrong = log_background(table, atlas.center, atlas.spread)
    alone = np.log(atlas.background) + wrong
    for _ in range(_STEPS):
        roots = inverse_roots(atlas.scales * widths[:, None] * widths)
        pairs = atlas.log_densities(table, widths) + atlas.log_odds + prior
        matched = believed(pairs, alone)
        weights, trusted = t_weights(residuals, roots, atlas.df, wrong[:, None], atlas.mistakes)
        mass = float((matched * trusted).sum())
        before, widths = widths, _updated(
            widths, residuals, matched * weights, mass, atlas.scales, atlas.num_positions,
            atlas.width_weight,
        )  # fmt: skip
        if np.abs(widths - before).max() < _CONVERGED:
            break
    return widths
