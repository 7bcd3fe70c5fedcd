"""Particles that go on in their direction: candidate links, a first association and its motion."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.spatial import KDTree

from permvi._assignment.lists import Pairs, solve_pairs
from permvi.inference.tracks.candidates import Links, best_association, make_links
from permvi.inference.tracks.chain import (
    Association,
    Motion,
    Parameters,
    Problem,
    Start,
    draw_parameters,
    log_prior_motion,
    run_chain,
    spread,
)
from permvi.inference.tracks.rates import Rates, end_weights, log_ended, log_seen

# The names of the square roots of the variances of `chain.Motion`.
NAMES = ("diffusion", "turning", "speed", "noise")
# The first guess of the share of links with a turn.
_FIRST_TURNS = 0.02
# First guesses of the variances, in units of a random step: the steps are velocities.
_FIRST = np.array([0.02, 0.05, 1.0, 0.01])
_NUM_ROUNDS = 3
# Links reach this many standard deviations from where a point is expected; at most so many points
# nearest to one are tried as its next, before its direction is known.
_REACH = 4.5
_MOST_NEAREST = 8
# The parameters of motion that "velocity" has more than "walk" are worth this many nats each.
_PENALTY = 5.0
# Walls must be worth this many nats, and so many more for each point.
_WALLS_PENALTY = 20.0, 0.01
# Short chains for the choice run on frames of about so many points, with so many moves, but not
# fewer or more draws than that, and not at all if three frames have more points than the last.
_MOST_TRIED = 20_000
_TRIED_POINTS, _TRIED_MOVES, _TRIED_DRAWS = 2_000, 1_500_000, (15, 120)
# The first steps of the fit, in log variances.
_FIRST_STEP = 0.7
# Variances are at least this.
_LEAST = 1e-5


def begin(start: Start, walls: np.ndarray | None, *, choose: bool, sure: bool) -> Start:
    """Begin again with velocities; if that is to be chosen, only where it is more probable.

    Both are compared by the log weights of their best associations, each with the parameters that
    suit it. Where particles often turn, the first association with velocities can be a poor one:
    then short chains from both, on part of the frames, decide.

    Args:
        start: The best association of a random walk.
        walls: (2, d) the walls that particles may meet, or None.
        choose: Whether the motion is to be chosen.
        sure: Whether there are walls; else their log weights decide.
    """
    if len(start.problem.clock.times) < 3:
        return start
    start = _walled(start, walls if sure else None)
    found, log_weight = _begin(start)
    if walls is not None and not sure:
        inside = _walled(start, walls)
        other, log_weight_inside = _begin(inside)
        base, per_point = _WALLS_PENALTY
        if log_weight_inside > log_weight + base + per_point * len(start.problem.points):
            start, found, log_weight = inside, other, log_weight_inside
    enough = _PENALTY * (len(NAMES) - 1)
    if not choose or log_weight > _suited(start) + enough:
        return found()
    part = _first_frames(start)
    if len(part.association.pred) > _MOST_TRIED:
        return start
    walking, going = _tried(part), _tried(_begin(part)[0]())
    # Weights of draws scatter.
    enough += 2.0 * float(np.hypot(walking.std(), going.std()))
    return found() if going.mean() > walking.mean() + enough else start


def _walled(start: Start, walls: np.ndarray | None) -> Start:
    if walls is None:
        return start
    problem = dataclasses.replace(start.problem, walls=walls)
    return Start(Association(problem, start.association.pred), start.parameters)


def _begin(start: Start) -> tuple[Callable[[], Start], float]:
    """The start with velocities, made when it is called, and the log weight of its association.

    The latter is without turns, which the start allows.
    """
    problem, rates = start.problem, start.parameters.rates
    variances = _FIRST.copy()
    for _ in range(_NUM_ROUNDS):
        pred = _follow(problem, rates, variances)
        later = np.flatnonzero(pred >= 0)
        links = make_links(later, pred[later], problem.points, problem.time)
        chained = Association(dataclasses.replace(problem, links=links), pred)
        variances = _fit(chained.at_walls(variances), variances)
        now = Parameters(rates, Motion(start.parameters.motion.sd, variances))
        rates = draw_parameters(chained, now, None).rates
    parameters = Parameters(rates, Motion(start.parameters.motion.sd, variances))

    def found() -> Start:
        near = _near_links(problem, variances)
        tails = np.concatenate([near.tails, links.tails])
        cands = np.concatenate([near.cands, links.cands])
        both = make_links(tails, cands, problem.points, problem.time)
        motion = parameters.motion._replace(turns=_FIRST_TURNS)
        linked = Association(dataclasses.replace(problem, links=both), pred)
        return Start(linked, parameters._replace(motion=motion))

    return found, chained.at_walls(variances).log_weight(parameters)


def _first_frames(start: Start) -> Start:
    """The start of a random walk in the first frames alone, as many as have some points."""
    problem = start.problem
    sizes = np.bincount(problem.frame, minlength=len(problem.clock.times)).cumsum()
    num = max(int(np.count_nonzero(sizes <= _TRIED_POINTS)), 3)
    size = int(sizes[min(num, len(sizes)) - 1])
    clock = problem.clock._replace(times=problem.clock.times[:num])
    first = dataclasses.replace(
        problem,
        points=problem.points[:size],
        frame=problem.frame[:size],
        clock=clock,
        links=problem.links.take(problem.links.tails < size),
    )
    return Start(Association(first, start.association.pred[:size]), start.parameters)


def _tried(start: Start) -> np.ndarray:
    """The log weights of the last draws of a short chain."""
    rng = np.random.default_rng(0)
    if start.parameters.motion.variances is not None:
        start.association.at_walls(start.parameters.motion.variances)
    picks = np.arange(len(start.problem.links.tails))
    number = int(np.clip(_TRIED_MOVES / max(len(picks), 1), *_TRIED_DRAWS))
    weights = []
    for _ in range(number):
        start = run_chain(start, picks, 1, 1.0, rng).last
        weights.append(start.association.log_weight(start.parameters))
    return np.array(weights[-(number // 3) :])


def _suited(start: Start) -> float:
    """The log weight of a random walk, the association and the parameters improved by turns.

    The step that was guessed can be far from that of the best links, and velocities have been
    fitted to theirs.
    """
    (association, parameters), problem = start, start.problem
    for _ in range(_NUM_ROUNDS - 1):
        parameters = draw_parameters(association, parameters, None)
        scores, ends = problem.scores(parameters), problem.ends(parameters)
        association = Association(problem, best_association(problem.links, scores, ends).pred)
    return association.log_weight(draw_parameters(association, parameters, None))


def _fit(association: Association, variances: np.ndarray) -> np.ndarray:
    """The most probable variances of motion given an association."""

    def loss(logs: np.ndarray) -> float:
        trial = np.exp(np.clip(logs, np.log(_LEAST), 12.0))
        return -association.log_likelihood(trial) - log_prior_motion(trial)

    logs = np.log(variances)
    # The default simplex is flat along a variance of 1.
    simplex = np.concatenate([logs[None], logs + _FIRST_STEP * np.eye(len(logs))])
    options = {"maxfev": 120, "xatol": 0.02, "fatol": 0.1, "initial_simplex": simplex}
    found = minimize(loss, logs, method="Nelder-Mead", options=options)
    return np.exp(np.clip(found.x, np.log(_LEAST), 12.0))


class _Heads(NamedTuple):
    """The filters of tracks that may go on: last points, means (K, d, 2), covariances (K, 3)."""

    last: np.ndarray
    mean: np.ndarray
    cov: np.ndarray


def _predicted(
    heads: _Heads, problem: Problem, span: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(K, d, 2) means of positions and velocities, and (K, 3) covariances, after some time."""
    points, walls = problem.points, problem.walls
    diffusion, turning = variances[:2]
    mean = heads.mean.copy()
    mean[:, :, 0] += points[heads.last] + span[:, None] * mean[:, :, 1]
    over = (mean[:, :, 0] < walls[0]) | (mean[:, :, 0] > walls[1])
    mean[:, :, 0] = _reflected(mean[:, :, 0], walls)
    mean[:, :, 1] = np.where(over, -mean[:, :, 1], mean[:, :, 1])
    uu, uv, vv = heads.cov.T
    cov = np.stack(
        [
            uu + span * (2 * uv + span * vv) + diffusion * span + turning * span**3 / 3,
            uv + span * vv + 0.5 * turning * span**2,
            vv + turning * span,
        ],
        axis=1,
    )
    return mean, cov


