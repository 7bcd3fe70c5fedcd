"""What a method of inference is: what it takes, its options, and how to run it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from permvi.posterior import Posterior
from permvi.problem.prepare import Prepared

# The user's callback: ``progress(what, done, total)``.
Progress = Callable[[str, int, int], None]
# An engine's callback: ``on_progress(done, total, *numbers)``, such as an ELBO.
StepProgress = Callable[..., None]


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""
    del what, done, total


class Context(NamedTuple):
    """How to run a method.

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

    def step(self, done: int, total: int, *_: Any) -> None:
        """Show how far an engine has come; engines call it as ``step(done, total, ...)``."""
        self.progress(self.method, done, total)


@dataclasses.dataclass(frozen=True)
class MethodInfo:
    """A row of the table of methods.

    Attributes:
        name: What to call it in ``fit(model, method=...)``.
        needs: What it asks of a model.
        gives: What it returns.
        masks: Whether it honours masks; if not, it refuses them. Known pairs work with all methods.
        partial: Whether items may stay unmatched and labels unused, beyond a surplus.
        cost: How its cost grows.
        reference: Where it comes from.
    """

    name: str
    needs: str
    gives: str
    masks: bool
    partial: bool
    cost: str
    reference: str


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of inference, as the room of the method describes it.

    Attributes:
        info: What there is to know about it.
        options: Names of its settings.
        run: Computes the posterior of one prepared model.
        run_many: Computes those of several models in one call, or returns None if they do not fit
            into one; None for methods that have no such call.
        latents: Whether it takes models with other latent variables.
        sites: Whether it takes models with several permutations.
        linear: Whether it needs scores.
        square: Whether it needs as many items as labels.
    """

    info: MethodInfo
    options: tuple[str, ...]
    run: Callable[[Prepared, Context], Posterior]
    run_many: Callable[[Sequence[Prepared], Context], list[Posterior] | None] | None = None
    latents: bool = False
    sites: bool = True
    linear: bool = False
    square: bool = False

    def check(self, prepared: Prepared) -> None:
        """Refuse a model that the method cannot treat, in one sentence and before any work.

        Raises:
            ValueError: The model has something that the method does not take.
        """
        name, problem = self.info.name, prepared.problem
        n, m = problem.shape
        if problem.mask is not None and not self.info.masks:
            raise ValueError(
                f"model must have no mask for method {name!r}, got one; pv.methods() says which "
                "methods honour masks."
            )
        if problem.is_partial and not self.info.partial:
            raise ValueError(
                f"model must match every item for method {name!r}, got a partial matching problem; "
                "pv.methods() says which methods take those."
            )
        if problem.latents and not self.latents:
            raise ValueError(
                f"model must have no other latents for method {name!r}, got "
                f"{', '.join(map(repr, problem.latents))}; try method='rounding'."
            )
        if problem.num_sites > 1 and not self.sites:
            raise ValueError(
                f"model must have one site for method {name!r}, got {problem.num_sites}."
            )
        if n != m and self.square:
            raise ValueError(
                f"model must have as many items as labels for method {name!r}, got {n} and {m}."
            )
        if problem.scores is None and self.linear:
            raise ValueError(
                f"model must be linear (have scores) for method {name!r}, got a "
                f"{type(prepared.model).__name__} that is not."
            )


def option_names(options: type) -> tuple[str, ...]:
    """The names of the fields of a dataclass of options."""
    return tuple(field.name for field in dataclasses.fields(options))


Tree = TypeVar("Tree")


def alike(trees: Sequence[Any]) -> bool:
    """Whether pytrees have the same structure and leaves of the same shapes."""
    leaves, structures = zip(*(jax.tree.flatten(tree) for tree in trees), strict=True)
    shapes = [[np.shape(leaf) for leaf in part] for part in leaves]
    return all(other == structures[0] for other in structures) and all(
        other == shapes[0] for other in shapes
    )


def stack(trees: Sequence[Tree]) -> Tree:
    """Stack pytrees that are `alike`, with an axis over them in front of every leaf."""
    return jax.tree.map(lambda *parts: np.stack([np.asarray(p) for p in parts]), *trees)
