"""The uniform distribution over permutations, or over those that a mask allows."""

import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from permvi import _checks, assignment, permutations

# Independent parts of a mask are counted up to this size, by a sum over subsets of columns.
_MAX_COUNTED = 16


class _AllowedPermutations(constraints.Constraint):
    """Permutations (..., n) all of whose pairs a mask (..., n, n) allows."""

    event_dim = 1
    is_discrete = True

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def __call__(self, x: jax.Array) -> jax.Array:
        permutation = permutations.is_permutation(x)
        return permutation if self.mask is None else permutation & uses_only(self.mask, x)

    def feasible_like(self, prototype: jax.Array) -> jax.Array:
        n = prototype.shape[-1]
        if self.mask is None:
            return jnp.broadcast_to(jnp.arange(n), prototype.shape)
        scores = jnp.zeros((*prototype.shape, n))
        return assignment.solve(scores, self.mask).astype(prototype.dtype)

    def tree_flatten(self) -> tuple[tuple[Any], tuple[tuple[str], dict[str, Any]]]:
        return (self.mask,), (("mask",), {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _AllowedPermutations):
            return False
        if self.mask is None or other.mask is None:
            return self.mask is other.mask
        return np.array_equal(self.mask, other.mask)

    __hash__ = None  # type: ignore[assignment]


class Permutation(Distribution):
    """Permutations of n items, each as probable as any other that is allowed.

    A value is an integer vector with ``value[..., i] = j`` if item i is label j. As a latent site
    of a NumPyro model it is sampled by `permvi.PermutationGibbs`.

    Probabilities are normalised if all pairs are allowed, or if the mask splits into independent
    parts of at most 16 items. For larger parts, and for masks that are traced by ``jit``, the log
    probability of an allowed permutation is 0, which leaves out a constant, and draws from the
    prior reach all allowed permutations but are only roughly uniform: they are the best matchings
    under random scores.

    Args:
        n: Number of items.
        mask: (..., n, n) booleans, True where a pair is allowed; all pairs by default.
        known: (..., n) known labels, -1 for unknown.
        validate_args: As in NumPyro.

    Examples:
        >>> import jax, permvi
        >>> prior = permvi.distributions.Permutation(3, known=[2, -1, -1])
        >>> prior.sample(jax.random.key(0)).tolist()[0]
        2
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("mask", "log_count")

    def __init__(
        self,
        n: int,
        mask: ArrayLike | None = None,
        known: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        n = _checks.whole("n", n)
        self.mask: Any = None
        self.log_count: Any = math.lgamma(n + 1)
        batch: tuple[int, ...] = ()
        if mask is not None or known is not None:
            self.mask = _allowed(n, mask, known)
            batch = self.mask.shape[:-2]
            if _checks.is_concrete(self.mask):
                self.mask = assignment.prune_mask(self.mask)
            plans = self._plans()
            counts = [sum(part.log_count for part in plan) for plan in plans or ()]
            self.log_count = np.reshape(counts, batch) if counts else np.zeros(batch)
        super().__init__(batch, (n,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Permutations that the mask allows."""
        return _AllowedPermutations(self.mask)

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """Log probabilities of (..., n) integers, -inf for what is not allowed; see the class."""
        allowed = self.support(jnp.asarray(value))
        return jnp.where(allowed, -jnp.asarray(self.log_count, jnp.result_type(float)), -jnp.inf)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw independent samples, exactly uniform if probabilities are normalised."""
        shape, n = sample_shape + self.batch_shape, self.event_shape[0]
        if self.mask is None:
            items = jnp.broadcast_to(jnp.arange(n), (*shape, n))
            return jax.random.permutation(key, items, axis=-1, independent=True)
        plans = self._plans()
        if plans is None:
            scores = jax.random.gumbel(key, (*shape, n, n))
            return assignment.solve(scores, self.mask).astype(jnp.arange(n).dtype)
        keys = jax.random.split(key, (math.prod(sample_shape), len(plans)))
        drawn = [
            jax.vmap(functools.partial(_draw, plan, n))(keys[:, b]) for b, plan in enumerate(plans)
        ]
        return jnp.stack(drawn, axis=1).reshape(*shape, n)

    def _plans(self) -> list[tuple["_Part", ...]] | None:
        """Return the parts of each mask of the batch, or None if they cannot be counted."""
        if not _checks.is_concrete(self.mask):
            return None
        n = self.mask.shape[-1]
        found = (_plan(np.asarray(one).tobytes(), n) for one in self.mask.reshape(-1, n, n))
        plans = [plan for plan in found if plan is not None]
        return plans if len(plans) == math.prod(self.mask.shape[:-2]) else None


def uses_only(mask: ArrayLike, perm: jax.Array) -> jax.Array:
    """Return whether a mask (..., n, n) allows all pairs of permutations (..., n)."""
    pairs = jax.nn.one_hot(perm, perm.shape[-1], dtype=bool)
    return jnp.all(jnp.any(pairs & mask, axis=-1), axis=-1)


def _allowed(n: int, mask: ArrayLike | None, known: ArrayLike | None) -> Any:
    """Return the (..., n, n) pairs that mask and known pairs allow, on the host if possible."""
    xp: Any = np if _checks.is_concrete(mask, known) else jnp
    allowed = xp.ones((n, n), bool) if mask is None else xp.asarray(mask)
    if allowed.dtype != bool:
        raise TypeError(f"mask must be boolean, got dtype {allowed.dtype}.")
    if allowed.shape[-2:] != (n, n):
        raise ValueError(f"mask must have shape (..., {n}, {n}), got shape {allowed.shape}.")
    if known is None:
        return allowed
    # A column that is known twice leaves no matching, which the mask is then refused for.
    labels = xp.asarray(known)
    if xp is np:
        labels = _checks.check_matchings("known", labels, (n, n))
    elif labels.shape[-1:] != (n,):
        raise ValueError(f"known must have shape (..., {n}), got shape {labels.shape}.")
    return allowed & ((labels[..., None] < 0) | (labels[..., None] == xp.arange(n)))


class _Part(NamedTuple):
    """An independent part of a mask: rows and columns (k,), its mask (k, k), and ways (2**k,).

    ``ways[used]`` counts in how many ways the remaining rows, the last ones, can take the columns
    whose bits are not set in ``used``.
    """

    rows: np.ndarray
    cols: np.ndarray
    mask: np.ndarray
    ways: np.ndarray

    @property
    def log_count(self) -> float:
        """The log of the number of permutations."""
        return math.log(self.ways[0])


@functools.lru_cache(maxsize=256)
def _plan(mask: bytes, n: int) -> tuple[_Part, ...] | None:
    """Return the parts of a pruned mask, or None if one is too large to be counted."""
    table = np.frombuffer(mask, bool).reshape(n, n)
    parts = assignment.blocks(table)
    if any(len(rows) > _MAX_COUNTED for rows, _ in parts):
        return None
    inside = [(rows, cols, table[np.ix_(rows, cols)]) for rows, cols in parts]
    return tuple(_Part(*part, _ways(part[-1])) for part in inside)


def _ways(mask: np.ndarray) -> np.ndarray:
    """Return (2**k,) the number of completions of each set of used columns of a (k, k) mask."""
    k = len(mask)
    sets = np.arange(1 << k)
    sizes = np.array([int(used).bit_count() for used in sets])
    ways = np.zeros(1 << k)
    ways[-1] = 1.0
    for row in range(k)[::-1]:
        used = sets[sizes == row]
        for col in np.flatnonzero(mask[row]):
            free = used[(used >> col) & 1 == 0]
            ways[free] += ways[free | (1 << col)]
    return ways


def _draw(plan: tuple[_Part, ...], n: int, key: jax.Array) -> jax.Array:
    """Draw one permutation (n,); parts are independent."""
    perm = jnp.zeros(n, int)
    for index, part in enumerate(plan):
        chosen = _draw_part(part, jax.random.fold_in(key, index))
        perm = perm.at[part.rows].set(jnp.asarray(part.cols)[chosen])
    return perm


def _draw_part(part: _Part, key: jax.Array) -> jax.Array:
    """Draw the columns (k,) of a part: each row chooses in proportion to the ways that are left."""
    k = len(part.rows)
    log_ways = jnp.log(jnp.asarray(part.ways, jnp.result_type(float)))
    bits = 1 << jnp.arange(k)

    def choose(used: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        allowed, key = row
        possible = allowed & (used & bits == 0)
        col = jax.random.categorical(key, jnp.where(possible, log_ways[used | bits], -jnp.inf))
        return used | bits[col], col

    rows = jnp.asarray(part.mask), jax.random.split(key, k)
    return jax.lax.scan(choose, jnp.zeros((), bits.dtype), rows)[1]
