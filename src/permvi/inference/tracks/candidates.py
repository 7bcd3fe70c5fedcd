"""Which points may be linked: near enough for their motion, and not hopeless beside the best."""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from permvi._assignment.lists import Pairs, solve_pairs
from permvi._compiled import compiled
from permvi.inference.tracks.rates import Clock, Rates, end_weights, log_seen

# A link is left out if it is this many nats less probable than its two ends without it.
_GATE = 7.0
# And if the best association with it is this many nats less probable than the best of all.
_HOPELESS = 8.0
# The latter only if there are more links than this, since few are solved exactly.
MAX_EXACT_LINKS = 200
# The first guess of the step looks at pairs up to this many times the typical distance of
# neighbours, in about this many points.
_WINDOW = 3.0
_MAX_SOURCES = 3_000
_NUM_EM = 40
# More associations than this are not listed one by one.
MAX_ASSOCIATIONS = 200_000


class Links(NamedTuple):
    """Candidate links between N points, sorted by the later point.

    Attributes:
        tails: (E,) the later point of each.
        cands: (E,) the earlier point.
        span: (E,) the time between them.
        square: (E, d) the squares of the steps along the coordinates.
    """

    tails: np.ndarray
    cands: np.ndarray
    span: np.ndarray
    square: np.ndarray

    @property
    def moved(self) -> np.ndarray:
        """(E,) the squared lengths of the steps."""
        return self.square.sum(axis=1)

    def starts(self, num_points: int) -> np.ndarray:
        """(N + 1,) where the links to each point begin."""
        return np.searchsorted(self.tails, np.arange(num_points + 1))

    def take(self, chosen: np.ndarray) -> "Links":
        """Keep some of the links, in their order."""
        return Links(*(part[chosen] for part in self))


def make_links(tails: np.ndarray, cands: np.ndarray, points: np.ndarray, time: np.ndarray) -> Links:
    """Sort links, drop repeated ones, and measure their steps."""
    keys = np.sort(tails.astype(np.int64) * len(points) + cands)
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    tails, cands = keys // len(points), keys % len(points)
    square = (points[tails] - points[cands]) ** 2
    return Links(tails, cands, time[tails] - time[cands], square)


def log_steps(links: Links, sd: np.ndarray) -> np.ndarray:
    """(E,) log densities of the steps of a random walk with (d,) standard deviations per step."""
    variance = sd**2
    d = len(sd)
    constant = -0.5 * (d * np.log(2.0 * np.pi) + np.log(variance).sum())
    return (
        constant - 0.5 * d * np.log(links.span) - 0.5 * (links.square @ (1 / variance)) / links.span
    )


def log_links(links: Links, frame: np.ndarray, clock: Clock, rates: Rates) -> np.ndarray:
    """(E,) log probabilities that a particle is seen next where each link says."""
    seen = log_seen(clock, rates.deaths, rates.missed)
    before = frame[links.cands]
    return seen[before, frame[links.tails] - before - 1]


def near_links(
    points: np.ndarray,
    frame: np.ndarray,
    clock: Clock,
    rates: Rates,
    sd: np.ndarray,
) -> Links:
    """The links of a random walk that are not much less probable than their ends without them.

    If there are few, all links are returned. Without a link, its ends begin and end tracks. So a
    link is at most as probable as its weight is larger than those two weights.
    """
    T, d = len(clock.times), points.shape[1]
    firsts = np.searchsorted(frame, np.arange(T + 1))
    scaled = points / sd
    trees = [KDTree(scaled[a:b]) if b > a else None for a, b in itertools.pairwise(firsts)]
    ends = end_weights(clock, rates, np.arange(T))
    seen = log_seen(clock, rates.deaths, rates.missed)
    sizes = np.diff(firsts)
    few = sum(sizes[g:] @ sizes[:-g] for g in range(1, clock.memory + 2)) <= MAX_EXACT_LINKS
    tails, cands = [], []
    volume = 0.5 * d * np.log(2.0 * np.pi) + np.log(sd).sum()
    for u in range(T - 1):
        for v in range(u + 1, min(u + clock.memory + 2, T)):
            before, after = trees[u], trees[v]
            span = clock.times[v] - clock.times[u]
            free = seen[u, v - u - 1] - volume - 0.5 * d * np.log(span) - ends[0, v] - ends[1, u]
            reach = np.inf if few else 2.0 * span * (free + _GATE)
            if (
                before is None
                or after is None
                or not reach > 0
                or not np.isfinite(seen[u, v - u - 1])
            ):
                continue
            found = before.sparse_distance_matrix(after, np.sqrt(reach), output_type="ndarray")
            tails.append(firsts[v] + found["j"])
            cands.append(firsts[u] + found["i"])
    none = np.zeros(0, np.int64)
    return make_links(
        np.concatenate([none, *tails]), np.concatenate([none, *cands]), points, clock.times[frame]
    )


class Best(NamedTuple):
    """The most probable association of a random walk.

    Attributes:
        pred: (N,) the earlier point that each is linked with, -1 for none.
        succ: (N,) the later point.
        gaps: (E,) by how many nats the best association with a link is worse, at least.
        log_weight: Its log weight.
    """

    pred: np.ndarray
    succ: np.ndarray
    gaps: np.ndarray
    log_weight: float


