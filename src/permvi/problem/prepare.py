"""Turn a model into a problem: merge constraints, prune masks, take out known pairs."""

from __future__ import annotations

import copy
import dataclasses
from functools import cached_property
from typing import Any, Literal

import numpy as np

from permvi._assignment import masks
from permvi._jax import is_pytree, jax, jnp, once_loaded, pytree_dataclass
from permvi.models import _arguments
from permvi.models.labels import NO_LABELS, Labels
from permvi.models.linear import gain_of_swap, sum_of_matched, sum_of_pairs
from permvi.models.protocol import MAX_TABLE, Model
from permvi.problem.candidates import Candidates
from permvi.problem.centre import centre
from permvi.problem.problem import Problem
from permvi.problem.reduction import Reduction, remaining_mask
from permvi.problem.sites import Layout
from permvi.problem.unmatched import may_be_partial, unmatched_weights


@pytree_dataclass
@dataclasses.dataclass(frozen=True)
class _Data:
    """The leaves of a problem: a model, its soft prior, and how to embed the reduced problem.

    ``leaf`` is a dummy: the problems of a batch are counted by leaves, and a model may have none.
    """

    model: Any
    prior_scores: Any
    reduction: Reduction | None
    leaf: Any


class _Opaque:
    """A model that is not a pytree, as static data; code is compiled anew for each such model.

    Two are equal if they hold the same object, since models need not be hashable.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def tree_flatten(self) -> tuple[tuple[()], _Opaque]:
        """Return no leaves, and itself as static data."""
        return (), self

    @classmethod
    def tree_unflatten(cls, same: _Opaque, children: Any) -> _Opaque:
        """Return the static data."""
        del children
        return same

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and other.model is self.model

    def __hash__(self) -> int:
        return id(self.model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


once_loaded(lambda: jax.tree_util.register_pytree_node_class(_Opaque))


@dataclasses.dataclass(frozen=True)
class Linear:
    """A linear problem with its known pairs, in float64 on the host, as exact laws take it.

    Attributes:
        scores: (n, m) or (S, n, m), prior scores included.
        mask: Of the same shape, or None.
        known: (n,) or (S, n), or None.
        row_unmatched: (n,) or (S, n), or None.
        col_unmatched: (m,) or (S, m), or None.
    """

    scores: np.ndarray
    mask: np.ndarray | None
    known: np.ndarray | None
    row_unmatched: np.ndarray | None
    col_unmatched: np.ndarray | None

    def arguments(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


Centring = Literal["never", "far", "always"]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A model that is ready for a method.

    Attributes:
        model: The model.
        problem: The problem that methods see, without known pairs or labels.
        reduction: How to put known pairs back, None where no pairs were taken out.
        settled: Whether known pairs leave nothing open. Then no pairs are taken out, and the mask
            of the problem allows the known pairs only.
        listed: The pairs of a large model that lists them. Then the problem has no scores, mask or
            log density, only its shape and its constant.
        note: What the list leaves out, None if that is nothing.
        solved: The model that engines solve: ``model``, or a linear one with constants taken out.
        offset: The log evidence that they add up to; `fit` adds it.
    """

    model: Any
    problem: Problem
    reduction: Reduction | None
    settled: bool
    listed: Candidates | None = None
    note: str | None = None
    solved: Any = None
    offset: float = 0.0

    @property
    def is_centred(self) -> bool:
        """Whether constants were taken out."""
        return self.solved is not None and self.solved is not self.model

    @property
    def labels(self) -> Labels:
        """Names of rows and columns."""
        return getattr(self.model, "labels", None) or NO_LABELS

    @property
    def is_linear_given_latents(self) -> bool:
        """Whether the model has other latents and gives scores for each value of them."""
        return bool(self.problem.latents) and hasattr(self.model, "pair_scores")

    @cached_property
    def linear(self) -> Linear | None:
        """The whole problem, known pairs included, or None if it is listed or not linear."""
        scores = None if self.listed is not None else _linear_scores(self.solved)
        return None if scores is None else _linear(self.solved, scores)

    @cached_property
    def candidates(self) -> Candidates:
        """The pairs of the reduced problem, which has to be linear; sites follow each other."""
        if self.listed is not None:
            return self.listed
        return Candidates.of_problem(self.problem)

    def linear_with(self, scores: Any) -> Linear:
        """Return the whole problem with scores (n, m) or (S, n, m) instead of the model's."""
        return _linear(self.model, _with_prior(self.model, scores))

    def restore(self, perms: np.ndarray) -> np.ndarray:
        """Put the known pairs back into matchings of the reduced problem."""
        return perms if self.reduction is None else self.reduction.restore(perms)

    def in_all_rows(self, by_row: np.ndarray) -> np.ndarray:
        """Extend values of the reduced problem's rows to all rows, zero in rows of known pairs."""
        if self.reduction is None:
            return by_row
        placed = np.take_along_axis(by_row, np.asarray(self.reduction.row_place), axis=-1)
        return np.where(np.asarray(self.reduction.settled) >= 0, 0.0, placed)


