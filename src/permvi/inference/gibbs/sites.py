"""Permutation-valued sites of a NumPyro model: how to find, condition and move them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro import handlers

from permvi.distributions import Mallows, Permutation, PlackettLuce, VertexPrior
from permvi.distributions.permutation import uses_only
from permvi.inference.mcmc.informed import LogDensities, Place, block_step, informed_steps
from permvi.inference.mcmc.moves import MatchingSpace, propose_cycle

# All arrangements of this many rows are looked at together.
_BLOCK_ROWS = 5
# The most swaps that an informed move looks at.
_MAX_PAIRS = 1024
# The keyword by which values of permutation sites and the power of the likelihood reach the model.
_GIVEN = "_given_permutations"
_KINDS = (Permutation, Mallows, PlackettLuce, VertexPrior)

Perms = dict[str, jax.Array]


class Site(NamedTuple):
    """A permutation-valued site.

    Attributes:
        shape: The shape (..., n) of its permutations, plates included.
        mask: Allowed pairs (..., n, n), or None.
        relaxed: Whether its values in the model are matrices.
    """

    shape: tuple[int, ...]
    mask: Any
    relaxed: bool

    @property
    def n(self) -> int:
        """The number of items."""
        return self.shape[-1]

    def value(self, perm: jax.Array) -> jax.Array:
        """Return the value of the site in the model: integers, or 0/1 matrices if relaxed."""
        return jax.nn.one_hot(perm, self.n) if self.relaxed else perm

    def draw(self, rng_key: jax.Array) -> jax.Array:
        """Draw permutations (..., n), uniform if possible."""
        return Permutation(self.n, self.mask).expand(self.shape[:-1]).sample(rng_key)


def find_sites(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Site]:
    """Return the permutation-valued latent sites of a model by name.

    Raises:
        ValueError: There is none.
    """
    seeded = handlers.seed(model, jax.random.key(0))
    with handlers.block():
        trace = handlers.trace(seeded).get_trace(*args, **kwargs)
    found = {
        name: _permutation_site(site["fn"])
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    sites = {name: site for name, site in found.items() if site is not None}
    if not sites:
        raise ValueError(
            "model must have a latent site with a Permutation for PermutationGibbs, got the latent "
            f"sites {sorted(found)}."
        )
    return sites


def _permutation_site(fn: Any) -> Site | None:
    """Return what a distribution says about a site, or None if it is not permutation-valued."""
    shape, base = (*fn.batch_shape, *fn.event_shape), fn
    while hasattr(base, "base_dist") and not isinstance(base, _KINDS):
        base = base.base_dist
    if isinstance(base, VertexPrior):
        return Site(shape[:-1], base.mask, relaxed=True)
    if isinstance(base, Permutation):
        return Site(shape, base.mask, relaxed=False)
    whole = isinstance(base, PlackettLuce) and base.num_places == base.log_worths.shape[-1]
    return Site(shape, None, relaxed=False) if whole or isinstance(base, Mallows) else None


class _Power(handlers.scale):
    """Raise the likelihood, i.e. all observed sites but the permutations, to a power."""

    def __init__(self, power: jax.Array, permutations: Any) -> None:
        super().__init__(scale=power)
        self._permutations = permutations

    def process_message(self, msg: Any) -> None:
        """Scale the log density of a site of the likelihood."""
        if msg["type"] == "sample" and msg["is_observed"] and msg["name"] not in self._permutations:
            super().process_message(msg)


def run_given(model: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a model given permutations and a power of the likelihood, if they are passed."""
    if _GIVEN not in kwargs:
        return model(*args, **kwargs)
    values, power = kwargs.pop(_GIVEN)
    with handlers.condition(data=values), _Power(power, values):
        return model(*args, **kwargs)


def given(
    kwargs: dict[str, Any], sites: dict[str, Site], perms: Perms, power: Any
) -> dict[str, Any]:
    """Return the keyword arguments that `run_given` looks for."""
    values = {name: sites[name].value(perm) for name, perm in perms.items()}
    return {**kwargs, _GIVEN: (values, jnp.asarray(power, float))}