def best_association(links: Links, scores: np.ndarray, ends: np.ndarray) -> Best:
    """Find the association of largest weight, as a matching of points with earlier points.

    A point without a partner begins a track, an earlier one without a partner ends one, and a point
    that is its own partner is false or alone.
    """
    N = ends.shape[1]
    own = np.arange(N)
    tails, cands = np.concatenate([links.tails, own]), np.concatenate([links.cands, own])
    weights = np.concatenate([scores, ends[2]])
    order = np.argsort(tails, kind="stable")
    solved = solve_pairs(Pairs(tails[order], cands[order], weights[order], ends[0], ends[1]))
    pred = np.where(solved.perm == own, -1, solved.perm)
    succ = np.full(N, -1)
    later = np.flatnonzero(pred >= 0)
    succ[pred[later]] = later
    gaps = solved.row_prices[links.tails] + solved.col_prices[links.cands] - scores
    total = solved.row_prices.sum() + solved.col_prices.sum()
    return Best(pred, succ, gaps, float(total))


def hopeful(best: Best) -> np.ndarray:
    """The numbers of the links that are worth keeping beside the best association."""
    return np.flatnonzero(best.gaps < _HOPELESS)


def edges_of(links: Links, pred: np.ndarray) -> np.ndarray:
    """(N,) the number of the link of each point with its ``pred``; -1 for none."""
    edge = np.full(len(pred), -1)
    there = np.flatnonzero(links.cands == pred[links.tails])
    edge[links.tails[there]] = there
    return edge


def guess_step(points: np.ndarray, frame: np.ndarray, times: np.ndarray) -> np.ndarray:
    """(d,) a first guess of the standard deviation of a step, before any point is linked.

    The points of the next frame around a point are its own next position, if it is seen, and a
    uniform background of others. Steps and the density of the background are fitted to all these
    displacements by expectation maximisation, which needs no links and works in crowds (Semrau and
    Schmidt, *Particle image correlation spectroscopy*, 2007).
    """
    T, d = len(times), points.shape[1]
    firsts = np.searchsorted(frame, np.arange(T + 1))
    size = np.ptp(points, axis=0)
    size = np.where(size > 0, size, 1.0)
    scaled = points / size
    mean_size = len(points) / T
    window = min(_WINDOW * (1.0 / max(mean_size, 1.0)) ** (1.0 / d), 1.5)
    pairs = np.flatnonzero((np.diff(firsts)[:-1] > 0) & (np.diff(firsts)[1:] > 0))
    if not len(pairs):
        return 0.1 * size
    most = max(2, int(_MAX_SOURCES / max(mean_size, 1.0)))
    chosen = pairs[np.unique(np.linspace(0, len(pairs) - 1, most).astype(int))]
    parts, spans, sources = [], [], 0
    for u in chosen:
        before, after = scaled[firsts[u] : firsts[u + 1]], scaled[firsts[u + 1] : firsts[u + 2]]
        found = KDTree(before).sparse_distance_matrix(KDTree(after), window, output_type="ndarray")
        parts.append(after[found["j"]] - before[found["i"]])
        spans.append(np.full(len(found), times[u + 1] - times[u]))
        sources += len(before)
    square, span = np.concatenate(parts) ** 2, np.concatenate(spans)
    if not len(square):
        return 0.1 * size
    volume = {1: 2.0, 2: np.pi, 3: 4.0 / 3.0 * np.pi}[d] * window**d
    best, answer = -np.inf, np.full(d, 0.1)
    for part in (0.02, 0.07, 0.2, 0.4):
        variance, share, background = np.full(d, (part * window) ** 2), 0.8, mean_size
        for _ in range(_NUM_EM):
            log_step = -0.5 * (
                (square / (variance * span[:, None])).sum(axis=1)
                + np.log(2.0 * np.pi * variance).sum()
                + d * np.log(span)
            )
            own = share * np.exp(log_step)
            weight = own / (own + background)
            value = float(np.log(own + background).sum()) - sources * (share + background * volume)
            total = weight.sum() + 1e-12
            variance = (weight[:, None] * square / span[:, None]).sum(axis=0) / total
            variance = np.maximum(variance, (1e-5 * window) ** 2)
            share = min(total / sources, 1.0)
            background = max((len(square) - total) / (sources * volume), 1e-9)
        if value > best:
            best, answer = value, np.sqrt(variance)
    return answer * size


@compiled()
def _list(starts: np.ndarray, cands: np.ndarray, most: int) -> tuple[np.ndarray, int, bool]:
    """(A, N) the predecessors of all associations, and whether there are at most ``most``."""
    N = len(starts) - 1
    found = np.empty((most, N), np.int32)
    # The choice of each point: its candidates in turn, then none.
    choice, pred = starts[:-1].copy(), np.full(N, -1, np.int32)
    used = np.zeros(N, np.bool_)
    num, i = 0, 0
    while i >= 0:
        if i == N:
            if num == most:
                return found, num, False
            found[num] = pred
            num += 1
            i -= 1
            continue
        if pred[i] >= 0:
            used[pred[i]] = False
            pred[i] = -1
        while choice[i] < starts[i + 1] and used[cands[choice[i]]]:
            choice[i] += 1
        if choice[i] < starts[i + 1]:
            pred[i] = cands[choice[i]]
            used[pred[i]] = True
            choice[i] += 1
            i += 1
        elif choice[i] == starts[i + 1]:
            choice[i] += 1
            i += 1
        else:
            choice[i] = starts[i]
            i -= 1
    return found, num, True


def all_associations(starts: np.ndarray, cands: np.ndarray) -> np.ndarray | None:
    """(A, N) the predecessor of each point, -1 for none, in each association; None if too many."""
    sizes = np.diff(starts)
    # Points can choose independently of each other but for what is used: an upper bound is enough
    # for nearly all problems that are far too large.
    if np.log1p(sizes).sum() > 4.0 * np.log(MAX_ASSOCIATIONS):
        return None
    found, num, complete = _list(starts, cands, MAX_ASSOCIATIONS)
    return found[:num] if complete else None
