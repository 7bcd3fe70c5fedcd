r"""Relations between cells: how the places of neighbouring labels vary together.

Whitened residuals u of the coordinates f of two labels have correlations :math:`\rho`. A pair of
cells then has, beside the densities of both,

.. math::
    \log c = \sum_f \Bigl[ -\tfrac12 \log (1 - \rho_f^2)
    - \frac{\rho_f^2 (u_{jf}^2 + u_{kf}^2) - 2 \rho_f u_{jf} u_{kf}}{2 (1 - \rho_f^2)} \Bigr] ,

the log ratio of a joint normal density to independent ones. The pairs form a forest, the one that
explains most (Chow and Liu 1968), so that the product over its pairs is the joint density of
labels whose residuals are normal. Residuals are bounded, since the tails of an atlas are heavy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from permvi.models.atlas import estimate
from permvi.models.atlas.animals import as_animals, cells_by_label
from permvi.models.atlas.atlas import Atlas

# Correlations are shrunk as if so many further animals had none.
_STRENGTHS = (20.0, 40.0, 80.0, 160.0)
# A label is related to some of this many labels that are nearest to it.
_NEAREST = 6
_LARGEST = 3.0


@dataclasses.dataclass(frozen=True, eq=False)
class Relations:
    """Correlations of the residuals of pairs of labels, for `AtlasMatching`.

    Attributes:
        pairs: (E, 2) labels that are related; none if relations predict left-out animals worse.
        correlations: (E, q) correlations of their whitened residuals, by coordinate.
        gain: What they add to the log density of a cell of an animal that was left out, on average.
    """

    pairs: np.ndarray
    correlations: np.ndarray
    gain: float

    @classmethod
    def fit(cls, animals: Any, atlas: Atlas) -> Relations:
        """Learn relations from the labelled animals that an atlas was learnt from.

        Raises:
            ValueError: Animals are fewer than five, or the atlas was not learnt or has no places.
        """
        found = [animal.using(atlas.features) for animal in as_animals(animals, atlas.labels)]
        if len(found) < 5:
            raise ValueError(f"animals must be at least 5, got {len(found)}.")
        q = atlas.num_positions
        if not (atlas.settings and q):
            raise ValueError(f"atlas must be learnt, with coordinates, got one with {q} of them.")
        cells, shape = cells_by_label(found, atlas.labels), estimate.Shape(**atlas.settings)
        gains = np.zeros(len(_STRENGTHS))
        for held_out in estimate.folds(len(cells)):
            moments = estimate.expectation_maximisation(cells[~held_out], shape)
            laws = moments.means, estimate.predictive(moments, shape)[0]
            near = _near(moments.means[:, :q])
            mine, others = (_whitened(cells[these], *laws, q) for these in (~held_out, held_out))
            for k, strength in enumerate(_STRENGTHS):
                pairs, correlations = _forest(mine, near, strength)
                terms = log_ratios(others[:, pairs[:, 0]], others[:, pairs[:, 1]], correlations)
                gains[k] += float(terms.sum())
        best = int(np.argmax(gains))
        gain = float(gains[best]) / max(int(np.isfinite(cells).all(axis=-1).sum()), 1)
        if gain <= 0:
            return cls(np.zeros((0, 2), np.int64), np.zeros((0, q)), 0.0)
        residuals = _whitened(cells, atlas.means, atlas.scales, q)
        return cls(*_forest(residuals, _near(atlas.means[:, :q]), _STRENGTHS[best]), gain)

    def tables(self, cells: np.ndarray, atlas: Atlas, widths: np.ndarray) -> np.ndarray:
        """Return (E, n, n): what each pair of labels adds if cells (n, d) i and l have them."""
        scales = atlas.scales * widths[:, None] * widths
        residuals = _whitened(cells[:, None], atlas.means, scales, atlas.num_positions)
        first, second = (np.swapaxes(residuals[:, self.pairs[:, k]], 0, 1) for k in (0, 1))
        return log_ratios(first[:, :, None], second[:, None], self.correlations[:, None, None])


def log_ratios(first: np.ndarray, second: np.ndarray, correlations: np.ndarray) -> np.ndarray:
    """Return log c (...) of whitened residuals (..., q), zero where one is missing."""
    squares = correlations**2
    bend = squares * (first**2 + second**2) - 2 * correlations * first * second
    terms = -0.5 * np.log1p(-squares) - bend / (2 * (1 - squares))
    return np.where(np.isfinite(terms), terms, 0.0).sum(axis=-1)


def _whitened(cells: np.ndarray, means: np.ndarray, scales: np.ndarray, q: int) -> np.ndarray:
    """Return bounded residuals (..., m, q) of the first q features of cells (..., m, d)."""
    roots = estimate.inverse_roots(scales[:, :q, :q])
    z = np.einsum("jkl,...jl->...jk", roots, (cells - means)[..., :q])
    return np.clip(z, -_LARGEST, _LARGEST)


def _near(places: np.ndarray) -> np.ndarray:
    """Return (m, m) booleans, True where one of two labels is among the other's nearest."""
    apart = ((places[:, None] - places) ** 2).sum(axis=-1)
    np.fill_diagonal(apart, np.inf)
    rank = np.argsort(np.argsort(apart, axis=1), axis=1)
    close = (rank < _NEAREST) & np.isfinite(apart)
    return close | close.T


def _forest(
    residuals: np.ndarray, near: np.ndarray, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (E, 2) of labels that explain most residuals (num, m, q), and (E, q)."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    seen = np.isfinite(residuals).all(axis=-1)
    z, there = np.where(seen[..., None], residuals, 0.0), seen.astype(np.float64)
    both = there.T @ there
    products = np.einsum("ajf,akf->jkf", z, z)
    squares = np.einsum("ajf,ak->jkf", z**2, there)
    sizes = np.sqrt(np.maximum(squares * np.swapaxes(squares, 0, 1), 1e-12))
    correlations = products / sizes * (both / (both + strength))[..., None]
    information = -0.5 * np.log1p(-(correlations**2)).sum(axis=-1)
    tree = minimum_spanning_tree(np.where(near, -information, 0.0)).tocoo()
    pairs = np.stack([tree.row, tree.col], axis=1).astype(np.int64)
    return pairs, correlations[pairs[:, 0], pairs[:, 1]]
