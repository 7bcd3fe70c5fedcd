"""Convergence diagnostics of chains of matchings, and the result of a run."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import fft

from permvi.inference.mcmc.kernels import KINDS, Chains
from permvi.inference.mcmc.loop import Config, Records
from permvi.inference.mcmc.options import MCMCOptions, Plan


class ChainSummary(NamedTuple):
    """Convergence diagnostics of the indicators 1[row i has column j], "unmatched" included.

    Attributes:
        r_hat: The largest split R-hat. An indicator that is constant in every chain has 1 if it is
            the same in all chains, else inf.
        ess_per_draw: The smallest effective sample size per draw of the indicators that change; 1
            if none does.
        disagreement_by_row: (n,) or (S, n) total variation between the frequencies in the first and
            in the second half of the chains, minus the value expected of converged chains of this
            length. None for a single chain.
        sampling_error_by_row: (n,) or (S, n) expected total variation between the frequencies and
            those of infinitely long chains.
    """

    r_hat: float
    ess_per_draw: float
    disagreement_by_row: np.ndarray | None
    sampling_error_by_row: np.ndarray


def summarise_chains(draws: np.ndarray, num_cols: int) -> ChainSummary:
    """Return R-hat, effective sample size, disagreement and sampling error of chains.

    ``draws`` holds matchings (C, num, n) or (C, num, S, n) in the order of the chain, -1 for
    unmatched, at least 4 of each chain.
    """
    num_chains, num = draws.shape[:2]
    rows = np.asarray(draws).reshape(num_chains, num, -1)
    r_hat, ess = 1.0, float(num_chains * num)
    distances, errors = np.zeros((2, rows.shape[-1]))
    for i in range(rows.shape[-1]):
        # Row by row, to bound the memory.
        seen = rows[..., i]
        columns = np.unique(seen)
        if len(columns) == 1:
            continue
        indicators = (seen[..., None] == columns).astype(np.float64)
        r_hat = max(r_hat, float(split_r_hat(indicators).max()))
        sizes, within = effective_sizes(indicators)
        ess = min(ess, float(sizes.min()))
        distances[i] = _beyond_noise(indicators, within)
        # The mean absolute value of a normal error of sd s is s sqrt(2/pi); total variation is
        # half the sum.
        variances = indicators.var(axis=(0, 1)) / sizes
        errors[i] = np.sqrt(variances / (2 * np.pi)).sum()
    event = draws.shape[2:]
    halves = None if num_chains == 1 else distances.reshape(event)
    return ChainSummary(r_hat, ess / (num_chains * num), halves, errors.reshape(event))


def split_r_hat(values: np.ndarray) -> np.ndarray:
    """Return split R-hat (k,) of (C, N, k) values, as `numpyro.diagnostics` does.

    A constant has inf if it is another one in some half of a chain, else NaN.
    """
    half = values.shape[1] // 2
    halves = np.concatenate([values[:, :half], values[:, -half:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    total = within * (half - 1) / half + halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(total / within)


def effective_sizes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Return two effective sample sizes (k,) of (C, N, k) values, at most C N each.

    The first is that of the mean of all chains, as `numpyro.diagnostics` has it: with the variance
    W within chains, the mean autocovariances :math:`\gamma_t` and V, which is W (N - 1) / N and the
    variance of the chains' means, :math:`\rho_t = 1 - (W - \gamma_t) / V` is summed as far as
    Geyer's monotone sequence is positive. The second takes the chains' means to be equal. Both are
    C N for values that never change.

    One Fourier transform serves both, and one goes back for all chains: two calls of the library
    took a seventh of a fit of 30 points, and its import another one.
    """
    num_chains, num = values.shape[:2]
    means = values.mean(axis=1)
    spectrum = fft.rfft(np.moveaxis(values - means[:, None], 1, -1), 2 * fft.next_fast_len(num))
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=0)
    covariances = fft.irfft(power, 2 * fft.next_fast_len(num))[:, :num] / num
    own = covariances[:, 0]
    if num_chains == 1:
        within = total = own
    else:
        within, total = own * num / (num - 1), own + means.var(axis=0, ddof=1)
    return (
        _size(num_chains, covariances, within, total),
        _size(num_chains, covariances, within, own),
    )


