r"""Log normalisers of Mallows models, :math:`\log Z(\theta) = \log \sum_\sigma e^{-\theta d}`.

All distances are invariant under relabelling, so Z does not depend on the centre. The functions
work with NumPy (float64, for fits on the host) and with JAX; ``xp`` is the module to use.
"""

import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp as jax_logsumexp
from scipy.special import logsumexp as scipy_logsumexp

DISTANCES = ("footrule", "kendall", "cayley", "hamming")

# Log weight of the impossible: finite, since logaddexp(-inf, -inf) has a NaN derivative.
_NEVER = -1e30


def log_normalizer(theta: Any, n: int, distance: str, xp: Any = jnp) -> Any:
    r"""The log normaliser of n items for dispersions ``theta >= 0``; shape of ``theta``.

    * Kendall: :math:`\prod_{i=1}^n (1 + e^{-\theta} + \dots + e^{-(i-1)\theta})`.
    * Cayley: :math:`\prod_{i=1}^{n-1} (1 + i e^{-\theta})`.
    * Hamming: :math:`\sum_k \binom nk D_k e^{-k\theta}` with :math:`D_k` derangements of k items.
    * Footrule: see `footrule_step`.
    """
    theta = xp.asarray(theta)[..., None]
    logsumexp = scipy_logsumexp if xp is np else jax_logsumexp
    places = np.arange(n)
    if distance == "cayley":
        return xp.logaddexp(np.log(np.arange(1, n)) - theta, 0.0).sum(-1)
    if distance == "kendall":
        # Item i may be put before any number of the i earlier items.
        log_weights = xp.where(places <= places[:, None], -theta[..., None] * places, -np.inf)
        return logsumexp(log_weights, axis=-1).sum(-1)
    if distance == "hamming":
        return logsumexp(log_rencontres(n) - theta * np.arange(n + 1), axis=-1)
    log_a = footrule_start(n) - 0 * theta
    if xp is np:
        for _ in range(n):
            log_a = footrule_step(log_a, theta, np)
    else:
        log_a = jax.lax.fori_loop(
            0, n, lambda _, log_a: footrule_step(log_a, theta, jnp), xp.asarray(log_a)
        )
    return log_a[..., 0]


@lru_cache(maxsize=64)
def log_rencontres(n: int) -> np.ndarray:
    """(n+1,) log number of permutations that displace k items: binomial times derangements.

    The entry for k = 1 is -inf.
    """
    derangements = [1, 0]
    for k in range(2, n + 1):
        derangements.append((k - 1) * (derangements[-1] + derangements[-2]))
    counts = [math.comb(n, k) * derangements[k] for k in range(n + 1)]
    found = np.array([math.log(count) if count else -math.inf for count in counts])
    found.flags.writeable = False
    return found


def footrule_start(n: int) -> np.ndarray:
    """(n//2 + 1,) log weights before the first item, when nothing waits for a partner."""
    start = np.full(n // 2 + 1, _NEVER)
    start[0] = 0.0
    return start


def footrule_step(log_a: Any, theta: Any, xp: Any) -> Any:
    r"""Add one item to the footrule's recurrence, O(n) for each item, O(n^2) in all.

    Items come in turn, each with its own row and column. After i of them, j rows still wait for a
    later column and as many columns for a later row. Each of these 2j adds one to
    :math:`\sum_i |\sigma_i - i|` before the next item comes. So, if :math:`a_i(j)` is the total
    weight of all ways to reach this state,

    .. math:: a_{i+1}(j) = e^{-2 \theta j}
              [(2j + 1)\, a_i(j) + a_i(j - 1) + (j + 1)^2\, a_i(j + 1)],

    where the new item takes its own column or finds a partner for one of its two sides, for none,
    or for both. The normaliser is :math:`a_n(0)`.
    """
    j = np.arange(log_a.shape[-1])
    edge = xp.full_like(log_a[..., :1], _NEVER)
    opened = xp.concatenate([edge, log_a[..., :-1]], axis=-1)
    closed = xp.concatenate([log_a[..., 1:], edge], axis=-1)
    terms = (log_a + np.log(2 * j + 1), opened, closed + 2 * np.log(j + 1))
    return xp.logaddexp(xp.logaddexp(terms[0], terms[1]), terms[2]) - 2 * theta * j
