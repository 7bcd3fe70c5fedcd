"""`track`: points of all frames linked to tracks, with probabilities."""

import dataclasses
import time as clock_of
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from permvi import _checks
from permvi.inference.tracks import candidates, chain, velocity
from permvi.inference.tracks.chain import Association, Motion, Parameters, Problem, Start
from permvi.inference.tracks.rates import NAMES, Clock, Rates, false_share
from permvi.models.scenes import Scene, as_scene
from permvi.posterior.tracks import TrackPosterior

MOTIONS = ("auto", "walk", "velocity")
WALLS = ("auto", "box", "none")
DEFAULT_MEMORY = 2
# What all rates are first taken to be, as shares of the mean number of points in a frame or as
# probabilities.
_FIRST_SHARES = {"first": 0.95, "births": 0.02, "false": 0.05}
_FIRST_CHANCES = {"deaths": 0.01, "missed": 0.05}
# While the step is not known, links are sought as if it was this many times larger.
_SLACK = 1.15
# Rounds of the best association and the parameters that suit it, before the first draw.
_NUM_ROUNDS = 3
_NUM_CHAINS = 2
# The fewest moves and draws that can be asked for.
_LEAST = 20
# Draws of each chain: with parameters to infer, at least and at most for this many points in all,
# and with all of them given. As a share of them come those before that are not kept, for a random
# walk and for particles with a velocity, whose first association is a poorer one.
_NUM_DRAWS, _MOST_DRAWS, _DRAWN_POINTS, _FIXED_DRAWS = 80, 500, 5_000_000, 3000
_WARM_UP = 0.4, 0.8
# Moves in all chains together: for each candidate link of a walk or with a velocity, at least, and
# at most.
_MOVES_PER_LINK, _LEAST_MOVES, _MOST_MOVES = (800, 300), 600_000, 80_000_000
# Moves of particles with a velocity take this many times longer in large scenes, of so many points,
# so that there are at most as many times fewer.
_COST_OF_VELOCITY, _LARGE_SCENE = 6, 40_000
# A chain begins its warm-up at this temperature.
_HEAT = 3.0
# Links without rivals are left alone if they are this many nats better than no link.
_CERTAIN = 9.0
# The mean difference between the link probabilities of two chains, over the links chosen.
_TRUSTED, _CHECKED = 0.03, 0.08

Progress = Callable[[str, int, int], None]


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total


