"""What a method is told beside its task."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

Progress = Callable[[str, int, int], None]


class Context(NamedTuple):
    """How to run.

    Attributes:
        method: The name of the method.
        seed: The user's seed.
        options: Settings by name, all of them known to the method.
        progress: Called as ``progress(what, done, total)``.
    """

    method: str
    seed: int
    options: Mapping[str, Any]
    progress: Progress

    @property
    def rng_key(self) -> jax.Array:
        """The seed as a JAX key."""
        return jax.random.key(self.seed)


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""
    del what, done, total
