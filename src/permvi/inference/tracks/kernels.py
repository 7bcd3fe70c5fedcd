"""Compiled moves between associations; importing them imports numba.

An association links every point i with at most one earlier point, its ``pred``, and every point is
the ``pred`` of at most one other. With all tracks cut at a link, a **head** is what ends with a
point j and a **tail** is what begins with a point i. The gain of a link is the log weight of head
and tail as one track less that of the two as they are, apart from what it costs to begin and end.
Points that walk at random have a fixed gain for each link. For points with a velocity, it depends
on the whole tracks, through the filter of the head and the likelihood of the tail. If they may turn
on the way, each candidate is there twice, without and with a turn. A turn has a fixed gain, and to
the filters it is an end and a beginning.

All moves are symmetric but for turns: a link is picked uniformly from the candidates that lead to a
frame, a kind of move independently of it, and the reverse is found in as many ways. Whether a link
that is added has a turn is chosen with fixed probabilities. Dividing the weight of each link by the
probability of its choice makes up for it, except for the picked link where it is only added or only
removed: either way it was picked.
"""

import numpy as np

from permvi._compiled import compiled
from permvi.inference.tracks.filters import (
    State,
    meet,
    observe,
    predict,
    update_head,
    update_tail,
)

# Room for a mean and a covariance, twice.
_Room = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
# Points, times, motion, filters, room, and whether links have a turn.
_Where = tuple[np.ndarray, np.ndarray, np.ndarray, State, _Room, np.ndarray]
# How often links with a turn are chosen.
_TURNS = 0.15
_LOG_TURN, _LOG_NO_TURN = float(np.log(_TURNS)), float(np.log(1.0 - _TURNS))


@compiled()
def _choose(e: int, kinds: int, rng: np.random.Generator) -> int:
    """Choose between a link without a turn and the same with one."""
    return e + 1 if kinds > 1 and rng.random() < _TURNS else e


@compiled()
def _find(
    starts: np.ndarray, cands: np.ndarray, j: int, i: int, kinds: int, rng: np.random.Generator
) -> int:
    """The number of a candidate link from j to i; -1 if there is none."""
    for e in range(starts[i], starts[i + 1], kinds):
        if cands[e] == j:
            return _choose(e, kinds, rng)
    return -1


@compiled()
def _join(e: int, j: int, i: int, scores: np.ndarray, moving: int, where: _Where) -> float:
    """The gain of link e from j to i."""
    points, time, motion, state, room, turn = where
    if not moving or turn[e]:
        return scores[e]
    mean, cov = room[0], room[1]
    predict(j, i, state[0][j], state[1][j], points, time, motion, mean, cov)
    met = meet(mean, cov, state[2][i], state[3][i], state[4][i])
    return scores[e] + met - state[5][i]


@compiled()
def _thread(
    a: int, i: int, c: int, ea: int, ec: int, scores: np.ndarray, moving: int, where: _Where
) -> float:
    """The gain of point i between the head of a and the tail of c, where they are not -1."""
    total = 0.0
    if not moving:
        if a >= 0:
            total += scores[ea]
        if c >= 0:
            total += scores[ec]
        return total
    points, time, motion, state, room, turn = where
    mean, cov, next_mean, next_cov = room
    if a >= 0 and not turn[ea]:
        predict(a, i, state[0][a], state[1][a], points, time, motion, mean, cov)
        total += scores[ea] + observe(mean, cov, motion[3])
    else:
        if a >= 0:
            total += scores[ea]
        mean[:] = 0.0
        cov[0], cov[1], cov[2] = motion[3], 0.0, motion[2]
    if c >= 0 and turn[ec]:
        total += scores[ec]
    elif c >= 0:
        predict(i, c, mean, cov, points, time, motion, next_mean, next_cov)
        met = meet(next_mean, next_cov, state[2][c], state[3][c], state[4][c])
        total += scores[ec] + met - state[5][c]
    return total


@compiled()
def _accept(gain: float, heat: float, rng: np.random.Generator) -> bool:
    return gain >= 0.0 or (gain > -40.0 * heat and np.log(rng.random()) * heat < gain)