def track(
    frames: Any,
    sd: Any = None,
    *,
    motion: str = "auto",
    walls: str = "auto",
    memory: int = DEFAULT_MEMORY,
    first: float | None = None,
    births: float | None = None,
    deaths: float | None = None,
    missed: float | None = None,
    false: float | None = None,
    volume: float | None = None,
    times: Sequence[float] | None = None,
    ids: Sequence[Sequence[Any]] | None = None,
    names: Sequence[Any] | None = None,
    axes: Sequence[Any] | None = None,
    frame_col: str | None = None,
    coords: Sequence[str] | None = None,
    seed: int = 0,
    num_moves: int | None = None,
    num_draws: int | None = None,
    progress: Progress = _silent,
) -> TrackPosterior:
    r"""Follow points through frames, all frames together.

    Particles appear, move, are missed in some frames and vanish; some points are false. What is
    inferred is which points are the same particle: links from each point to the next one of its
    particle. The weight of all links is a product over tracks, see `permvi.inference.tracks.rates`;
    the density of a step over a time t of a random walk is normal with variance
    :math:`\sigma^2 t` along each coordinate. With ``motion="velocity"`` particles go on in their
    direction: the velocity is a random walk, and points are seen with noise; now and then a
    particle takes a new direction. They may also be reflected at the walls of a box.

    What is not given is inferred: the step has an inverse gamma prior worth two steps of a size
    that is guessed from all pairs of neighbouring points, the rates have exponential priors, and
    probabilities Beta(1, 9) priors. Associations and parameters are drawn by turns; with all
    parameters given, a few points are solved exactly by enumeration.

    Args:
        frames: A DataFrame with a column of frames and one to three of coordinates, found by their
            names (``frame`` or ``t``; ``x``, ``y``, ``z``), or a sequence of (n, d) arrays, one for
            each frame.
        sd: Standard deviation of a random walk in a unit of time, a number or (d,); inferred by
            default.
        motion: "walk", "velocity", or "auto" for the more probable of the two.
        walls: Whether particles with a velocity are reflected at the sides of the box around all
            points: "box", "none", or "auto" for the more probable of the two.
        memory: In how many frames in a row a particle may be missed.
        first: Mean number of particles seen in the first frame; by default inferred, or the number
            of its points if the other rates are given.
        births: Mean number of particles that appear in a unit of time.
        deaths: Probability of a particle to vanish in a unit of time.
        missed: Probability of a particle to be missed in a frame.
        false: Mean number of false points in a frame.
        volume: The area or volume that points can appear in; by default of the box around them all.
        times: Times of the frames, if they are arrays; 0, 1, ... by default.
        ids: For each frame the names of its points, if they are arrays.
        names: Names of the frames, if they are arrays.
        axes: Names of the coordinates, if they are arrays.
        frame_col: The name of the column of frames of a DataFrame.
        coords: The names of its coordinates.
        seed: Seed; the same seed gives the same result.
        num_moves: Moves of all chains together, by default 800 for each link in doubt, 300 with
            velocities, within limits. An exact answer needs none.
        num_draws: Draws of associations and parameters that each chain keeps.
        progress: Called as ``progress(what, done, total)``.

    Returns:
        The tracks with all probabilities.

    Raises:
        ValueError: The points or an argument are not as described.
        TypeError: An argument has the wrong type.

    Examples:
        >>> import permvi as pv
        >>> frames = [[[0.0], [5.0]], [[5.1], [0.2]], [[0.1], [5.3]]]
        >>> tracks = pv.track(frames, sd=0.3, births=0.1, deaths=0.05, missed=0.05, false=0.1)
        >>> [track.points for track in tracks.tracks]
        [((0, 0), (1, 1), (2, 0)), ((0, 1), (1, 0), (2, 1))]
    """
    began = clock_of.perf_counter()
    _checks.one_of("motion", motion, MOTIONS)
    _checks.one_of("walls", walls, WALLS)
    memory, seed = _checks.whole("memory", memory, 0), _checks.seed(seed)
    for what, value in (("num_moves", num_moves), ("num_draws", num_draws)):
        if value is not None:
            _checks.whole(what, value, _LEAST)
    scene = as_scene(
        frames, times=times, ids=ids, names=names, axes=axes, frame_col=frame_col, coords=coords
    )
    known = _known_rates(
        scene, dict(zip(NAMES, (first, births, deaths, missed, false), strict=True))
    )
    steps = _steps(sd, scene.points.shape[1])
    if steps is not None and motion == "velocity":
        raise ValueError("sd must be left out with motion='velocity', which infers its own.")
    progress("looking for neighbours", 0, 1)
    # A coordinate that is the same for all points says nothing of who is who.
    used = np.flatnonzero(np.ptp(scene.points, axis=0) > 0)
    used = used if len(used) else np.arange(scene.points.shape[1])
    if steps is None:
        unit = candidates.guess_step(scene.points[:, used], scene.frame, scene.times)
    else:
        unit = steps[used]
    points = scene.points[:, used] / unit
    log_volume = float(np.log(np.maximum(np.ptp(points, axis=0), 1.0)).sum())
    if volume is not None:
        log_volume = float(np.log(_checks.positive_number("volume", volume)) - np.log(unit).sum())
    clock = Clock(scene.times, memory, log_volume, len(points) / len(scene.times))
    start = _begin_walk(points, scene.frame, clock, known, known_sd=steps is not None)
    if motion == "velocity" or (motion == "auto" and steps is None):
        progress("looking for velocities", 0, 1)
        box = None if walls == "none" else np.stack([points.min(axis=0), points.max(axis=0)])
        start = velocity.begin(start, box, choose=motion == "auto", sure=walls == "box")
    all_given = len(known) == len(NAMES) and steps is not None
    found = _enumerate(start) if all_given else None
    if found is None:
        found = _sample(start, seed, progress, num_moves, num_draws, fixed=all_given)
    moving = start.parameters.motion.variances is not None
    if moving:
        labels = [*NAMES, *velocity.NAMES, "turns"]
        units = np.append(np.full(len(velocity.NAMES), np.exp(np.log(unit).mean())), 1.0)
    else:
        labels, units = [*NAMES, *(f"sd_{scene.axes[k]}" for k in used)], unit
    values = found.parameters * np.concatenate([np.ones(len(NAMES)), units])
    settings = {"motion": MOTIONS[1 + moving], "memory": memory, "seed": seed, **known}
    if moving:
        settings["walls"] = WALLS[1 if np.isfinite(start.problem.walls).all() else 2]
    if steps is not None:
        settings["sd"] = steps.tolist()
    return TrackPosterior(
        scene=scene,
        tails=start.problem.links.tails,
        cands=start.problem.links.cands,
        p_links=found.shares,
        p_false=found.false,
        draws=found.preds,
        weights=found.weights,
        parameters=dict(zip(labels, values.T, strict=True)),
        settings=settings,
        method=found.method,
        verdict=found.verdict,
        reason=found.reason,
        log_evidence=None
        if found.log_evidence is None
        else found.log_evidence - len(points) * float(np.log(unit).sum()),
        seconds=clock_of.perf_counter() - began,
    )


