"""Elementary functions with precise values and gradients at the ends of (0, 1).

A branch that is not taken gets a harmless argument, so that no NaN gradient leaks out of it.
"""

import jax
import jax.numpy as jnp
import numpy as np

_LOG_2 = float(np.log(2.0))


def log1mexp(x: jax.Array) -> jax.Array:
    """Return ``log(1 - exp(x))`` for x < 0, elementwise; -inf at zero and NaN above it."""
    # Maechler (2012): use the form that loses no digits, switching at 1 - exp(x) = 1/2.
    near = x > -_LOG_2
    close = jnp.log(-jnp.expm1(jnp.where(near, x, -1.0)))
    far = jnp.log1p(-jnp.exp(jnp.where(near, -1.0, x)))
    return jnp.where(near, close, far)


def complement_loglog(s: jax.Array) -> jax.Array:
    """Return ``log(-log(1 - p))`` where ``log(-log p) = s``, elementwise; its own inverse.

    Even for p within 1e-100 of zero or one, ``log(-log p)`` is an ordinary number, so neither p nor
    1 - p is ever rounded to one.
    """
    reach = -float(np.log(jnp.finfo(s.dtype).eps))
    # Outside these limits the leading term of the expansion is exact to the last bit.
    low, high = s < -reach, s > float(np.log(reach))
    middle = jnp.where(low | high, 0.0, s)
    return jnp.where(
        low,
        jnp.log(-jnp.where(low, s, -1.0)),
        jnp.where(
            high,
            -jnp.exp(jnp.where(high, s, 0.0)),
            jnp.log(-log1mexp(-jnp.exp(middle))),
        ),
    )
