"""Statistics, constraints and default scales of recordings from subjects of different sizes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from permvi import assignment
from permvi.models import _arguments
from permvi.models.labels import Labels, frame_labels, is_frame


class Statistics(NamedTuple):
    """Sums over time of one subject's activity, or of all subjects with a leading axis."""

    C0: np.ndarray  # (n, n) sum_t y_{t-1} y_{t-1}^T
    C1: np.ndarray  # (n, n) sum_t y_t y_{t-1}^T
    squares: np.ndarray  # (n,) sum_t y_t^2
    num_steps: np.ndarray  # number of transitions
    recorded: np.ndarray  # (n,) booleans, False for rows that fill up the subject

    @classmethod
    def of(cls, activity: np.ndarray) -> Self:
        """Compute the statistics of activity (T, n)."""
        before, after = activity[:-1], activity[1:]
        return cls(
            before.T @ before,
            after.T @ before,
            (after**2).sum(axis=0),
            np.array(len(after)),
            np.ones(activity.shape[1], bool),
        )

    def padded(self, n: int) -> "Statistics":
        """Fill up to n rows; return the same object if there are n already."""
        more = n - self.recorded.shape[-1]
        if more == 0:
            return self
        axes = ((0, 0),) * (self.recorded.ndim - 1)
        square, row = (*axes, (0, more), (0, more)), (*axes, (0, more))
        return Statistics(
            np.pad(self.C0, square),
            np.pad(self.C1, square),
            np.pad(self.squares, row),
            self.num_steps,
            np.pad(self.recorded, row),
        )

    @classmethod
    def stack(cls, parts: Sequence[Self]) -> Self:
        """Stack the statistics of all subjects, (J, ...)."""
        return cls(*(np.stack(arrays) for arrays in zip(*parts, strict=True)))


def recordings(value: Any) -> list[np.ndarray]:
    """Return one (T, n) array for each subject."""
    if is_frame(value) or getattr(value, "ndim", None) == 2:
        value = [value]
    try:
        found = [_arguments.real("recordings", each, (2,)) for each in value]
    except TypeError as error:
        if "iterable" not in str(error):
            raise
        raise TypeError(f"recordings must be a sequence of arrays, got {value!r:.60}.") from None
    if not found:
        raise ValueError("recordings must hold at least one subject, got none.")
    for each in found:
        _arguments.finite("recordings", each)
        if len(each) < 2:
            raise ValueError(
                f"recordings must have at least two time steps (rows), got shape {each.shape}."
            )
    return found


def statistics(C0: Any, C1: Any, squares: Any, num_steps: Any) -> list[Statistics]:
    """Return the statistics of each subject from arrays or sequences of arrays."""
    several = np.ndim(C0[0]) == 2
    given = (C0, C1, squares) if several else ([C0], [C1], [squares])
    steps = np.broadcast_to(np.asarray(num_steps), (len(given[0]),))
    parts = []
    for *arrays, count in zip(*given, steps, strict=True):
        second, cross, total = (
            _arguments.finite(name, _arguments.real(name, array, (ndim,)))
            for name, array, ndim in zip(("C0", "C1", "squares"), arrays, (2, 2, 1), strict=True)
        )
        n = len(total)
        if second.shape != (n, n) or cross.shape != (n, n):
            raise ValueError(
                "C0, C1 and squares must have shapes (n, n), (n, n) and (n,), got "
                f"{second.shape}, {cross.shape} and {total.shape}."
            )
        if not np.allclose(second, second.T):
            raise ValueError("C0 must be symmetric, got a matrix that is not.")
        if not count > 0:
            raise ValueError(f"num_steps must be positive, got {count}.")
        parts.append(Statistics(second, cross, total, np.asarray(count), np.ones(n, bool)))
    return parts


def support(value: Any) -> np.ndarray:
    """Return the support as (m, m) booleans."""
    array = np.asarray(value.to_numpy() if is_frame(value) else value)
    if array.dtype != bool:
        raise TypeError(f"support must be a boolean array, got dtype {array.dtype}.")
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.any():
        raise ValueError(
            f"support must be square and have an edge, got shape {array.shape} with "
            f"{int(array.sum())} edges."
        )
    return array


def support_labels(value: Any) -> Labels:
    """Return the names of the canonical neurons if the support is a DataFrame."""
    return None, frame_labels(value)[1]


