r"""Calibration of temperature, noise bounds and prior width for a kind of problem.

Relaxed ELBOs of different settings have different base measures and cannot be compared. So pilot
problems are fitted with every candidate, and the *permutations* drawn are scored:

* with exact marginals, by the total variation per row,
  :math:`\frac12 \sum_j |\hat P_{ij} - P_{ij}|`, averaged over rows and pilots;
* without, by minus the discrete ELBO of the draws, :math:`-E_q[\log p] - H(q)`, with the entropy of
  their frequencies (Miller-Madow corrected). This needs repeated draws: if all are distinct, the
  entropy depends on their number alone and overconfident settings win.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from permvi import _checks
from permvi._checks import whole
from permvi.inference.method import StepProgress
from permvi.inference.vi.families import FAMILIES
from permvi.inference.vi.options import VIOptions
from permvi.inference.vi.run import VIResult, run_vi_batch
from permvi.problem.problem import Problem


@dataclasses.dataclass(frozen=True)
class Trial:
    """One setting that was tried: its mean score over the pilots, with standard error."""

    options: VIOptions
    score: float
    standard_error: float


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The setting that did best on the pilots.

    Attributes:
        family: The family that was calibrated.
        options: The chosen settings.
        trials: All settings that were tried, best first; lower scores are better.
        score_name: What the score measures.
    """

    family: str
    options: VIOptions
    trials: tuple[Trial, ...]
    score_name: str

    def __str__(self) -> str:
        best, lower_upper = self.trials[0], self.options.scale_bounds
        return (
            f"{self.family}: chose temperature {self.options.temperature:.3g}, prior width "
            f"{self.options.prior_width:.3g}, noise sd in [{lower_upper[0]:.3g}, "
            f"{lower_upper[1]:.3g}], with {self.score_name} {best.score:.4g} (se "
            f"{best.standard_error:.2g}), out of {len(self.trials)} settings, the worst of which "
            f"had {self.trials[-1].score:.4g}."
        )


def calibrate(
    family: str,
    pilots: Problem,
    rng_key: jax.Array,
    exact_marginals: Any = None,
    *,
    base: VIOptions | None = None,
    candidates: Sequence[VIOptions] | None = None,
    num_candidates: int = 20,
    on_progress: StepProgress | None = None,
) -> Calibration:
    """Search for the settings whose draws are closest to the posteriors of pilot problems.

    All candidates use the same random numbers, and those of equal shapes share a compilation.

    Args:
        family: "rounding" or "stick_breaking".
        pilots: Problems of one shape, batched as for `run_vi_batch`.
        rng_key: A JAX random key.
        exact_marginals: (pilots, n, m) or (pilots, S, n, m) exact marginals, or None.
        base: The first candidate, which random ones vary; by default
            ``VIOptions.calibrated(family)`` with one restart.
        candidates: Settings to try instead of random ones.
        num_candidates: How many settings to try, the base included.
        on_progress: Called as ``on_progress(done, total, best_score)`` after each candidate.

    Returns:
        The choice, which prints as a sentence, and the table of trials.
    """
    _checks.one_of("family", family, FAMILIES)
    base = base or VIOptions.calibrated(family).replace(num_restarts=1)
    if candidates is None:
        num = whole("num_candidates", num_candidates)
        seed = np.asarray(jax.random.bits(rng_key)).item()
        candidates = [base, *_random_candidates(family, base, num - 1, seed)]
    if not candidates:
        raise ValueError("candidates must hold at least one VIOptions, got none.")
    if exact_marginals is None and pilots.latents:
        raise ValueError(
            "exact_marginals must be given for problems with other latent variables, got None."
        )
    trials: list[Trial] = []
    for options in candidates:
        results = run_vi_batch(pilots, rng_key, family, options)
        if exact_marginals is None:
            scores = _negative_discrete_elbo(pilots, results)
        else:
            scores = _row_variation(np.asarray(exact_marginals), results)
        error = float(scores.std() / math.sqrt(len(scores)))
        trials.append(Trial(options, float(scores.mean()), error))
        if on_progress is not None:
            on_progress(len(trials), len(candidates), min(trial.score for trial in trials))
    trials.sort(key=lambda trial: trial.score)
    name = "minus discrete ELBO" if exact_marginals is None else "total variation per row"
    return Calibration(family, trials[0].options, tuple(trials), name)


def _random_candidates(family: str, base: VIOptions, num: int, seed: int) -> list[VIOptions]:
    rng = np.random.default_rng(seed)
    largest = FAMILIES[family].max_temperature
    found = []
    for _ in range(num):
        # Rounding at temperature 1 is a special case in which nothing is rounded.
        unrounded = rng.random() < 0.5
        tau = largest if largest and unrounded else _log_uniform(rng, 0.3, largest or 3.0)
        lower = _log_uniform(rng, 0.01, 0.1)
        upper = _log_uniform(rng, 1.2 * lower, 0.6 if largest else 1.5)
        start = base.temperature_start / base.temperature * tau
        if largest is not None:
            start = min(start, largest)
        found.append(
            base.replace(
                temperature=tau,
                temperature_start=start,
                prior_width=_log_uniform(rng, 0.2, 1.0),
                scale_bounds=(lower, upper),
            )
        )
    return found


def _log_uniform(rng: np.random.Generator, lower: float, upper: float) -> float:
    return float(np.exp(rng.uniform(np.log(lower), np.log(upper))))


def _row_variation(exact: np.ndarray, results: list[VIResult]) -> np.ndarray:
    """Return the total variation (pilots,), averaged over rows and sites."""
    found = np.stack([result.marginals[result.best_restart] for result in results])
    if exact.shape != found.shape:
        raise ValueError(f"exact_marginals must have shape {found.shape}, got shape {exact.shape}.")
    rows = 0.5 * np.abs(found - exact).sum(axis=-1)
    return rows.reshape(len(rows), -1).mean(axis=1)


def _negative_discrete_elbo(pilots: Problem, results: list[VIResult]) -> np.ndarray:
    """Estimate ``-E_q[log p] - H(q)`` (pilots,)."""
    draws = np.stack([result.draws for result in results])
    log_p = np.asarray(jax.vmap(pilots.log_density_of)(pilots.data, draws))
    entropies = [_entropy(each.reshape(len(each), -1)) for each in draws]
    return -log_p.mean(axis=1) - np.array(entropies)


def _entropy(draws: np.ndarray) -> float:
    """Return the Miller-Madow estimate of the entropy of the law of the rows."""
    counts = np.unique(draws, axis=0, return_counts=True)[1]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * counts.sum()))
