"""The description of a method of inference: its requirements, its options, and how to run it."""

from __future__ import annotations

import dataclasses
import functools
import math
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
# The constants of Threefry-2x32: rotations, by turns, and the parity of its key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


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
        config: Any = jax.config
        if config.jax_default_prng_impl == "threefry2x32":
            # As JAX does it, but without a programme.
            return _wrapped(np.array([0, self.seed], np.uint32))
        return jax.random.key(self.seed)

    def step(self, done: int, total: int, *_: Any) -> None:
        """Show progress; engines call it as ``step(done, total, ...)``."""
        self.progress(self.method, done, total)


def split_key(rng_key: jax.Array, num: int) -> tuple[jax.Array, ...]:
    """Return ``jax.random.split`` of a key on the host, as separate keys."""
    if _is_plain(rng_key):
        return tuple(map(_wrapped, _split(rng_key, num)))
    return _split_key(rng_key, num)


@functools.partial(light_jit, static_argnums=1)
def _split_key(rng_key: jax.Array, num: int) -> tuple[jax.Array, ...]:
    return tuple(jax.random.split(rng_key, num))


def split_batch(rng_key: jax.Array, num: int, size: int) -> tuple[jax.Array, ...]:
    """Return ``jax.random.split(rng_key, (num, size))`` as separate arrays of keys."""
    if _is_plain(rng_key):
        return tuple(map(_wrapped, _split(rng_key, num, size)))
    return tuple(jax.random.split(rng_key, (num, size)))


def split_keys(rng_key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return ``jax.random.split`` of a key on the host, as one array."""
    if _is_plain(rng_key):
        return _wrapped(_split(rng_key, *shape))
    return jax.random.split(rng_key, shape)


def fold_key(rng_key: jax.Array, number: int) -> jax.Array:
    """Return ``jax.random.fold_in`` of a key on the host."""
    if _is_plain(rng_key):
        return _wrapped(_threefry(rng_key, np.zeros(()), np.array(number)))
    return jax.random.fold_in(rng_key, number)


def _wrapped(data: np.ndarray) -> jax.Array:
    """Return the keys of data (..., 2) of the host."""
    # `jnp.asarray` compiles a programme for each shape.
    return jax.random.wrap_key_data(jax.device_put(data))


def _is_plain(rng_key: jax.Array) -> bool:
    """Return whether a key is on the host, and split by Threefry as JAX does it by default."""
    config: Any = jax.config
    is_threefry = str(jax.random.key_impl(rng_key)) == "threefry2x32"
    is_traced = isinstance(rng_key, jax.core.Tracer)
    return is_threefry and config.jax_threefry_partitionable and not is_traced


def _split(rng_key: jax.Array, *shape: int) -> np.ndarray:
    """Return the data (*shape, 2) of split keys, which are the numbers from 0 on, encrypted."""
    counts = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return _threefry(rng_key, counts >> np.uint64(32), counts & np.uint64(0xFFFFFFFF))


def _threefry(rng_key: jax.Array, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Return numbers (...) in two words each, encrypted by Threefry-2x32, as words (..., 2).

    It has 20 rounds, as in Salmon et al. (2011). NumPy does here what JAX would compile a programme
    for, which takes a tenth of a second for each shape.
    """
    first, second = np.asarray(jax.random.key_data(rng_key))
    keys = (first, second, first ^ second ^ _PARITY)
    # Arrays of one axis or more: NumPy warns if a single number wraps around.
    x, y = (np.atleast_1d(part).astype(np.uint32) for part in (high, low))
    x, y = x + keys[0], y + keys[1]
    for turn in range(5):
        for rotation in _ROTATIONS[turn % 2]:
            x = x + y
            y = x ^ (y << np.uint32(rotation) | y >> np.uint32(32 - rotation))
        x, y = x + keys[(turn + 1) % 3], y + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    return np.stack([x, y], axis=-1).reshape(*np.shape(low), 2)


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
