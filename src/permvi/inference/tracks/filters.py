r"""Compiled filters of particles with a velocity; importing them imports numba.

The position and velocity (u, v) at point i, u relative to the point, is normal given the head that
ends there, with mean ``mean[i]`` (d, 2) and a covariance ``cov[i]`` = (uu, uv, vv) common to all
coordinates. The tail that begins there has the likelihood
:math:`\exp(c - \tfrac12 z^T \Lambda z + \eta^T z)`, z = (u, v), with ``info[i]`` = (uu, uv, vv),
``eta[i]`` (d, 2), ``level[i]`` = c. ``fresh[i]`` is the log likelihood of the tail with nothing
before it, the position being uniform with density one. After a change of this file, delete numba's
cache of `kernels`, which calls it.
"""

import numpy as np

from permvi._compiled import compiled

_LOG_2PI = float(np.log(2.0 * np.pi))

# The arrays mean, cov, info, eta, level and fresh.
State = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@compiled()
def predict(
    j: int,
    i: int,
    mean: np.ndarray,
    cov: np.ndarray,
    points: np.ndarray,
    time: np.ndarray,
    motion: np.ndarray,
    out_mean: np.ndarray,
    out_cov: np.ndarray,
) -> None:
    """Write the moments of (u, v) at point i, given those at point j."""
    dt = time[i] - time[j]
    diffusion, turning = motion[0], motion[1]
    out_cov[0] = (
        cov[0] + dt * (2.0 * cov[1] + dt * cov[2]) + diffusion * dt + turning * dt * dt * dt / 3.0
    )
    out_cov[1] = cov[1] + dt * cov[2] + 0.5 * turning * dt * dt
    out_cov[2] = cov[2] + turning * dt
    for k in range(len(mean)):
        out_mean[k, 0] = mean[k, 0] + dt * mean[k, 1] + points[j, k] - points[i, k]
        out_mean[k, 1] = mean[k, 1]


@compiled()
def observe(mean: np.ndarray, cov: np.ndarray, noise: float) -> float:
    """Condition the moments on u = 0 with this variance, in place; return the log likelihood."""
    total = cov[0] + noise
    gain_u, gain_v = cov[0] / total, cov[1] / total
    log_lik = -0.5 * len(mean) * (_LOG_2PI + np.log(total))
    for k in range(len(mean)):
        u = mean[k, 0]
        log_lik -= 0.5 * u * u / total
        mean[k, 0] = u - gain_u * u
        mean[k, 1] -= gain_v * u
    cov[2] -= gain_v * cov[1]
    cov[1] -= gain_u * cov[1]
    cov[0] -= gain_u * cov[0]
    return log_lik


@compiled()
def meet(
    mean: np.ndarray, cov: np.ndarray, info: np.ndarray, eta: np.ndarray, level: float
) -> float:
    """The log of the integral of a normal density times the likelihood of a tail."""
    a, b, c = cov
    p, q, r = info
    # I + cov info, its determinant, and what multiplies the means.
    m00, m01, m10, m11 = 1.0 + a * p + b * q, a * q + b * r, b * p + c * q, 1.0 + b * q + c * r
    det = m00 * m11 - m01 * m10
    total = level - 0.5 * len(mean) * np.log(det)
    i00, i01, i10, i11 = m11 / det, -m01 / det, -m10 / det, m00 / det
    # info (I + cov info)^-1 and (I + cov info)^-1 cov, both symmetric.
    l00, l01, l11 = p * i00 + q * i10, p * i01 + q * i11, q * i01 + r * i11
    s00, s01, s11 = i00 * a + i01 * b, i00 * b + i01 * c, i10 * b + i11 * c
    for k in range(len(mean)):
        u, v = mean[k, 0], mean[k, 1]
        e, f = eta[k, 0], eta[k, 1]
        total += -0.5 * (l00 * u * u + 2.0 * l01 * u * v + l11 * v * v)
        # (I + info cov)^-1 eta is the transpose of the inverse above.
        total += (i00 * e + i10 * f) * u + (i01 * e + i11 * f) * v
        total += 0.5 * (s00 * e * e + 2.0 * s01 * e * f + s11 * f * f)
    return total