def _steps(sd: Any, d: int) -> np.ndarray | None:
    """(d,) the steps that were given, None if they are to be inferred."""
    if sd is None or (isinstance(sd, str) and sd == "infer"):
        return None
    array = _checks.real_array("sd", sd)
    if array.shape not in ((), (d,)):
        raise ValueError(f"sd must be a number or have shape ({d},), got shape {array.shape}.")
    if not ((array > 0) & (array < np.inf)).all():
        raise ValueError(f"sd must be positive and finite, got {sd}.")
    return np.broadcast_to(array, (d,)).copy()


def _known_rates(scene: Scene, given: Mapping[str, float | None]) -> dict[str, float]:
    """The rates that are given, checked."""
    known = {name: value for name, value in given.items() if value is not None}
    for name, value in known.items():
        chance = name in ("deaths", "missed")
        if not isinstance(value, int | float | np.number) or not 0 <= value < (
            1 if chance else np.inf
        ):
            expected = "a probability from 0 to below 1" if chance else "a number of at least 0"
            raise ValueError(f"{name} must be {expected}, got {value!r:.60}.")
    if len(known) == len(NAMES) - 1 and "first" not in known:
        known["first"] = float(np.count_nonzero(scene.frame == 0))
    return {name: float(value) for name, value in known.items()}


def _begin_walk(
    points: np.ndarray, frame: np.ndarray, clock: Clock, known: dict[str, float], *, known_sd: bool
) -> Start:
    """Find candidate links of a random walk, and the best association with its parameters."""
    guess = {name: share * clock.mean_size for name, share in _FIRST_SHARES.items()}
    rates = Rates(**{**guess, **_FIRST_CHANCES, **known})
    motion = Motion(np.ones(points.shape[1]))
    slack = 1.0 if known_sd else _SLACK
    nowhere = chain.no_walls(points.shape[1])
    for _ in range(_NUM_ROUNDS):
        now = Parameters(rates, motion)
        links = candidates.near_links(points, frame, clock, rates, slack * motion.sd)
        problem = Problem(points, frame, clock, links, known, known_sd, nowhere)
        best = candidates.best_association(links, problem.scores(now), problem.ends(now))
        association = Association(problem, best.pred)
        if len(known) < len(NAMES):
            # The best links are shorter than most, so that the step stays as it was guessed.
            rates = chain.draw_parameters(association, now, None).rates
    if len(links.tails) > candidates.MAX_EXACT_LINKS:
        problem = dataclasses.replace(problem, links=links.take(candidates.hopeful(best)))
    return Start(Association(problem, best.pred), Parameters(rates, motion))


class _Found(NamedTuple):
    """What enumeration or the chains found; see `TrackPosterior`."""

    shares: np.ndarray
    false: np.ndarray
    preds: np.ndarray
    weights: np.ndarray
    parameters: np.ndarray
    method: str
    verdict: Literal["trust", "check", "do not trust"]
    reason: str
    log_evidence: float | None