def prepare(model: Model, *, lists: bool = True, centred: Centring = "never") -> Prepared:
    """Turn a model into the problem that engines see.

    Args:
        model: The model.
        lists: Whether to take a list of candidate pairs instead of tables from a large model.
        centred: Whether to take constants out of the rows and columns of a linear model: never, if
            they are far from zero, or always; see `Prepared.offset`.

    Raises:
        ValueError: The mask allows no matching.
    """
    listed = prepare_list(model) if lists else None
    if listed is not None:
        return listed
    table = Layout(model.num_sites, *model.shape).table_shape
    mask, known = getattr(model, "mask", None), getattr(model, "known", None)
    if not isinstance(model, _arguments.Constrained):
        # A model of the user's; ours have checked these when they were made.
        mask = _arguments.allowed_pairs(mask, table, NO_LABELS)
        known = _arguments.known_pairs(known, table, NO_LABELS, mask)
    row, col = getattr(model, "row_unmatched", None), getattr(model, "col_unmatched", None)
    traceable = getattr(model, "traceable", True)
    scores, solved, offset = _linear_scores(model), model, 0.0
    if centred != "never" and traceable and scores is not None:
        given = np.broadcast_to(scores, table), mask, known, row, col
        found = centre(*given, even_if_near=centred == "always")
        if found is not None:
            solved, offset = found
            scores, row, col = solved.scores, solved.row_unmatched, solved.col_unmatched
    reduction, settled = None, False
    if known is not None and (known >= 0).any():
        reduction = Reduction.of(known, model.shape[1])
        settled = 0 in reduction.shape
        if settled:
            reduction, mask = None, known[..., None] == np.arange(model.shape[1])
        else:
            mask = remaining_mask(reduction, known, mask)
    is_partial = may_be_partial(row, col)
    mask = _pruned(mask, partial=is_partial)
    scores, constant = _scores(scores, reduction)
    if is_partial:
        # The model's shape counts: taking out known pairs must not change what may stay unmatched.
        row, col = unmatched_weights(row, col, model.shape)
    if reduction is not None:
        row = None if row is None else reduction.rows(row)
        col = None if col is None else reduction.cols(col)
    prior = getattr(solved, "prior_scores", None)
    problem = Problem(
        data=_Data(_as_data(solved), prior, reduction, np.zeros(())),
        mask=mask,
        scores=scores,
        constant=constant,
        row_unmatched=row,
        col_unmatched=col,
        latents=dict(getattr(model, "latents", None) or {}),
        log_density=_log_density if getattr(solved, "relaxed", traceable) else None,
        log_density_of=_log_density_of if traceable else _host_log_density_of,
        shape=model.shape if reduction is None else reduction.shape,
        num_sites=model.num_sites,
        traceable=traceable,
        delta=_delta if traceable and callable(getattr(solved, "delta", None)) else None,
    )
    return Prepared(model, problem, reduction, settled, solved=solved, offset=offset)


def prepare_list(model: Any) -> Prepared | None:
    """Prepare a large model by its list of candidate pairs, or return None if it has none."""
    shape, known = model.shape, getattr(model, "known", None)
    list_pairs = getattr(model, "candidate_pairs", None)
    if list_pairs is None or shape[0] * shape[1] <= MAX_TABLE:
        return None
    given = getattr(model, "row_unmatched", None), getattr(model, "col_unmatched", None)
    rows, cols = (np.asarray(alone) for alone in unmatched_weights(*given, shape))
    found = list_pairs(rows, cols)
    if found is None:
        return None
    pairs = Candidates(found.rows, found.cols, found.scores, rows, cols)
    reduction, settled, constant = None, False, 0.0
    if known is not None and (known >= 0).any():
        reduction = Reduction.of(known, shape[1])
        settled = 0 in reduction.shape
        constant, pairs = pairs.without(reduction)
        if settled:
            # Nothing is left to match, so the rest stays alone.
            constant += float(pairs.row_alone.sum() + pairs.col_alone.sum())
            reduction = None
    problem = Problem(
        data=None,
        mask=None,
        scores=None,
        constant=constant,
        row_unmatched=pairs.row_alone,
        col_unmatched=pairs.col_alone,
        latents={},
        log_density=None,
        log_density_of=_no_table,
        shape=shape if reduction is None else reduction.shape,
        num_sites=1,
        traceable=False,
    )
    return Prepared(model, problem, reduction, settled, pairs, found.note)


