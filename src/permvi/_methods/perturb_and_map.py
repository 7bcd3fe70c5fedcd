"""Method "perturb_and_map": the best matchings under noisy scores.

What it approximates: draws of the posterior of a linear model, by one assignment each. They are
independent and always valid, masks and surplus rows or columns included, but their law is not the
posterior: it has no closed form, and matchings that share pairs share noise. Cost: O(n^3) per draw
in large batches, and no log density but for the verdict. Choose it for quick, diverse draws of
large linear problems, where exactness does not matter.

References: Papandreou and Yuille 2011; Li et al. 2013.
"""

from typing import Any, get_args

import numpy as np

from permvi._choices import one_of
from permvi._methods.audit import audited_draws
from permvi._methods.context import Context
from permvi._methods.refusals import linear_scores, refuse_latents, refuse_partial
from permvi._task import Task
from permvi.inference.exact.problem import positive_int
from permvi.inference.perturb_and_map import Noise, calibrate_scale, draw_perturbed
from permvi.posterior import Posterior

OPTIONS = ("noise", "scale", "num_draws")

_NUM_DRAWS = 2000
_ADVICE = "try method='sequential' or 'exact'"


def run(task: Task, context: Context) -> Posterior:
    """Draw from one problem.

    Options: ``noise``, "gumbel" (default) or "gaussian"; ``scale``, a positive number or
    "calibrated" (default), which gives the draws the posterior's mean score; ``num_draws``. The
    scale is ``diagnostics.extras["scale"]``.
    """
    refuse_partial(task, context.method)
    refuse_latents(task, context.method)
    scores = linear_scores(task, context.method)
    options = context.options
    noise: Any = one_of("noise", options.get("noise", "gumbel"), get_args(Noise))
    num_draws = positive_int("num_draws", options.get("num_draws", _NUM_DRAWS))
    scale = options.get("scale", "calibrated")
    problem = task.problem
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
        task.restore(reduced), shape=task.model.shape, num_evaluations=0
    )
    return audited_draws(task, posterior, reduced, _ADVICE, {"extras": extras})