@compiled()
def update_head(
    i: int, j: int, points: np.ndarray, time: np.ndarray, motion: np.ndarray, state: State
) -> float:
    """Write the filter at point i, whose predecessor is j (-1 for none); return its likelihood."""
    mean, cov = state[0], state[1]
    if j < 0:
        mean[i] = 0.0
        cov[i, 0], cov[i, 1], cov[i, 2] = motion[3], 0.0, motion[2]
        return 0.0
    predict(j, i, mean[j], cov[j], points, time, motion, mean[i], cov[i])
    return observe(mean[i], cov[i], motion[3])


@compiled()
def update_tail(
    i: int, c: int, points: np.ndarray, time: np.ndarray, motion: np.ndarray, state: State
) -> None:
    """Write the likelihood of the tail from point i on, whose successor is c (-1 for none)."""
    info, eta, level, fresh = state[2], state[3], state[4], state[5]
    d = points.shape[1]
    noise, spread = motion[3], motion[2]
    info[i] = 0.0
    eta[i] = 0.0
    level[i] = -0.5 * d * (_LOG_2PI + np.log(noise))
    if c >= 0:
        dt = time[c] - time[i]
        a = motion[0] * dt + motion[1] * dt * dt * dt / 3.0
        b, g = 0.5 * motion[1] * dt * dt, motion[1] * dt
        p, q, r = info[c]
        m00, m01 = 1.0 + a * p + b * q, a * q + b * r
        m10, m11 = b * p + g * q, 1.0 + b * q + g * r
        det = m00 * m11 - m01 * m10
        i00, i01, i10, i11 = m11 / det, -m01 / det, -m10 / det, m00 / det
        l00, l01, l11 = p * i00 + q * i10, p * i01 + q * i11, q * i01 + r * i11
        s00, s01, s11 = i00 * a + i01 * b, i00 * b + i01 * g, i10 * b + i11 * g
        level[i] += level[c] - 0.5 * d * np.log(det)
        # z_c = F z_i + (shift, 0) with F = [[1, dt], [0, 1]].
        info[i, 0] = l00
        info[i, 1] = l00 * dt + l01
        info[i, 2] = l00 * dt * dt + 2.0 * l01 * dt + l11
        for k in range(d):
            e, f = eta[c, k, 0], eta[c, k, 1]
            h0, h1 = i00 * e + i10 * f, i01 * e + i11 * f
            shift = points[i, k] - points[c, k]
            level[i] += 0.5 * (s00 * e * e + 2.0 * s01 * e * f + s11 * f * f)
            level[i] += -0.5 * l00 * shift * shift + h0 * shift
            h0, h1 = h0 - l00 * shift, h1 - l01 * shift
            eta[i, k, 0] = h0
            eta[i, k, 1] = h0 * dt + h1
    info[i, 0] += 1.0 / noise
    # Integrate the velocity with its prior, and the position with density one.
    p, q, r = info[i, 0], info[i, 1], info[i, 2] + 1.0 / spread
    det = p * r - q * q
    total = level[i] + 0.5 * d * (_LOG_2PI - np.log(det * spread))
    for k in range(d):
        e, f = eta[i, k, 0], eta[i, k, 1]
        total += 0.5 * (r * e * e - 2.0 * q * e * f + p * f * f) / det
    fresh[i] = total


@compiled()
def filter_heads(
    pred: np.ndarray, points: np.ndarray, time: np.ndarray, motion: np.ndarray, state: State
) -> float:
    """Filter all tracks forwards; return the log likelihood of all points but the first ones."""
    total = 0.0
    for i in range(len(pred)):
        total += update_head(i, pred[i], points, time, motion, state)
    return total


@compiled()
def filter_tails(
    succ: np.ndarray, points: np.ndarray, time: np.ndarray, motion: np.ndarray, state: State
) -> None:
    """Compute the likelihoods of all tails, the last first."""
    for i in range(len(succ) - 1, -1, -1):
        update_tail(i, succ[i], points, time, motion, state)
