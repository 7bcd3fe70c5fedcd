r"""The verdict on a guide of permutations and other latents, and corrected draws from it.

**Weights.** A draw of integers x and other latents z has the weight
:math:`p(x, z, y) / (\hat q(x)\, q(z))`. The guide's density of z is known. The probability that its
relaxed draws round to x is not, but permutations are independent in the guide, so that
:math:`\hat q(x)` is a product of the frequencies of single permutations among many draws. There are
no weights if too many of those were drawn only once.

**Chains.** A run of `PermutationGibbs` that knows nothing of the guide shows what it misses.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density

from permvi.inference.gibbs import PermutationGibbs
from permvi.inference.verdict.audit import beyond_noise, noise
from permvi.inference.verdict.pareto import smooth
from permvi.posterior import Diagnostics, diagnose
from permvi.posterior.diagnostics import R_HAT_CHECK, Judgement, worst_first

# The share of permutations that were drawn once beyond which frequencies are no probabilities.
_MOST_SINGLE = 0.05
# The shift of a latent's mean, in posterior standard deviations.
_SHIFT_CHECK = 0.2
_SHIFT_DISTRUST = 0.5
_NUM_WARMUP = 500
_NUM_CHAINS = 4
_ADVICE = "use PermutationGibbs, or fit with other seeds or more steps"

Draws = dict[str, jax.Array]


class Weighted(NamedTuple):
    """Smoothed log weights (num,) of draws, and k-hat."""

    log_weights: np.ndarray
    k_hat: float

    @property
    def ess_per_draw(self) -> float:
        """The effective sample size per draw."""
        weights = np.exp(self.log_weights)
        return float(1.0 / (weights**2).sum() / len(weights))


def weigh(
    model: Any,
    guide_of_others: Any,
    params: dict[str, Any],
    draws: Draws,
    names: set[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Weighted | None:
    """Weigh draws (num, ...) by the model, or return None if their probabilities are not known.

    ``names`` are those of the permutations; ``guide_of_others`` is the guide of all other sites, or
    None if there are none.
    """
    single = 0.0
    log_q = np.zeros(len(next(iter(draws.values()))))
    for name in names:
        flat = np.asarray(draws[name]).reshape(len(draws[name]), -1, draws[name].shape[-1])
        for element in np.moveaxis(flat, 1, 0):
            _, place, counts = np.unique(element, axis=0, return_inverse=True, return_counts=True)
            log_q = log_q + np.log(counts / len(element))[place.ravel()]
            single = max(single, float((counts == 1).sum() / len(element)))
    if single > _MOST_SINGLE:
        return None

    def of_model(draw: Draws) -> jax.Array:
        values = {
            name: jax.nn.one_hot(value, value.shape[-1]) if name in names else value
            for name, value in draw.items()
        }
        return log_density(model, args, kwargs, values)[0]

    def of_guide(draw: Draws) -> jax.Array:
        return log_density(guide_of_others, args, kwargs, {**params, **draw})[0]

    log_p = np.asarray(jax.jit(jax.vmap(of_model))(draws), dtype=np.float64)
    if guide_of_others is not None:
        others = {name: value for name, value in draws.items() if name not in names}
        log_q = log_q + np.asarray(jax.jit(jax.vmap(of_guide))(others), dtype=np.float64)
    log_w = np.where(np.isnan(log_p), -np.inf, log_p) - log_q
    return Weighted(*smooth(log_w)) if log_w.max() > -np.inf else None


def judge_guide(
    model: Any,
    draws: Draws,
    weighted: Weighted | None,
    names: set[str],
    rng_key: jax.Array,
    num_samples: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Diagnostics:
    """Return diagnostics of draws (num, ...) by comparison with chains and by their weights."""
    kernel = PermutationGibbs(NUTS(model))
    mcmc = MCMC(
        kernel,
        num_warmup=_NUM_WARMUP,
        num_samples=num_samples,
        num_chains=_NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(rng_key, *args, **kwargs)
    chains, summary = mcmc.get_samples(), kernel.summary(mcmc)
    r_hat = max(one.r_hat for one in summary.values())
    num = len(next(iter(draws.values())))
    distances, errors, shifts = [], [], {}
    for name, (_, ess) in summary.items():
        ours, theirs = np.asarray(draws[name]), np.asarray(chains[name])
        if name in names:
            table = _frequencies(ours)
            distances.append(beyond_noise(table, _frequencies(theirs), int(min(num, ess))))
            errors.append(noise(table, num))
        else:
            sd = np.maximum(theirs.std(axis=0), np.finfo(float).tiny)
            shifts[name] = np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / sd
    found = diagnose(
        advice=_ADVICE,
        disagreement_by_row=_stack(distances),
        sampling_error_by_row=_stack(errors),
        ess_per_draw=None if weighted is None else weighted.ess_per_draw,
        k_hat=None if weighted is None else weighted.k_hat,
        r_hat=r_hat,
        converged=r_hat <= R_HAT_CHECK,
        extras={f"shift_{name}": shift for name, shift in shifts.items()},
    )
    judged = [Judgement(found.verdict, found.reasons), *(_judge_shift(*s) for s in shifts.items())]
    verdict, reasons = worst_first(judged)
    return dataclasses.replace(found, verdict=verdict, reasons=reasons)


def _judge_shift(name: str, shift: np.ndarray) -> Judgement:
    largest = float(np.max(shift))
    if largest <= _SHIFT_CHECK:
        return Judgement("trust", (f"chains agree on {name!r} to within {largest:.2g} sd",))
    reason = f"the mean of {name!r} is {largest:.2g} posterior sd from that of chains; {_ADVICE}"
    return Judgement("do not trust" if largest > _SHIFT_DISTRUST else "check", (reason,))


def _frequencies(draws: np.ndarray) -> np.ndarray:
    """Return the frequencies (E, n, n) of the pairs of permutations (num, ..., n)."""
    n = draws.shape[-1]
    flat = draws.reshape(len(draws), -1, n)
    return (flat[..., None] == np.arange(n)).mean(axis=0)


def _stack(by_element: list[np.ndarray]) -> np.ndarray:
    """Join arrays (E, n) of several sites; those of fewer items are padded with zeros."""
    widest = max(part.shape[-1] for part in by_element)
    padded = [np.pad(part, ((0, 0), (0, widest - part.shape[-1]))) for part in by_element]
    joined = np.concatenate(padded)
    return joined[0] if len(joined) == 1 else joined
