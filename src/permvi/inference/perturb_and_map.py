r"""Perturb-and-MAP: the best matching under noisy scores, as a draw.

.. math:: \hat x = \arg\max_x \sum_{ij} (S_{ij} + \tau\, \varepsilon_{ij})\, x_{ij}

with independent noise on every pair (Papandreou and Yuille 2011; Li et al. 2013 for permutations).
Noise on whole matchings, Gumbel of scale one, would make this an exact draw; noise on pairs does
not, and two matchings that share pairs share their noise. A swap changes four pairs, so that Gumbel
noise of scale one is too much: at :math:`\tau = 1 / \sqrt 2` the noise of a swap has the variance
that two matchings alone would need.

The scale can be calibrated: for fixed noise, the mean score of the draws falls as the scale grows,
from that of the best matching to that of random ones, so one scale gives the draws the mean score
:math:`E_p[\langle S, x \rangle] = \partial_\beta \log Z(\beta)|_{\beta = 1}` of the posterior, the
moment that maximum likelihood would match. Sequential importance sampling estimates it.
"""

from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from permvi import assignment
from permvi._checks import one_of, whole
from permvi.inference.importance import run_importance
from permvi.inference.method import Context, Method, MethodInfo
from permvi.inference.verdict.audit import audited_draws
from permvi.posterior import Posterior
from permvi.problem.evaluation import as_perms
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem

Noise = Literal["gumbel", "gaussian"]

# Draws by which the scale is calibrated, at most, and where it is looked for.
_CALIBRATION_DRAWS = 1000
_SCALES = (0.02, 5.0)
_BISECTIONS = 12
# Numbers that are perturbed at once, at most.
_AT_ONCE = 1 << 22


class Calibrated(NamedTuple):
    """A noise scale at which draws have the posterior's mean score.

    Attributes:
        scale: The scale.
        mean_score: Of the draws at this scale.
        target_score: The posterior's, as estimated.
    """

    scale: float
    mean_score: float
    target_score: float


def draw_perturbed(
    scores: np.ndarray,
    mask: np.ndarray | None,
    num: int,
    rng: np.random.Generator,
    noise: Noise = "gumbel",
    scale: float = 1.0,
) -> np.ndarray:
    """Independent draws by perturb-and-MAP, in batches of assignments: O(n^3) each.

    Args:
        scores: (n, m) or (S, n, m).
        mask: Booleans of that shape, True where allowed, or None.
        num: How many.
        rng: The source of randomness: the same one gives the same noise at every scale.
        noise: "gumbel" or "gaussian", both of unit scale before ``scale`` multiplies it.
        scale: At least 0.

    Returns:
        (num, n) or (num, S, n) matchings, -1 for the rows of a surplus.
    """
    draw_noise = rng.gumbel if noise == "gumbel" else rng.standard_normal
    together = max(1, _AT_ONCE // scores.size)
    parts = []
    for start in range(0, num, together):
        size = (min(together, num - start), *scores.shape)
        perturbed = scores + scale * draw_noise(size=size)
        parts.append(np.asarray(assignment.solve(perturbed, mask, backend="host"), np.int64))
    return np.concatenate(parts)


def total_scores(scores: np.ndarray, perms: np.ndarray) -> np.ndarray:
    """``sum(scores * X)`` of matchings (num, n) or (num, S, n) -> (num,)."""
    taken = np.take_along_axis(scores[None], np.maximum(perms, 0)[..., None], axis=-1)[..., 0]
    return np.where(perms >= 0, taken, 0.0).reshape(len(perms), -1).sum(axis=1)


def calibrate_scale(
    problem: Problem, rng_key: jax.Array, rng: np.random.Generator, noise: Noise = "gumbel"
) -> Calibrated:
    """The noise scale that gives draws the posterior's mean score, by bisection.

    No log density is evaluated: importance weights of a linear problem come from its scores.

    Args:
        problem: A linear one, in which everything must match beyond a surplus.
        rng_key: For importance sampling.
        rng: For the noise.
        noise: As for `draw_perturbed`.
    """
    scores = np.asarray(problem.scores, np.float64)
    mask = None if problem.mask is None else np.asarray(problem.mask)
    # Scores of forbidden pairs may be anything.
    finite = scores if mask is None else np.where(mask, scores, 0.0)

    def log_weights(choices: np.ndarray) -> np.ndarray:
        return total_scores(finite, np.asarray(as_perms(choices, problem)))

    weighted = run_importance(problem, rng_key, log_weights).weighted
    weights = np.exp(weighted.log_weights - weighted.log_weights.max())
    target = float(np.average(total_scores(finite, weighted.perms), weights=weights))
    seed = int(rng.integers(2**63))

    def score_at(scale: float) -> float:
        same = np.random.default_rng(seed)
        draws = draw_perturbed(finite, mask, _CALIBRATION_DRAWS, same, noise, scale)
        return float(total_scores(finite, draws).mean())

    low, high = np.log(_SCALES)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if score_at(float(np.exp(middle))) > target:
            low = middle
        else:
            high = middle
    scale = float(np.exp((low + high) / 2))
    return Calibrated(scale, score_at(scale), target)


_NUM_DRAWS = 2000
_ADVICE = "try method='sequential' or 'exact'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Draw from one problem.

    Options: ``noise``, "gumbel" (default) or "gaussian"; ``scale``, a positive number or
    "calibrated" (default), which gives the draws the posterior's mean score; ``num_draws``. The
    scale is ``diagnostics.extras["scale"]``.
    """
    scores = prepared.problem.host_scores
    options = context.options
    noise: Any = one_of("noise", options.get("noise", "gumbel"), get_args(Noise))
    num_draws = whole("num_draws", options.get("num_draws", _NUM_DRAWS))
    scale = options.get("scale", "calibrated")
    problem = prepared.problem
    rng = np.random.default_rng(context.seed)
    extras = {}
    if isinstance(scale, str) and scale == "calibrated":
        found = calibrate_scale(problem, context.rng_key, rng, noise)
        scale = found.scale
        extras = {name: np.array(value) for name, value in found._asdict().items()}
    elif isinstance(scale, str | bool) or not (np.ndim(scale) == 0 and 0 < scale < np.inf):
        raise ValueError(f"scale must be positive or 'calibrated', got {scale!r:.60}.")
    extras["scale"] = np.array(scale)
    mask = None if problem.mask is None else np.asarray(problem.mask)
    reduced = draw_perturbed(scores, mask, num_draws, rng, noise, float(scale))
    posterior = Posterior.from_draws(
        prepared.restore(reduced), shape=prepared.model.shape, num_evaluations=0
    )
    return audited_draws(prepared, posterior, reduced, _ADVICE, {"extras": extras})


METHODS = {
    "perturb_and_map": Method(
        MethodInfo(
            name="perturb_and_map",
            needs="linear scores",
            gives="draws, a bound on the evidence",
            masks=True,
            partial=False,
            cost="O(n^3) per draw",
            reference="Papandreou and Yuille 2011; Li et al. 2013",
        ),
        options=("noise", "scale", "num_draws"),
        run=run,
        linear=True,
    ),
}
