"""The description of a method of inference: its requirements, its options, and how to run it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from permvi import _memory
from permvi._jax import jax
from permvi._programmes import light_jit
from permvi.posterior import Marginals, Posterior
from permvi.posterior.marginals import MAX_CELLS
from permvi.problem.prepare import Prepared
from permvi.problem.reduction import Reduction

# The user's callback: ``progress(what, done, total)``.
Progress = Callable[[str, int, int], None]
# An engine's callback: ``on_progress(done, total, *numbers)``, such as an ELBO.
StepProgress = Callable[..., None]
# Splits of fewer keys share a programme with those of so many.
_FEW_KEYS = 8


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""
    del what, done, total


class Context(NamedTuple):
    """The name of the method to run, the user's seed, its options by name, and a callback.

    All options are known to the method.
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
        """Show progress; engines call it as ``step(done, total, ...)``."""
        self.progress(self.method, done, total)


def split_key(rng_key: jax.Array, num: int) -> tuple[jax.Array, ...]:
    """Return ``jax.random.split`` of a key on the host, as separate keys and by one programme.

    The first keys of a split do not depend on how many there are, unless JAX is told otherwise. So
    one programme serves all small numbers.
    """
    config: Any = jax.config
    is_threefry = str(jax.random.key_impl(rng_key)) == "threefry2x32"
    alike = is_threefry and config.jax_threefry_partitionable
    return _split_key(rng_key, max(num, _FEW_KEYS) if alike else num)[:num]


@functools.partial(light_jit, static_argnums=1)
def _split_key(rng_key: jax.Array, num: int) -> tuple[jax.Array, ...]:
    return tuple(jax.random.split(rng_key, num))


@functools.partial(light_jit, static_argnums=(1, 2))
def split_batch(rng_key: jax.Array, num: int, size: int) -> tuple[jax.Array, ...]:
    """Return ``jax.random.split(rng_key, (num, size))`` as separate arrays of keys."""
    return tuple(jax.random.split(rng_key, (num, size)))


