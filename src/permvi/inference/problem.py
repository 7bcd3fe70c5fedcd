"""What a method of inference is given: a log density over permutations, and its constraints.

`permvi.fit` makes a `Problem` of a model after known pairs have been taken out, so no method has to
know about models, labels or known pairs. A problem is a pytree: its arrays are leaves and its
functions are static, so that jitted methods compile once for all data of one shape.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Problem:
    """A log density over S permutations, each an n by m matching.

    Attributes:
        data: Pytree of arrays that ``log_density`` and ``log_density_of`` take first.
        log_density: ``(data, X) -> (...)`` for X of shape (..., n, m), or (..., S, n, m) if
            ``num_sites`` > 1; differentiable in X, for 0/1 and relaxed matrices. Latents, if any,
            are keyword arguments. None if the density is only known on permutations.
        log_density_of: ``(data, perm) -> (...)`` for integers of shape (..., n) or (..., S, n).
        shape: (n, m).
        num_sites: S.
        traceable: Whether the functions are JAX functions; else they run on the host.
        mask: (n, m) or (S, n, m) booleans, True where allowed, or None.
        scores: (n, m) or (S, n, m) such that the log density is ``constant + sum(scores * X)``, or
            None if it is not linear.
        constant: The log density of no matches at all, for linear problems.
        row_unmatched: (n,) log weights of leaving a row unmatched, or None if all must match.
        col_unmatched: (m,) the same for columns.
        latents: Priors of other latent variables by name, NumPyro distributions.
        delta: ``(data, perm, i, k) -> ()``, what swapping the columns of rows i and k of one
            matching (n,) adds to the log density, a JAX function; ``(data, perm, i, k, site)`` with
            several sites and perm (S, n). None if the model knows no short cut.
    """

    data: Any
    mask: np.ndarray | jax.Array | None
    scores: np.ndarray | jax.Array | None
    constant: float | jax.Array
    row_unmatched: np.ndarray | jax.Array | None
    col_unmatched: np.ndarray | jax.Array | None
    latents: dict[str, Any]
    log_density: Callable[..., Any] | None = dataclasses.field(metadata={"static": True})
    log_density_of: Callable[..., Any] = dataclasses.field(metadata={"static": True})
    shape: tuple[int, int] = dataclasses.field(metadata={"static": True})
    num_sites: int = dataclasses.field(metadata={"static": True})
    traceable: bool = dataclasses.field(metadata={"static": True})
    delta: Callable[..., Any] | None = dataclasses.field(default=None, metadata={"static": True})