def check_sizes(sizes: Sequence[int], num_labels: int) -> None:
    """Refuse subjects with more neurons than there are labels."""
    if max(sizes) > num_labels:
        raise ValueError(
            f"recordings must have at most {num_labels} neurons, as many as support, got "
            f"{max(sizes)}."
        )


def scale(name: str, value: Any) -> float | None:
    """Return a positive number, or None if it is to be learned."""
    if value is None:
        return None
    found = float(_arguments.real(name, value, (0,)))
    if not 0 < found < np.inf:
        raise ValueError(f"{name} must be positive, or None if it is to be learned, got {value}.")
    return found


def fill_up(
    constraints: Mapping[str, Any], sizes: Sequence[int], num_labels: int
) -> dict[str, Any]:
    """Extend the constraints of all subjects to the size of the largest."""
    n, filled = max(sizes), dict(constraints)
    kinds = (("mask", True, 2), ("known", -1, 1), ("prior_scores", 0.0, 2))
    if min(sizes) == n:
        for name, _, ndim in kinds:
            value: Any = filled.get(name)
            # A sequence of arrays, as subjects of different sizes need it.
            if isinstance(value, list | tuple):
                value = np.stack([np.asarray(each) for each in value])
            # One subject has no axis of subjects, also where recordings are a list of one.
            if len(sizes) == 1 and len(np.shape(value)) == ndim + 1 and len(value) == 1:
                value = value[0]
            filled[name] = value
        return filled
    for name, blank, ndim in kinds:
        value = filled.get(name)
        if value is None and name != "mask":
            continue
        parts = []
        given = [np.ones((size, num_labels), bool) for size in sizes] if value is None else value
        if len(given) != len(sizes):
            raise ValueError(f"{name} must have one entry for each of {len(sizes)} subjects.")
        for each, size in zip(given, sizes, strict=True):
            array = np.asarray(each)
            if array.ndim != ndim or len(array) not in (size, n):
                raise ValueError(
                    f"{name} must have {size} rows for a subject of {size} neurons, got shape "
                    f"{array.shape}."
                )
            width = ((0, n - len(array)), (0, 0))[:ndim]
            parts.append(np.pad(array, width, constant_values=blank))
        filled[name] = np.stack(parts)
    return filled


def square_mask(mask: Any, known: Any, num_sites: int, shape: tuple[int, int]) -> np.ndarray | None:
    """Return (m, m) or (J, m, m) allowed pairs, given known pairs and rows that fill up."""
    n, m = shape
    if mask is None and known is None and n == m:
        return None
    sites = () if num_sites == 1 else (num_sites,)
    allowed = np.ones((*sites, m, m), bool)
    if mask is not None:
        allowed[..., :n, :] = mask
    if known is not None:
        pairs = np.zeros_like(allowed)
        pairs[..., :n, :] = np.asarray(known)[..., None] == np.arange(m)
        involved = pairs.any(axis=-1, keepdims=True) | pairs.any(axis=-2, keepdims=True)
        allowed = np.where(involved, pairs, allowed)
    return assignment.prune_mask(allowed)


