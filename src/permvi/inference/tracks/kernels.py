"""Compiled moves between associations; importing them imports numba.

An association links every point i with at most one earlier point, its ``pred``, and every point is
the ``pred`` of at most one other. What links are worth is in `gains`.

All moves are symmetric: a link is picked uniformly from the candidates that lead to a frame, a kind
of move independently of it, and the reverse is found in as many ways. The codes of links that are
added are drawn from their distribution given all others, and moves are weighed by sums over codes.
"""

import numpy as np

from permvi._compiled import compiled
from permvi.inference.tracks.filters import TURN, State, update_head, update_tail
from permvi.inference.tracks.gains import Where, draw_join, join, thread

# The share of moves that draw the code of a link anew.
_REDRAWN = 0.05
# The arrays pred, succ, edge and code; since when each link is there, and how long others were.
_Now = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_Account = tuple[np.ndarray, np.ndarray]


@compiled()
def _find(starts: np.ndarray, cands: np.ndarray, j: int, i: int) -> int:
    """The number of the candidate link from j to i; -1 if there is none."""
    for e in range(starts[i], starts[i + 1]):
        if cands[e] == j:
            return e
    return -1


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
def _link(i: int, e: int, j: int, kind: int, step: int, now: _Now, account: _Account) -> None:
    """Make j (-1 for none) the predecessor of i by link e, and keep account of the time."""
    pred, succ, edge, code = now
    since, counts = account
    old = pred[i]
    if old >= 0:
        counts[edge[i]] += step - since[i]
        if succ[old] == i:
            succ[old] = -1
    pred[i], edge[i], since[i], code[i] = j, e, step, kind
    if j >= 0:
        succ[j] = i


