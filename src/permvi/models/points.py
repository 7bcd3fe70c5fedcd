"""Matching points to centres: the noise, and the model of observations around the centres."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from permvi import _checks
from permvi._checks import one_of
from permvi._jax import ArrayLike, jax, jnp, pytree
from permvi.models import _arguments, _predictive
from permvi.models.labels import index_names, is_frame
from permvi.models.linear import sum_of_matched, sum_of_pairs
from permvi.models.protocol import CandidatePairs, sorted_pairs

if TYPE_CHECKING:
    from permvi.models.neighbours import Geometry

Noise = Literal["gaussian", "student_t"]
NOISES = get_args(Noise)


def log_density(kind: str, residual: Any, scale: Any, df: float) -> Any:
    r"""Return the log density of residuals, summed over their last axis, the dimensions.

    Gaussian: :math:`-\frac12 (r/\sigma)^2 - \log\sigma - \frac12 \log 2\pi`. Student's t: a t
    density of ``df`` degrees of freedom, scaled by :math:`\sigma`, in every dimension. The scale
    broadcasts against the residuals (..., d). NumPy in, NumPy out.
    """
    one_of("noise", kind, NOISES)
    xp: Any = np if _checks.is_concrete(residual, scale) and _on_host(residual, scale) else jnp
    z = residual / scale
    if kind == "gaussian":
        per_dimension = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    else:
        constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        per_dimension = constant - (df + 1) / 2 * xp.log1p(z**2 / df)
    return xp.sum(per_dimension - xp.log(scale), axis=-1)


def _on_host(*values: Any) -> bool:
    return all(isinstance(value, np.ndarray | np.generic | float) for value in values)


Relaxation = Literal["linear", "mean"]

# Standard deviation of the log of an unknown scale in its prior: a factor of 4.5 either way.
_LOG_SCALE_SD = 1.5
# Median of that prior, as a fraction of the spread of the centres.
_TYPICAL_SCALE = 0.25
# Pairs whose log weights are computed together, to limit memory.
_PAIRS_PER_CHUNK = 1 << 20


@pytree(
    leaves=("observations", "centers", "scale", "scale_prior", *_arguments.ARRAYS),
    static=("noise", "df", "relaxation", "labels"),
)
class PointMatching(_arguments.Constrained):
    r"""A matching of points where observation i is a centre plus noise.

    With :math:`y_i = c_{\pi(i)} + \sigma \epsilon_i` the score of a pair is the log density of
    observation i at centre j, :math:`s_{ij} = \sum_d \log p(y_{id} \mid c_{jd}, \sigma_d)`.

    Args:
        observations: (n, d) points, or (S, n, d) for S independent permutations. The index of a
            DataFrame names them.
        centers: (m, d), or (S, m, d). The index of a DataFrame names them. If both are DataFrames,
            their columns are matched by name.
        scale: The noise's :math:`\sigma`, a number or (d,). It is the standard deviation if
            Gaussian; that of Student's t is :math:`\sigma \sqrt{df / (df - 2)}`. None infers one
            number for all dimensions, which is then in ``posterior.latents["scale"]``.
        noise: "gaussian" or "student_t" (independent in every dimension).
        df: Degrees of freedom of Student's t.
        relaxation: The density between permutations, which only relaxed families use:
            "linear", :math:`\sum_{ij} X_{ij} s_{ij}`, or the paper's "mean",
            :math:`\sum_i \log p(y_i \mid (X c)_i, \sigma)`.
        scale_prior: (median, sd of the logarithm) of the LogNormal prior of an unknown scale. By
            default the median is a quarter of the root mean square distance of the centres from
            their mean (per dimension), and the sd is 1.5.
        mask: Allowed pairs; see `LinearMatching` for this and all arguments that follow.
        row_unmatched: Log weights of unmatched observations, on the scale of log densities.

    Raises:
        ValueError: Shapes do not fit, points are not finite, or the scale is not positive.
        TypeError: Something is of the wrong kind.
    """

    observations: Any
    centers: Any
    scale: Any
    scale_prior: Any
    noise: str
    df: float
    relaxation: str

    def __init__(
        self,
        observations: Any,
        centers: Any,
        scale: Any = 0.1,
        noise: Noise = "gaussian",
        *,
        df: float = 4.0,
        relaxation: Relaxation = "linear",
        scale_prior: tuple[float, float] | None = None,
        mask: Any = None,
        known: Any = None,
        labels: Any = None,
        row_unmatched: Any = None,
        col_unmatched: Any = None,
        prior_scores: Any = None,
    ) -> None:
        self.observations = _points("observations", observations)
        self.centers = _points("centers", _same_columns(centers, observations))
        table = _table_shape(self.observations.shape, self.centers.shape)
        self.noise = one_of("noise", noise, NOISES)
        self.relaxation = one_of("relaxation", relaxation, get_args(Relaxation))
        self.df = float(df)
        if not self.df > 0:
            raise ValueError(f"df must be positive, got {df}.")
        self.scale = None if scale is None else _scale(scale, self.observations.shape[-1])
        self.scale_prior = _scale_prior(scale_prior, self.centers) if scale is None else None
        given = mask, known, labels, row_unmatched, col_unmatched, prior_scores
        self._constrain(table, (_names(observations), _names(centers)), *given)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of observations and centres."""
        return self.observations.shape[-2], self.centers.shape[-2]

    @property
    def num_sites(self) -> int:
        """The number of permutations."""
        sites = (self.observations.shape[:-2], self.centers.shape[:-2])
        return math.prod(np.broadcast_shapes(*sites))

    @property
    def scores(self) -> Any:
        """Log densities (n, m) or (S, n, m) of observation i at centre j; None without a scale."""
        return None if self.scale is None else self.pair_scores(self.scale)

    @property
    def latents(self) -> dict[str, Any]:
        """The prior of the scale, if the scale is inferred."""
        if self.scale is not None:
            return {}
        from numpyro.distributions import LogNormal

        median, sd = self.scale_prior
        return {"scale": LogNormal(jnp.log(median), jnp.asarray(sd))}

    def pair_scores(self, scale: Any) -> Any:
        """Return the scores given a scale, a number: NumPy float64 unless something is traced."""
        residual = self.observations[..., :, None, :] - self.centers[..., None, :, :]
        return log_density(self.noise, residual, scale, self.df)

    def candidate_pairs(self, row_alone: Any, col_alone: Any) -> CandidatePairs | None:
        """Return the pairs of points that are near enough to matter; see `Model`.

        Known pairs are among them. None if the scale is unknown or there are several permutations.
        """
        if self.scale is None or self.num_sites > 1:
            return None
        n, m = self.shape
        free_rows, free_cols = np.ones(n, bool), np.ones(m, bool)
        taken = np.zeros((2, 0), np.int64)
        if self.known is not None:
            rows = np.flatnonzero(self.known >= 0)
            taken = np.stack([rows, self.known[rows]])
            free_rows[taken[0]] = free_cols[taken[1]] = False
        places = np.flatnonzero(free_rows), np.flatnonzero(free_cols)
        found = CandidatePairs(taken[0, :0], taken[1, :0], np.zeros(0))
        if all(map(len, places)):
            # Imported here because k-d trees take their time to load.
            from permvi.models.neighbours import near_pairs

            geometry = self._geometry(*places)
            found = near_pairs(geometry, row_alone[places[0]], col_alone[places[1]])
        rows = np.concatenate([places[0][found.rows], taken[0]])
        cols = np.concatenate([places[1][found.cols], taken[1]])
        scores = np.concatenate([found.scores, self._scores_of(*taken)])
        return sorted_pairs(rows, cols, scores)._replace(lost=found.lost, note=found.note)

    def _geometry(self, rows: np.ndarray, cols: np.ndarray) -> Geometry:
        """Return some observations and centres, with the log weights of their pairs."""
        at_zero = np.zeros(self.observations.shape[-1])
        best = float(log_density(self.noise, at_zero, np.asarray(self.scale), self.df))
        if self.prior_scores is not None:
            best += float(self.prior_scores.max())

        def score(i: np.ndarray, j: np.ndarray) -> np.ndarray:
            found = self._scores_of(rows[i], cols[j])
            return (
                found
                if self.mask is None
                else np.where(self.mask[rows[i], cols[j]], found, -np.inf)
            )

        def reach(log_weight: float) -> float:
            # A little further than the distance itself, for rounding.
            return 1e-9 + (1 + 1e-9) * _distance(self.noise, best - log_weight, self.df)

        from permvi.models.neighbours import Geometry

        scale = np.asarray(self.scale)
        return Geometry(self.observations[rows] / scale, self.centers[cols] / scale, score, reach)

    def _scores_of(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return log weights (E,) of pairs (E,), prior scores included."""
        scores = np.empty(len(rows))
        for start in range(0, len(rows), _PAIRS_PER_CHUNK):
            part = slice(start, start + _PAIRS_PER_CHUNK)
            residual = self.observations[rows[part]] - self.centers[cols[part]]
            scores[part] = log_density(self.noise, residual, np.asarray(self.scale), self.df)
        return scores if self.prior_scores is None else scores + self.prior_scores[rows, cols]

    def log_density(self, X: ArrayLike, scale: ArrayLike | None = None) -> jax.Array:
        """Return log densities (...) of matrices (..., n, m) or (..., S, n, m).

        An inferred ``scale`` has shape (...).
        """
        if self.relaxation == "linear":
            return sum_of_pairs(self._scores_given(scale), X, self.num_sites)
        return self._density_of_mean(jnp.asarray(X), scale)

    def log_density_of(self, perm: ArrayLike, scale: ArrayLike | None = None) -> jax.Array:
        """Return log densities (...) of permutations (..., n) or (..., S, n), -1 for unmatched."""
        return sum_of_matched(self._scores_given(scale), perm, self.num_sites)

    def _scores_given(self, scale: ArrayLike | None) -> Any:
        # After the batch axes come those of a table and of the dimensions.
        ndim = 3 if self.num_sites == 1 else 4
        return self.pair_scores(self.scale if scale is None else _append_axes(scale, ndim))

    @property
    def num_predicted(self) -> int:
        """The number of coordinates of observations that the model predicts."""
        return self.num_sites * self.shape[0] * self.observations.shape[-1]

    def predictive_tests(self, draws: np.ndarray, latents: Any) -> _predictive.Findings:
        """Test residuals of matched pairs against the noise: size, tails, mean and outliers.

        ``draws`` are matchings (num, n) or (num, S, n) of the posterior. An inferred scale is at
        its posterior mean, and its size is not tested.
        """
        n, S = self.shape[0], self.num_sites
        perms = draws.reshape(len(draws), S, n)
        observations, centers = (
            np.broadcast_to(points, (S, *points.shape[-2:]))
            for points in (np.asarray(self.observations), np.asarray(self.centers))
        )
        residual = observations - centers[np.arange(S)[:, None], perms]
        scale = latents["scale"].mean if self.scale is None else np.asarray(self.scale)
        z = np.where(perms[..., None] < 0, np.nan, residual / scale)
        if self.noise == "student_t":
            z = _normal_scores(z, self.df)
        return _predictive.residual_tests(
            z,
            known_scale=self.scale is not None,
            what="residuals",
            features=[f"feature {k}" for k in range(z.shape[-1])],
        )

    def _density_of_mean(self, X: jax.Array, scale: ArrayLike | None) -> jax.Array:
        residual = self.observations - X @ jnp.asarray(self.centers)
        ndim = 2 if self.num_sites == 1 else 3
        given = self.scale if scale is None else _append_axes(scale, ndim)
        per_row = log_density(self.noise, residual, given, self.df)
        n, m = self.shape
        if n > m or self.row_unmatched is not None:
            # An unmatched row has no mean to compare with.
            per_row = per_row * X.sum(axis=-1)
        return jnp.sum(per_row, axis=(-1,) if self.num_sites == 1 else (-2, -1))


def _normal_scores(z: np.ndarray, df: float) -> np.ndarray:
    """Turn variables of Student's t into standard normal ones of the same quantiles."""
    from scipy.stats import norm, t

    return np.copysign(norm.isf(t.sf(np.abs(z), df)), z)


def _distance(noise: str, drop: float, df: float) -> float:
    """Return the distance beyond which the log density is below its maximum by more than ``drop``.

    It is in standard deviations. Student's t decreases most slowly along one coordinate.
    """
    drop = max(drop, 0.0)
    if noise == "gaussian":
        return math.sqrt(2.0 * drop)
    # Beyond this exponent there is no distance that floating point can square.
    return math.sqrt(df * math.expm1(min(2.0 * drop / (df + 1.0), 600.0)))


def _append_axes(scale: ArrayLike, ndim: int) -> jax.Array:
    return jnp.expand_dims(jnp.asarray(scale), tuple(range(-ndim, 0)))


def _same_columns(frame: Any, other: Any) -> Any:
    """Return a DataFrame with its columns in the order of another one; else the value itself."""
    if not (is_frame(frame) and is_frame(other)):
        return frame
    wanted, found = list(other.columns), list(frame.columns)
    if sorted(map(str, wanted)) != sorted(map(str, found)):
        raise ValueError(
            f"centers must have the columns of observations, {wanted!r:.60}, got {found!r:.60}."
        )
    return frame[wanted]


def _points(name: str, value: Any) -> Any:
    return _arguments.finite(name, _arguments.one_site(_arguments.real(name, value, (2, 3))))


def _names(points: Any) -> tuple[str, ...] | None:
    return index_names(points.index) if is_frame(points) else None


def _table_shape(observations: tuple[int, ...], centers: tuple[int, ...]) -> tuple[int, ...]:
    if observations[-1] != centers[-1]:
        raise ValueError(
            "observations and centers must have the same number of dimensions, got shapes "
            f"{observations} and {centers}."
        )
    if len(observations) == len(centers) == 3 and observations[0] != centers[0]:
        raise ValueError(
            "observations and centers must have the same number of sites, got shapes "
            f"{observations} and {centers}."
        )
    sites = observations[:-2] or centers[:-2]
    return (*sites, observations[-2], centers[-2])


def _scale(value: Any, dimensions: int) -> Any:
    scale = _arguments.real("scale", value, (0, 1))
    if scale.shape not in ((), (dimensions,)):
        raise ValueError(
            f"scale must be a number, have shape ({dimensions},), or be None if it is to be "
            f"inferred, got shape {scale.shape}."
        )
    if _checks.is_concrete(scale) and not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(f"scale must be positive, got {scale}.")
    return scale


def _scale_prior(value: tuple[float, float] | None, centers: Any) -> np.ndarray:
    if value is None:
        spread = float(np.sqrt(np.mean((centers - centers.mean(axis=-2, keepdims=True)) ** 2)))
        # Of equal centres, only rounding errors are left.
        rounding = 16 * float(np.finfo(np.float64).eps * np.abs(centers).max(initial=0.0))
        value = (_TYPICAL_SCALE * (spread if spread > rounding else 1.0), _LOG_SCALE_SD)
    prior = np.asarray(value, dtype=np.float64)
    if prior.shape != (2,) or not (np.isfinite(prior) & (prior > 0)).all():
        raise ValueError(
            f"scale_prior must be a pair of positive numbers, median and sd of the logarithm, "
            f"got {value!r}."
        )
    return prior
