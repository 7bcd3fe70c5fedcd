r"""Method "linear" for models whose frame of reference is unknown.

A Gibbs sampler alternates between matchings given the frame, which the linear engine samples, and
the frame given a matching, which is proposed from the Gaussian at its mode and accepted by
Metropolis and Hastings' rule. Marginals are averages of those given each frame. Chains begin at the
best frames that `search` finds, in proportion to their evidence. Deformations of the atlas are
integrated out of matchings given the frame; the frame given a matching is that of cells displaced
independently of each other.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from permvi._checks import whole
from permvi._threads import single_threaded_blas
from permvi.inference.alignment.search import find_frames
from permvi.inference.linear import LinearOptions, solve_linear
from permvi.inference.linear.method import METHODS as LINEAR
from permvi.inference.linear.method import marginals_of
from permvi.inference.method import Context, option_names
from permvi.models.atlas.frames import FrameModel, Frames
from permvi.models.linear import LinearMatching
from permvi.posterior import DrawsLaw, Latent, Posterior, diagnose
from permvi.posterior.diagnostics import SAMPLING_CHECK
from permvi.problem.candidates import best_matching
from permvi.problem.prepare import Prepared, prepare

_ADVICE = "try more rounds (num_rounds) or chains (num_chains)"
# Rounds at the beginning of each chain that do not count.
_WARM_UP = 1
# Chains are prolonged up to this many times, while the sampling error is above this share of what a
# verdict allows.
_MOST_TIMES = 4
_SHARE_OF_ERROR = 0.8
# Tries to move the frame in each round; one costs far less than the matching.
_FRAME_MOVES = 3
# Degrees of freedom of proposals: their tails are heavier than those of the posterior.
_PROPOSAL_DF = 10.0
# A frame is in doubt if another one has more than this share of the probability.
_AMBIGUOUS = 0.05
# Probabilities below this count as this.
_TINY = 1e-12


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignmentOptions:
    """Options of method "linear" for models with an unknown frame.

    Attributes:
        num_chains: The number of chains over frames and matchings.
        num_rounds: The number of frames that each chain visits; up to four times as many where the
            sampling error is large and only one frame is possible.
        num_steps: Steps of the chains over matchings for each frame, and for each cell.
        num_draws: The number of matchings and frames to keep.
    """

    num_chains: int = 4
    num_rounds: int = 5
    num_steps: int = 6_000
    num_draws: int = 1000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            whole(field.name, getattr(self, field.name))


class _Visit(NamedTuple):
    """What one round of a chain found."""

    marginals: np.ndarray
    alone: np.ndarray
    draws: np.ndarray
    frame: Frames


def run(prepared: Prepared, context: Context) -> Posterior:
    """Infer the frame and the matching of a model with ``frames``; see `AlignmentOptions`."""
    with single_threaded_blas():
        return _run(prepared, context)


def _run(prepared: Prepared, context: Context) -> Posterior:
    options = AlignmentOptions(**context.options)
    extra, extra_alone = prepared.model.log_constraints()
    found = find_frames(prepared.model.frames, extra, extra_alone)
    frames: FrameModel = prepared.model.frames.widened(found.frames, extra)
    weights = np.exp(found.log_evidence - np.logaddexp.reduce(found.log_evidence))
    rng = np.random.default_rng(context.seed)
    samplers, moves = [], _Moves()
    for chain in range(options.num_chains):
        # Stratified, so that each frame has the chains that its probability asks for.
        point = (chain + rng.random()) / options.num_chains
        start = int(np.searchsorted(np.cumsum(weights)[:-1], point))
        home = found.frames.take(np.array([start]))
        samplers.append(_Sampler(prepared, frames, options, home, rng, moves))
    # Chains in frames that lie apart stay there, so that more rounds would not help.
    times = 1 if _second(weights) > _AMBIGUOUS else _MOST_TIMES
    rounds, limit = options.num_rounds, times * options.num_rounds
    visits: list[list[_Visit]] = []
    while len(visits) < _WARM_UP + rounds:
        context.step(len(visits), _WARM_UP + rounds)
        visits.append([sampler.visit() for sampler in samplers])
        if len(visits) == _WARM_UP + rounds < _WARM_UP + limit:
            error = _sampling_error(*_states(visits[_WARM_UP:]))
            if error.mean() > _SHARE_OF_ERROR * SAMPLING_CHECK:
                rounds = min(2 * rounds, limit)
    return _posterior(prepared, visits[_WARM_UP:], weights, options, moves)


def _second(weights: np.ndarray) -> float:
    """Return the probability of the second best frame."""
    return float(np.sort(weights)[-2]) if len(weights) > 1 else 0.0


@dataclasses.dataclass
class _Moves:
    """How many moves of frames were proposed and accepted."""

    proposed: int = 0
    accepted: int = 0


class _Sampler:
    """One chain: a frame, and the matchings that it leads to."""

    def __init__(
        self,
        prepared: Prepared,
        frames: FrameModel,
        options: AlignmentOptions,
        start: Frames,
        rng: np.random.Generator,
        moves: _Moves,
    ) -> None:
        self._prepared, self._model = prepared, frames
        self._home, self._frame = start, start
        self._extra, _ = prepared.model.log_constraints()
        self._rng, self._moves = rng, moves
        per_visit = -(-options.num_draws // (options.num_chains * options.num_rounds))
        steps = options.num_steps * prepared.model.shape[0]
        # Exact programmes would take longer for each frame than the answer needs.
        self._options = LinearOptions(
            max_size=0, max_states=0, num_steps=steps, num_draws=per_visit, num_chains=2
        )

    def visit(self) -> _Visit:
        """Sample matchings given the frame, then move the frame given one of them."""
        frame = self._frame
        linear = self._prepared.linear_with(self._model.relative(frame, self._extra))
        given = prepare(LinearMatching(**linear.arguments()), lists=False)
        result = solve_linear(given.candidates, self._options, int(self._rng.integers(2**31)))
        draws = given.restore(result.draws)
        self._move(draws[-1])
        found = marginals_of(given, result)
        return _Visit(np.asarray(found.marginals), found.p_unmatched_rows, draws, frame)

    def _move(self, perm: np.ndarray) -> None:
        """Move the frame given a matching (n,)."""
        model, rng = self._model, self._rng
        mode, precision = model.settle(self._home, perm)
        root = np.linalg.cholesky(precision[0])
        p = len(root)
        now = self._log_ratio(self._frame, perm, mode, root)
        for _ in range(_FRAME_MOVES):
            z = rng.standard_normal(p) * np.sqrt(_PROPOSAL_DF / rng.chisquare(_PROPOSAL_DF))
            step = np.linalg.solve(root.T, z)
            proposed = model.moved(mode, step[None])
            new = self._log_ratio(proposed, perm, mode, root, step)
            self._moves.proposed += 1
            if np.log(rng.random()) < new - now:
                self._frame, now = proposed, new
                self._moves.accepted += 1

    def _log_ratio(
        self,
        frame: Frames,
        perm: np.ndarray,
        mode: Frames,
        root: np.ndarray,
        step: np.ndarray | None = None,
    ) -> float:
        """Return the log density of a frame less that of proposing it.

        Proposals are t-distributed in the coordinates of steps from the mode.
        """
        if step is None:
            step = _step_between(self._model, mode, frame)
        squares = float(((root.T @ step) ** 2).sum())
        proposal = -0.5 * (_PROPOSAL_DF + len(step)) * np.log1p(squares / _PROPOSAL_DF)
        return float(self._model.log_joint(frame, perm)[0]) - proposal


def _step_between(model: FrameModel, start: Frames, end: Frames) -> np.ndarray:
    """Return the step (p,) that leads from one frame to another; the inverse of `moved`."""
    # Imported here because SciPy's matrix functions take their time to load.
    from scipy.linalg import logm

    grow = end.matrix[0] @ np.linalg.inv(start.matrix[0])
    M = np.real(logm(grow))
    along = np.einsum("kab,ab->k", model.basis, M)
    of_gain = end.log_gain[0] - start.log_gain[0]
    return np.concatenate(
        [
            along,
            end.shift[0] - grow @ start.shift[0],
            of_gain,
            end.offset[0] - np.exp(of_gain) * start.offset[0],
        ]
    )


def _posterior(
    prepared: Prepared,
    rounds: list[list[_Visit]],
    weights: np.ndarray,
    options: AlignmentOptions,
    moves: _Moves,
) -> Posterior:
    frames: FrameModel = prepared.model.frames
    visits = [visit for chain in zip(*rounds, strict=True) for visit in chain]
    states, by_chain = _states(rounds)
    mean = states.mean(axis=0)
    marginals, unmatched = mean[:, :-1], mean[:, -1]
    sums = marginals.sum(axis=1) + unmatched
    marginals, unmatched = marginals / sums[:, None], unmatched / sums
    unused = np.clip(1.0 - marginals.sum(axis=0), 0.0, 1.0)
    draws = np.concatenate([visit.draws for visit in visits])
    transforms = np.concatenate([frames.transforms(visit.frame) for visit in visits])
    of_draws = np.repeat(transforms, [len(visit.draws) for visit in visits], axis=0)
    kept = np.linspace(0, len(draws) - 1, options.num_draws).round().astype(int)
    latent = Latent(transforms.mean(axis=0), transforms.std(axis=0), of_draws[kept])
    best = best_by_marginals(prepared, marginals, unmatched)
    diagnostics = _judged(prepared, states, by_chain, weights, moves)
    return Posterior(
        law=DrawsLaw(draws[kept]),
        marginals=marginals,
        p_unmatched_rows=unmatched,
        p_unmatched_cols=unused,
        mode=best,
        latents={"frame": latent},
        diagnostics=diagnostics,
        num_evaluations=len(visits),
    )


def best_by_marginals(
    prepared: Prepared, marginals: np.ndarray, unmatched: np.ndarray
) -> np.ndarray:
    """Return the matching (n,) with the largest product of marginals."""
    table, alone = (np.log(np.maximum(p, _TINY)) for p in (marginals, unmatched))
    linear = prepared.linear_with(table - alone[:, None])
    # Prior scores are in the marginals already.
    linear = dataclasses.replace(linear, scores=table - alone[:, None])
    given = prepare(LinearMatching(**linear.arguments()), lists=False)
    return given.restore(best_matching(given.candidates))


def _states(rounds: list[list[_Visit]]) -> tuple[np.ndarray, np.ndarray]:
    """Return what all visits found, (S, n, m + 1), chain by chain, and the means of chains."""
    by_chain = np.stack(
        [
            [np.concatenate([visit.marginals, visit.alone[:, None]], axis=1) for visit in chain]
            for chain in zip(*rounds, strict=True)
        ]
    )
    return by_chain.reshape(-1, *by_chain.shape[2:]), by_chain.mean(axis=1)


def _variance(states: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the variances (n, m + 1) of the mean of all visits.

    Rounds of one chain may be alike, so that chains are compared if there are several.
    """
    within = states.var(axis=0, ddof=1) / len(states) if len(states) > 1 else 0 * states[0]
    return np.maximum(within, means.var(axis=0, ddof=1) / len(means)) if len(means) > 1 else within


