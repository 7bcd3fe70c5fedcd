"""A permutation layer inside a neural network: learn to sort from examples of sorted lists.

Items are points in the plane, and the rule that orders them is unknown. A network gives each item a
score for every place, the layer rounds the scores to a permutation matrix, and the loss compares
the permuted items with the sorted list. The assignment has no gradient; the straight-through layer
uses the gradient of the scores' Sinkhorn matrix instead. Run ``python examples/learn_to_sort.py``;
it needs Equinox (the extra ``vae``).
"""
# ruff: noqa: T201

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import permvi as pv

NUM_ITEMS = 5


class Sorter(eqx.Module):
    """A small network that scores items, and the permutation that the scores round to."""

    mlp: eqx.nn.MLP

    def __init__(self, rng_key: jax.Array) -> None:
        self.mlp = eqx.nn.MLP(2, "scalar", width_size=32, depth=2, key=rng_key)

    def scores(self, items: jax.Array) -> jax.Array:
        """Return (n, n) scores of places (rows) and items (columns); large items belong late."""
        size = jax.vmap(self.mlp)(items)
        places = jnp.linspace(-1.0, 1.0, len(items))
        return places[:, None] * size

    def __call__(self, items: jax.Array) -> jax.Array:
        """Return an (n, n) permutation matrix with the gradients of a doubly stochastic one."""
        soft = pv.transforms.sinkhorn(self.scores(items), num_steps=20)
        return pv.assignment.nearest_permutation_straight_through(soft)


def sort_key(items: jax.Array) -> jax.Array:
    """Return the values (...) that decide the order; the network never sees them."""
    return items[..., 0] * items[..., 1]


def draw_lists(rng_key: jax.Array, num: int) -> tuple[jax.Array, jax.Array]:
    """Draw (num, n, 2) unordered items, and return them with the same items in order."""
    items = jax.random.uniform(rng_key, (num, NUM_ITEMS, 2))
    order = jnp.argsort(sort_key(items), axis=-1)
    return items, jnp.take_along_axis(items, order[..., None], axis=1)


@eqx.filter_jit
def loss_of(sorter: Sorter, items: jax.Array, ordered: jax.Array) -> jax.Array:
    """Return the mean squared distance between the permuted items and those in order."""
    return jnp.mean((jax.vmap(sorter)(items) @ items - ordered) ** 2)


@eqx.filter_jit
def places_right(sorter: Sorter, items: jax.Array, ordered: jax.Array) -> jax.Array:
    """Return the fraction of places that hold the right item."""
    found = jax.vmap(sorter)(items) @ items
    return jnp.mean(jnp.all(jnp.abs(found - ordered) < 1e-4, axis=-1))


def train(sorter: Sorter, num_steps: int, batch: int, rng_key: jax.Array) -> Sorter:
    """Train with Adam, on new lists in every step."""
    optimizer = optax.adam(3e-3)

    @eqx.filter_jit
    def step(
        sorter: Sorter, state: optax.OptState, rng_key: jax.Array
    ) -> tuple[Sorter, optax.OptState]:
        gradient = eqx.filter_grad(loss_of)(sorter, *draw_lists(rng_key, batch))
        update, state = optimizer.update(gradient, state)
        return eqx.apply_updates(sorter, update), state

    state = optimizer.init(eqx.filter(sorter, eqx.is_array))
    for key in jax.random.split(rng_key, num_steps):
        sorter, state = step(sorter, state, key)
    return sorter


def run(*, quick: bool = False) -> dict[str, float]:
    """Print and return the fraction of right places, before and after training."""
    init_key, train_key, test_key = jax.random.split(jax.random.key(0), 3)
    untrained = Sorter(init_key)
    trained = train(untrained, 60 if quick else 600, 64, train_key)
    test = draw_lists(test_key, 500)
    results = {
        "chance": 1 / NUM_ITEMS,
        "before": float(places_right(untrained, *test)),
        "after": float(places_right(trained, *test)),
    }
    print(f"lists of {NUM_ITEMS} items: places that hold the right one, in 500 new lists")
    for name, value in results.items():
        print(f"{name:8} {value:.3f}")
    return results


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Learn to sort through a permutation layer.")
    parser.add_argument("--quick", action="store_true", help="few steps")
    run(quick=parser.parse_args().quick)


if __name__ == "__main__":
    main()
