"""An atlas: where the cells of each label are expected, learnt from labelled animals."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from permvi import _checks
from permvi._files import write_bytes
from permvi.models.atlas import estimate, widths
from permvi.models.atlas.animals import (
    Animal,
    as_animals,
    cells_by_label,
    default_features,
    num_coordinates,
)
from permvi.models.atlas.deformation import Deformation, learn

_FORMAT = "permvi atlas 1"
# Half a background cell in all animals: one is never impossible.
_HALF = 0.5
# Animals drawn from an atlas that was not learnt.
_NUM_DRAWN = 40
_ARRAYS = ("means", "scales", "df", "p_present", "center", "spread", "held_out")


@dataclasses.dataclass(frozen=True, eq=False)
class Atlas:
    r"""The law of a cell's features for each label, and of cells that are in no atlas.

    A cell x of label j has the density :math:`(1 - \epsilon) t_{\nu_j}(x; \mu_j, \Sigma_j) +
    \epsilon g(x)`, where g is a Gaussian over all cells and :math:`\epsilon` the share of cells
    that lie anywhere, because training cells may be mislabelled. Cells of no label have density g.

    Attributes:
        labels: (m,) names of the labels.
        features: (d,) names of the features.
        num_positions: How many of the first features are coordinates; the others are colours and
            the like.
        means: (m, d) expected features.
        scales: (m, d, d) scale matrices of multivariate t laws, with the error of the estimates.
        df: (m,) their degrees of freedom, which may be infinite.
        p_present: (m,) the probability that a label is seen in an animal.
        center: (d,) the mean of all cells.
        spread: (d, d) the covariance of all cells.
        mistakes: The share of cells that lie anywhere.
        background: The expected number of cells of no label in an animal.
        width_weight: Animals scatter more or less widely than the atlas says; this is the weight of
            a prior at one, in residuals. Infinite if all scatter alike.
        held_out: (num,) for each training animal, the mean log density of its cells in their best
            matching, by an atlas of others; empty if the atlas was not learnt. New animals are
            compared with them.
        settings: What cross-validation chose, by name.
        deformation: How neighbouring cells are displaced together, as part of ``scales``; None if
            they are displaced independently.
    """

    labels: tuple[str, ...]
    features: tuple[str, ...]
    num_positions: int
    means: np.ndarray
    scales: np.ndarray
    df: np.ndarray
    p_present: np.ndarray
    center: np.ndarray
    spread: np.ndarray
    mistakes: float
    background: float
    width_weight: float
    held_out: np.ndarray
    settings: dict[str, float] = dataclasses.field(default_factory=dict)
    deformation: Deformation | None = None

    @classmethod
    def fit(
        cls,
        animals: Any,
        *,
        features: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        num_positions: int | None = None,
    ) -> Atlas:
        """Learn an atlas from labelled animals.

        Covariances are shrunk towards their average, tails are heavy, some cells count as
        mislabelled, and neighbours may be displaced together; how much of each is chosen by
        cross-validation over animals.

        Args:
            animals: A list of `Animal` objects (see `read_animals`) or of DataFrames with a row for
                each cell, named by the index, and a column for each feature; or an array (num, m,
                d) with NaN where a label was not seen. Cells without a name are background. Cells
                that miss a feature are left out.
            features: The features to use, all by default.
            labels: The order of the labels, by default sorted; for an array, names of its labels.
            num_positions: How many of the first features are coordinates. By default those whose
                names begin with x, y or z.

        Raises:
            ValueError: Fewer than two animals or two cells of any label, or features that differ.
        """
        found = as_animals(animals, labels)
        chosen = tuple(found[0].features if features is None else map(str, features))
        found = [animal.using(chosen) for animal in found]
        if len(found) < 2:
            raise ValueError(f"animals must be at least two to learn an atlas, got {len(found)}.")
        order = labels
        if isinstance(animals, np.ndarray) and labels is None:
            order = tuple(map(str, range(animals.shape[1])))
        names = _names(found, order)
        cells = cells_by_label(found, names)
        seen = np.isfinite(cells).all(axis=-1)
        if seen.sum(axis=0).max(initial=0) < 2:
            raise ValueError("animals must share labels, got none that two of them have.")
        flat = np.flatnonzero(np.ptp(cells[seen], axis=0) == 0)
        if len(flat):
            raise ValueError(f"features must vary, got a constant {chosen[flat[0]]!r:.60}.")
        num = _num_positions(num_positions, chosen)
        even, moments, shape = widths.learn(cells, num)
        of_all, law = shape, None
        if (shared := learn(even, moments, shape, num)) is not None:
            law, moments, shape = shared
        scales, df = estimate.predictive(moments, shape)
        if law is not None:
            scales[:, :num, :num] += law.covariance
        unnamed = [np.isfinite(one.cells[_unnamed(one)]).all(axis=1).sum() for one in found]
        # As many cells have labels that no animal has shown as are seen once (Good 1953).
        once = np.count_nonzero(seen.sum(axis=0) == 1)
        atlas = cls(
            labels=names,
            features=chosen,
            num_positions=num,
            means=moments.means,
            scales=scales,
            df=df,
            p_present=(seen.sum(axis=0) + 0.5) / (len(found) + 1),
            center=moments.center,
            spread=moments.spread,
            mistakes=shape.mistakes,
            background=float((sum(unnamed) + once + _HALF) / len(found)),
            width_weight=widths.WEIGHT,
            held_out=np.zeros(0),
            settings=shape._asdict(),
            deformation=law,
        )
        return dataclasses.replace(atlas, held_out=_held_out(atlas, cells, of_all))

    @classmethod
    def from_moments(
        cls,
        means: Any,
        covariances: Any,
        *,
        labels: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        df: Any = np.inf,
        p_present: Any = 0.9,
        mistakes: float = 0.01,
        background: float = 0.5,
        num_positions: int | None = None,
    ) -> Atlas:
        """Make an atlas of known means (m, d) and covariances, (m, d, d) or (d, d) for all labels.

        The remaining arguments are the attributes of the same names; with finite ``df`` the
        covariances are the scale matrices of t laws. Background cells are Gaussian, with the mean
        and covariance of all labels together.

        Raises:
            ValueError: Shapes do not fit, or a covariance is not positive definite.
        """
        mu = _checks.real_array("means", means)
        if mu.ndim != 2 or 0 in mu.shape or not np.isfinite(mu).all():
            raise ValueError(f"means must be finite, of shape (m, d), got shape {mu.shape}.")
        m, d = mu.shape
        given = _checks.real_array("covariances", covariances)
        if given.shape not in ((d, d), (m, d, d)):
            raise ValueError(f"covariances must have shape {(m, d, d)}, got shape {given.shape}.")
        scales = np.array(np.broadcast_to(given, (m, d, d)))
        try:
            np.linalg.cholesky(scales)
        except np.linalg.LinAlgError:
            raise ValueError(
                "covariances must be positive definite, got one that is not."
            ) from None
        names = tuple(map(str, range(m) if labels is None else labels))
        chosen = default_features(d) if features is None else tuple(map(str, features))
        if len(names) != m or len(set(names)) != m:
            raise ValueError(f"labels must be {m} different names, got {len(set(names))}.")
        if len(chosen) != d:
            raise ValueError(f"features must be {d} names, got {len(chosen)}.")
        center = mu.mean(axis=0)
        between = (mu - center).T @ (mu - center) / m
        present = np.broadcast_to(np.asarray(p_present, dtype=np.float64), (m,))
        if not ((present > 0) & (present < 1)).all():
            raise ValueError(f"p_present must be between 0 and 1, got {p_present!r:.60}.")
        freedom = np.broadcast_to(np.asarray(df, dtype=np.float64), (m,))
        if not (freedom > 0).all():
            raise ValueError(f"df must be positive, got {df!r:.60}.")
        return cls(
            labels=names,
            features=chosen,
            num_positions=_num_positions(num_positions, chosen),
            means=mu,
            scales=scales,
            df=freedom.copy(),
            p_present=present.copy(),
            center=center,
            spread=between + scales.mean(axis=0),
            mistakes=_checks.positive_number("mistakes", mistakes, 0.5),
            background=_checks.positive_number("background", background),
            width_weight=np.inf,
            held_out=np.zeros(0),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of labels and of features."""
        return self.means.shape[0], self.means.shape[1]

    @property
    def log_odds(self) -> np.ndarray:
        """(m,) log odds that a label is seen."""
        return np.log(self.p_present / (1 - self.p_present))

    @cached_property
    def usual(self) -> np.ndarray:
        """(num,) mean log densities of the cells of animals that fit the atlas.

        They are `held_out`, or those of animals drawn from the atlas if it was not learnt.
        """
        if len(self.held_out):
            return self.held_out
        rng = np.random.default_rng(0)
        drawn = [self._draw(rng) for _ in range(_NUM_DRAWN)]
        return np.array([mean_best_density(self, cells) for cells in drawn if len(cells)])

    def _draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the cells (n, d) of an animal."""
        u = rng.random((2, len(self.labels)))
        seen, anywhere = u[0] < self.p_present, u[1] < self.mistakes
        df = np.minimum(self.df, 1e9)
        noise = rng.normal(size=self.shape) / np.sqrt(rng.chisquare(df) / df)[:, None]
        cells = self.means + np.einsum("ikl,il->ik", np.linalg.cholesky(self.scales), noise)
        others = np.count_nonzero(seen & anywhere) + rng.poisson(self.background)
        wide = rng.multivariate_normal(self.center, self.spread, size=others)
        return np.concatenate([cells[seen & ~anywhere], wide])

    def log_densities(self, cells: np.ndarray, widths: np.ndarray | None = None) -> np.ndarray:
        """Return (n, m) log densities of cells (n, d) under each label.

        A missing feature, NaN, is integrated out. ``widths`` (d,) are factors of the scatter.
        """
        missing = np.isnan(cells)
        factors = np.ones(cells.shape[1]) if widths is None else widths
        if not missing.any():
            return self._log_densities(cells, np.arange(cells.shape[-1]), factors)
        found = np.zeros((len(cells), len(self.labels)))
        for pattern in np.unique(missing, axis=0):
            rows = np.flatnonzero((missing == pattern).all(axis=1))
            used = np.flatnonzero(~pattern)
            if len(used):
                found[rows] = self._log_densities(cells[np.ix_(rows, used)], used, factors)
        return found

    def _log_densities(self, cells: np.ndarray, used: np.ndarray, widths: np.ndarray) -> np.ndarray:
        scales = self.scales[:, used[:, None], used] * widths[used][:, None] * widths[used]
        roots = estimate.inverse_roots(scales)
        right = estimate.log_t(cells[..., None, :] - self.means[:, used], roots, self.df)
        wrong = self._background(cells, used)[..., None]
        return np.logaddexp(np.log1p(-self.mistakes) + right, np.log(self.mistakes) + wrong)

    def log_background(self, cells: np.ndarray) -> np.ndarray:
        """Return (n,) log densities of cells (n, d) of no label; NaN is integrated out."""
        missing = np.isnan(cells)
        found = np.zeros(len(cells))
        for pattern in np.unique(missing, axis=0):
            rows = np.flatnonzero((missing == pattern).all(axis=1))
            used = np.flatnonzero(~pattern)
            if len(used):
                found[rows] = self._background(cells[np.ix_(rows, used)], used)
        return found

    def _background(self, cells: np.ndarray, used: np.ndarray) -> np.ndarray:
        return estimate.log_background(cells, self.center[used], self.spread[used[:, None], used])

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the atlas to one file of NumPy arrays (.npz)."""
        content = io.BytesIO()
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        numbers = [self.num_positions, self.mistakes, self.background, self.width_weight]
        if self.deformation is not None:
            arrays |= self.deformation._asdict()
        np.savez_compressed(
            content,
            format=_FORMAT,
            labels=np.array(self.labels),
            features=np.array(self.features),
            numbers=np.array(numbers, dtype=np.float64),
            setting_names=np.array(list(self.settings), dtype=str),
            settings=np.array(list(self.settings.values()), dtype=np.float64),
            **arrays,
        )
        return write_bytes(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Atlas:
        """Read an atlas that `save` has written.

        Raises:
            ValueError: The file holds something else.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(f"{path}: expected an atlas, got no file of that name.")
        try:
            with np.load(path, allow_pickle=False) as loaded:
                stored = dict(loaded)
            if str(stored.pop("format")) != _FORMAT:
                raise ValueError
            num_positions, mistakes, background, width_weight = stored["numbers"].tolist()
            names = map(str, stored["setting_names"])
            shared = None
            if "covariance" in stored:
                shared = Deformation(stored["covariance"], float(stored["length"]))
            return cls(
                labels=tuple(map(str, stored["labels"])),
                features=tuple(map(str, stored["features"])),
                num_positions=int(num_positions),
                mistakes=mistakes,
                background=background,
                width_weight=width_weight,
                settings=dict(zip(names, stored["settings"].tolist(), strict=True)),
                deformation=shared,
                **{name: stored[name] for name in _ARRAYS},
            )
        except (BadZipFile, EOFError, KeyError, ValueError, AttributeError):
            raise ValueError(f"{path}: expected an atlas of permvi, got another file.") from None


def _num_positions(given: int | None, features: Sequence[str]) -> int:
    if given is None:
        return num_coordinates(features)
    if _checks.whole("num_positions", given, 0) > len(features):
        raise ValueError(f"num_positions must be at most {len(features)}, got {given}.")
    return given


def _names(animals: Sequence[Animal], labels: Sequence[str] | None) -> tuple[str, ...]:
    """Return the labels that some animal has, in the order given, else sorted."""
    present = {name for animal in animals for name in animal.names if name is not None}
    unknown = present.difference(labels) if labels is not None else ()
    if unknown:
        raise ValueError(f"labels must include all names, got no {min(unknown)!r:.60}.")
    return tuple(name for name in labels or sorted(present) if name in present)


def _unnamed(animal: Animal) -> list[int]:
    return [i for i, name in enumerate(animal.names) if name is None]


def _held_out(atlas: Atlas, cells: np.ndarray, shape: estimate.Shape) -> np.ndarray:
    """Return what `Atlas.held_out` says."""
    found = np.full(len(cells), np.nan)
    for held_out in estimate.folds(len(cells)):
        moments = estimate.expectation_maximisation(cells[~held_out], shape)
        scales, df = estimate.predictive(moments, shape)
        others = dataclasses.replace(atlas, means=moments.means, scales=scales, df=df)
        for k in np.flatnonzero(held_out):
            there = np.isfinite(cells[k]).all(axis=-1) & (moments.counts > 0)
            if there.any():
                found[k] = mean_best_density(others, cells[k][there])
    return found[np.isfinite(found)]


def mean_best_density(atlas: Atlas, cells: np.ndarray) -> float:
    """Return the mean log density of cells (n, d) in their best matching, background included."""
    # Imported here because SciPy's solver takes its time to load.
    from scipy.optimize import linear_sum_assignment

    pairs = atlas.log_densities(cells, widths.infer_widths(atlas, cells))
    alone = atlas.log_background(cells)
    n = len(cells)
    stay = np.where(np.eye(n, dtype=bool), (np.log(atlas.background) + alone)[:, None], -1e9)
    weights = np.concatenate([pairs + atlas.log_odds, stay], axis=1)
    rows, cols = linear_sum_assignment(weights, maximize=True)
    return float(np.concatenate([pairs, np.tile(alone[:, None], n)], axis=1)[rows, cols].mean())