def move_all(
    log_density: Callable[[Perms], jax.Array],
    sites: dict[str, Site],
    perms: Perms,
    rng_key: jax.Array,
    num_moves: int | None,
) -> Perms:
    """Move the permutations of all sites one by one, each given all others."""
    for number, (name, site) in enumerate(sites.items()):
        density = _density_of_site(log_density, perms, name, site)
        key = jax.random.fold_in(rng_key, number)
        perms = {**perms, name: _move_site(density, site, perms[name], key, num_moves)}
    return perms


def _density_of_site(
    log_density: Callable[[Perms], jax.Array], perms: Perms, name: str, site: Site
) -> Callable[[jax.Array], jax.Array]:
    """Return the log density of the permutations (E, n) of one site, never NaN."""

    def density(flat: jax.Array) -> jax.Array:
        found = log_density({**perms, name: flat.reshape(site.shape)})
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    return density


def _move_site(
    density: Callable[[jax.Array], jax.Array],
    site: Site,
    perms: jax.Array,
    rng_key: jax.Array,
    num_moves: int | None,
) -> jax.Array:
    """Move the permutations (..., n) of a site, those of a plate one after the other."""
    n = site.n
    flat = perms.reshape(-1, n)
    masks = None
    if site.mask is not None:
        masks = jnp.broadcast_to(site.mask, (*site.shape, n)).reshape(-1, n, n)

    def element(flat: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        index, key = at
        mask = None if masks is None else masks[index]

        def one(perm: jax.Array) -> jax.Array:
            found = density(flat.at[index].set(perm))
            return found if mask is None else jnp.where(uses_only(mask, perm), found, -jnp.inf)

        moved = _move_one(jax.vmap(one), flat[index], mask, key, num_moves)
        return flat.at[index].set(moved), None

    each = jnp.arange(len(flat)), jax.random.split(rng_key, len(flat))
    return jax.lax.scan(element, flat, each)[0].reshape(perms.shape)


def _move_one(
    log_densities: LogDensities,
    perm: jax.Array,
    mask: jax.Array | None,
    rng_key: jax.Array,
    num_moves: int | None,
) -> jax.Array:
    """Move one permutation (n,) by blocks, informed swaps and, under a mask, cycles."""
    n = len(perm)
    if n <= _BLOCK_ROWS:
        return block_step(log_densities, perm, rng_key, n).perm
    space = None if mask is None else MatchingSpace.of_permutations(mask[None])

    def move(place: Place, key: jax.Array) -> tuple[Place, None]:
        block_key, swap_key, cycle_key = jax.random.split(key, 3)
        place = block_step(log_densities, place.perm, block_key, _BLOCK_ROWS)
        place = informed_steps(log_densities, place, swap_key, 1, _MAX_PAIRS)
        if space is not None:
            place = _cycle_step(log_densities, place, cycle_key, space)
        return place, None

    start = Place(perm, log_densities(perm[None])[0])
    keys = jax.random.split(rng_key, num_moves or max(3, n // 4))
    return jax.lax.scan(move, start, keys)[0].perm


def _cycle_step(
    log_densities: LogDensities, place: Place, rng_key: jax.Array, space: MatchingSpace
) -> Place:
    """Propose a change along a cycle; these reach all permutations under any mask."""
    move_key, accept_key = jax.random.split(rng_key)
    words = jax.random.bits(move_key, (len(place.perm) + 2,), jnp.uint32)
    perm = propose_cycle(space, place.perm[None], words)[0]
    new = Place(perm, log_densities(perm[None])[0])
    log_u = jnp.log(jax.random.uniform(accept_key))
    yes = (log_u < new.log_p - place.log_p) | (place.log_p == -jnp.inf)
    return jax.tree.map(lambda a, b: jnp.where(yes, a, b), new, place)
