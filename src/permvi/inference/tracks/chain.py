"""A chain of associations and parameters, by turns (Oh, Russell and Sastry, 2009)."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from permvi.inference.tracks.candidates import Links, edges_of, log_links, log_steps
from permvi.inference.tracks.rates import Clock, Rates, count, draw, end_weights, false_share

# The prior of the variance of a step along a coordinate is worth this many steps of the size first
# guessed.
_PRIOR_STEPS = 2.0
# Metropolis steps for the motion each time, their size in log variances, and the standard deviation
# of the prior of these about the first values.
_MOTION_STEPS = 2
_MOTION_SIZE = 0.15
_MOTION_PRIOR = 3.0
# The prior of the share of links with a turn is Beta(1, this).
_AGAINST_TURNS = 19.0


class Motion(NamedTuple):
    """How particles move, in units in which a step is of size one.

    Attributes:
        sd: (d,) standard deviations of the steps of a random walk.
        variances: (4,) those of particles with a velocity: of diffusion and of the change of
            velocity in a step, of the first velocity, and of the noise; None for a random walk.
        turns: The probability that a particle with a velocity takes a new one between two points,
            e.g. at a wall. Its step is then normal with the variance `spread`.
    """

    sd: np.ndarray
    variances: np.ndarray | None = None
    turns: float = 0.0


def spread(variances: np.ndarray, span: Any) -> Any:
    """The variance of a step over some time whose velocity is not known."""
    diffusion, turning, speed, noise = variances
    return diffusion * span + turning * span**3 / 3 + speed * span**2 + 2 * noise


def log_turns(links: Links, variances: np.ndarray) -> np.ndarray:
    """(E,) log densities of the steps of links, if the particles turn on the way."""
    total = spread(variances, links.span)
    d = links.square.shape[1]
    return -0.5 * (d * np.log(2.0 * np.pi * total) + links.moved / total)


class Parameters(NamedTuple):
    """All that is inferred beside the association."""

    rates: Rates
    motion: Motion


@dataclasses.dataclass(frozen=True)
class Problem:
    """Points with their candidate links.

    Attributes:
        points: (N, d) in units of a step.
        frame: (N,) frames in increasing order.
        clock: Times and memory.
        links: The candidates.
        given: The rates that are known.
        known_sd: Whether the steps of a random walk are.
        walls: (2, d) the lower and upper walls that particles with a velocity meet; infinite where
            there is none.
    """

    points: np.ndarray
    frame: np.ndarray
    clock: Clock
    links: Links
    given: dict[str, float]
    known_sd: bool
    walls: np.ndarray

    @property
    def time(self) -> np.ndarray:
        """(N,) the time of each point."""
        return self.clock.times[self.frame]

    def scores(self, parameters: Parameters) -> np.ndarray:
        """(E,) log weights of links; without those of the motion, if that depends on all."""
        links, motion = self.links, parameters.motion
        found = log_links(links, self.frame, self.clock, parameters.rates)
        if motion.variances is None:
            return found + log_steps(links, motion.sd)
        return found + np.log1p(-motion.turns)

    def turned(self, parameters: Parameters) -> np.ndarray:
        """(E,) log weights of links on which particles take a new velocity."""
        links, motion = self.links, parameters.motion
        if motion.variances is None or not motion.turns:
            return np.full(len(links.tails), -np.inf)
        found = log_links(links, self.frame, self.clock, parameters.rates)
        return found + np.log(motion.turns) + log_turns(links, motion.variances)

    def ends(self, parameters: Parameters) -> np.ndarray:
        """(3, N) log weights of beginning, ending and being alone."""
        return end_weights(self.clock, parameters.rates, self.frame)


def no_walls(d: int) -> np.ndarray:
    """(2, d) walls that are nowhere."""
    return np.repeat([[-np.inf], [np.inf]], d, axis=1)


class Association:
    """An association, with what a compiled move needs to know of it.

    Attributes:
        pred: (N,) the earlier point that each is linked with, -1 for none.
        succ: (N,) the later one.
        edge: (N,) the candidate link with ``pred``.
        code: (N,) what happens on the way from ``pred``, see `filters`; 0 if nothing does.
        state: Filters, for particles with a velocity.
    """

    def __init__(self, problem: Problem, pred: np.ndarray) -> None:
        self.problem = problem
        N, d = problem.points.shape
        self.pred = pred.astype(np.int64)
        self.edge = edges_of(problem.links, self.pred)
        self.pred[self.edge < 0] = -1
        self.succ = np.full(N, -1)
        later = np.flatnonzero(self.pred >= 0)
        self.succ[self.pred[later]] = later
        self.code = np.zeros(N, np.int64)
        self.state = (
            *(np.zeros((N, d, 2)), np.zeros((N, 3)), np.zeros((N, 3)), np.zeros((N, d, 2))),
            np.zeros(N),
        )

    @property
    def turned(self) -> np.ndarray:
        """The points that come after a turn."""
        from permvi.inference.tracks.filters import TURN

        return np.flatnonzero(self.code == TURN)

    def _scene(self, variances: np.ndarray) -> tuple[np.ndarray, ...]:
        problem = self.problem
        return problem.points, problem.time, variances, problem.walls

    def _filter(self, variances: np.ndarray) -> float:
        """Filter the heads of all tracks, which begin anew after a turn; return the likelihood."""
        from permvi.inference.tracks.filters import filter_heads

        return filter_heads(self.pred, self.code, *self._scene(variances), self.state)

    def at_walls(self, variances: np.ndarray) -> "Association":
        """Choose for all points the images that are nearest to where they are expected."""
        from permvi.inference.tracks.filters import nearest_images

        nearest_images(self.pred, *self._scene(variances), self.state, self.code)
        return self

    def log_likelihood(self, variances: np.ndarray) -> float:
        """The log likelihood of all points but the first of each track; filters their heads."""
        turns = self.problem.links.take(self.edge[self.turned])
        return self._filter(variances) + float(log_turns(turns, variances).sum())

    def refresh(self, variances: np.ndarray) -> None:
        """Filter the heads and tails of all tracks."""
        from permvi.inference.tracks.filters import filter_tails

        self._filter(variances)
        filter_tails(self.succ, self.code, *self._scene(variances), self.state)

    def log_weight(self, parameters: Parameters) -> float:
        """The log weight of the association, of what happens on the way, and of the points."""
        ends = self.problem.ends(parameters)
        first, last, turned = self.pred < 0, self.succ < 0, self.turned
        total = ends[0, first & ~last].sum() + ends[1, last & ~first].sum()
        total += ends[2, first & last].sum()
        scores = self.problem.scores(parameters)
        total += scores[self.edge[~first]].sum() - scores[self.edge[turned]].sum()
        if parameters.motion.variances is not None:
            total += self._filter(parameters.motion.variances)
            total += self.problem.turned(parameters)[self.edge[turned]].sum()
        return float(total)


class Start(NamedTuple):
    """An association and its parameters, to begin with."""

    association: Association
    parameters: Parameters

    @property
    def problem(self) -> Problem:
        """The problem of the association."""
        return self.association.problem


def draw_parameters(
    association: Association, now: Parameters, rng: np.random.Generator | None
) -> Parameters:
    """Draw the parameters given an association; without a generator, take likely values.

    Variances of a random walk have inverse gamma posteriors. Those of particles with a velocity
    take Metropolis steps. The share of turns has a beta posterior.
    """
    problem = association.problem
    share = false_share(problem.ends(now))
    if rng is not None:
        share = (rng.random(len(share)) < share).astype(np.float64)
    counts = count(problem.clock, problem.frame, association.pred, association.succ, share)
    rates = draw(problem.clock, counts, now.rates, problem.given, rng)
    motion = now.motion
    if motion.variances is not None:
        if rng is not None:
            motion = motion._replace(variances=_move_motion(association, motion.variances, rng))
            if motion.turns:
                turned = len(association.turned)
                others = np.count_nonzero(association.edge >= 0) - turned
                motion = motion._replace(turns=rng.beta(1.0 + turned, _AGAINST_TURNS + others))
    elif not problem.known_sd:
        used = association.edge[association.edge >= 0]
        links = problem.links
        squares = (links.square[used] / links.span[used, None]).sum(axis=0)
        shape = 0.5 * (len(used) + _PRIOR_STEPS)
        level = 0.5 * (squares + _PRIOR_STEPS)
        scale = shape if rng is None else rng.gamma(shape, size=len(level))
        motion = Motion(np.sqrt(level / scale))
    return Parameters(rates, motion)


def log_prior_motion(variances: np.ndarray) -> float:
    """The log prior density of the logarithms of the variances of motion, up to a constant."""
    return float(-0.5 * (np.log(variances) ** 2).sum() / _MOTION_PRIOR**2)


def _move_motion(
    association: Association, variances: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    now = association.log_likelihood(variances) + log_prior_motion(variances)
    size = _MOTION_SIZE / np.sqrt(1.0 + 0.002 * len(association.pred))
    for _ in range(_MOTION_STEPS):
        other = variances * np.exp(size * rng.normal(size=4))
        then = association.log_likelihood(other) + log_prior_motion(other)
        if np.log(rng.random()) < then - now:
            variances, now = other, then
    return variances


class Draws(NamedTuple):
    """What a chain visited.

    Attributes:
        preds: (S, N) predecessors, -1 for none.
        shares: (E,) the share of the time that each candidate link was there.
        false: (N,) the probability that each point is false.
        parameters: (S, 5 + p) the rates, and the sd of the motion, or the square roots of its
            variances and the share of turns.
        last: The last association with its parameters.
    """

    preds: np.ndarray
    shares: np.ndarray
    false: np.ndarray
    parameters: np.ndarray
    last: Start


def rivals(problem: Problem, scores: np.ndarray, ends: np.ndarray, certain: float) -> np.ndarray:
    """The links that moves begin with: all but likely ones that share neither end with another."""
    links, N = problem.links, len(problem.points)
    alone = (np.bincount(links.tails, minlength=N)[links.tails] == 1) & (
        np.bincount(links.cands, minlength=N)[links.cands] == 1
    )
    cut = np.maximum(ends[0], ends[2])[links.tails] + np.maximum(ends[1], ends[2])[links.cands]
    return np.flatnonzero(~(alone & (scores - cut > certain)))


def run_chain(
    start: Start,
    picks: np.ndarray,
    num_draws: int,
    per_link: float,
    rng: np.random.Generator,
    *,
    heat: float = 1.0,
    fixed: bool = False,
) -> Draws:
    """Run a chain: moves of the association, then a draw of the parameters, by turns.

    Args:
        start: Where to begin; its association is changed.
        picks: The links that moves begin with.
        num_draws: How many draws to return.
        per_link: How many moves to try before each, for every link.
        rng: A generator.
        heat: The temperature of the moves.
        fixed: Whether the parameters stay as they are.
    """
    from permvi.inference.tracks import kernels

    association, parameters = start
    problem = association.problem
    links, N = problem.links, len(problem.points)
    starts = links.starts(N)
    last_frames = problem.frame[links.tails[picks]]
    blocks = np.searchsorted(last_frames, np.arange(len(problem.clock.times) + 1))
    # At most one move for each link before those of the next frame.
    num_rounds = max(int(np.ceil(per_link)), 1)
    num_moves = np.ceil(per_link / num_rounds * np.diff(blocks)).astype(np.int64)
    counts, false = np.zeros(len(links.tails)), np.zeros(N)
    preds = np.empty((num_draws, N), np.int32)
    values = []
    moving = parameters.motion.variances is not None
    for k in range(num_draws):
        if not fixed:
            parameters = draw_parameters(association, parameters, rng)
        if k == 0 or not fixed:
            given = parameters.motion.variances
            variances = np.zeros(4) if given is None else given
            ends, scores = problem.ends(parameters), problem.scores(parameters)
            turned = problem.turned(parameters)
            share = false_share(ends)
        if moving:
            association.refresh(variances)
        if len(picks):
            kernels.run(
                *(num_rounds, num_moves, picks, blocks, starts, links.cands, links.tails, scores),
                *(turned, ends, problem.frame, problem.points, problem.time, int(moving)),
                *(variances, problem.walls, heat),
                *(association.pred, association.succ, association.edge, association.code),
                *(counts, association.state, rng),
            )
        else:
            used = association.edge[association.edge >= 0]
            counts[used] += 1.0
        preds[k] = association.pred
        alone = (association.pred < 0) & (association.succ < 0)
        false[alone] += share[alone]
        moved = [*np.sqrt(variances), parameters.motion.turns] if moving else parameters.motion.sd
        values.append([*parameters.rates, *moved])
    return Draws(
        preds,
        counts / (num_draws * max(num_rounds * int(num_moves.sum()), 1)),
        false / num_draws,
        np.array(values),
        Start(association, parameters),
    )
