"""Chains and their acceptance rule, in JAX and in NumPy alike.

Functions here take arrays of either kind: densities that are no JAX functions leave the chains on
the host, in float64.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

KINDS = ("swap", "cycle", "independence")


class Chains(NamedTuple):
    """B chains: where they are and what they have seen.

    Attributes:
        perms: (B, S, n) matchings.
        log_p: (B,) their log densities.
        best_perms: (B, S, n) the matching of largest density that each has evaluated.
        best_log_p: (B,) its log density. NaN or +inf, which no density may be, stay here once seen.
        moved: (B, 3) how often each of `KINDS` has changed the matching.
    """

    perms: Any
    log_p: Any
    best_perms: Any
    best_log_p: Any
    moved: Any

    @classmethod
    def start(cls, perms: Any, log_p: Any) -> "Chains":
        """Chains that have seen nothing but their starting points."""
        xp = _namespace(perms)
        return cls(perms, log_p, perms, log_p, xp.zeros((len(perms), len(KINDS)), int))


def accept(
    chains: Chains,
    kind: str,
    perms: Any,
    log_p: Any,
    gain: Any,
    betas: Any,
    log_uniforms: Any,
    log_hastings: Any = 0.0,
) -> Chains:
    r"""Metropolis-Hastings on :math:`p^\beta`: move with probability min(1, ratio).

    The ratio is :math:`\exp(\beta (\log p(x') - \log p(x)))` times the Hastings ratio. From where
    the density is zero every proposal is taken, in search of a place where it is not.

    Args:
        chains: B chains.
        kind: One of `KINDS`.
        perms: (B, S, n) proposals; one that is no change is no move.
        log_p: (B,) their log densities.
        gain: (B,) log densities less those of the chains.
        betas: (B,) inverse temperatures.
        log_uniforms: (B,) logs of uniform numbers.
        log_hastings: (B,) logs of Hastings ratios.
    """
    xp = _namespace(chains.perms)
    yes = (log_uniforms < betas * gain + log_hastings) | (chains.log_p == -xp.inf)
    changed = yes & (perms != chains.perms).any(axis=(-2, -1))
    better = ~(log_p <= chains.best_log_p) & ~xp.isnan(chains.best_log_p)
    return Chains(
        perms=xp.where(yes[:, None, None], perms, chains.perms),
        log_p=xp.where(yes, log_p, chains.log_p),
        best_perms=xp.where(better[:, None, None], perms, chains.best_perms),
        best_log_p=xp.where(better, log_p, chains.best_log_p),
        moved=chains.moved + changed[:, None] * (np.arange(len(KINDS)) == KINDS.index(kind)),
    )


def exchange(
    chains: Chains, inverse_temperatures: Any, parity: Any, log_uniforms: Any
) -> tuple[Chains, Any]:
    r"""Exchange matchings between adjacent temperatures (Geyer 1991).

    Neighbours t and t+1 trade places with probability
    :math:`\min(1, \exp((\beta_t - \beta_{t+1}) (\log p_{t+1} - \log p_t)))`, for even t and for odd
    t in turn (Okabe et al. 2001).

    Args:
        chains: B = C T chains, the T temperatures of a chain in succession, the coldest first.
        inverse_temperatures: (T,) decreasing.
        parity: 0 or 1.
        log_uniforms: (C, T-1) logs of uniform numbers.

    Returns:
        The chains, and how many pairs traded places.
    """
    xp = _namespace(chains.perms)
    T = len(inverse_temperatures)
    log_p = chains.log_p.reshape(-1, T)
    ratio = (inverse_temperatures[:-1] - inverse_temperatures[1:]) * (log_p[:, 1:] - log_p[:, :-1])
    trade = (log_uniforms < ratio) & (np.arange(T - 1) % 2 == parity)
    nothing = xp.zeros((len(log_p), 1), int)
    up, down = xp.concatenate([trade, nothing], 1), xp.concatenate([nothing, trade], 1)
    source = (xp.arange(log_p.size).reshape(-1, T) + up - down).reshape(-1)
    return chains._replace(perms=chains.perms[source], log_p=chains.log_p[source]), trade.sum()


def _namespace(array: Any) -> Any:
    return np if isinstance(array, np.ndarray) else jnp
