r"""Compiled gains of links, summed over what may happen on the way; importing them imports numba.

With all tracks cut at a link, a **head** is what ends with a point j and a **tail** is what begins
with a point i. The gain of a link is the log weight of head and tail as one track less that of the
two as they are, apart from what it costs to begin and end. Points that walk at random have a fixed
gain for each link. For points with a velocity, it depends on the whole tracks, through the filter
of the head and the likelihood of the tail.

A particle with a velocity may take a new one on the way or meet walls, see `filters`. Gains are
sums over all of these, and the code of a link is drawn from the shares in the sum: moves that add
links are weighed by sums, and so is their reverse. Without a turn each coordinate has its own
image, so that a sum over all codes is a product of sums over images. In a hot chain all weights are
taken to the power of 1 / heat, those in the sums as well.
"""

import numpy as np

from permvi._compiled import compiled
from permvi.inference.tracks.filters import TURN, State, carry, image, observe

_LOG_2PI = float(np.log(2.0 * np.pi))
# Terms this many nats below the largest are nothing.
_NOTHING = 36.0
# Points, times, motion and walls; log weights of links without the motion and with a turn; filters;
# room for the mean and covariance of a head, (3,) for another covariance, and (d, 9) for terms; the
# temperature, and whether points have a velocity.
Where = tuple[
    tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    tuple[np.ndarray, np.ndarray],
    State,
    tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    float,
    int,
]


@compiled()
def _add(a: float, b: float, heat: float) -> float:
    """Return the log of the sum of two weights, as a hot chain sees it."""
    top, low = (a, b) if a >= b else (b, a)
    # Two weights of zero differ by nan, which is not less.
    return top + heat * np.log1p(np.exp((low - top) / heat)) if top - low < _NOTHING * heat else top


@compiled()
def _sum(terms: np.ndarray, num: int, heat: float) -> float:
    """The log of the sum of the weights of some images."""
    best = 0
    for n in range(1, num):
        if terms[n] > terms[best]:
            best = n
    top, others = terms[best], 0.0
    for n in range(num):
        if n != best and terms[n] > top - _NOTHING * heat:
            others += np.exp((terms[n] - top) / heat)
    return top + heat * np.log1p(others) if others > 0.0 else top


@compiled()
def _draw(terms: np.ndarray, num: int, heat: float, rng: np.random.Generator) -> int:
    """Draw one of some images."""
    left = rng.random()
    total = _sum(terms, num, heat)
    for n in range(num - 1):
        left -= np.exp((terms[n] - total) / heat)
        if left < 0.0:
            return n
    return num - 1


@compiled()
def _first(a: float, b: float, heat: float, rng: np.random.Generator) -> bool:
    """Draw whether it is the first of two weights."""
    return rng.random() < 1.0 / (1.0 + np.exp(min((b - a) / heat, 700.0)))


@compiled()
def _new_head(d: int, where: Where) -> None:
    """Write the head that a point begins."""
    motion, (mean, cov, _, _) = where[0][2], where[3]
    mean[:] = 0.0
    cov[0], cov[1], cov[2] = motion[3], 0.0, motion[2]