def _enumerate(start: Start) -> _Found | None:
    """Weigh all associations, if there are few enough."""
    problem, parameters = start.problem, start.parameters
    links, N = problem.links, len(problem.points)
    preds = candidates.all_associations(links.starts(N), links.cands)
    if preds is None:
        return None
    ends, scores = problem.ends(parameters), problem.scores(parameters)
    first = preds < 0
    last = np.ones_like(first)
    rows, later = np.nonzero(~first)
    last[rows, preds[rows, later]] = False
    node = np.where(first, np.where(last, ends[2], ends[0]), np.where(last, ends[1], 0.0))
    log_weights = node.sum(axis=1)
    there = preds[:, links.tails] == links.cands
    log_weights += there @ scores
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    total = weights.sum()
    weights /= total
    false = ((first & last) * weights[:, None]).sum(axis=0) * false_share(ends)
    values = np.array([[*parameters.rates, *parameters.motion.sd]])
    evidence = float(top + np.log(total))
    reason = f"computed exactly from {len(preds):,} associations"
    return _Found(
        weights @ there, false, preds, weights, values, "exact", "trust", reason, evidence
    )


def _sample(
    start: Start,
    seed: int,
    progress: Progress,
    num_moves: int | None,
    num_draws: int | None,
    *,
    fixed: bool,
) -> _Found:
    """Run chains from the best association."""
    problem, parameters = start.problem, start.parameters
    picks = chain.rivals(problem, problem.scores(parameters), problem.ends(parameters), _CERTAIN)
    moving = parameters.motion.variances is not None
    if moving:
        picks = np.arange(len(problem.links.tails))
    large = len(problem.points) / _LARGE_SCENE
    cost = min(max(1.0, large * _COST_OF_VELOCITY), _COST_OF_VELOCITY) if moving else 1.0
    most_moves = int(_MOST_MOVES / cost)
    wanted = max(_MOVES_PER_LINK[moving] * len(picks), _LEAST_MOVES)
    total = num_moves or min(wanted, most_moves)
    # There is a move for each link before each draw, if so many moves can be made.
    warm_up = _WARM_UP[moving]
    rounds = int(total / max(len(picks), 1) / _NUM_CHAINS / (1.0 + warm_up))
    most = _FIXED_DRAWS if fixed else _MOST_DRAWS
    if num_draws is None:
        wanted = min(rounds, _DRAWN_POINTS // len(problem.points))
        num_draws = int(np.clip(wanted, _NUM_DRAWS, most))
    num_warm = int(warm_up * num_draws)
    per_link = total / (max(len(picks), 1) * _NUM_CHAINS * (num_draws + num_warm))
    found = []
    for k, source in enumerate(np.random.SeedSequence(seed).spawn(_NUM_CHAINS)):
        progress("sampling", k, _NUM_CHAINS)
        rng = np.random.default_rng(source)
        association = Association(problem, start.association.pred)
        if parameters.motion.variances is not None:
            association.at_walls(parameters.motion.variances)
        now = Start(association, parameters)
        for num, heat in ((num_warm // 3, _HEAT), (num_warm - num_warm // 3, 1.0)):
            warm = chain.run_chain(now, picks, num, per_link, rng, heat=heat, fixed=fixed)
            now = warm.last
        found.append(chain.run_chain(now, picks, num_draws, per_link, rng, fixed=fixed))
    by_chain = [draws.shares for draws in found]
    shares = np.mean(by_chain, axis=0)
    # Two chains of the same error differ by more than their mean errs.
    apart = 0.5 * np.abs(by_chain[0] - by_chain[1])
    likely = shares > 0.5
    error = float(apart[likely].mean()) if likely.any() else 0.0
    verdict: Literal["trust", "check", "do not trust"]
    verdict = "trust" if error < _TRUSTED else "check" if error < _CHECKED else "do not trust"
    reason = f"two chains agree on the probabilities of links within {error:.2g} on average"
    if verdict != "trust":
        reason += f"; try more moves (num_moves), {total:,} were made"
    preds = np.concatenate([draws.preds for draws in found])
    return _Found(
        shares,
        np.mean([draws.false for draws in found], axis=0),
        preds,
        np.full(len(preds), 1.0 / len(preds)),
        np.concatenate([draws.parameters for draws in found]),
        *("mcmc", verdict, reason, None),
    )