def _reflected(places: np.ndarray, walls: np.ndarray) -> np.ndarray:
    """Mirror places that lie behind walls."""
    low, high = walls
    with np.errstate(invalid="ignore"):
        return np.where(
            places < low, 2 * low - places, np.where(places > high, 2 * high - places, places)
        )


def _follow(problem: Problem, rates: Rates, variances: np.ndarray) -> np.ndarray:
    """(N,) predecessors, frame after frame: each is matched with where the tracks should be."""
    points, frame, clock = problem.points, problem.frame, problem.clock
    T, (N, d) = len(clock.times), points.shape
    firsts = np.searchsorted(frame, np.arange(T + 1))
    seen = log_seen(clock, rates.deaths, rates.missed)
    ended = np.exp(log_ended(clock, rates.deaths, rates.missed))
    ends = end_weights(clock, rates, frame)
    noise, speed = variances[3], variances[2]
    pred = np.full(N, -1)
    heads = _Heads(np.zeros(0, np.int64), np.zeros((0, d, 2)), np.zeros((0, 3)))
    for v in range(T):
        here = np.arange(firsts[v], firsts[v + 1])
        recent = frame[heads.last] >= v - clock.memory - 1
        heads = _Heads(*(part[recent] for part in heads))
        fresh = _Heads(
            here, np.zeros((len(here), d, 2)), np.tile([noise, 0.0, speed], (len(here), 1))
        )
        if not len(here):
            continue
        matched = np.full(len(here), -1)
        if len(heads.last):
            u = frame[heads.last]
            span = clock.times[v] - clock.times[u]
            mean, cov = _predicted(heads, problem, span, variances)
            total = cov[:, 0] + noise
            reach = _REACH * np.sqrt(total)
            near = KDTree(points[here]).query_ball_point(mean[:, :, 0], reach)
            cols = np.repeat(np.arange(len(near)), [len(part) for part in near])
            rows = np.concatenate([np.zeros(0, int), *map(np.asarray, near)]).astype(np.int64)
            off = points[here[rows]] - mean[cols, :, 0]
            scores = -0.5 * (
                (off**2).sum(axis=1) / total[cols] + d * np.log(2 * np.pi * total[cols])
            )
            scores += seen[u[cols], v - u[cols] - 1]
            # Not now: it is seen later, or has ended.
            later = np.array([np.exp(seen[a, v - a :]).sum() + ended[a] for a in range(T)])
            order = np.argsort(rows, kind="stable")
            # A point that begins a track here most likely goes on, or is alone.
            alone = np.logaddexp(ends[0, here], ends[2, here])
            pairs = Pairs(rows[order], cols[order], scores[order], alone, np.log(later[u]))
            matched = solve_pairs(pairs).perm
            hit = np.flatnonzero(matched >= 0)
            track = matched[hit]
            pred[here[hit]] = heads.last[track]
            gain = cov[track] / total[track, None]
            off = points[here[hit]] - mean[track, :, 0]
            fresh.mean[hit, :, 0] = -off + gain[:, 0, None] * off
            fresh.mean[hit, :, 1] = mean[track, :, 1] + gain[:, 1, None] * off
            fresh.cov[hit, 0] = cov[track, 0] * (1 - gain[:, 0])
            fresh.cov[hit, 1] = cov[track, 1] * (1 - gain[:, 0])
            fresh.cov[hit, 2] = cov[track, 2] - gain[:, 1] * cov[track, 1]
            stay = np.ones(len(heads.last), bool)
            stay[track] = False
            heads = _Heads(*(part[stay] for part in heads))
        heads = _Heads(*(np.concatenate(parts) for parts in zip(heads, fresh, strict=True)))
    return pred


