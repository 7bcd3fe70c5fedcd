r"""How often points appear, vanish, are missed or are false, and the weights that follow.

At time :math:`t_u` of frame u a particle that was seen is seen next in frame v > u with probability

.. math::
    h(u, v) = (1 - D)^{t_v - t_u}\, M^{v - u - 1} (1 - M), \qquad v \le u + k + 1,

where D is the probability to vanish in a unit of time, M to be missed in a frame, and k is the
memory: what is not seen in more than k frames in a row is not seen again. It is never seen again
with the rest of the probability, :math:`e(u) = 1 - \sum_v h(u, v)`. Numbers of first points, of new
ones and of false ones are Poisson, with means F in the first frame, B times the time since the last
frame in others, and C in every frame; they are uniform in a volume V. A track that begins in frame
u and ends in frame w has the weight :math:`b(u)\, e(w) / V` times h and the density of the motion
for every link, with b(0) = F and b(u) = B (t_u - t_{u-1}); a false point has the weight C / V.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

# Metropolis steps for the two probabilities each time, and their size on the scale of log odds if
# nothing vanished or was missed; else it is smaller by the square root of how often that was.
_NUM_STEPS = 8
_STEP = 1.5
# The range of probabilities that are inferred.
_LEAST, _MOST = 1e-6, 0.9
# The means of the exponential priors of rates are these shares of the mean number of points in a
# frame; the probabilities have Beta(1, 9) priors, with mean 0.1.
_FALSE_SHARE, _BIRTH_SHARE = 0.1, 0.1
_PRIOR_AGAINST = 9.0
NAMES = ("first", "births", "deaths", "missed", "false")


class Rates(NamedTuple):
    """The rates; see the module.

    Attributes:
        first: F, the mean number of particles that are seen in the first frame.
        births: B, the mean number that appear in a unit of time.
        deaths: D, the probability of a particle to vanish in a unit of time.
        missed: M, the probability of a particle to be missed in a frame.
        false: C, the mean number of false points in a frame.
    """

    first: float
    births: float
    deaths: float
    missed: float
    false: float


class Clock(NamedTuple):
    """What the weights need to know of the frames.

    Attributes:
        times: (T,) the times of the frames.
        memory: In how many frames in a row a particle may be missed.
        log_volume: Log of the volume that points can appear in.
        mean_size: The mean number of points in a frame.
    """

    times: np.ndarray
    memory: int
    log_volume: float
    mean_size: float


def log_seen(clock: Clock, deaths: float, missed: float) -> np.ndarray:
    """(T, memory + 1) log h(u, u + 1 + g); -inf beyond the last frame."""
    T = len(clock.times)
    found = np.full((T, clock.memory + 1), -np.inf)
    for g in range(min(clock.memory + 1, T - 1)):
        span = clock.times[g + 1 :] - clock.times[: T - g - 1]
        again = span * np.log1p(-deaths) + np.log1p(-missed)
        # At missed = 0 there are no links across frames.
        found[: T - g - 1, g] = again + (g * np.log(missed) if g else 0.0)
    return found


def log_ended(clock: Clock, deaths: float, missed: float) -> np.ndarray:
    """(T,) log e(u)."""
    seen = np.exp(log_seen(clock, deaths, missed)).sum(axis=1)
    return np.log(np.maximum(1.0 - seen, 1e-300))


def log_begun(clock: Clock, rates: Rates) -> np.ndarray:
    """(T,) log b(u)."""
    with np.errstate(divide="ignore"):
        later = np.log(rates.births) + np.log(np.diff(clock.times))
        return np.concatenate([[np.log(rates.first)], later])


def end_weights(clock: Clock, rates: Rates, frame: np.ndarray) -> np.ndarray:
    """(3, N) log weights of a point for beginning a track, for ending one, and for being alone.

    The last is that of a track of one point or a false one, together.
    """
    begun = (log_begun(clock, rates) - clock.log_volume)[frame]
    ended = log_ended(clock, rates.deaths, rates.missed)[frame]
    with np.errstate(divide="ignore"):
        false = np.log(rates.false) - clock.log_volume
    return np.stack([begun, ended, np.logaddexp(begun + ended, false)])


def false_share(ends: np.ndarray) -> np.ndarray:
    """(N,) the probability that a point is false, given that it is alone."""
    return -np.expm1(np.minimum(ends[0] + ends[1] - ends[2], 0.0))


class Counts(NamedTuple):
    """What an association says about the rates.

    Attributes:
        first: How many tracks begin in the first frame.
        births: How many begin later.
        false: How many points are false.
        seen: (T, memory + 1) how many links leave each frame over each number of frames.
        ended: (T,) how many tracks end in each frame.
    """

    first: float
    births: float
    false: float
    seen: np.ndarray
    ended: np.ndarray


def count(
    clock: Clock, frame: np.ndarray, pred: np.ndarray, succ: np.ndarray, false: np.ndarray
) -> Counts:
    """Count in an association; ``false`` (N,) is how far each point that is alone is false."""
    T = len(clock.times)
    alone = (pred < 0) & (succ < 0)
    share = np.where(alone, false, 0.0)
    begun = np.bincount(frame, np.where(pred < 0, 1.0 - share, 0.0), minlength=T)
    ended = np.bincount(frame, np.where(succ < 0, 1.0 - share, 0.0), minlength=T)
    later = np.flatnonzero(pred >= 0)
    before = frame[pred[later]]
    key = before * (clock.memory + 1) + frame[later] - before - 1
    seen = np.bincount(key, minlength=T * (clock.memory + 1)).reshape(T, -1).astype(np.float64)
    return Counts(float(begun[0]), float(begun[1:].sum()), float(share.sum()), seen, ended)


def _log_posterior(clock: Clock, counts: Counts, deaths: float, missed: float) -> float:
    seen, ended = log_seen(clock, deaths, missed), log_ended(clock, deaths, missed)
    links = counts.seen > 0
    total = float((counts.seen[links] * seen[links]).sum() + (counts.ended * ended).sum())
    return total + (_PRIOR_AGAINST - 1.0) * float(np.log1p(-deaths) + np.log1p(-missed))


def draw(
    clock: Clock,
    counts: Counts,
    rates: Rates,
    given: dict[str, float],
    rng: np.random.Generator | None,
) -> Rates:
    """Draw rates given an association, or, without a generator, take their mode.

    Args:
        clock: The frames.
        counts: Of the association.
        rates: The present ones.
        given: Rates that are known.
        rng: A generator.
    """
    T, span = len(clock.times), float(clock.times[-1] - clock.times[0])
    sizes = {"first": (counts.first, 1.0, 1.0), "births": (counts.births, span, _BIRTH_SHARE)}
    sizes["false"] = (counts.false, float(T), _FALSE_SHARE)
    new = rates._asdict()
    for name, (number, exposure, share) in sizes.items():
        total = exposure + 1.0 / (share * clock.mean_size)
        value = (number + 1.0) if rng is None else rng.gamma(number + 1.0)
        new[name] = given.get(name, value / total)
    free = [name for name in ("deaths", "missed") if name not in given]
    if not free:
        return Rates(**new)
    fixed = {name: new[name] for name in ("deaths", "missed")}

    def chances(place: np.ndarray) -> dict[str, float]:
        shares = np.clip(1.0 / (1.0 + np.exp(-place)), _LEAST, _MOST).tolist()
        return {**fixed, **dict(zip(free, shares, strict=True))}

    def log_density(place: np.ndarray) -> float:
        both = chances(place)
        jacobian = sum(np.log(both[name]) + np.log1p(-both[name]) for name in free)
        return _log_posterior(clock, counts, **both) + float(jacobian)

    place = np.array([np.log(new[name]) - np.log1p(-new[name]) for name in free])
    if rng is None:
        place = minimize(lambda at: -log_density(at), place, method="Nelder-Mead").x
    else:
        events = {"deaths": counts.ended[:-1].sum(), "missed": counts.seen[:, 1:].sum()}
        steps = _STEP / np.sqrt(1.0 + np.array([events[name] for name in free]))
        now = log_density(place)
        for _ in range(_NUM_STEPS):
            other = place + steps * rng.normal(size=len(free))
            then = log_density(other)
            if np.log(rng.random()) < then - now:
                place, now = other, then
    new.update(chances(place))
    return Rates(**new)