def _no_table(data: Any, perm: Any) -> Any:
    del data, perm
    raise ValueError("log densities need tables of pairs, got a list of candidates.")


def _as_data(model: Any) -> Any:
    if not is_pytree(model):
        return _Opaque(model)
    # Labels are static data: other names would mean compiling again.
    bare = copy.copy(model)
    if "labels" in getattr(bare, "__dict__", ()):
        # This is our copy, so it may be changed even if the class is frozen.
        object.__setattr__(bare, "labels", NO_LABELS)
    return bare


def _pruned(mask: Any, *, partial: bool) -> np.ndarray | None:
    """Return the mask without entries that no matching uses, or None if it allows everything."""
    if mask is None:
        return None
    # If items may stay unmatched, every single pair is part of some matching.
    allowed = np.asarray(mask) if partial else masks.prune_all(np.asarray(mask))
    return None if allowed.all() else allowed


def _linear(model: Any, scores: np.ndarray) -> Linear:
    names = ("mask", "known", "row_unmatched", "col_unmatched")
    given = (getattr(model, name, None) for name in names)
    return Linear(scores, *(None if array is None else np.asarray(array) for array in given))


def _linear_scores(model: Any) -> np.ndarray | None:
    """Return the scores of a linear model, prior scores included, or None if it is not linear."""
    scores = None if getattr(model, "latents", None) else getattr(model, "scores", None)
    return None if scores is None else _with_prior(model, scores)


def _scores(
    total: np.ndarray | None, reduction: Reduction | None
) -> tuple[np.ndarray | None, float]:
    """Return the scores of the reduced problem and the sum of those that were taken out."""
    if total is None or reduction is None:
        return total, 0.0
    settled = np.asarray(reduction.settled)
    chosen = np.take_along_axis(total, np.maximum(settled, 0)[..., None], axis=-1)[..., 0]
    return reduction.table(total), float(chosen[settled >= 0].sum())


def _with_prior(model: Any, scores: Any) -> np.ndarray:
    prior = getattr(model, "prior_scores", None)
    total = np.asarray(scores, dtype=np.float64)
    return total if prior is None else total + np.asarray(prior)


def _log_density(data: _Data, X: jax.Array, **latents: Any) -> jax.Array:
    """Return the log density of the reduced problem on (..., n', m') or (..., S, n', m')."""
    X = jnp.asarray(X)
    full = X if data.reduction is None else data.reduction.embed(X)
    value = data.model.log_density(full, **latents)
    if data.prior_scores is None:
        return value
    return value + sum_of_pairs(data.prior_scores, full, data.model.num_sites)


def _log_density_of(data: _Data, perm: Any, **latents: Any) -> Any:
    """Return the log density of the reduced problem on permutations (..., n') or (..., S, n')."""
    return _of_permutations(jnp, data, perm, latents)


def _host_log_density_of(data: _Data, perm: Any, **latents: Any) -> Any:
    """Return `_log_density_of` for models that are not JAX functions, on NumPy arrays."""
    return _of_permutations(np, data, perm, latents)


def _of_permutations(xp: Any, data: _Data, perm: Any, latents: dict[str, Any]) -> Any:
    perm, m = xp.asarray(perm), data.model.shape[1]
    full = perm if data.reduction is None else data.reduction.restore(perm)
    density_of = getattr(data.model, "log_density_of", None)
    if density_of is not None:
        value = density_of(full, **latents)
    else:
        matrix = np.eye(m + 1)[full][..., :-1] if xp is np else jax.nn.one_hot(full, m)
        value = data.model.log_density(matrix, **latents)
    value = np.asarray(value) if xp is np else value
    if data.prior_scores is None:
        return value
    return value + xp.asarray(sum_of_matched(data.prior_scores, full, data.model.num_sites))


def _delta(
    data: _Data, perm: jax.Array, i: jax.Array, k: jax.Array, *site: jax.Array, **latents: Any
) -> jax.Array:
    """Return what a swap of rows i and k of the reduced problem adds to one matching."""
    full = jnp.asarray(perm)
    if data.reduction is not None:
        full = data.reduction.restore(full)
        rows = jnp.asarray(data.reduction.free_rows)[site]
        i, k = rows[i], rows[k]
    gain = data.model.delta(full, i, k, *site, **latents)
    if data.prior_scores is None:
        return gain
    return gain + gain_of_swap(data.prior_scores, full, i, k, *site)
