"""What Markov chain Monte Carlo returns."""

import math
from dataclasses import dataclass

import numpy as np

from permvi.inference.mcmc.chains import KINDS, Chains
from permvi.inference.mcmc.options import MCMCOptions, Plan
from permvi.inference.mcmc.sweeps import Config, Records


@dataclass(frozen=True, eq=False)
class MCMCResult:
    """Draws of matchings, chain by chain.

    Attributes:
        options: The settings of the run.
        draws: (C, num, n) or (C, num, S, n) matchings in their order, -1 for unmatched.
        log_densities: (C, num) theirs, what the unmatched weigh included. -inf: a chain that has
            not yet found a matching of positive density.
        mode: (n,) or (S, n) the matching of largest density that any chain evaluated.
        mode_log_density: Its log density.
        acceptance: The part of the proposals of each kind that changed the matching, over all
            temperatures, and of the exchanges between temperatures, "exchange", that took place.
        num_evaluations: How many log densities, or differences of them, were evaluated.
        interrupted: Whether the user stopped the run before its time.
    """

    options: MCMCOptions
    draws: np.ndarray
    log_densities: np.ndarray
    mode: np.ndarray
    mode_log_density: float
    acceptance: dict[str, float]
    num_evaluations: int
    interrupted: bool


def collect(
    options: MCMCOptions,
    config: Config,
    plan: Plan,
    chains: Chains,
    records: Records,
    *,
    num_evaluations: int,
    interrupted: bool,
) -> MCMCResult:
    """The result of one problem, from its chains at the end and its records.

    Raises:
        ValueError: A density was NaN or +inf, or all of them -inf.
    """
    # NaN counts as the largest.
    best = int(np.argmax(chains.best_log_p))
    mode, largest = _event(chains.best_perms[best]), float(chains.best_log_p[best])
    if math.isnan(largest) or largest == math.inf:
        raise ValueError(
            f"the log density must be finite or -inf, got {largest} at {mode.tolist()}."
        )
    if largest == -math.inf:
        raise ValueError(
            "the log density must be finite for some matching, got -inf for all that were tried."
        )
    kept = slice(plan.num_warmup, None)
    return MCMCResult(
        options=options,
        draws=_event(records.perms[kept].swapaxes(0, 1)),
        log_densities=records.log_p[kept].swapaxes(0, 1).astype(np.float64),
        mode=mode,
        mode_log_density=largest,
        acceptance=_acceptance(options, config, chains, records),
        num_evaluations=num_evaluations,
        interrupted=interrupted,
    )


def _event(perms: np.ndarray) -> np.ndarray:
    """(..., S, n) -> (..., n) if there is one site."""
    return perms[..., 0, :] if perms.shape[-2] == 1 else perms


def _acceptance(
    options: MCMCOptions, config: Config, chains: Chains, records: Records
) -> dict[str, float]:
    num_sweeps = len(records.trades) * config.thin
    in_a_sweep = (config.num_swaps, int(config.cycles), int(config.sample is not None))
    rates = {
        kind: float(moved / (num_sweeps * proposals))
        for kind, moved, proposals in zip(KINDS, chains.moved.mean(axis=0), in_a_sweep, strict=True)
        if proposals
    }
    if options.num_temperatures > 1:
        # Every other pair of neighbours has its turn in a sweep.
        pairs = options.num_chains * (options.num_temperatures - 1) / 2
        rates["exchange"] = float(records.trades.sum() / (num_sweeps * pairs))
    return rates