def regressions(
    model: Any, perms: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    r"""Yield the ridge regression of each canonical neuron, given permutations (J, n).

    That is a, its inputs b on the support, :math:`S_a + \lambda I` and :math:`r_a`; see
    `SharedDynamics.collapsed_log_density`.
    """
    m = model.num_labels
    ridge = float(model.noise_scale) ** 2 / float(model.weight_scale) ** 2
    K0, K1 = np.zeros((2, len(perms), m, m))
    present = np.zeros((len(perms), m), bool)
    for j, perm in enumerate(perms):
        K0[j][np.ix_(perm, perm)] = model.C0[j]
        K1[j][np.ix_(perm, perm)] = model.C1[j]
        present[j, perm] = model.recorded[j]
    edges = np.asarray(model.edges)
    for a in np.unique(edges[:, 0]).tolist():
        b = edges[edges[:, 0] == a, 1]
        here = present[:, a]
        S = K0[here][:, b[:, None], b].sum(axis=0) + ridge * np.eye(len(b))
        yield a, b, S, K1[here][:, a, b].sum(axis=0)


def log_evidence(model: Any, perms: np.ndarray) -> float:
    """Return the log evidence of one set of permutations (J, n), see `SharedDynamics`."""
    noise = float(model.noise_scale) ** 2
    ridge = noise / float(model.weight_scale) ** 2
    count = float((model.num_steps * model.recorded.sum(axis=1)).sum())
    total = -float(model.squares.sum()) / noise - count * np.log(2 * np.pi * noise)
    for _, b, S, r in regressions(model, perms):
        total += r @ np.linalg.solve(S, r) / noise
        total += len(b) * np.log(ridge) - np.linalg.slogdet(S)[1]
    return 0.5 * float(total)


def draw_weights(model: Any, perms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw weights (m, m) from their posterior given permutations (J, n)."""
    W = np.zeros((model.num_labels, model.num_labels))
    for a, b, S, r in regressions(model, perms):
        root = np.linalg.cholesky(S)
        noise = np.linalg.solve(root.T, rng.standard_normal(len(b)))
        W[a, b] = np.linalg.solve(S, r) + float(model.noise_scale) * noise
    return W


# The range of the ridge, as a multiple of the noise that the activity itself suggests.
_LOG_RIDGES = (np.log(1e-3), np.log(1e8))


class Spectra(NamedTuple):
    """Spectra of dense regressions, on which their evidence depends in any order of the neurons."""

    eigenvalues: np.ndarray  # (K,) eigenvalues of the subjects' second moments of inputs
    forms: np.ndarray  # (K,) squared covariances with the targets along the eigenvectors, summed up
    targets: np.ndarray  # (K,) numbers of targets
    squares: float  # sum of squares of all targets
    num_values: float  # number of predicted values


def spectra(
    C0: np.ndarray, C1: np.ndarray, squares: np.ndarray, num_steps: np.ndarray, recorded: np.ndarray
) -> Spectra:
    """Compute spectra of the statistics (J, n, n), (J, n, n), (J, n), (J,) and (J, n)."""
    parts = []
    for second, cross, here in zip(C0, C1, recorded, strict=True):
        values, vectors = np.linalg.eigh(second[np.ix_(here, here)])
        projected = cross[np.ix_(here, here)] @ vectors
        parts.append(
            (np.maximum(values, 0), (projected**2).sum(axis=0), np.full(len(values), here.sum()))
        )
    eigenvalues, forms, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    count = float((num_steps * recorded.sum(axis=1)).sum())
    return Spectra(eigenvalues, forms, targets, float(squares.sum()), count)


def empirical_scales(
    found: Spectra, density: float, weight: float | None, noise: float | None
) -> tuple[float, float]:
    r"""Return the standard deviations of weights and noise that make the recordings most probable.

    Any pair may be an edge, so the weights are treated as dense with variance :math:`\rho v`, where
    :math:`\rho` is the density of the support (empirical Bayes, MacKay 1992). With
    :math:`\lambda = \sigma^2 / (\rho v)` and the eigenvalues :math:`e_k` of the second moments,

    .. math::
        \log p = \tfrac12 \sum_k \Bigl[\frac{R_k^2}{\sigma^2 (e_k + \lambda)}
        - \log \frac{e_k + \lambda}{\lambda}\Bigr]
        - \frac{Y}{2 \sigma^2} - \frac{N}{2} \log \sigma^2 ,

    which no permutation of the neurons changes. Given :math:`\lambda` the best :math:`\sigma^2` is
    a mean of squares, so only :math:`\lambda` is searched for. A standard deviation ``weight`` or
    ``noise`` that is not None stays as it is.
    """
    if weight is not None and noise is not None:
        return weight, noise

    def solve(log_ridge: float) -> tuple[float, float]:
        ridge = np.exp(log_ridge)
        left = found.squares - (found.forms / (found.eigenvalues + ridge)).sum()
        if noise is not None:
            variance = noise**2
        elif weight is not None:
            variance = ridge * density * weight**2
        else:
            variance = left / found.num_values
        penalty = (found.targets * np.log1p(found.eigenvalues / ridge)).sum()
        value = -0.5 * (left / variance + penalty + found.num_values * np.log(variance))
        return float(value), float(variance)

    grid = np.linspace(*_LOG_RIDGES, 100)
    best = int(np.argmax([solve(point)[0] for point in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    # Imported here because it takes its time.
    from scipy.optimize import minimize_scalar

    ridge = minimize_scalar(lambda point: -solve(point)[0], bounds=around, method="bounded").x
    variance = solve(float(ridge))[1]
    found_weight = np.sqrt(variance / (density * np.exp(ridge)))
    return float(weight or found_weight), float(noise or np.sqrt(variance))