def _sampling_error(states: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the expected total variation of each cell (n,) due to sampling."""
    return 0.5 * np.sqrt(2 / np.pi * _variance(states, means)).sum(axis=-1)


def _judged(
    prepared: Prepared,
    states: np.ndarray,
    means: np.ndarray,
    weights: np.ndarray,
    moves: _Moves,
) -> Any:
    """Compare the chains, and say what is known about the frame."""
    disagreement = np.zeros(len(states[0]))
    if len(means) > 1:
        error = _variance(states, means)
        half = len(means) // 2
        apart = np.abs(means[:half].mean(axis=0) - means[half:].mean(axis=0))
        noise = np.sqrt(2 * np.log(error.size)) * 2 * np.sqrt(error)
        disagreement = 0.5 * np.maximum(apart - noise, 0.0).sum(axis=-1)
    judged = diagnose(
        row_labels=prepared.labels[0],
        advice=_ADVICE,
        sampling_error_by_row=_sampling_error(states, means),
        disagreement_by_row=disagreement,
        converged=True,
    )
    second = _second(weights)
    notes = [
        f"{moves.accepted / max(moves.proposed, 1):.0%} of the proposed frames were accepted",
        f"the second best frame has a probability of about {second:.2g}",
    ]
    if second > _AMBIGUOUS:
        reason = f"{notes[1]}, so that more than one frame is possible"
        judged = dataclasses.replace(judged, verdict="check", reasons=(reason, *judged.reasons))
    return dataclasses.replace(judged, reasons=(*judged.reasons, *notes))


METHODS = {
    "linear": dataclasses.replace(
        LINEAR["linear"], options=option_names(AlignmentOptions), run=run, linear=False, lists=False
    )
}