@compiled()
def _node(i: int, before: int, after: int, ends: np.ndarray) -> float:
    """The log weight of a point with these neighbours, -1 for none: it begins or ends a track."""
    if before >= 0:
        return 0.0 if after >= 0 else ends[1, i]
    return ends[0, i] if after >= 0 else ends[2, i]


@compiled()
def _link(
    i: int,
    e: int,
    j: int,
    step: int,
    pred: np.ndarray,
    succ: np.ndarray,
    edge: np.ndarray,
    since: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Make j (-1 for none) the predecessor of i by link e, and keep account of the time."""
    old = pred[i]
    if old >= 0:
        counts[edge[i]] += step - since[i]
        if succ[old] == i:
            succ[old] = -1
    pred[i], edge[i], since[i] = j, e, step
    if j >= 0:
        succ[j] = i


@compiled()
def _follow(
    ahead: tuple[int, int, int],
    back: tuple[int, int, int],
    pred: np.ndarray,
    succ: np.ndarray,
    edge: np.ndarray,
    where: _Where,
) -> None:
    """Filter heads from ``ahead`` on and tails from ``back`` backwards, each up to a turn."""
    points, time, motion, state, _, turn = where
    for i in ahead:
        while i >= 0:
            before = pred[i] if pred[i] >= 0 and not turn[edge[i]] else -1
            update_head(i, before, points, time, motion, state)
            i = succ[i]
            if i >= 0 and turn[edge[i]]:
                break
    for i in back:
        while i >= 0:
            after = succ[i] if succ[i] >= 0 and not turn[edge[succ[i]]] else -1
            update_tail(i, after, points, time, motion, state)
            i = pred[i] if pred[i] >= 0 and not turn[edge[i]] else -1


@compiled()
def run(
    num_rounds: int,
    num_moves: np.ndarray,
    picks: np.ndarray,
    blocks: np.ndarray,
    starts: np.ndarray,
    cands: np.ndarray,
    tails: np.ndarray,
    scores: np.ndarray,
    ends: np.ndarray,
    frame: np.ndarray,
    points: np.ndarray,
    time: np.ndarray,
    moving: int,
    motion: np.ndarray,
    heat: float,
    kinds: int,
    turn: np.ndarray,
    pred: np.ndarray,
    succ: np.ndarray,
    edge: np.ndarray,
    counts: np.ndarray,
    state: State,
    rng: np.random.Generator,
) -> None:
    """Make moves on the association (pred, succ, edge) in place.

    Args:
        num_rounds: How often to go through all frames.
        num_moves: (T,) how many moves to try each time from the links that lead to a frame.
        picks: The candidates that moves begin with: all but those without any rival.
        blocks: (T + 1,) those that lead to frame t are ``picks[blocks[t]:blocks[t + 1]]``.
        starts: (N + 1,) the candidate links to point i are ``starts[i]`` to ``starts[i + 1]``.
        cands: (E,) the earlier point of each candidate.
        tails: (E,) the later point of each candidate.
        scores: (E,) the log weight of a link: for points that walk all of it, else without the
            motion.
        ends: (3, N) log weights of beginning, of ending, and of both or being a false detection.
        frame: (N,) the frame of each point.
        points: (N, d).
        time: (N,).
        moving: 1 if points have a velocity, else 0.
        motion: (4,) variances: of diffusion and of velocity per step, of the first velocity, of
            the noise.
        heat: Log weights are divided by this temperature.
        kinds: 2 if each candidate is there twice, without and with a turn, else 1; ``picks`` has
            those without.
        turn: (E,) whether candidates have a turn.
        pred: (N,) the earlier point that each is linked with, -1 for none.
        succ: (N,) the later point, likewise.
        edge: (N,) the candidate that links a point with its ``pred``.
        counts: (E,) to which is added in how many moves each link was there.
        state: The arrays mean, cov, info, eta, level, fresh.
        rng: A NumPy generator.
    """
    d = points.shape[1]
    room = (np.empty((d, 2)), np.empty(3), np.empty((d, 2)), np.empty(3))
    where = (points, time, motion, state, room, turn)
    if kinds > 1:
        # See the module; a hot chain is to visit weights to the power of 1 / heat.
        scores = scores.copy()
        for e in range(len(scores)):
            scores[e] -= heat * (_LOG_TURN if turn[e] else _LOG_NO_TURN)
    since = np.zeros(len(pred), np.int64)
    total = num_rounds * num_moves.sum()
    block, left = 0, num_moves[0]
    for step in range(total):
        # One frame after the other: what the moves of a frame need is near in memory.
        while left == 0:
            block = (block + 1) % len(num_moves)
            left = num_moves[block]
        left -= 1
        size = blocks[block + 1] - blocks[block]
        e = _choose(picks[blocks[block] + int(rng.random() * size)], kinds, rng)
        picked = heat * (_LOG_TURN if turn[e] else _LOG_NO_TURN) if kinds > 1 else 0.0
        j, i = cands[e], tails[e]
        kind = rng.random()
        a, b = pred[i], succ[j]
        ahead, back = (-1, -1, -1), (-1, -1, -1)
        if kind < 0.55:
            # Link or cut, take over the other's link, or exchange tails.
            if edge[i] == e:
                gain = (
                    -picked
                    + _node(j, pred[j], -1, ends)
                    + _node(i, -1, succ[i], ends)
                    - _node(j, pred[j], 0, ends)
                    - _node(i, 0, succ[i], ends)
                    - _join(e, j, i, scores, moving, where)
                )
                if _accept(gain, heat, rng):
                    _link(i, -1, -1, step, pred, succ, edge, since, counts)
                    ahead, back = (i, -1, -1), (j, -1, -1)
            elif a == j:
                gain = _join(e, j, i, scores, moving, where)
                gain -= _join(edge[i], j, i, scores, moving, where)
                if _accept(gain, heat, rng):
                    _link(i, e, j, step, pred, succ, edge, since, counts)
                    ahead, back = (i, -1, -1), (j, -1, -1)
            else:
                gain = _join(e, j, i, scores, moving, where)
                other = -1
                if a >= 0:
                    gain -= _join(edge[i], a, i, scores, moving, where)
                if b >= 0:
                    gain -= _join(edge[b], j, b, scores, moving, where)
                if a >= 0 and b >= 0:
                    other = _find(starts, cands, a, b, kinds, rng)
                    if other < 0:
                        continue
                    gain += _join(other, a, b, scores, moving, where)
                else:
                    if a < 0 and b < 0:
                        gain += picked
                    if a < 0:
                        after = succ[i]
                        gain += _node(i, 0, after, ends) - _node(i, -1, after, ends)
                    else:
                        before = pred[a]
                        gain += _node(a, before, -1, ends) - _node(a, before, 0, ends)
                    if b < 0:
                        before = pred[j]
                        gain += _node(j, before, 0, ends) - _node(j, before, -1, ends)
                    else:
                        after = succ[b]
                        gain += _node(b, -1, after, ends) - _node(b, 0, after, ends)
                if _accept(gain, heat, rng):
                    if b >= 0:
                        _link(b, -1, -1, step, pred, succ, edge, since, counts)
                    _link(i, e, j, step, pred, succ, edge, since, counts)
                    if other >= 0:
                        _link(b, other, a, step, pred, succ, edge, since, counts)
                    ahead, back = (i, b, -1), (j, a, -1)
        elif kind < 0.7:
            # Take a point out of its track and let it be alone, or the reverse.
            if edge[i] == e and succ[i] >= 0:
                c = succ[i]
                past = _find(starts, cands, j, c, kinds, rng)
                if past < 0:
                    continue
                gain = (
                    _join(past, j, c, scores, moving, where)
                    + _node(i, -1, -1, ends)
                    - picked
                    - _thread(j, i, c, e, edge[c], scores, moving, where)
                )
                if _accept(gain, heat, rng):
                    _link(i, -1, -1, step, pred, succ, edge, since, counts)
                    _link(c, past, j, step, pred, succ, edge, since, counts)
                    ahead, back = (c, i, -1), (j, i, -1)
            elif a < 0 and succ[i] < 0 and b >= 0:
                onward = _find(starts, cands, i, b, kinds, rng)
                if onward < 0:
                    continue
                gain = (
                    _thread(j, i, b, e, onward, scores, moving, where)
                    + picked
                    - _join(edge[b], j, b, scores, moving, where)
                    - _node(i, -1, -1, ends)
                )
                if _accept(gain, heat, rng):
                    _link(b, onward, i, step, pred, succ, edge, since, counts)
                    _link(i, e, j, step, pred, succ, edge, since, counts)
                    ahead, back = (i, -1, -1), (i, -1, -1)
        elif kind < 0.85:
            # Exchange two points of a frame: found from the one before or from the one after.
            if kind < 0.775:
                one, two = b, i
            else:
                one, two = a, j
            if one < 0 or one == two or frame[one] != frame[two]:
                continue
            p1, n1, p2, n2 = pred[one], succ[one], pred[two], succ[two]
            f1 = _find(starts, cands, p1, two, kinds, rng) if p1 >= 0 else -1
            f2 = _find(starts, cands, p2, one, kinds, rng) if p2 >= 0 else -1
            g1 = _find(starts, cands, two, n1, kinds, rng) if n1 >= 0 else -1
            g2 = _find(starts, cands, one, n2, kinds, rng) if n2 >= 0 else -1
            if (p1 >= 0 > f1) or (p2 >= 0 > f2) or (n1 >= 0 > g1) or (n2 >= 0 > g2):
                continue
            e1, e2 = edge[one], edge[two]
            h1 = edge[n1] if n1 >= 0 else -1
            h2 = edge[n2] if n2 >= 0 else -1
            gain = (
                _thread(p1, two, n1, f1, g1, scores, moving, where)
                + _thread(p2, one, n2, f2, g2, scores, moving, where)
                - _thread(p1, one, n1, e1, h1, scores, moving, where)
                - _thread(p2, two, n2, e2, h2, scores, moving, where)
                + _node(two, p1, n1, ends)
                + _node(one, p2, n2, ends)
                - _node(one, p1, n1, ends)
                - _node(two, p2, n2, ends)
            )
            if _accept(gain, heat, rng):
                for after in (n1, n2):
                    if after >= 0:
                        _link(after, -1, -1, step, pred, succ, edge, since, counts)
                _link(one, -1, -1, step, pred, succ, edge, since, counts)
                _link(two, f1, p1, step, pred, succ, edge, since, counts)
                _link(one, f2, p2, step, pred, succ, edge, since, counts)
                if n1 >= 0:
                    _link(n1, g1, two, step, pred, succ, edge, since, counts)
                if n2 >= 0:
                    _link(n2, g2, one, step, pred, succ, edge, since, counts)
                ahead, back = (one, two, -1), (one, two, -1)
        else:
            # Pass tails that begin in the same frame round three tracks.
            if a < 0 or b < 0 or a == j:
                continue
            num = (starts[b + 1] - starts[b]) // kinds
            third = _choose(starts[b] + kinds * int(rng.random() * num), kinds, rng)
            c = cands[third]
            t = succ[c]
            if c in (j, a) or t < 0:
                continue
            last = _find(starts, cands, a, t, kinds, rng)
            if last < 0 or frame[b] != frame[i] or frame[t] != frame[i]:
                continue
            gain = (
                _join(e, j, i, scores, moving, where)
                + _join(third, c, b, scores, moving, where)
                + _join(last, a, t, scores, moving, where)
                - _join(edge[i], a, i, scores, moving, where)
                - _join(edge[b], j, b, scores, moving, where)
                - _join(edge[t], c, t, scores, moving, where)
            )
            if _accept(gain, heat, rng):
                for after in (i, b, t):
                    _link(after, -1, -1, step, pred, succ, edge, since, counts)
                _link(i, e, j, step, pred, succ, edge, since, counts)
                _link(b, third, c, step, pred, succ, edge, since, counts)
                _link(t, last, a, step, pred, succ, edge, since, counts)
                ahead, back = (i, b, t), (j, c, a)
        if moving and ahead[0] >= 0:
            _follow(ahead, back, pred, succ, edge, where)
    for i in range(len(pred)):
        if pred[i] >= 0:
            counts[edge[i]] += total - since[i]