@compiled()
def _meet(j: int, i: int, mean: np.ndarray, cov: np.ndarray, where: Where) -> float:
    """The log of the mean likelihood of the tail of i, given a head at j, over that of the tail.

    The terms of all images are written into the room.
    """
    (points, time, motion, walls), _, state, room, heat, _ = where
    ahead, terms = room[2], room[3]
    info, eta = state[2], state[3]
    dt = time[i] - time[j]
    carry(cov, dt, motion, ahead)
    a, b, c = ahead
    p, q, r = info[i]
    # I + cov info, its determinant, and what multiplies the means.
    m00, m01, m10, m11 = 1.0 + a * p + b * q, a * q + b * r, b * p + c * q, 1.0 + b * q + c * r
    det = m00 * m11 - m01 * m10
    d = len(mean)
    total = -0.5 * d * np.log(det) - state[4][i]
    i00, i01, i10, i11 = m11 / det, -m01 / det, -m10 / det, m00 / det
    # info (I + cov info)^-1 and (I + cov info)^-1 cov, both symmetric.
    l00, l01, l11 = p * i00 + q * i10, p * i01 + q * i11, q * i01 + r * i11
    s00, s01, s11 = i00 * a + i01 * b, i00 * b + i01 * c, i10 * b + i11 * c
    for k in range(d):
        e, f = eta[i, k, 0], eta[i, k, 1]
        # (I + info cov)^-1 eta is the transpose of the inverse above.
        g, h = i00 * e + i10 * f, i01 * e + i11 * f
        level = 0.5 * (s00 * e * e + 2.0 * s01 * e * f + s11 * f * f)
        place = points[j, k] + mean[k, 0] + dt * mean[k, 1]
        for digit in range(3):
            if digit > 0 and not np.isfinite(walls[digit - 1, k]):
                terms[k, digit] = -np.inf
                continue
            sign = 1.0 if digit == 0 else -1.0
            u = sign * (place - image(points[i, k], digit, k, walls))
            v = sign * mean[k, 1]
            quadratic = l00 * u * u + 2.0 * l01 * u * v + l11 * v * v
            terms[k, digit] = level - 0.5 * quadratic + g * u + h * v
        total += _sum(terms[k], 3, heat)
    return total


@compiled()
def _code(terms: np.ndarray, heat: float, rng: np.random.Generator) -> int:
    """Draw the images of all coordinates."""
    code = 0
    for k in range(len(terms) - 1, -1, -1):
        code = 3 * code + _draw(terms[k], 3, heat, rng)
    return code


@compiled()
def _join_head(
    e: int,
    j: int,
    i: int,
    mean: np.ndarray,
    cov: np.ndarray,
    draw: int,
    where: Where,
    rng: np.random.Generator,
) -> tuple[float, int]:
    scores, turned = where[1]
    terms, heat = where[3][3], where[4]
    straight = scores[e] + _meet(j, i, mean, cov, where)
    code = 0
    if draw:
        code = _code(terms, heat, rng) if _first(straight, turned[e], heat, rng) else TURN
    return _add(straight, turned[e], heat), code


@compiled()
def join(e: int, j: int, i: int, where: Where, rng: np.random.Generator) -> float:
    """The gain of link e from j to i."""
    if not where[5]:
        return where[1][0][e]
    mean, cov = where[2][0], where[2][1]
    return _join_head(e, j, i, mean[j], cov[j], 0, where, rng)[0]


@compiled()
def draw_join(e: int, j: int, i: int, where: Where, rng: np.random.Generator) -> int:
    """Draw the code of link e from j to i."""
    if not where[5]:
        return 0
    mean, cov = where[2][0], where[2][1]
    return _join_head(e, j, i, mean[j], cov[j], 1, where, rng)[1]


