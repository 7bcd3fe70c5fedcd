r"""Frames of reference: how an animal's features map to those of an atlas.

Coordinates p and other features c of a cell become

.. math:: y_p = A \, p + b, \qquad y_c = e^{\gamma} c + o ,

with A a similarity (rotation and scale) or any matrix of positive determinant, and a gain and an
offset for each other feature. All steps are taken in the group: :math:`A \leftarrow e^{M} A`, so
that :math:`\log |A|` is linear in M. Priors are relative to the frame in which the animal has the
centre and the spread of the atlas: log scale, strain (the spread of the log singular values of A),
shift, gains and offsets are Gaussian; rotations are uniform.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from scipy.linalg import expm

from permvi._checks import one_of
from permvi.models.atlas.deformation import log_densities
from permvi.models.atlas.estimate import inverse_roots, log_t, square_distances
from permvi.models.atlas.widths import infer_widths

if TYPE_CHECKING:
    from permvi.models.atlas.atlas import Atlas

Align = Literal["similarity", "affine"]
ALIGNMENTS = get_args(Align)

# Standard deviations of the priors: of the log scale and the strain, of the shift in units of the
# atlas' spread, of the log gain, and of the offset in units of the feature's spread.
_SCALE_SD = 0.25
_STRAIN_SD = 0.05
_SHIFT_SD = 0.5
_GAIN_SD = 0.3
_OFFSET_SD = 0.5
_MOST_POSITIONS = 3
_NEWTON_STEPS = 12
_CONVERGED = 1e-5


class Frames(NamedTuple):
    """S frames in standardised units: the spread of all cells of the atlas is one.

    Attributes:
        matrix: (S, q, q).
        shift: (S, q).
        log_gain: (S, c).
        offset: (S, c).
    """

    matrix: np.ndarray
    shift: np.ndarray
    log_gain: np.ndarray
    offset: np.ndarray

    def take(self, chosen: np.ndarray) -> Frames:
        """Return some of the frames."""
        return Frames(*(part[chosen] for part in self))


class Pull(NamedTuple):
    """Where matched labels want the cells to be: a quadratic form for each cell.

    Attributes:
        precision: (S, n, d, d).
        force: (S, n, d) precision times the distance from the cell to its labels.
    """

    precision: np.ndarray
    force: np.ndarray


class FrameModel:
    """The frames of one animal's cells (n, d) in an atlas, and their log density.

    Raises:
        ValueError: The atlas has no coordinates or more than three, or a cell misses a feature.
    """

    def __init__(self, atlas: Atlas, cells: np.ndarray, kind: Align) -> None:
        one_of("align", kind, ALIGNMENTS)
        q = atlas.num_positions
        if not 1 <= q <= _MOST_POSITIONS:
            raise ValueError(f"align must go with one to three coordinates, got an atlas with {q}.")
        if not np.isfinite(cells).all():
            raise ValueError("align must go with cells that have all features, got NaN.")
        if len(cells) < q + 2:
            raise ValueError(f"align must go with at least {q + 2} cells, got {len(cells)}.")
        self.q, self.kind, self.atlas = q, kind, atlas
        variances = np.diagonal(atlas.spread)
        unit = np.sqrt(variances)
        unit[:q] = np.sqrt(variances[:q].sum())
        self.unit, self.center = unit, atlas.center
        self.means = (atlas.means - atlas.center) / unit
        self.df = atlas.df
        self._set_widths(np.ones(len(unit)))
        self.spread = atlas.spread / unit[:, None] / unit
        self.log_right, self.log_wrong = np.log1p(-atlas.mistakes), np.log(atlas.mistakes)
        self.log_odds = atlas.log_odds
        self.log_rate = np.log(atlas.background)
        # The animal with the centre and the spread of the atlas.
        self.origin = cells.mean(axis=0)
        deviations = cells - self.origin
        data_unit = deviations.std(axis=0)
        data_unit[:q] = np.sqrt((deviations[:, :q] ** 2).sum(axis=1).mean())
        self.data_unit = np.where(data_unit > 0, data_unit, 1.0)
        self.cells = deviations / self.data_unit
        self.basis = _basis(q, kind)

    def _set_widths(self, widths: np.ndarray) -> None:
        self.widths, unit = widths, self.unit / widths
        self.roots = inverse_roots(self.atlas.scales / unit[:, None] / unit)
        self.precisions = np.swapaxes(self.roots, -1, -2) @ self.roots

    def widened(self, frames: Frames, extra: np.ndarray) -> FrameModel:
        """Return the model with the scatter of this animal, estimated in the first of the frames.

        ``extra`` (n, m) are log weights that are added to those of pairs.
        """
        found = copy.copy(self)
        found._set_widths(infer_widths(self.atlas, self.in_atlas(frames)[0], extra))
        return found

    def starts(self, matrices: np.ndarray) -> Frames:
        """Return frames with these rotations (S, q, q) and nothing else."""
        S, c = len(matrices), self.cells.shape[1] - self.q
        return Frames(matrices, np.zeros((S, self.q)), np.zeros((S, c)), np.zeros((S, c)))

    def apply(self, frames: Frames) -> np.ndarray:
        """Return the cells (S, n, d) in frames, in standardised units."""
        q = self.q
        places = self.cells[:, :q] @ np.swapaxes(frames.matrix, -1, -2) + frames.shift[:, None]
        others = np.exp(frames.log_gain)[:, None] * self.cells[:, q:] + frames.offset[:, None]
        return np.concatenate([places, others], axis=-1)

    def in_atlas(self, frames: Frames) -> np.ndarray:
        """Return the cells (S, n, d) in frames, in the units of the atlas."""
        return self.center + self.unit * self.apply(frames)

    def transforms(self, frames: Frames) -> np.ndarray:
        """Return (S, d, d + 1) matrices that map raw features, and 1, to those of the atlas."""
        S, q, d = len(frames.matrix), self.q, len(self.unit)
        linear = np.zeros((S, d, d))
        linear[:, :q, :q] = frames.matrix
        linear[:, np.arange(q, d), np.arange(q, d)] = np.exp(frames.log_gain)
        linear = self.unit[:, None] * linear / self.data_unit
        moved = np.concatenate([frames.shift, frames.offset], axis=-1)
        shift = self.center + self.unit * moved - linear @ self.origin
        return np.concatenate([linear, shift[..., None]], axis=-1)

    def log_volume(self, frames: Frames) -> np.ndarray:
        """Return (S,) n times the log determinant of each frame, relative to the start."""
        log_det = np.linalg.slogdet(frames.matrix)[1] + frames.log_gain.sum(axis=-1)
        return len(self.cells) * log_det

    def log_prior(self, frames: Frames) -> np.ndarray:
        """Return (S,) log prior densities up to a constant."""
        logs = np.log(np.linalg.svd(frames.matrix, compute_uv=False))
        mean = logs.mean(axis=-1)
        parts = [(mean / _SCALE_SD)[:, None], frames.shift / _SHIFT_SD]
        parts += [frames.log_gain / _GAIN_SD, frames.offset / _OFFSET_SD]
        if self.kind == "affine":
            parts.append((logs - mean[:, None]) / _STRAIN_SD)
        return -0.5 * sum((part**2).sum(axis=-1) for part in parts)

    def tables(self, y: np.ndarray, width: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Return log weights of pairs (S, n, m) and of unmatched cells (S, n) at places y.

        Scatter that is ``width`` times as wide lets labels attract cells from afar.
        """
        right, wrong = self._laws(y, width)
        pairs = np.logaddexp(self.log_right + right, (self.log_wrong + wrong)[..., None])
        return pairs + self.log_odds, self.log_rate + wrong

    def relative(self, frame: Frames, extra: np.ndarray) -> np.ndarray:
        """Return log weights of pairs (n, m) in one frame, relative to those of unmatched cells.

        Deformations are integrated out; ``extra`` (n, m) are log weights that are added to those of
        pairs.
        """
        cells = self.in_atlas(frame)[0]
        pairs = log_densities(self.atlas, cells, self.widths, extra) + self.log_odds
        return pairs - (self.log_rate + self.atlas.log_background(cells))[:, None]

    def _laws(self, y: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        right = log_t(y[..., None, :] - self.means, self.roots / width, self.df)
        return right, self._log_wide(y)

    def _log_wide(self, y: np.ndarray) -> np.ndarray:
        root = inverse_roots(self.spread)[None]
        return log_t(y[..., None, :], root, np.array([np.inf]))[..., 0]

    def pull(self, y: np.ndarray, pairs: np.ndarray, alone: np.ndarray, width: float = 1.0) -> Pull:
        """Return how labels pull at cells y (S, n, d), given matching probabilities.

        ``pairs`` (S, n, m) and ``alone`` (S, n) are P(cell is label) and P(cell is unmatched).
        """
        S, n, d = y.shape
        right, wrong = self._laws(y, width)
        odds = self.log_wrong - self.log_right + wrong[..., None] - right
        trusted = pairs / (1.0 + np.exp(np.minimum(odds, 700.0)))
        squares = square_distances(y[..., None, :] - self.means, self.roots / width)
        # Infinite degrees of freedom have weight one.
        bounded = np.minimum(self.df, 1e9)
        weights = trusted * (bounded + d) / (bounded + squares) / width**2
        stray = alone + (pairs - trusted).sum(axis=-1)
        flat = self.precisions.reshape(len(self.means), d * d)
        wide = np.linalg.inv(self.spread)
        precision = (weights @ flat).reshape(S, n, d, d) + stray[..., None, None] * wide
        wanted = weights @ np.einsum("jkl,jl->jk", self.precisions, self.means)
        return Pull(precision, wanted - np.einsum("sikl,sil->sik", precision, y))

    def step(self, frames: Frames, pull: Pull) -> tuple[np.ndarray, np.ndarray]:
        """Return the Gauss-Newton step (S, p) of all parameters, and its precision (S, p, p)."""
        y = self.apply(frames)
        H = self._jacobian(y)
        precision = np.einsum("sikp,sikl,silr->spr", H, pull.precision, H, optimize=True)
        gradient = np.einsum("sikp,sik->sp", H, pull.force, optimize=True)
        K, q, c = len(self.basis), self.q, y.shape[-1] - self.q
        traces = np.trace(self.basis, axis1=1, axis2=2)
        gradient[:, :K] += len(self.cells) * traces
        gradient[:, K + q : K + q + c] += len(self.cells)
        prior, slope = self._prior_terms(frames)
        precision = precision + prior
        gradient = gradient + slope
        return np.linalg.solve(precision, gradient[..., None])[..., 0], precision

    def _jacobian(self, y: np.ndarray) -> np.ndarray:
        """Return the derivatives (S, n, d, p) of places with respect to the parameters."""
        S, n, d = y.shape
        K, q = len(self.basis), self.q
        c = d - q
        H = np.zeros((S, n, d, K + q + 2 * c))
        H[:, :, :q, :K] = np.einsum("kab,sib->siak", self.basis, y[..., :q])
        H[:, :, np.arange(q), K + np.arange(q)] = 1.0
        places = np.arange(c)
        H[:, :, q + places, K + q + places] = y[..., q:]
        H[:, :, q + places, K + q + c + places] = 1.0
        return H

    def _prior_terms(self, frames: Frames) -> tuple[np.ndarray, np.ndarray]:
        """Return the precision (p, p) and gradient (S, p) of the log prior, to first order."""
        K, q = len(self.basis), self.q
        c = frames.log_gain.shape[-1]
        # The scale comes first, then rotations, then strains.
        num_rotations = q * (q - 1) // 2
        left, values, _ = np.linalg.svd(frames.matrix)
        logs = np.log(values)
        mean = logs.mean(axis=-1)
        stretch = np.einsum("sak,sk,sbk->sab", left, logs - mean[:, None], left)
        prior = np.zeros(K + q + 2 * c)
        gradient = np.zeros((len(mean), K + q + 2 * c))
        # The basis of the scale is I / sqrt(q), so that its coordinate is sqrt(q) times log scale.
        prior[0] = 1.0 / (q * _SCALE_SD**2)
        gradient[:, 0] = -mean / (np.sqrt(q) * _SCALE_SD**2)
        strains = slice(1 + num_rotations, K)
        prior[strains] = _STRAIN_SD**-2
        along = np.einsum("kab,sab->sk", self.basis[strains], stretch)
        gradient[:, strains] = -along / _STRAIN_SD**2
        ends = np.cumsum([K, q, c, c])
        parts = (frames.shift, _SHIFT_SD), (frames.log_gain, _GAIN_SD), (frames.offset, _OFFSET_SD)
        for (start, end), (value, sd) in zip(itertools.pairwise(ends), parts, strict=True):
            prior[start:end] = sd**-2
            gradient[:, start:end] = -value / sd**2
        return np.diag(prior), gradient

    def moved(self, frames: Frames, step: np.ndarray) -> Frames:
        """Return frames after steps (S, p)."""
        K, q = len(self.basis), self.q
        c = frames.log_gain.shape[-1]
        grow = expm(np.einsum("sk,kab->sab", step[:, :K], self.basis))
        of_shift, of_gain, of_offset = np.split(step[:, K:], [q, q + c], axis=1)
        return Frames(
            grow @ frames.matrix,
            np.einsum("sab,sb->sa", grow, frames.shift) + of_shift,
            frames.log_gain + of_gain,
            np.exp(of_gain) * frames.offset + of_offset,
        )

    def log_joint(self, frames: Frames, perm: np.ndarray) -> np.ndarray:
        """Return (S,) log densities of frames and of cells matched by perm (n,).

        Weights of unmatched cells and odds of labels are included.
        """
        right, wrong = self._held_laws(self.apply(frames), perm)
        pairs = np.logaddexp(self.log_right + right, self.log_wrong + wrong) + self.log_odds[perm]
        total = np.where(perm < 0, self.log_rate + wrong, pairs).sum(axis=-1)
        return total + self.log_volume(frames) + self.log_prior(frames)

    def settle(self, frames: Frames, perm: np.ndarray) -> tuple[Frames, np.ndarray]:
        """Return the best frames near the given ones for perm (n,), and precisions there."""
        for _ in range(_NEWTON_STEPS):
            step, precision = self.step(frames, self._held_pull(self.apply(frames), perm))
            frames = self.moved(frames, step)
            if np.abs(step).max() < _CONVERGED:
                break
        return frames, precision

    def _held_laws(self, y: np.ndarray, perm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (S, n) log densities of cells y under their labels, and under none."""
        right = log_t(y - self.means[perm], self.roots[perm], self.df[perm])
        return right, self._log_wide(y)

    def _held_pull(self, y: np.ndarray, perm: np.ndarray) -> Pull:
        """Return `pull` for one matching, at the cost of its pairs only."""
        right, wrong = self._held_laws(y, perm)
        odds = self.log_wrong - self.log_right + wrong - right
        trusted = np.where(perm < 0, 0.0, 1.0 / (1.0 + np.exp(np.minimum(odds, 700.0))))
        bounded = np.minimum(self.df[perm], 1e9)
        squares = square_distances(y - self.means[perm], self.roots[perm])
        weights = trusted * (bounded + y.shape[-1]) / (bounded + squares)
        wide = np.linalg.inv(self.spread)
        narrow = self.precisions[perm]
        away = np.einsum("ikl,sil->sik", narrow, self.means[perm] - y)
        return Pull(
            weights[..., None, None] * narrow + (1.0 - trusted)[..., None, None] * wide,
            weights[..., None] * away - (1.0 - trusted)[..., None] * (y @ wide),
        )


def _basis(q: int, kind: str) -> np.ndarray:
    """Return orthonormal matrices (K, q, q): the scale, rotations, and strains if affine."""
    basis = [np.eye(q) / np.sqrt(q)]
    pairs = list(itertools.combinations(range(q), 2))

    def unit(a: int, b: int) -> np.ndarray:
        found = np.zeros((q, q))
        found[a, b] = 1.0
        return found

    basis += [(unit(a, b) - unit(b, a)) / np.sqrt(2) for a, b in pairs]
    if kind == "affine":
        basis += [(unit(a, b) + unit(b, a)) / np.sqrt(2) for a, b in pairs]
        for k in range(1, q):
            values = np.zeros(q)
            values[:k], values[k] = 1.0, -float(k)
            basis.append(np.diag(values / np.linalg.norm(values)))
    return np.stack(basis)


def start_rotations(model: FrameModel, num_angles: int) -> np.ndarray:
    """Return rotations (S, q, q) to begin with; on a line, both directions.

    The long axis of the animal lies as it is, or along that of the atlas, in both directions; each
    comes with turns about that axis.
    """
    q = model.q
    if q == 1:
        return np.array([[[1.0]], [[-1.0]]])
    angles = 2 * np.pi * np.arange(num_angles) / num_angles
    if q == 2:
        cos, sin = np.cos(angles), np.sin(angles)
        return np.moveaxis(np.array([[cos, -sin], [sin, cos]]), 2, 0)
    target = np.linalg.eigh(model.spread[:3, :3])[1][:, -1]
    own = np.linalg.eigh(model.cells[:, :3].T @ model.cells[:, :3])[1][:, -1]
    own = own * (1.0 if own @ target >= 0 else -1.0)
    first = [np.eye(3), _turn_to(own, target), _turn_to(-own, target)]
    skew = np.cross(np.eye(3), target)
    turns = [expm(angle * skew) for angle in angles]
    return np.stack([turn @ lie for lie in first for turn in turns])


def _turn_to(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the smallest rotation (3, 3) that takes one unit vector to another."""
    axis = np.cross(source, target)
    sine, cosine = np.linalg.norm(axis), float(source @ target)
    if sine < 1e-9:
        if cosine > 0:
            return np.eye(3)
        # Half a turn about any axis at right angles.
        axis = np.cross(source, np.eye(3)[np.argmin(np.abs(source))])
        axis /= np.linalg.norm(axis)
        return 2 * np.outer(axis, axis) - np.eye(3)
    angle = np.arctan2(sine, cosine)
    return expm(angle * np.cross(np.eye(3), axis / sine))
