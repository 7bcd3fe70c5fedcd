"""Log densities of noise, per dimension, on the host in float64 or under a JAX trace."""

import math
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np

from permvi import _checks
from permvi._choices import one_of

Noise = Literal["gaussian", "student_t"]
NOISES = get_args(Noise)


def log_density(kind: str, residual: Any, scale: Any, df: float) -> Any:
    r"""Log density of residuals, summed over their last axis, the dimensions.

    Gaussian: :math:`-\frac12 (r/\sigma)^2 - \log\sigma - \frac12 \log 2\pi`. Student's t: the same
    with a t density of ``df`` degrees of freedom in every dimension.

    Args:
        kind: "gaussian" or "student_t".
        residual: (..., d).
        scale: What broadcasts against it.
        df: Degrees of freedom.

    Returns:
        (...) log densities; NumPy in, NumPy out.
    """
    one_of("noise", kind, NOISES)
    xp: Any = np if _checks.is_concrete(residual, scale) and _on_host(residual, scale) else jnp
    z = residual / scale
    if kind == "gaussian":
        per_dimension = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    else:
        constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        per_dimension = constant - (df + 1) / 2 * xp.log1p(z**2 / df)
    return xp.sum(per_dimension - xp.log(scale), axis=-1)


def _on_host(*values: Any) -> bool:
    return all(isinstance(value, np.ndarray | np.generic | float) for value in values)
