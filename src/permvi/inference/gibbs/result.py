"""Draws of a NumPyro run as a posterior over one of its permutation-valued sites."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from permvi import _checks
from permvi.inference.mcmc.result import summarise_chains
from permvi.posterior import Latent, Posterior, diagnose
from permvi.posterior.diagnostics import R_HAT_CHECK

_ADVICE = "try a longer run, num_temperatures=4 or more moves (num_moves)"


class SiteSummary(NamedTuple):
    """The largest split R-hat of a latent site and its smallest effective sample size.

    Those of a permutation are taken over the indicators that item i is label j. Quantities that
    never change are left out.
    """

    r_hat: float
    ess: float


def summarise(draws: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, SiteSummary]:
    """Summarise draws (chains, num, ...) by site; ``names`` are those of permutations."""
    return {
        name: _of_permutations(values) if name in names else _of_numbers(values)
        for name, values in draws.items()
    }


def posterior_of(
    draws: Mapping[str, np.ndarray], names: Sequence[str], site: str | None, **fields: Any
) -> Posterior:
    """Return the posterior of one site from draws (chains, num, ...) of all latent sites.

    Its ``shape``, if it is among the fields, may have more columns than rows.
    """
    if site is None and len(names) == 1:
        site = names[0]
    name = _checks.one_of("site", site or "", names)
    perms = draws[name]
    shape = fields.pop("shape", (perms.shape[-1],) * 2)
    count = math.prod(perms.shape[2:-1])
    perms = perms.reshape(*perms.shape[:2], *(() if count == 1 else (count,)), shape[0])
    chains = summarise_chains(perms, shape[1])
    worst = max(one.r_hat for one in summarise(draws, names).values())
    diagnostics = diagnose(
        row_labels=(fields.get("labels") or (None,))[0],
        advice=_ADVICE,
        r_hat=worst,
        ess_per_draw=chains.ess_per_draw,
        disagreement_by_row=chains.disagreement_by_row,
        sampling_error_by_row=chains.sampling_error_by_row,
        converged=worst <= R_HAT_CHECK,
    )
    latents = {key: Latent.from_draws(_flat(v)) for key, v in draws.items() if key != name}
    given = {"method": "gibbs", "latents": latents, "diagnostics": diagnostics, **fields}
    return Posterior.from_draws(_flat(perms), shape=shape, **given)


def _of_permutations(draws: np.ndarray) -> SiteSummary:
    chains = summarise_chains(draws, draws.shape[-1])
    return SiteSummary(chains.r_hat, chains.ess_per_draw * math.prod(draws.shape[:2]))


def _of_numbers(draws: np.ndarray) -> SiteSummary:
    values = draws.reshape(*draws.shape[:2], -1)
    values = values[..., np.ptp(values, axis=(0, 1)) > 0]
    if not values.size:
        return SiteSummary(1.0, float(math.prod(draws.shape[:2])))
    r_hat, ess = split_gelman_rubin(values).max(), effective_sample_size(values).min()
    return SiteSummary(float(r_hat), float(ess))


def _flat(draws: np.ndarray) -> np.ndarray:
    return draws.reshape(-1, *draws.shape[2:])
