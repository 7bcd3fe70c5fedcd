"""The result of tracking: tracks with the probabilities of their links."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from permvi._assignment.lists import Pairs, solve_pairs
from permvi.models.scenes import Scene

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# Links less probable than this are never chosen.
_NEVER = 0.01
# Links are chosen anew until the F1 that is expected changes by less than this.
_SAME_F1 = 1e-3


class Track(NamedTuple):
    """A track.

    Attributes:
        track: Its number, from 1.
        points: (frame, row) of its points, both from 0, in the order of time.
        probability: The probability that all of its links are right.
        weakest: The probability of its least probable link; 1 without links.
    """

    track: int
    points: tuple[tuple[int, int], ...]
    probability: float
    weakest: float


@dataclasses.dataclass(frozen=True, eq=False)
class TrackPosterior:
    """Probabilities of all links between N points, and the tracks that follow from them.

    Points are numbered from 0, frame by frame in the order of time; `scene` has their places.

    Attributes:
        scene: The points.
        tails: (E,) the later point of each candidate link.
        cands: (E,) the earlier point.
        p_links: (E,) the probability that the two are one particle seen at these two times and
            not between.
        p_false: (N,) the probability that a point is no particle.
        draws: (S, N) associations: for each point the earlier one it is linked with, -1 for none.
        weights: (S,) their probabilities, or equal shares.
        parameters: The rates and the motion by name, (S,) draws or one value each.
        settings: What was asked for.
        method: "exact" or "mcmc".
        verdict: "trust", "check" or "do not trust".
        reason: Why.
        log_evidence: Log probability density of the points, with the exact method.
        seconds: How long it took.
    """

    scene: Scene
    tails: np.ndarray
    cands: np.ndarray
    p_links: np.ndarray
    p_false: np.ndarray
    draws: np.ndarray
    weights: np.ndarray
    parameters: Mapping[str, np.ndarray]
    settings: Mapping[str, Any]
    method: str
    verdict: Literal["trust", "check", "do not trust"]
    reason: str
    log_evidence: float | None
    seconds: float

    @cached_property
    def p_new(self) -> np.ndarray:
        """(N,) the probability that a point is linked with no earlier one."""
        N = len(self.p_false)
        return np.clip(1.0 - np.bincount(self.tails, self.p_links, minlength=N), 0.0, 1.0)

    @cached_property
    def p_lost(self) -> np.ndarray:
        """(N,) the probability that a point is linked with no later one."""
        N = len(self.p_false)
        return np.clip(1.0 - np.bincount(self.cands, self.p_links, minlength=N), 0.0, 1.0)

    @cached_property
    def previous(self) -> np.ndarray:
        """(N,) the earlier point that each is linked with, -1 for none.

        These links have the largest F1 expected, approximately the share of right links among those
        chosen and those that there are: links count if they are more probable than half of it.
        """
        nothing = np.zeros(len(self.p_false))
        found = nothing.astype(np.int64) - 1
        # Links above one half never share a point, and are most of those chosen.
        chosen, last = self.p_links > 0.5, np.inf
        while True:
            expected = 2 * self.p_links[chosen].sum()
            f1 = float(expected / max(np.count_nonzero(chosen) + self.p_links.sum(), 1.0))
            if abs(f1 - last) < _SAME_F1:
                return found
            last = f1
            kept = np.flatnonzero(self.p_links > max(0.5 * f1, _NEVER))
            shares = self.tails[kept], self.cands[kept], self.p_links[kept]
            found = solve_pairs(Pairs(*shares, nothing + 0.5 * f1, nothing)).perm
            chosen = self.cands == found[self.tails]

    @cached_property
    def p_previous(self) -> np.ndarray:
        """(N,) the probability of `previous`, or of being new."""
        found = self.p_new.copy()
        chosen = np.flatnonzero(self.cands == self.previous[self.tails])
        found[self.tails[chosen]] = self.p_links[chosen]
        return found

    @cached_property
    def track_of(self) -> np.ndarray:
        """(N,) the number of each point's track, from 1; 0 for points that are likely false."""
        alone = self.previous < 0
        alone[self.previous[self.previous >= 0]] = False
        false = alone & (self.p_false > 0.5)
        number = np.zeros(len(self.p_false), np.int64)
        begin = (self.previous < 0) & ~false
        number[begin] = 1 + np.arange(np.count_nonzero(begin))
        for i in np.flatnonzero(self.previous >= 0):
            number[i] = number[self.previous[i]]
        return number

    @cached_property
    def tracks(self) -> tuple[Track, ...]:
        """All tracks by number, without points that are likely false."""
        members: dict[int, list[int]] = {}
        for i in np.flatnonzero(self.track_of > 0):
            members.setdefault(int(self.track_of[i]), []).append(int(i))
        return tuple(self._track(number, points) for number, points in members.items())

    def _track(self, number: int, points: list[int]) -> Track:
        links = points[1:]
        right = self.draws[:, links] == self.previous[links]
        probability = float(self.weights @ right.all(axis=1)) if links else 1.0
        weakest = float(self.p_previous[links].min()) if links else 1.0
        return Track(number, tuple(map(self.place, points)), min(probability, weakest), weakest)

    def place(self, point: int) -> tuple[int, int]:
        """The frame of a point and its number in that frame, both from 0."""
        frame = int(self.scene.frame[point])
        return frame, int(point - self.scene.starts[frame])

    def point(self, frame: Any, name: Any) -> int:
        """The number of a point that is given by the names of its frame and its own."""
        names = self.scene.names
        if str(frame) not in names:
            raise ValueError(f"frame must be the name of a frame, got {frame!r:.60}.")
        first, last = self.scene.starts[names.index(str(frame)) :][:2]
        own = self.scene.ids[first:last]
        if str(name) not in own:
            raise ValueError(f"name must be a point of frame {frame}, got {name!r:.60}.")
        return int(first + own.index(str(name)))

    @cached_property
    def _roots(self) -> np.ndarray:
        """(S, N) the first point of the track of each point in each draw."""
        roots = np.broadcast_to(np.arange(self.draws.shape[1], dtype=np.int32), self.draws.shape)
        roots = roots.copy()
        for a, b in zip(self.scene.starts, self.scene.starts[1:], strict=False):
            earlier = self.draws[:, a:b]
            linked = np.take_along_axis(roots, np.maximum(earlier, 0), axis=1)
            roots[:, a:b] = np.where(earlier >= 0, linked, roots[:, a:b])
        return roots

    def p_same(self, a: int, b: int) -> float:
        """The probability that two points, by number, are the same particle."""
        for name, value in (("a", a), ("b", b)):
            if not 0 <= value < self.draws.shape[1]:
                raise ValueError(
                    f"{name} must be a point from 0 to {self.draws.shape[1] - 1}, got {value}."
                )
        return float(self.weights @ (self._roots[:, a] == self._roots[:, b]))

    @property
    def expected_switches(self) -> float:
        """The expected number of chosen links that are wrong."""
        return float((1.0 - self.p_previous[self.previous >= 0]).sum())

    def summary(self) -> dict[str, tuple[float, float]]:
        """The mean and standard deviation of each parameter."""
        return {
            name: (float(values.mean()), float(values.std()))
            for name, values in self.parameters.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per point, frame by frame.

        It has the point's frame, id and coordinates; the number of its track as ``track``, and as
        ``particle`` less one, with None for a point that is likely false; the frame and id of the
        point that it is linked with, None for a new one, and the probability of that; the most
        probable other choice; and the probabilities of being new, lost and false.
        """
        scene, rows = self.scene, []
        places = [(scene.names[t], name) for t, name in zip(scene.frame, scene.ids, strict=True)]
        rivals, p_rivals = self._runners_up
        for i, (frame, name) in enumerate(places):
            number, before, rival = int(self.track_of[i]), int(self.previous[i]), int(rivals[i])
            rows.append(
                {
                    "frame": frame,
                    "id": name,
                    **dict(zip(scene.axes, scene.points[i].tolist(), strict=True)),
                    "particle": number - 1 if number else None,
                    "track": number or None,
                    "previous_frame": places[before][0] if before >= 0 else None,
                    "previous": places[before][1] if before >= 0 else None,
                    "probability": float(self.p_previous[i]),
                    "runner_up_frame": places[rival][0] if rival >= 0 else None,
                    "runner_up": places[rival][1] if rival >= 0 else None,
                    "runner_up_probability": float(p_rivals[i]),
                    "p_new": float(self.p_new[i]),
                    "p_lost": float(self.p_lost[i]),
                    "p_false": float(self.p_false[i]),
                }
            )
        return rows

    @cached_property
    def _runners_up(self) -> tuple[np.ndarray, np.ndarray]:
        """(N,) the most probable other choice of each point, -1 for being new; its probability."""
        others = np.flatnonzero(self.cands != self.previous[self.tails])
        order = others[np.lexsort((self.p_links[others], self.tails[others]))]
        rival = np.full(len(self.p_new), -1)
        chance = np.where(self.previous >= 0, self.p_new, 0.0)
        best = np.zeros(len(self.p_new))
        # The most probable comes last and stays.
        best[self.tails[order]] = self.p_links[order]
        linked = best > chance
        last = np.full(len(self.p_new), -1)
        last[self.tails[order]] = self.cands[order]
        rival[linked] = last[linked]
        return rival, np.maximum(best, chance)

    def to_frame(self) -> "pd.DataFrame":
        """A pandas DataFrame of `rows`."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_napari(self) -> np.ndarray:
        """(K, 2 + d) rows of track, time and coordinates, the last coordinate first: id, t, y, x.

        Points that are likely false are left out. Rows are in the order of tracks and time, which a
        tracks layer of napari wants.
        """
        scene = self.scene
        kept = np.flatnonzero(self.track_of > 0)
        order = kept[np.lexsort((scene.frame[kept], self.track_of[kept]))]
        time = scene.times[scene.frame[order]]
        return np.column_stack([self.track_of[order], time, scene.points[order][:, ::-1]])

    def doubtful(self) -> Sequence[int]:
        """The points whose link is in doubt, the most doubtful first."""
        later = np.flatnonzero(self.scene.frame > 0)
        order = np.argsort(self.p_previous[later], kind="stable")
        return later[order].tolist()

    def plot(self) -> "Figure":
        """Plot the tracks in two coordinates, or one over time; uncertain links are red."""
        from permvi.report.tracks import draw

        return draw(self)

    def report(self, path: Any, *, title: str | None = None) -> Any:
        """Write an HTML report of all frames; return its path."""
        from permvi.report.tracks import write

        return write(self, path, title=title)