@compiled()
def _arrive(a: int, i: int, c: int, where: Where) -> tuple[float, float]:
    """The log likelihoods of point i after the head of a, and of point i and the tail of c.

    They are sums over images, whose terms are written into the room: those of the latter for each
    image of point i three of point c. Without point c (-1), there are terms of point i only.
    """
    (points, time, motion, walls), _, state, room, heat, _ = where
    mean, cov = state[0], state[1]
    head, before, ahead, terms = room
    info, eta = state[2], state[3]
    d = len(head)
    dt = time[i] - time[a]
    carry(cov[a], dt, motion, before)
    variance, gain_u, gain_v = observe(before, motion[3])
    once = both = -0.5 * d * (_LOG_2PI + np.log(variance))
    then = p = q = r = l00 = l01 = l11 = s00 = s01 = s11 = i00 = i01 = i10 = i11 = 0.0
    if c >= 0:
        then = time[c] - time[i]
        carry(before, then, motion, ahead)
        x, y, z = ahead
        p, q, r = info[c]
        m00, m01, m10, m11 = 1.0 + x * p + y * q, x * q + y * r, y * p + z * q, 1.0 + y * q + z * r
        det = m00 * m11 - m01 * m10
        i00, i01, i10, i11 = m11 / det, -m01 / det, -m10 / det, m00 / det
        l00, l01, l11 = p * i00 + q * i10, p * i01 + q * i11, q * i01 + r * i11
        s00, s01, s11 = i00 * x + i01 * y, i00 * y + i01 * z, i10 * y + i11 * z
        both -= 0.5 * d * np.log(det) + state[4][c]
    for k in range(d):
        place = points[a, k] + mean[a, k, 0] + dt * mean[a, k, 1]
        for digit in range(3):
            if digit > 0 and not np.isfinite(walls[digit - 1, k]):
                terms[k, digit] = -np.inf
                continue
            sign = 1.0 if digit == 0 else -1.0
            off = sign * (place - image(points[i, k], digit, k, walls))
            terms[k, digit] = -0.5 * off * off / variance
        once += _sum(terms[k], 3, heat)
        if c < 0:
            continue
        e, f = eta[c, k, 0], eta[c, k, 1]
        g, h = i00 * e + i10 * f, i01 * e + i11 * f
        level = 0.5 * (s00 * e * e + 2.0 * s01 * e * f + s11 * f * f)
        for digit in range(2, -1, -1):
            own = terms[k, digit]
            sign = 1.0 if digit == 0 else -1.0
            off = sign * (place - image(points[i, k], digit, k, walls)) if own > -np.inf else 0.0
            v0 = sign * mean[a, k, 1] - gain_v * off
            onward = points[i, k] + off - gain_u * off + then * v0
            for other in range(3):
                if own == -np.inf or (other > 0 and not np.isfinite(walls[other - 1, k])):
                    terms[k, 3 * digit + other] = -np.inf
                    continue
                sign = 1.0 if other == 0 else -1.0
                u, v = sign * (onward - image(points[c, k], other, k, walls)), sign * v0
                quadratic = l00 * u * u + 2.0 * l01 * u * v + l11 * v * v
                terms[k, 3 * digit + other] = own + level - 0.5 * quadratic + g * u + h * v
        both += _sum(terms[k], 9, heat)
    return once, both


@compiled()
def thread(
    a: int,
    i: int,
    c: int,
    ea: int,
    ec: int,
    draw: int,
    where: Where,
    rng: np.random.Generator,
) -> tuple[float, int, int]:
    """The gain of point i between the head of a and the tail of c, where they are not -1.

    The codes of its two links follow, drawn if that is asked for.
    """
    scores, turned = where[1]
    heat, (mean, cov, _, terms) = where[4], where[3]
    if a < 0 and c < 0:
        return 0.0, 0, 0
    if not where[5]:
        return (scores[ea] if a >= 0 else 0.0) + (scores[ec] if c >= 0 else 0.0), 0, 0
    if a < 0:
        _new_head(len(mean), where)
        total, code = _join_head(ec, i, c, mean, cov, draw, where, rng)
        return total, 0, code
    if c < 0:
        straight = scores[ea] + _arrive(a, i, c, where)[0]
        code = 0
        if draw:
            code = _code(terms, heat, rng) if _first(straight, turned[ea], heat, rng) else TURN
        return _add(straight, turned[ea], heat), code, 0
    _new_head(len(mean), where)
    anew = turned[ea] + _join_head(ec, i, c, mean, cov, 0, where, rng)[0]
    once, both = _arrive(a, i, c, where)
    end, on = scores[ea] + once + turned[ec], scores[ea] + both + scores[ec]
    straight = _add(end, on, heat)
    total = _add(anew, straight, heat)
    if not draw:
        return total, 0, 0
    if _first(anew, straight, heat, rng):
        _new_head(len(mean), where)
        return total, TURN, _join_head(ec, i, c, mean, cov, 1, where, rng)[1]
    if _first(end, on, heat, rng):
        _arrive(a, i, -1, where)
        return total, _code(terms, heat, rng), TURN
    one = two = 0
    for k in range(len(mean) - 1, -1, -1):
        both_images = _draw(terms[k], 9, heat, rng)
        one, two = 3 * one + both_images // 3, 3 * two + both_images % 3
    return total, one, two
