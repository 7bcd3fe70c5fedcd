r"""Deformations: neighbouring cells of an animal are displaced together.

The place of label j in an animal is :math:`\mu_j + u(\mu_j) + e_j`. The displacements e are
independent, and u is a Gaussian process: displacements at a distance r have the covariance
:math:`A \exp(-r^2 / 2 \ell^2)`. Both are learnt from labelled animals, if held-out ones ask for it.

In an animal with unknown labels, u is integrated out by expectation propagation. Each cell i says
where u lies at its place: a mixture over its labels, with probabilities by belief propagation,
which is replaced by a Gaussian of the same mean and covariance. The density of the cell under label
j is the one given what the *other* cells say about u, so that weights of pairs remain a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from permvi.models.atlas import estimate
from permvi.models.atlas.estimate import Moments, Shape, inverse_roots
from permvi.models.atlas.widths import believed, t_weights

if TYPE_CHECKING:
    from permvi.models.atlas.atlas import Atlas

# What is tried: the share of variance that neighbours have in common, and lengths in units of the
# spread of all labels.
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_LENGTHS = (0.06, 0.12, 0.25, 0.5, 1.0, 2.0)
# Deformations must improve the prediction of held-out animals by so many standard errors, since
# the best of many is taken.
_ERRORS = 3.0
# Residuals in standard deviations are bounded, since the tails of an atlas are heavy.
_LARGEST = 3.0
_ROUNDS, _STEPS_IF_KNOWN = 2, 4
# Of expectation propagation: steps, the share of a new factor, and the change of means at its end,
# relative to the standard deviation of deformations.
_STEPS, _SHARE, _CONVERGED = 15, 0.6, 0.02
# Pairs of a smaller probability say nothing about the deformation.
_LEAST = 1e-4


class Deformation(NamedTuple):
    """The law of deformations.

    Attributes:
        covariance: (q, q) covariance of the displacement of one cell.
        length: The distance over which displacements are alike, one standard deviation of a
            Gaussian.
    """

    covariance: np.ndarray
    length: float

    def prior(self, places: np.ndarray) -> np.ndarray:
        """Return the covariance (n q, n q) of displacements at places (n, q)."""
        return np.kron(_alike(places, self.length), self.covariance)


def _alike(places: np.ndarray, length: float) -> np.ndarray:
    squares = ((places[:, None] - places) ** 2).sum(axis=-1)
    return np.exp(-0.5 * squares / length**2)


def learn(
    cells: np.ndarray, moments: Moments, shape: Shape, q: int
) -> tuple[Deformation, Moments, Shape] | None:
    """Learn deformations of the first q features from cells (num, m, d), NaN where unseen.

    Returns:
        Deformations of new animals, and moments and shape of the scatter that remains; None if
        held-out animals are not predicted better.
    """
    chosen = _chosen(cells, moments, shape, q) if q and len(cells) >= 3 else None
    if chosen is None:
        return None
    share, length = chosen
    pooled = np.average(moments.covariances[:, :q, :q], axis=0, weights=moments.counts)
    found = Deformation(share * pooled, length)
    shrink = np.ones(cells.shape[-1])
    shrink[:q] = np.sqrt(1.0 - share)
    own = moments._replace(covariances=moments.covariances * shrink[:, None] * shrink)
    for _ in range(_ROUNDS):
        rest, doubts, sizes = cells.copy(), [], []
        for animal in rest:
            seen = np.isfinite(animal).all(axis=-1)
            u, doubt = _known(animal[seen], own, np.flatnonzero(seen), shape, found)
            animal[seen, :q] -= u
            doubts.append(doubt)
            sizes.append((u[:, :, None] * u[:, None] + doubt).mean(axis=0))
        found = found._replace(covariance=np.mean(sizes, axis=0))
        shape = estimate.choose_shape(rest)
        own = estimate.expectation_maximisation(rest, shape)
        own.covariances[:, :q, :q] += np.concatenate(doubts).mean(axis=0)
    own = own._replace(center=moments.center, spread=moments.spread)
    # The means of labels hold the deformations of the animals that have them.
    error = 1.0 / np.maximum(own.counts, 1.0).mean()
    return found._replace(covariance=(1 + error) * found.covariance), own, shape


def _chosen(
    cells: np.ndarray, moments: Moments, shape: Shape, q: int
) -> tuple[float, float] | None:
    """Return the share and the length that best predict animals that were left out, or None."""
    z = np.full((*cells.shape[:2], q), np.nan)
    for held_out in estimate.folds(len(cells)):
        others = estimate.expectation_maximisation(cells[~held_out], shape)
        roots = inverse_roots(estimate.predictive(others, shape)[0][:, :q, :q])
        known = np.where(others.counts[:, None] > 0, others.means, np.nan)
        z[held_out] = np.einsum("jkl,ajl->ajk", roots, (cells[held_out] - known)[..., :q])
    z = np.clip(z, -_LARGEST, _LARGEST)
    size = np.sqrt(np.trace(moments.spread[:q, :q]))
    animals = [(a[s], moments.means[s, :q]) for a in z if (s := np.isfinite(a).all(axis=1)).any()]
    best: tuple[float, float, float] = (0.0, 0.0, 0.0)
    for length in _LENGTHS:
        alike = [_alike(places, length * size) for _, places in animals]
        for share in _SHARES:
            gains = np.array(
                [_gain(a, share * K) for (a, _), K in zip(animals, alike, strict=True)]
            )
            surely = gains.sum() - _ERRORS * gains.std(ddof=1) * np.sqrt(len(gains))
            if surely > 0 and gains.sum() > best[0]:
                best = float(gains.sum()), share, length * size
    return best[1:] if best[0] > 0 else None


def _gain(z: np.ndarray, shared: np.ndarray) -> float:
    """Return the log density ratio of residuals (n, q) with covariance ``shared`` to independent.

    Residuals have unit variance either way.
    """
    C = shared.copy()
    np.fill_diagonal(C, 1.0)
    root = np.linalg.cholesky(C)
    squares = (z * (cho_solve((root, True), z) - z)).sum()
    return float(-0.5 * squares - z.shape[1] * np.log(np.diagonal(root)).sum())


def smoothed(
    prior: np.ndarray, precisions: np.ndarray, forces: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return means (n, q) and covariances (n, q, q) of displacements given Gaussian factors.

    The factor of place i is :math:`\exp(f_i^\top u_i - u_i^\top P_i u_i / 2)`, with P in
    ``precisions`` (n, q, q) and f in ``forces`` (n, q); the prior is (n q, n q).
    """
    n, q = forces.shape
    values, vectors = np.linalg.eigh(precisions)
    half = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None]) @ np.swapaxes(vectors, -1, -2)
    left = (half @ prior.reshape(n, q, n * q)).reshape(n * q, n * q)
    both = np.einsum("xib,iba->xia", left.reshape(n * q, n, q), half).reshape(n * q, n * q)
    both[np.diag_indices(n * q)] += 1.0
    known = solve_triangular(np.linalg.cholesky(both), left, lower=True)
    covariance = prior - known.T @ known
    blocks = covariance.reshape(n, q, n, q)[np.arange(n), :, np.arange(n)]
    return (covariance @ forces.ravel()).reshape(n, q), blocks


