r"""Compiled filters of particles with a velocity; importing them imports numba.

The position and velocity (u, v) at point i, u relative to the point, is normal given the head that
ends there, with mean ``mean[i]`` (d, 2) and a covariance ``cov[i]`` = (uu, uv, vv) common to all
coordinates. The tail that begins there has a likelihood proportional to
:math:`\exp(-\tfrac12 z^T \Lambda z + \eta^T z)`, z = (u, v), with ``info[i]`` = (uu, uv, vv) and
``eta[i]`` (d, 2). ``fresh[i]`` is the log of its integral with nothing before it, the position
being uniform with density one.

A particle that meets a wall is where its mirror image would be without the wall, with the opposite
velocity. The code of a link says in base 3, coordinate by coordinate, whether the later point is
seen itself (0), or as its image behind the lower wall (1) or behind the upper one (2). Covariances
are the same for all of these. The code `TURN` stands for a new velocity: to the filters it is an
end and a beginning. After a change of this file, delete numba's cache of `gains` and `kernels`,
which call it.
"""

import numpy as np

from permvi._compiled import compiled

_LOG_2PI = float(np.log(2.0 * np.pi))
# The code of a link with a turn.
TURN = 27
# What changes less than this, relative to its size, has not changed.
_SAME = 1e-10

# The arrays mean, cov, info, eta and fresh.
State = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@compiled()
def image(place: float, digit: int, k: int, walls: np.ndarray) -> float:
    """A coordinate as it is, or mirrored at the lower or upper wall."""
    return place if digit == 0 else 2.0 * walls[digit - 1, k] - place


@compiled()
def carry(cov: np.ndarray, dt: float, motion: np.ndarray, out: np.ndarray) -> None:
    """Write the covariance after a time."""
    diffusion, turning = motion[0], motion[1]
    out[0] = (
        cov[0] + dt * (2.0 * cov[1] + dt * cov[2]) + diffusion * dt + turning * dt * dt * dt / 3.0
    )
    out[1] = cov[1] + dt * cov[2] + 0.5 * turning * dt * dt
    out[2] = cov[2] + turning * dt


@compiled()
def observe(cov: np.ndarray, noise: float) -> tuple[float, float, float]:
    """Condition a covariance on a point in place; return its variance and the two gains."""
    total = cov[0] + noise
    gain_u, gain_v = cov[0] / total, cov[1] / total
    cov[2] -= gain_v * cov[1]
    cov[1] -= gain_u * cov[1]
    cov[0] -= gain_u * cov[0]
    return total, gain_u, gain_v


@compiled()
def update_head(
    i: int,
    j: int,
    code: int,
    points: np.ndarray,
    time: np.ndarray,
    motion: np.ndarray,
    walls: np.ndarray,
    state: State,
) -> tuple[float, bool]:
    """Write the filter at point i, whose predecessor is j (-1 for none).

    Returns:
        The log likelihood of the point, and whether the filter is as it was.
    """
    mean, cov = state[0], state[1]
    uu, uv, vv = cov[i]
    if j < 0:
        mean[i] = 0.0
        cov[i, 0], cov[i, 1], cov[i, 2] = motion[3], 0.0, motion[2]
        return 0.0, False
    dt = time[i] - time[j]
    carry(cov[j], dt, motion, cov[i])
    total, gain_u, gain_v = observe(cov[i], motion[3])
    same = _same(uu, cov[i, 0]) and _same(uv, cov[i, 1]) and _same(vv, cov[i, 2])
    d = points.shape[1]
    log_lik = -0.5 * d * (_LOG_2PI + np.log(total))
    for k in range(d):
        digit, code = code % 3, code // 3
        sign = 1.0 if digit == 0 else -1.0
        place = mean[j, k, 0] + dt * mean[j, k, 1] + points[j, k]
        off = sign * (place - image(points[i, k], digit, k, walls))
        log_lik -= 0.5 * off * off / total
        u, v = off - gain_u * off, sign * mean[j, k, 1] - gain_v * off
        same = same and _same(mean[i, k, 0], u) and _same(mean[i, k, 1], v)
        mean[i, k, 0], mean[i, k, 1] = u, v
    return log_lik, same


@compiled()
def _same(a: float, b: float) -> bool:
    return abs(a - b) <= _SAME * (abs(a) + abs(b))


