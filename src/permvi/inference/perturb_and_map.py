r"""Method "perturb_and_map": the best matching under noisy scores, as a draw.

.. math:: \hat x = \arg\max_x \sum_{ij} (S_{ij} + \tau\, \varepsilon_{ij})\, x_{ij}

with independent noise on every pair (Papandreou and Yuille 2011; Li et al. 2013 for permutations).
Gumbel noise of scale one on whole matchings would make this an exact draw. Noise on pairs does not:
matchings that share pairs share noise, and the law of the draws is not the posterior and has no
closed form. A swap changes four pairs, so Gumbel noise of scale one is too much: at
:math:`\tau = 1 / \sqrt 2` the noise of a swap has the variance that two matchings alone would need.

The scale can be calibrated. For fixed noise, the mean score of the draws falls with the scale from
that of the best matching to that of random ones, so one scale gives the draws the mean score
:math:`E_p[\langle S, x \rangle] = \partial_\beta \log Z(\beta)|_{\beta = 1}` of the posterior, the
moment that maximum likelihood would match. Sequential importance sampling estimates it.

Draws are independent and always feasible. Use the method for quick, diverse draws of large linear
problems if exactness does not matter. Log densities are evaluated only for the verdict.
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

# The number of draws for the calibration of the scale, and the range of the search.
_CALIBRATION_DRAWS = 1000
_SCALES = (0.02, 5.0)
_BISECTIONS = 12
# The largest number of scores to perturb at once.
_AT_ONCE = 1 << 22


class Calibrated(NamedTuple):
    """A noise scale, the mean score of draws at it, and the estimated one of the posterior."""

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
    """Return independent draws by perturb-and-MAP, O(n^3) each.

    Args:
        scores: (n, m) or (S, n, m) scores.
        mask: Booleans of that shape, True where allowed, or None.
        num: The number of draws.
        rng: The source of randomness. The same state gives the same noise at every scale.
        noise: "gumbel" or "gaussian", of unit scale.
        scale: The factor of the noise, at least 0.

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
    """Return ``sum(scores * X)`` of matchings: (num, n) or (num, S, n) -> (num,)."""
    taken = np.take_along_axis(scores[None], np.maximum(perms, 0)[..., None], axis=-1)[..., 0]
    return np.where(perms >= 0, taken, 0.0).reshape(len(perms), -1).sum(axis=1)


def calibrate_scale(
    problem: Problem, rng_key: jax.Array, rng: np.random.Generator, noise: Noise = "gumbel"
) -> Calibrated:
    """Find the noise scale that gives draws the posterior's mean score, by bisection.

    The problem is linear, and only a surplus may stay unmatched. Importance weights come from its
    scores, so no log density is evaluated. ``rng_key`` is for importance sampling, ``rng`` for the
    noise.
    """
    scores = problem.host_scores
    mask = None if problem.mask is None else np.asarray(problem.mask)
    # Scores of forbidden pairs may have any value.
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
        too_high = score_at(float(np.exp(middle))) > target
        low, high = (middle, high) if too_high else (low, middle)
    scale = float(np.exp((low + high) / 2))
    return Calibrated(scale, score_at(scale), target)


_NUM_DRAWS = 2000
_ADVICE = "try method='linear' or 'sequential'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Draw from one problem.

    Options: ``noise``, "gumbel" (default) or "gaussian"; ``scale``, a positive number or
    "calibrated" (default), which gives the draws the posterior's mean score; ``num_draws``. The
    scale is ``diagnostics.extras["scale"]``.
    """
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
    reduced = draw_perturbed(problem.host_scores, mask, num_draws, rng, noise, float(scale))
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