def _near_links(problem: Problem, variances: np.ndarray) -> Links:
    """Links that some third point supports, before or after, and those of the nearest points.

    Two neighbours in time give a velocity, forwards and backwards, and with it the places where the
    particle is expected in the frames after or before them.
    """
    points, frame, clock = problem.points, problem.frame, problem.clock
    T = len(clock.times)
    firsts = np.searchsorted(frame, np.arange(T + 1))
    # Frames without points are never asked.
    trees: list[Any] = [
        KDTree(points[a:b]) if b > a else None for a, b in itertools.pairwise(firsts)
    ]
    tails, cands = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for step in (1, -1):
        for u in range(T):
            w = u + step
            if not 0 <= w < T or trees[u] is None or trees[w] is None:
                continue
            span = abs(clock.times[w] - clock.times[u])
            wide = _REACH * np.sqrt(spread(variances, span))
            before = np.arange(firsts[u], firsts[u + 1])
            most = min(_MOST_NEAREST, firsts[w + 1] - firsts[w])
            apart, which = trees[w].query(points[before], k=range(1, most + 1))
            near = apart <= wide
            source = np.repeat(before, near.sum(axis=1))
            target = firsts[w] + which[near]
            _add(tails, cands, source, target, step)
            for v in range(w + step, w + step * (clock.memory + 2), step):
                if not 0 <= v < T or trees[v] is None:
                    continue
                ahead = abs(clock.times[v] - clock.times[w])
                expected = points[target] + (points[target] - points[source]) * ahead / span
                expected = _reflected(expected, problem.walls)
                reach = _REACH * np.sqrt(_uncertainty(variances, span, ahead))
                found = trees[v].query_ball_point(expected, reach)
                sizes = [len(part) for part in found]
                hits = np.concatenate([np.zeros(0, int), *map(np.asarray, found)]).astype(np.int64)
                _add(tails, cands, np.repeat(target, sizes), firsts[v] + hits, step)
    return make_links(np.concatenate(tails), np.concatenate(cands), points, clock.times[frame])


def _add(
    tails: list[np.ndarray],
    cands: list[np.ndarray],
    source: np.ndarray,
    target: np.ndarray,
    step: int,
) -> None:
    tails.append(target if step > 0 else source)
    cands.append(source if step > 0 else target)


def _uncertainty(variances: np.ndarray, span: float, ahead: float) -> float:
    """The variance of a place that is expected from two points a time ``span`` apart."""
    diffusion, turning, _, noise = variances
    ratio = ahead / span
    known = noise * (1 + (1 + ratio) ** 2 + ratio**2)
    return float(
        known + diffusion * (ahead + ahead**2 / span) + turning * (ahead**3 + ahead**2 * span) / 3
    )