@compiled()
def update_tail(
    i: int,
    c: int,
    code: int,
    points: np.ndarray,
    time: np.ndarray,
    motion: np.ndarray,
    walls: np.ndarray,
    state: State,
) -> bool:
    """Write the likelihood of the tail from point i on, whose successor is c (-1 for none).

    Returns:
        Whether it is as it was.
    """
    info, eta, fresh = state[2], state[3], state[4]
    d = points.shape[1]
    noise, spread = motion[3], motion[2]
    uu, uv, vv = info[i]
    info[i] = 0.0
    same = c >= 0
    # What multiplies the likelihood of the tail of c.
    dt = h00 = h01 = h10 = h11 = l00 = 0.0
    if c >= 0:
        dt = time[c] - time[i]
        a = motion[0] * dt + motion[1] * dt * dt * dt / 3.0
        b, g = 0.5 * motion[1] * dt * dt, motion[1] * dt
        p, q, r = info[c]
        m00, m01 = 1.0 + a * p + b * q, a * q + b * r
        m10, m11 = b * p + g * q, 1.0 + b * q + g * r
        det = m00 * m11 - m01 * m10
        h00, h01, h10, h11 = m11 / det, -m01 / det, -m10 / det, m00 / det
        l00, l01, l11 = p * h00 + q * h10, p * h01 + q * h11, q * h01 + r * h11
        # z_c = F z_i + (shift, 0) with F = [[1, dt], [0, 1]].
        info[i, 0] = l00
        info[i, 1] = l00 * dt + l01
        info[i, 2] = l00 * dt * dt + 2.0 * l01 * dt + l11
    info[i, 0] += 1.0 / noise
    same = same and _same(uu, info[i, 0]) and _same(uv, info[i, 1]) and _same(vv, info[i, 2])
    # Integrate the velocity with its prior, and the position with density one.
    p, q, r = info[i, 0], info[i, 1], info[i, 2] + 1.0 / spread
    det = p * r - q * q
    total = 0.5 * d * (_LOG_2PI - np.log(det * spread))
    for k in range(d):
        e = f = 0.0
        if c >= 0:
            digit, code = code % 3, code // 3
            sign = 1.0 if digit == 0 else -1.0
            e, f = sign * eta[c, k, 0], sign * eta[c, k, 1]
            shift = points[i, k] - image(points[c, k], digit, k, walls)
            e, f = h00 * e + h10 * f - l00 * shift, h01 * e + h11 * f
            f += dt * e - l01 * shift
        same = same and _same(eta[i, k, 0], e) and _same(eta[i, k, 1], f)
        eta[i, k, 0], eta[i, k, 1] = e, f
        total += 0.5 * (r * e * e - 2.0 * q * e * f + p * f * f) / det
    fresh[i] = total
    return same


@compiled()
def filter_heads(
    pred: np.ndarray,
    code: np.ndarray,
    points: np.ndarray,
    time: np.ndarray,
    motion: np.ndarray,
    walls: np.ndarray,
    state: State,
) -> float:
    """Filter all tracks forwards; return the log likelihood of all points but the first ones."""
    total = 0.0
    for i, j in enumerate(np.where(code == TURN, -1, pred)):
        total += update_head(i, j, code[i], points, time, motion, walls, state)[0]
    return total


@compiled()
def filter_tails(
    succ: np.ndarray,
    code: np.ndarray,
    points: np.ndarray,
    time: np.ndarray,
    motion: np.ndarray,
    walls: np.ndarray,
    state: State,
) -> None:
    """Compute the likelihoods of all tails, the last first."""
    for i in range(len(succ) - 1, -1, -1):
        c = succ[i]
        after = -1 if c < 0 or code[c] == TURN else c
        update_tail(i, after, code[max(c, 0)], points, time, motion, walls, state)


@compiled()
def nearest_images(
    pred: np.ndarray,
    points: np.ndarray,
    time: np.ndarray,
    motion: np.ndarray,
    walls: np.ndarray,
    state: State,
    code: np.ndarray,
) -> None:
    """Write codes without turns, with the images that are nearest to where points are expected."""
    mean, d = state[0], points.shape[1]
    for i in range(len(pred)):
        j, number = pred[i], 0
        if j >= 0:
            dt, factor = time[i] - time[j], 1
            for k in range(d):
                place = points[j, k] + mean[j, k, 0] + dt * mean[j, k, 1]
                best = 0
                for digit in range(1, 3):
                    off = abs(place - image(points[i, k], digit, k, walls))
                    if off < abs(place - image(points[i, k], best, k, walls)):
                        best = digit
                number += factor * best
                factor *= 3
        code[i] = number
        update_head(i, j, number, points, time, motion, walls, state)