def _known(
    cells: np.ndarray, moments: Moments, labels: np.ndarray, shape: Shape, law: Deformation
) -> tuple[np.ndarray, np.ndarray]:
    """Return the displacements (n, q) of cells (n, d) of known labels, and covariances."""
    q = len(law.covariance)
    residuals, covariances = cells - moments.means[labels], moments.covariances[labels]
    roots, narrow = inverse_roots(covariances), np.linalg.inv(covariances)[:, :q]
    wrong = estimate.log_background(cells, moments.center, moments.spread)
    df = np.full(len(cells), shape.df)
    prior = law.prior(moments.means[labels, :q])
    weights, rest = np.ones(len(cells)), residuals.copy()
    for _ in range(_STEPS_IF_KNOWN):
        precisions = weights[:, None, None] * narrow[:, :, :q]
        forces = weights[:, None] * np.einsum("ikl,il->ik", narrow, residuals)
        u, doubt = smoothed(prior, precisions, forces)
        rest[:, :q] = residuals[:, :q] - u
        weights, _ = t_weights(rest, roots, df, wrong, shape.mistakes)
    return u, doubt


def log_densities(
    atlas: Atlas, cells: np.ndarray, widths: np.ndarray, extra: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return (n, m) log densities of cells (n, d) under each label, given the other cells.

    ``widths`` (d,) are factors of the scatter; ``extra`` (n, m) is added to the log weights of
    pairs, -inf where one is impossible. Cells that miss a feature say nothing about deformations.
    """
    found = atlas.log_densities(cells, widths)
    whole = np.flatnonzero(np.isfinite(cells).all(axis=1))
    if atlas.deformation is None or not len(whole):
        return found
    q, odds = atlas.num_positions, atlas.log_odds + extra
    alone = np.log(atlas.background) + atlas.log_background(cells)
    used = atlas.deformation.covariance * widths[:q, None] * widths[:q]
    law = atlas.deformation._replace(covariance=used)
    field = _Field(atlas, cells[whole], widths, law)
    enough = _CONVERGED * np.sqrt(np.diagonal(used).max())
    for _ in range(_STEPS):
        found[whole] = field.log_densities()
        before = field.mean
        field.update(believed(found + odds, alone)[whole])
        if np.abs(field.mean - before).max() < enough:
            break
    found[whole] = field.log_densities()
    return found


class _Field:
    """The deformation of an animal: what each cell says about it, and the others together."""

    def __init__(
        self, atlas: Atlas, cells: np.ndarray, widths: np.ndarray, law: Deformation
    ) -> None:
        self.atlas, self.cells, self.q = atlas, cells, len(law.covariance)
        n, m, q = len(cells), len(atlas.labels), self.q
        self.own = atlas.scales * widths[:, None] * widths
        self.own[:, :q, :q] -= law.covariance
        self.prior = law.prior(cells[:, :q])
        self.wrong = np.repeat(estimate.log_background(cells, atlas.center, atlas.spread), m)
        self.df = np.tile(np.minimum(atlas.df, 1e9), n)
        # What the other cells say: the law of each cell's displacement without itself.
        self.mean = np.zeros((n, q))
        self.covariance = np.tile(law.covariance, (n, 1, 1))
        self._least = 0.5 / np.linalg.eigvalsh(law.covariance)[-1]
        self._precisions, self._forces = np.zeros((n, q, q)), np.zeros((n, q))

    def _laws(self) -> tuple[np.ndarray, np.ndarray]:
        """Return residuals (n m, d) and inverse roots of scales (n m, d, d)."""
        d = self.cells.shape[1]
        scales = np.repeat(self.own[None], len(self.cells), axis=0)
        scales[:, :, : self.q, : self.q] += self.covariance[:, None]
        residuals = self.cells[:, None] - self.atlas.means
        residuals[..., : self.q] -= self.mean[:, None]
        return residuals.reshape(-1, d), inverse_roots(scales.reshape(-1, d, d))

    def log_densities(self) -> np.ndarray:
        """Return (n, m) log densities of cells given the others."""
        mistakes = self.atlas.mistakes
        right = np.log1p(-mistakes) + estimate.log_t(*self._laws(), self.df)
        return np.logaddexp(right, np.log(mistakes) + self.wrong).reshape(len(self.cells), -1)

    def update(self, pairs: np.ndarray) -> None:
        """Let each cell say anew what it tells, given probabilities of pairs (n, m)."""
        residuals, roots = self._laws()
        weights, trusted = t_weights(residuals, roots, self.df, self.wrong, self.atlas.mistakes)
        p = pairs.ravel() * trusted
        kept = np.flatnonzero(p > _LEAST)
        i, j = np.divmod(kept, pairs.shape[1])
        p, before = p[kept], self.covariance
        # The displacement of cell i if it is label j.
        total = self.own[j] * (trusted[kept] / weights[kept])[:, None, None]
        total[:, : self.q, : self.q] += before[i]
        gain = before[i] @ np.linalg.inv(total)[:, : self.q]
        shift = np.einsum("kqd,kd->kq", gain, residuals[kept])
        second = shift[:, :, None] * shift[:, None] - gain[:, :, : self.q] @ before[i]
        mean, spread = np.zeros_like(self.mean), before.copy()
        np.add.at(mean, i, p[:, None] * shift)
        np.add.at(spread, i, p[:, None, None] * second)
        spread -= mean[:, :, None] * mean[:, None]
        after, prior = np.linalg.inv(spread), np.linalg.inv(before)
        precisions = _bounded(after - prior, 0.0)
        forces = _times(precisions, self.mean) + _times(precisions + prior, mean)
        self._precisions += _SHARE * (precisions - self._precisions)
        self._forces += _SHARE * (forces - self._forces)
        mean, covariance = smoothed(self.prior, self._precisions, self._forces)
        joint = np.linalg.inv(covariance)
        self.covariance = np.linalg.inv(_bounded(joint - self._precisions, self._least))
        self.mean = _times(self.covariance, _times(joint, mean) - self._forces)


def _times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.einsum("ikl,il->ik", matrices, vectors)


def _bounded(matrices: np.ndarray, least: float) -> np.ndarray:
    """Return symmetric matrices (n, q, q) whose eigenvalues are not below ``least``."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.maximum(values, least)[:, None]) @ np.swapaxes(vectors, -1, -2)
