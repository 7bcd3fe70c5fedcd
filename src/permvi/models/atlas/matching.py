"""Matching the cells of an animal with the labels of an atlas."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from permvi._checks import real_array
from permvi._jax import ArrayLike, jax, jnp, pytree
from permvi.models import _arguments, _predictive
from permvi.models.atlas.animals import Animal
from permvi.models.atlas.atlas import Atlas, mean_best_density
from permvi.models.atlas.deformation import log_densities
from permvi.models.atlas.frames import Align, FrameModel, start_rotations
from permvi.models.atlas.relations import Relations
from permvi.models.atlas.widths import infer_widths
from permvi.models.labels import index_names, is_frame
from permvi.models.linear import sum_of_matched, sum_of_pairs

# An animal is doubtful if fewer than this share of labelled animals fits the atlas as badly.
_DOUBTFUL = 0.01
# Fewer training animals than this say too little about what is usual.
_FEWEST_ANIMALS = 3
# So many frames of reference tell how well an animal fits, at the most twice as many.
_FEW_PLACES = 8
_RELATED = ("pair_table", "relation_pairs", "relation_tables")


@pytree(
    leaves=("cells", "scores", "widths", *_RELATED, *_arguments.ARRAYS),
    static=("atlas", "align", "labels", "frames"),
)
class AtlasMatching(_arguments.Constrained):
    r"""A matching of the cells of an animal with the labels of an atlas.

    Each label j is seen with probability :math:`p_j`, and then its cell has the density
    :math:`f_j` of the atlas; other cells are a Poisson process with the density g of the
    background and an expected number :math:`\lambda`. So the log weight of a pair is
    :math:`\log f_j(x_i) + \log p_j - \log (1 - p_j)`, that of an unmatched cell is
    :math:`\log \lambda + \log g(x_i)`, and that of a label without a cell is zero. Animals differ
    in how widely their cells scatter: two factors of all scale matrices, one of coordinates and one
    of other features, are estimated from the cells first. Where the atlas has a `Deformation`, the
    density of a cell is that given where the other cells lie.

    Args:
        cells: (n, d) features, an `Animal`, or a DataFrame, whose index names the cells and whose
            columns are matched with the features of the atlas by name. NaN is a missing feature.
        atlas: The atlas.
        align: None if the cells are in the frame of the atlas. "similarity" infers a rotation, a
            shift and a scale of the coordinates, "affine" any linear map near such a similarity;
            both also infer a gain and an offset for each other feature. The maps are then in
            ``posterior.latents["frame"]``, (d, d + 1) matrices from raw features and 1 to those of
            the atlas; method "linear" does this.
        relations: Relations between labels, see `Relations`; not with ``align``. The model is then
            no longer linear: method "linear" weighs draws of its linear part. A deformation is not
            used then.
        background: The expected number of cells that are in no atlas, by default the atlas' own; 0
            if each cell has a label, except a surplus.
        mask: Allowed pairs; see `LinearMatching` for this and all arguments that follow.
        known: Known labels of cells.
        labels: Names of cells and None; those of labels are the atlas'.
        prior_scores: Log prior weights of pairs, such as log densities of other data.

    Raises:
        ValueError: Shapes do not fit, or features are missing where all are needed.
        TypeError: Something is of the wrong kind.
    """

    cells: Any
    scores: Any
    pair_table: Any
    relation_pairs: Any
    relation_tables: Any
    widths: Any
    atlas: Atlas
    align: str | None
    frames: FrameModel | None

    def __init__(
        self,
        cells: Any,
        atlas: Atlas,
        *,
        align: Align | None = None,
        relations: Relations | None = None,
        background: float | None = None,
        mask: Any = None,
        known: Any = None,
        labels: Any = None,
        prior_scores: Any = None,
    ) -> None:
        if not isinstance(atlas, Atlas):
            raise TypeError(f"atlas must be an Atlas, got {type(atlas).__name__}.")
        table, names = _cells_of(cells, atlas)
        n, m = len(table), len(atlas.labels)
        rate = atlas.background if background is None else float(background)
        if not 0 <= rate < np.inf:
            raise ValueError(f"background must be a number from 0 on, got {background!r}.")
        self.cells, self.atlas, self.align, self.frames = table, atlas, align, None
        self.scores = self.pair_table = self.relation_pairs = self.relation_tables = None
        if relations is not None and align is not None:
            raise ValueError(f"relations must be None with align, got align={align!r}.")
        alone: Any = None if rate == 0 else np.log(rate) + atlas.log_background(table)
        self.widths = None
        if align is not None:
            if background is not None:
                raise ValueError(f"background must be None with align, got {background!r}.")
            self.frames = FrameModel(atlas, table, align)
            # Weights of pairs are relative to those of unmatched cells, which the frame changes.
            alone = np.zeros(n)
        given = labels if labels is not None else (names, None)
        own = (given[0], atlas.labels)
        self._constrain((n, m), (None, None), mask, known, own, alone, np.zeros(m), prior_scores)
        if align is None:
            extra, _ = self.log_constraints()
            self.widths = infer_widths(atlas, table, extra)
            # Relations say how neighbours are displaced, too.
            law = atlas if relations is None else dataclasses.replace(atlas, deformation=None)
            found = log_densities(law, table, self.widths, extra)
            self.scores = _arguments.scores("scores", found + atlas.log_odds, self.mask)
        if relations is not None and len(relations.pairs):
            self.pair_table, self.scores = self.scores, None
            self.relation_pairs = relations.pairs
            self.relation_tables = relations.tables(table, atlas, self.widths)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of cells and of labels."""
        return len(self.cells), len(self.atlas.labels)

    @property
    def num_sites(self) -> int:
        """One permutation."""
        return 1

    @property
    def auto_method(self) -> tuple[str, dict[str, Any]]:
        """Method "linear", which also infers frames."""
        return "linear", {}

    @property
    def traceable(self) -> bool:
        """Whether the log density is a JAX function: not if a frame is inferred."""
        return self.frames is None

    @property
    def relaxed(self) -> bool:
        """Whether the log density is defined between matchings."""
        return self.frames is None

    @property
    def fingerprint(self) -> str:
        """A hash of the cells, the atlas and the constraints."""
        atlas = self.atlas
        digest = hashlib.sha256(f"AtlasMatching|{self.align}|{atlas.mistakes}".encode())
        laws = atlas.means, atlas.scales, atlas.df, atlas.p_present, atlas.center, atlas.spread
        given = (getattr(self, name) for name in _arguments.ARRAYS)
        related = () if self.relation_tables is None else (self.relation_tables,)
        shared = () if atlas.deformation is None else map(np.asarray, atlas.deformation)
        for array in (self.cells, *laws, np.array(atlas.background), *shared, *related, *given):
            digest.update(b"|" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def log_density(self, X: ArrayLike) -> jax.Array:
        """Return log densities (...) of matrices (..., n, m); see `log_density_of`."""
        if self.relation_tables is not None:
            relaxed = jnp.asarray(X)
            first, second = (relaxed[..., self.relation_pairs[:, k]] for k in (0, 1))
            related = jnp.einsum("...ie,eil,...le->...", first, self.relation_tables, second)
            return sum_of_pairs(self.pair_table, X, 1) + related
        if self.frames is None:
            return sum_of_pairs(self.scores, X, 1)
        matrix = np.asarray(X)
        perms = np.where(matrix.any(axis=-1), matrix.argmax(axis=-1), -1)
        return self.log_density_of(perms)

    def log_density_of(self, perm: ArrayLike) -> Any:
        r"""Return log densities (...) of matchings (..., n), -1 for unmatched cells.

        With a frame, this is its integral over the frames near the best one found from a few
        starts, in Laplace's approximation :math:`\log p(\hat\theta) + \frac12 \log |2 \pi V|`.
        """
        if self.relation_tables is not None:
            return sum_of_matched(self.pair_table, perm, 1) + self.log_relations(perm)
        if self.frames is None:
            return sum_of_matched(self.scores, perm, 1)
        perms = np.asarray(perm)
        flat = [self._laplace(one) for one in perms.reshape(-1, perms.shape[-1])]
        return np.array(flat).reshape(perms.shape[:-1])

    def log_relations(self, perm: Any) -> Any:
        """Return (...) what relations add to the log density of matchings (..., n)."""
        xp = np if isinstance(perm, np.ndarray) else jnp
        held = perm[..., None, None] == self.relation_pairs
        rows, there = held.argmax(axis=-3), held.any(axis=-3).all(axis=-1)
        tables, pairs = xp.asarray(self.relation_tables), xp.arange(len(self.relation_pairs))
        values = tables[pairs, rows[..., 0], rows[..., 1]]
        return xp.where(there, values, 0.0).sum(axis=-1)

    def _laplace(self, perm: np.ndarray) -> float:
        """Return the log evidence of one matching, with the best of several starts."""
        frames = self._need_frames()
        starts = frames.starts(start_rotations(frames, 4))
        found, precision = frames.settle(starts, perm)
        values = frames.log_joint(found, perm)
        best = int(np.argmax(values))
        half = 0.5 * (precision.shape[-1] * np.log(2 * np.pi))
        _, log_det = np.linalg.slogdet(precision[best])
        return float(values[best] + half - 0.5 * log_det)

    def log_constraints(self) -> tuple[np.ndarray, np.ndarray]:
        """Return log weights that prior scores, masks and known pairs add, (n, m) and (n,)."""
        extra = np.zeros(self.shape)
        if self.prior_scores is not None:
            extra = extra + self.prior_scores
        alone = np.zeros(len(extra))
        if self.mask is not None:
            extra = np.where(self.mask, extra, -np.inf)
        if self.known is not None:
            rows = np.flatnonzero(self.known >= 0)
            cols = self.known[rows]
            given = extra[rows, cols]
            extra[rows], extra[:, cols], alone[rows] = -np.inf, -np.inf, -np.inf
            extra[rows, cols] = given
        return extra, alone

    def _need_frames(self) -> FrameModel:
        if self.frames is None:
            raise ValueError("align must be given to infer a frame, got None.")
        return self.frames

    @property
    def num_predicted(self) -> int:
        """The number of features that the model predicts."""
        return int(self.cells.size)

    def in_atlas(self, frame: np.ndarray) -> np.ndarray:
        """Return the cells (..., n, d) mapped by frames (..., d, d + 1) to the atlas."""
        linear, shift = frame[..., :-1], frame[..., -1]
        return self.cells @ np.swapaxes(linear, -1, -2) + shift[..., None, :]

    def predictive_tests(self, draws: np.ndarray, latents: Any) -> _predictive.Findings | str:
        """Compare how well the cells fit with animals that the atlas had to predict.

        The mean log density of the cells is compared with those of ``atlas.held_out``; an atlas
        that was not learnt has normal scores of the cells' distances tested instead.
        """
        if self.frames is not None and "frame" not in latents:
            return "the frame was not inferred"
        places = self._places(latents, len(draws))
        usual = self.atlas.held_out
        if len(usual) >= _FEWEST_ANIMALS:
            p, words = _compared(self._mean_density(places, draws, latents), usual)
            test = _predictive.Finding("density of the cells", p, words)
            return _predictive.Findings([test], [])
        return _predictive.residual_tests(
            _normal_residuals(self.atlas, places, draws)[:, None],
            known_scale=True,
            what="distances of cells from their labels",
            features=self.atlas.features,
        )

    def doubt(self, mode: np.ndarray, latents: Any) -> str | None:
        """Return why a fit with this best matching (n,) must not be trusted, if there is a reason.

        The cells may lie in another frame than the atlas, or belong to another kind of animal.
        """
        usual = self.atlas.usual
        unknown = self.frames is not None and "frame" not in latents
        if len(usual) < _FEWEST_ANIMALS or unknown:
            return None
        value = self._mean_density(self._places(latents, None), mode[None], latents)
        p, words = _compared(value, usual, learnt=len(self.atlas.held_out) > 0)
        advice = "no frame was found that fits" if self.align else "align= infers the frame"
        return f"the animal does not fit the atlas: {words}; {advice}" if p < _DOUBTFUL else None

    def _places(self, latents: Any, num: int | None) -> Sequence[np.ndarray]:
        """Return the cells in the frame of the atlas for each draw, or at the mean frame."""
        if self.frames is None:
            return [self.cells] * (num or 1)
        frame = latents["frame"]
        if num is None:
            return [self.in_atlas(frame.mean)]
        every = np.linspace(0, len(frame.draws) - 1, num).round().astype(int)
        return list(self.in_atlas(frame.draws[every]))

    def _widths(self, latents: Any) -> np.ndarray:
        """Return how widely the animal scatters (d,), at the mean frame."""
        if self.widths is not None:
            return self.widths
        return infer_widths(self.atlas, self.in_atlas(latents["frame"].mean))

    def _mean_density(self, places: Sequence[np.ndarray], perms: np.ndarray, latents: Any) -> float:
        """Return the mean log density of cells with all features at places, as matched (num, n)."""
        whole = np.isfinite(self.cells).all(axis=1)
        if not whole.any():
            return float("nan")
        if self.atlas.deformation is not None:
            # Animals that were held out were matched as if cells were displaced independently.
            few = places[:: max(len(places) // _FEW_PLACES, 1)] if self.frames else places[:1]
            return float(np.mean([mean_best_density(self.atlas, cells[whole]) for cells in few]))
        widths, found = self._widths(latents), []
        for cells, perm in zip(places, perms, strict=True):
            pairs, kept = self.atlas.log_densities(cells[whole], widths), perm[whole]
            alone = self.atlas.log_background(cells[whole])
            chosen = np.take_along_axis(pairs, np.maximum(kept, 0)[:, None], axis=1)[:, 0]
            found.append(np.where(kept < 0, alone, chosen).mean())
        return float(np.mean(found))


def _compared(value: float, usual: np.ndarray, *, learnt: bool = True) -> tuple[float, str]:
    """Return the probability of a value as low among the usual ones, and it in words."""
    from scipy.stats import t

    num, mean = len(usual), float(usual.mean())
    sd = max(float(usual.std(ddof=1)), 1e-6) * np.sqrt(1 + 1 / num)
    p = float(t.cdf((value - mean) / sd, num - 1)) if np.isfinite(value) else 1.0
    words = (
        f"the log density of a cell is {value:.3g} on average, where it was {mean:.3g} ± {sd:.2g} "
        f"in {num} "
    )
    words += "labelled animals that the atlas had to predict" if learnt else "animals drawn from it"
    return p, words


def _normal_residuals(atlas: Atlas, places: Sequence[np.ndarray], draws: np.ndarray) -> np.ndarray:
    """Return whitened residuals (num, n, d), normal if the atlas is right, NaN if unmatched."""
    from scipy.stats import norm
    from scipy.stats import t as student

    roots = np.linalg.inv(np.linalg.cholesky(atlas.scales))
    found = np.full((len(draws), *places[0].shape), np.nan)
    for k, (cells, perm) in enumerate(zip(places, draws, strict=True)):
        rows = np.flatnonzero((perm >= 0) & np.isfinite(cells).all(axis=1))
        z = np.einsum("ikl,il->ik", roots[perm[rows]], cells[rows] - atlas.means[perm[rows]])
        df = atlas.df[perm[rows]][:, None]
        scores = np.copysign(norm.isf(student.sf(np.abs(z), np.minimum(df, 1e9))), z)
        found[k, rows] = np.where(np.isinf(df), z, scores)
    return found


def _cells_of(cells: Any, atlas: Atlas) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Return (n, d) features in the order of the atlas, and the names of the cells."""
    names: tuple[str, ...] | None = None
    if isinstance(cells, Animal):
        found = cells.using(atlas.features)
        return found.cells, found.ids
    if is_frame(cells):
        missing = [name for name in atlas.features if name not in map(str, cells.columns)]
        if missing:
            raise ValueError(f"cells must have the features of the atlas, got no {missing[0]!r}.")
        by_name = {str(column): column for column in cells.columns}
        names = index_names(cells.index)
        cells = cells[[by_name[name] for name in atlas.features]].to_numpy(float)
    table = real_array("cells", cells)
    d = len(atlas.features)
    if table.ndim != 2 or table.shape[1] != d or not len(table):
        raise ValueError(f"cells must have shape (n, {d}), got shape {table.shape}.")
    if np.isinf(table).any():
        raise ValueError("cells must be finite, or NaN where a feature is missing, got inf.")
    return table, names