@functools.partial(light_jit, static_argnums=1)
def split_keys(rng_key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return ``jax.random.split`` of a key on the host, as one array and by one programme."""
    return jax.random.split(rng_key, shape)


@light_jit
def fold_key(rng_key: jax.Array, number: int) -> jax.Array:
    """Return ``jax.random.fold_in`` of a key on the host."""
    return jax.random.fold_in(rng_key, number)


@dataclasses.dataclass(frozen=True)
class MethodInfo:
    """A row of the table of methods.

    Attributes:
        name: The name for ``fit(model, method=...)``.
        needs: The requirements on the model.
        gives: What the method returns.
        masks: Whether it supports masks; if not, it refuses them. Known pairs work in all methods.
        partial: Whether items may stay unmatched and labels unused, beyond a surplus.
        cost: How its cost grows.
        reference: The publications it comes from.
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
    """A method of inference.

    Attributes:
        info: Its row in the table of methods.
        options: The names of its options.
        run: Computes the posterior of one prepared model, known pairs included.
        run_many: Computes the posteriors of several models in one call, or returns None if they
            cannot be joined. None if the method has no such call.
        latents: Whether it accepts models with other latent variables.
        sites: Whether it accepts models with several permutations.
        linear: Whether it needs scores.
        square: Whether it needs as many items as labels.
        lists: Whether it accepts a list of candidate pairs instead of tables.
        rounds: Whether it evaluates in JAX's default precision only; "exact" takes more if it must.
        tables: How many tables of the problem's size, in float64, a fit holds at once, at least.
    """

    info: MethodInfo
    options: tuple[str, ...]
    run: Callable[[Prepared, Context], Posterior]
    run_many: Callable[[Sequence[Prepared], Context], list[Posterior] | None] | None = None
    latents: bool = False
    sites: bool = True
    linear: bool = False
    square: bool = False
    lists: bool = False
    rounds: bool = True
    tables: int = 8

    def check(self, prepared: Prepared) -> None:
        """Raise ``ValueError`` for a model that the method does not support."""
        problem, info = prepared.problem, self.info
        if prepared.listed is not None:
            n, m = prepared.model.shape
            if not self.lists:
                raise ValueError(
                    f"model must have at most {MAX_CELLS:,} pairs for method {info.name!r}, got "
                    f"{n:,} by {m:,}; method 'linear' takes lists of pairs."
                )
            return
        (n, m), latents = problem.shape, ", ".join(map(repr, problem.latents))
        see = "pv.methods() lists the methods that support"
        masked, partial = problem.mask is not None, f"a partial matching problem; {see} those"
        not_linear = problem.scores is None and not prepared.is_linear_given_latents
        others, model = f"{latents}; try method='rounding'", f"a {type(prepared.model).__name__}"
        refusals = (
            (masked and not info.masks, "have no mask", f"one; {see} masks"),
            (problem.is_partial and not info.partial, "match every item", partial),
            (latents and not self.latents, "have no other latents", others),
            (problem.num_sites > 1 and not self.sites, "have one site", problem.num_sites),
            (n != m and self.square, "have as many items as labels", f"{n} and {m}"),
            (not_linear and self.linear, "be linear", f"{model} without scores"),
        )
        for refused, expected, got in refusals:
            if refused:
                raise ValueError(f"model must {expected} for method {info.name!r}, got {got}.")

    def check_memory(self, prepared: Prepared, num_models: int = 1) -> None:
        """Raise ``ValueError`` for a model whose tables do not fit into the memory that is free.

        ``num_models`` like this one are fitted in one call.
        """
        if prepared.listed is not None:
            return
        problem, (n, m) = prepared.problem, prepared.problem.shape
        # Where items may stay unmatched, each has one more choice of its own.
        size = n + m if problem.is_partial and self.rounds else max(n, m)
        needed = 8.0 * self.tables * problem.num_sites * size**2 * num_models
        if problem.scores is None:
            advice = "known pairs or fewer items make the tables smaller"
        elif self.linear:
            advice = "list the pairs that matter in a models.SparseMatching"
        else:
            advice = "try method='linear'"
        where, together = f"{n:,} by {m:,} pairs", ""
        if num_models > 1:
            where, together = f"{num_models:,} models of {where}", "fit fewer of them at once, or "
        _memory.check(f"method {self.info.name!r} on {where}", needed, together + advice)


def option_names(options: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass of options."""
    return tuple(field.name for field in dataclasses.fields(options))


def restore_marginals(reduction: Reduction | None, found: Marginals) -> Marginals:
    """Return marginals of the whole problem: those of the reduced one and the known pairs."""
    if reduction is None:
        return found
    settled = np.asarray(reduction.settled)
    n, m = settled.shape[-1], reduction.col_place.shape[-1]
    sites = settled.reshape(-1, n)
    full = Marginals(
        (sites[:, :, None] == np.arange(m)).astype(float),
        np.zeros((len(sites), n)),
        np.zeros((len(sites), m)),
    )
    flat = [part.reshape(len(sites), *part.shape[settled.ndim - 1 :]) for part in found]
    free_rows = np.asarray(reduction.free_rows).reshape(len(sites), -1)
    free_cols = np.asarray(reduction.free_cols).reshape(len(sites), -1)
    for s, (rows, cols) in enumerate(zip(free_rows, free_cols, strict=True)):
        full.marginals[s][np.ix_(rows, cols)] = flat[0][s]
        full.p_unmatched_rows[s][rows] = flat[1][s]
        full.p_unmatched_cols[s][cols] = flat[2][s]
    return full if settled.ndim > 1 else Marginals(*(part[0] for part in full))


_Tree = TypeVar("_Tree")


def alike(trees: Sequence[Any]) -> bool:
    """Return whether pytrees have the same structure and leaves of the same shapes."""
    flat = [jax.tree.flatten(tree) for tree in trees]
    found = [(structure, [np.shape(leaf) for leaf in leaves]) for leaves, structure in flat]
    return all(other == found[0] for other in found)


def stack(trees: Sequence[_Tree]) -> _Tree:
    """Stack pytrees that are `alike` along a new first axis of every leaf."""
    return jax.tree.map(lambda *parts: np.stack([np.asarray(p) for p in parts]), *trees)