def _size(
    num_chains: int, covariances: np.ndarray, within: np.ndarray, total: np.ndarray
) -> np.ndarray:
    """Return the effective sample size (k,) for autocovariances (k, N) and two variances (k,)."""
    most = num_chains * covariances.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within[:, None] - covariances) / total[:, None]
        rho[:, 0] = 1.0
        pairs = rho[:, :-1:2] + rho[:, 1::2]
        falling = np.minimum.accumulate(np.clip(pairs[:, 1:], 0.0, None), axis=1)
        size = most / (2.0 * (pairs[:, 0] + falling.sum(axis=1)) - 1.0)
    # The usual estimate of the autocorrelation time of alternating draws is zero or less.
    return np.where((size > 0) & (size < most), size, most)


def _beyond_noise(indicators: np.ndarray, sizes: np.ndarray) -> float:
    r"""Return the total variation between two halves of the chains beyond what noise explains.

    The mean of an indicator over a chain of N draws has variance :math:`v \tau / N`. The variance v
    and the autocorrelation time :math:`\tau` are estimated around the mean of each chain, since
    chains stuck in different places disagree rather than being noisy. Two halves of h and C - h
    chains then differ by a normal variable of variance :math:`v \tau / N (1/h + 1/(C-h))`, whose
    absolute value has the mean :math:`\sqrt{2/\pi}` and the variance :math:`1 - 2/\pi` in units of
    it. The mean of the distance and two standard deviations are subtracted, since the worst of many
    rows is reported. ``indicators`` holds (C, N, k) zeros and ones that change, ``sizes`` their
    (k,) effective sample sizes around the means of chains.
    """
    num_chains = len(indicators)
    half = num_chains // 2
    if half == 0:
        return 0.0
    means = indicators.mean(axis=1)
    distance = np.abs(means[:half].mean(axis=0) - means[half:].mean(axis=0)).sum() / 2
    centred = indicators - means[:, None]
    variances = centred.var(axis=1, ddof=1).mean(axis=0)
    moving = variances > 0
    variance_of_mean = np.zeros(len(variances))
    variance_of_mean[moving] = variances[moving] / (sizes[moving] / num_chains)
    spread = np.sqrt(variance_of_mean * (1 / half + 1 / (num_chains - half)))
    noise = np.sqrt(2 / np.pi) * spread.sum() + 2 * np.sqrt((1 - 2 / np.pi) * (spread**2).sum())
    return max(0.0, float(distance - noise / 2))


@dataclass(frozen=True, eq=False)
class MCMCResult:
    """The draws of a run, chain by chain.

    Attributes:
        options: The options of the run.
        draws: (C, num, n) or (C, num, S, n) matchings in order, -1 for unmatched.
        log_densities: (C, num) log densities of the draws, log weights of unmatched rows and unused
            columns included; -inf while a chain has not found a matching of positive density.
        mode: (n,) or (S, n) the matching of largest density that any chain evaluated.
        mode_log_density: The log density of the mode.
        acceptance: The fraction of the proposals of each kind that changed the matching, over all
            temperatures, and of the exchanges between temperatures ("exchange") that took place.
        num_evaluations: The number of log densities, or differences of them, evaluated.
        interrupted: Whether the user stopped the run early.
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
    """Return the result of one problem from its final chains and its records.

    Raise ``ValueError`` if a density was NaN or +inf, or if all were -inf.
    """
    # argmax takes NaN for the largest.
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
    """Drop the site axis of (..., S, n) if there is one site."""
    return perms[..., 0, :] if perms.shape[-2] == 1 else perms


def _acceptance(
    options: MCMCOptions, config: Config, chains: Chains, records: Records
) -> dict[str, float]:
    num_sweeps = len(records.trades) * config.thin
    moved = zip(KINDS, chains.moved.mean(axis=0), config.counts, strict=True)
    rates = {kind: float(num / (num_sweeps * count)) for kind, num, count in moved if count}
    if options.num_temperatures > 1:
        # A sweep tries every other pair of neighbours.
        pairs = options.num_chains * (options.num_temperatures - 1) / 2
        rates["exchange"] = float(records.trades.sum() / (num_sweeps * pairs))
    return rates
