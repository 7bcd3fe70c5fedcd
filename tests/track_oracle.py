"""Tracking by brute force: every partition of the points into tracks.

A point by itself is a track of one point or a false point.
"""

import itertools

import numpy as np
from scipy.stats import norm


def walk(step_sd, points, times):
    """The log density of the steps of a random walk through these points."""
    return sum(
        norm(0, np.asarray(step_sd) * np.sqrt(b - a)).logpdf(y - x).sum()
        for (a, x), (b, y) in itertools.pairwise(zip(times, points, strict=True))
    )


def moving(variances, points, times):
    """The log density of noisy points of an integrated random walk, its start being uniform."""
    diffusion, turning, speed, noise = variances
    s = np.asarray(times) - times[0]
    low, high = np.minimum.outer(s, s), np.maximum.outer(s, s)
    cov = diffusion * low + turning * low**2 * (3 * high - low) / 6 + speed * np.outer(s, s)
    inverse = np.linalg.inv(cov + noise * np.eye(len(s)))
    _, log_det = np.linalg.slogdet(inverse)
    total, one = 0.0, np.ones(len(s))
    for y in np.transpose(points):
        a, b = one @ inverse @ one, one @ inverse @ y
        total += 0.5 * (log_det - len(s) * np.log(2 * np.pi) - y @ inverse @ y)
        total += 0.5 * (b**2 / a + np.log(2 * np.pi / a))
    return total


def turning(variances, share, points, times):
    """The same, if a particle takes a new velocity on a share of its links: all ways to do so."""
    diffusion, change, speed, noise = variances
    total = []
    for turns in itertools.product([False, True], repeat=len(points) - 1):
        ends = [0, *(k + 1 for k, turn in enumerate(turns) if turn), len(points)]
        value = sum(moving(variances, points[a:b], times[a:b]) for a, b in itertools.pairwise(ends))
        for k, turn in enumerate(turns):
            t = times[k + 1] - times[k]
            sd = np.sqrt(diffusion * t + change * t**3 / 3 + speed * t**2 + 2 * noise)
            step = np.subtract(points[k + 1], points[k])
            value += np.log(share) + norm(0, sd).logpdf(step).sum() if turn else np.log1p(-share)
        total.append(value)
    return np.logaddexp.reduce(total)


def walled(variances, share, walls, points, times):
    """The same between two walls across each coordinate: all images of all points after the first.

    After a turn the velocity is a new one, so that what is behind no longer matters, and the step
    of the turn itself has no image.
    """
    diffusion, change, speed, noise = variances
    d, steps = len(points[0]), len(points) - 1

    def smooth(points, times):
        # Reflections add up: each point is seen in the room that the ones before led to.
        total = 0.0
        for k in range(d):
            y = [point[k] for point in points]
            there = [0, *(1 + side for side in (0, 1) if np.isfinite(walls[side][k]))]
            terms = []
            for codes in itertools.product(there, repeat=len(y) - 1):
                sign, shift, places = 1.0, 0.0, [y[0]]
                for code, value in zip(codes, y[1:], strict=True):
                    # The map from this room to the first one: place -> sign * place + shift.
                    if code:
                        shift, sign = shift + 2 * sign * walls[code - 1][k], -sign
                    places.append(sign * value + shift)
                terms.append(moving(variances, [[place] for place in places], times))
            total += np.logaddexp.reduce(terms)
        return total

    total = []
    for turns in itertools.product([False, True], repeat=steps):
        ends = [0, *(k + 1 for k, turn in enumerate(turns) if turn), len(points)]
        value = sum(smooth(points[a:b], times[a:b]) for a, b in itertools.pairwise(ends))
        for k, turn in enumerate(turns):
            t = times[k + 1] - times[k]
            sd = np.sqrt(diffusion * t + change * t**3 / 3 + speed * t**2 + 2 * noise)
            step = np.subtract(points[k + 1], points[k])
            value += np.log(share) + norm(0, sd).logpdf(step).sum() if turn else np.log1p(-share)
        total.append(value)
    return np.logaddexp.reduce(total)


def enumerate_tracks(frames, times, memory, rates, volume, log_density):
    """Probabilities of links and of pairs, (N,) of false points, and the log evidence."""
    first, births, deaths, missed, false = rates
    points = [(t, np.asarray(p, float)) for t, frame in enumerate(frames) for p in frame]
    N, T = len(points), len(frames)

    def seen(u, v):
        return (1 - deaths) ** (times[v] - times[u]) * missed ** (v - u - 1) * (1 - missed)

    def weight(track):
        at = [points[k][0] for k in track]
        begun = first if at[0] == 0 else births * (times[at[0]] - times[at[0] - 1])
        ended = 1 - sum(seen(at[-1], v) for v in range(at[-1] + 1, min(at[-1] + memory + 2, T)))
        links = np.prod([seen(u, v) for u, v in itertools.pairwise(at)])
        motion = log_density([points[k][1] for k in track], [times[t] for t in at])
        return begun / volume * links * np.exp(motion if len(track) > 1 else 0.0) * ended

    weights = {}
    links, pairs, alone, total = {}, {}, np.zeros(N), 0.0
    stack = [(0, ())]
    while stack:
        k, tracks = stack.pop()
        if k < N:
            stack.append((k + 1, (*tracks, (k,))))
            for n, track in enumerate(tracks):
                if 1 <= points[k][0] - points[track[-1]][0] <= memory + 1:
                    stack.append((k + 1, (*tracks[:n], (*track, k), *tracks[n + 1 :])))
            continue
        w = 1.0
        for track in tracks:
            if track not in weights:
                own = weight(track)
                weights[track] = own + (false / volume if len(track) == 1 else 0.0)
            w *= weights[track]
        total += w
        for track in tracks:
            if len(track) == 1:
                alone[track[0]] += w * false / volume / weights[track]
            for pair in itertools.pairwise(track):
                links[pair] = links.get(pair, 0.0) + w
            for pair in itertools.combinations(track, 2):
                pairs[pair] = pairs.get(pair, 0.0) + w
    share = {pair: w / total for pair, w in links.items()}, {p: w / total for p, w in pairs.items()}
    return *share, alone / total, np.log(total)