@compiled()
def _follow(
    ahead: tuple[int, int, int, int], back: tuple[int, int, int, int], now: _Now, where: Where
) -> None:
    """Filter heads from ``ahead`` on and tails from ``back`` backwards, while they change."""
    pred, succ, _, code = now
    (points, time, motion, walls), state = where[0], where[2]
    for i in ahead:
        while i >= 0:
            before = pred[i] if code[i] != TURN else -1
            if update_head(i, before, code[i], points, time, motion, walls, state)[1]:
                break
            i = succ[i]
            if i >= 0 and code[i] == TURN:
                break
    for i in back:
        while i >= 0:
            c = succ[i]
            after = c if c >= 0 and code[c] != TURN else -1
            if update_tail(i, after, code[max(c, 0)], points, time, motion, walls, state):
                break
            i = pred[i] if code[i] != TURN else -1


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
    turned: np.ndarray,
    ends: np.ndarray,
    frame: np.ndarray,
    points: np.ndarray,
    time: np.ndarray,
    moving: int,
    motion: np.ndarray,
    walls: np.ndarray,
    heat: float,
    pred: np.ndarray,
    succ: np.ndarray,
    edge: np.ndarray,
    code: np.ndarray,
    counts: np.ndarray,
    state: State,
    rng: np.random.Generator,
) -> None:
    """Make moves on the association (pred, succ, edge, code) in place.

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
        turned: (E,) the log weight of a link on which a particle takes a new velocity.
        ends: (3, N) log weights of beginning, of ending, and of both or being a false detection.
        frame: (N,) the frame of each point.
        points: (N, d).
        time: (N,).
        moving: 1 if points have a velocity, else 0.
        motion: (4,) variances: of diffusion and of velocity per step, of the first velocity, of
            the noise.
        walls: (2, d) the lower and upper walls; infinite where there is none.
        heat: Log weights are divided by this temperature.
        pred: (N,) the earlier point that each is linked with, -1 for none.
        succ: (N,) the later point, likewise.
        edge: (N,) the candidate that links a point with its ``pred``.
        code: (N,) what happens on the way, see `filters`; 0 without a ``pred``.
        counts: (E,) to which is added in how many moves each link was there.
        state: The arrays mean, cov, info, eta, fresh.
        rng: A NumPy generator.
    """
    d = points.shape[1]
    room = (np.empty((d, 2)), np.empty(3), np.empty(3), np.empty((d, 9)))
    where = (points, time, motion, walls), (scores, turned), state, room, heat, moving
    since = np.zeros(len(pred), np.int64)
    now, account = (pred, succ, edge, code), (since, counts)
    total = num_rounds * num_moves.sum()
    block, left = 0, num_moves[0]
    # The share of moves that draw a code anew.
    redrawn = _REDRAWN if moving else 0.0
    for step in range(total):
        # One frame after the other: what the moves of a frame need is near in memory.
        while left == 0:
            block = (block + 1) % len(num_moves)
            left = num_moves[block]
        left -= 1
        size = blocks[block + 1] - blocks[block]
        e = picks[blocks[block] + int(rng.random() * size)]
        j, i = cands[e], tails[e]
        kind = rng.random()
        a, b = pred[i], succ[j]
        ahead, back = (-1, -1, -1, -1), (-1, -1, -1, -1)
        if kind < redrawn:
            if a == j:
                code[i] = draw_join(e, j, i, where, rng)
                ahead, back = (i, -1, -1, -1), (j, -1, -1, -1)
        elif kind < 0.55:
            # Link or cut, take over the other's link, or exchange tails.
            if a == j:
                gain = (
                    _node(j, pred[j], -1, ends)
                    + _node(i, -1, succ[i], ends)
                    - _node(j, pred[j], 0, ends)
                    - _node(i, 0, succ[i], ends)
                    - join(e, j, i, where, rng)
                )
                if _accept(gain, heat, rng):
                    _link(i, -1, -1, 0, step, now, account)
                    ahead, back = (i, -1, -1, -1), (j, -1, -1, -1)
            else:
                other = -1
                if a >= 0 and b >= 0:
                    other = _find(starts, cands, a, b)
                    if other < 0:
                        continue
                gain = join(e, j, i, where, rng)
                if a >= 0:
                    gain -= join(edge[i], a, i, where, rng)
                if b >= 0:
                    gain -= join(edge[b], j, b, where, rng)
                if other >= 0:
                    gain += join(other, a, b, where, rng)
                else:
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
                    new = draw_join(e, j, i, where, rng)
                    if b >= 0:
                        _link(b, -1, -1, 0, step, now, account)
                    _link(i, e, j, new, step, now, account)
                    if other >= 0:
                        new = draw_join(other, a, b, where, rng)
                        _link(b, other, a, new, step, now, account)
                    ahead, back = (i, b, -1, -1), (j, a, -1, -1)
        elif kind < 0.7:
            # Take a point out of its track and let it be alone, or the reverse.
            if a == j and succ[i] >= 0:
                c = succ[i]
                past = _find(starts, cands, j, c)
                if past < 0:
                    continue
                gain = (
                    join(past, j, c, where, rng)
                    + _node(i, -1, -1, ends)
                    - thread(j, i, c, e, edge[c], 0, where, rng)[0]
                )
                if _accept(gain, heat, rng):
                    new = draw_join(past, j, c, where, rng)
                    _link(i, -1, -1, 0, step, now, account)
                    _link(c, past, j, new, step, now, account)
                    ahead, back = (c, i, -1, -1), (j, i, -1, -1)
            elif a < 0 and succ[i] < 0 and b >= 0:
                onward = _find(starts, cands, i, b)
                if onward < 0:
                    continue
                gain = (
                    thread(j, i, b, e, onward, 0, where, rng)[0]
                    - join(edge[b], j, b, where, rng)
                    - _node(i, -1, -1, ends)
                )
                if _accept(gain, heat, rng):
                    one, two = thread(j, i, b, e, onward, 1, where, rng)[1:]
                    _link(b, onward, i, two, step, now, account)
                    _link(i, e, j, one, step, now, account)
                    ahead, back = (i, b, -1, -1), (i, j, -1, -1)
        elif kind < 0.85:
            # Exchange two points of a frame: found from the one before or from the one after.
            if kind < 0.775:
                one, two = b, i
            else:
                one, two = a, j
            if one < 0 or one == two or frame[one] != frame[two]:
                continue
            p1, n1, p2, n2 = pred[one], succ[one], pred[two], succ[two]
            f1 = _find(starts, cands, p1, two) if p1 >= 0 else -1
            f2 = _find(starts, cands, p2, one) if p2 >= 0 else -1
            g1 = _find(starts, cands, two, n1) if n1 >= 0 else -1
            g2 = _find(starts, cands, one, n2) if n2 >= 0 else -1
            if (p1 >= 0 > f1) or (p2 >= 0 > f2) or (n1 >= 0 > g1) or (n2 >= 0 > g2):
                continue
            e1, e2 = edge[one], edge[two]
            h1 = edge[n1] if n1 >= 0 else -1
            h2 = edge[n2] if n2 >= 0 else -1
            gain = (
                thread(p1, two, n1, f1, g1, 0, where, rng)[0]
                + thread(p2, one, n2, f2, g2, 0, where, rng)[0]
                - thread(p1, one, n1, e1, h1, 0, where, rng)[0]
                - thread(p2, two, n2, e2, h2, 0, where, rng)[0]
                + _node(two, p1, n1, ends)
                + _node(one, p2, n2, ends)
                - _node(one, p1, n1, ends)
                - _node(two, p2, n2, ends)
            )
            if _accept(gain, heat, rng):
                two_in, one_out = thread(p1, two, n1, f1, g1, 1, where, rng)[1:]
                one_in, two_out = thread(p2, one, n2, f2, g2, 1, where, rng)[1:]
                for after in (n1, n2):
                    if after >= 0:
                        _link(after, -1, -1, 0, step, now, account)
                _link(one, -1, -1, 0, step, now, account)
                _link(two, f1, p1, two_in, step, now, account)
                _link(one, f2, p2, one_in, step, now, account)
                if n1 >= 0:
                    _link(n1, g1, two, one_out, step, now, account)
                if n2 >= 0:
                    _link(n2, g2, one, two_out, step, now, account)
                ahead, back = (one, two, n1, n2), (one, two, p1, p2)
        else:
            # Pass tails that begin in the same frame round three tracks.
            if a < 0 or b < 0 or a == j:
                continue
            num = starts[b + 1] - starts[b]
            third = starts[b] + int(rng.random() * num)
            c = cands[third]
            t = succ[c]
            if c in (j, a) or t < 0:
                continue
            last = _find(starts, cands, a, t)
            if last < 0 or frame[b] != frame[i] or frame[t] != frame[i]:
                continue
            gain = (
                join(e, j, i, where, rng)
                + join(third, c, b, where, rng)
                + join(last, a, t, where, rng)
                - join(edge[i], a, i, where, rng)
                - join(edge[b], j, b, where, rng)
                - join(edge[t], c, t, where, rng)
            )
            if _accept(gain, heat, rng):
                to_i = draw_join(e, j, i, where, rng)
                to_b = draw_join(third, c, b, where, rng)
                to_t = draw_join(last, a, t, where, rng)
                for after in (i, b, t):
                    _link(after, -1, -1, 0, step, now, account)
                _link(i, e, j, to_i, step, now, account)
                _link(b, third, c, to_b, step, now, account)
                _link(t, last, a, to_t, step, now, account)
                ahead, back = (i, b, t, -1), (j, c, a, -1)
        if moving and ahead[0] >= 0:
            _follow(ahead, back, now, where)
    for i in range(len(pred)):
        if pred[i] >= 0:
            counts[edge[i]] += total - since[i]
