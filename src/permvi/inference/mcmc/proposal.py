"""What an independence proposal is: any family with draws and exact probabilities."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Proposal(NamedTuple):
    """A law q over matchings from which whole matchings are proposed.

    Chains accept x' with the ratio p(x') q(x) / (p(x) q(x')), so ``log_prob`` must be the exact
    law of ``sample``, up to a constant. What it draws outside the constraints is rejected.

    Attributes:
        params: Pytree of arrays; with an axis in front over problems where there are many.
        sample: ``(params, rng_key) -> perm``, one matching (n,) or (S, n), -1 for unmatched. A JAX
            function; code is compiled anew for another one, so it should be one that lasts.
        log_prob: ``(params, perm) -> ()``, likewise.
    """

    params: Any
    sample: Callable[[Any, jax.Array], jax.Array]
    log_prob: Callable[[Any, jax.Array], jax.Array]
