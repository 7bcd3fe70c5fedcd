"""Problems and families for the tests of exact discrete families."""

import dataclasses

import jax.numpy as jnp
import numpy as np

import permvi as pv
from permvi.inference.discrete.conditionals import CONDITIONALS
from permvi.inference.discrete.family import Family
from permvi.inference.discrete.structure import build_structure
from permvi.inference.exact.method import list_all
from permvi.problem.prepare import prepare

KINDS = list(CONDITIONALS)
MASK = np.array(
    [[1, 1, 0, 0, 0], [0, 1, 1, 0, 1], [0, 0, 1, 1, 0], [1, 0, 0, 1, 1], [1, 0, 0, 0, 1]], bool
)
SHAPES = {
    "square": {"scores": np.zeros((4, 4))},
    "more columns": {"scores": np.zeros((3, 5))},
    "more rows": {"scores": np.zeros((5, 3))},
    "partial": {"scores": np.zeros((3, 4)), "row_unmatched": -1.0, "col_unmatched": -1.0},
    "some must": {"scores": np.zeros((3, 3)), "row_unmatched": [-1.0, -np.inf, 0.0],
                  "col_unmatched": [0.0, -np.inf, -2.0]},
    "masked": {"scores": np.zeros((5, 5)), "mask": MASK},
    "masked rectangle": {"scores": np.zeros((4, 5)), "mask": MASK[:4]},
    "two sites": {"scores": np.zeros((2, 3, 3))},
}  # fmt: skip


def problem_of(case):
    return prepare(pv.models.LinearMatching(**SHAPES[case])).problem


def random_family(problem, kind, rng, num_components=2, spread=1.5):
    structure = build_structure(problem)
    (n, _), S, C = structure.shape, structure.num_sites, structure.num_choices
    shape = (num_components, S, n, C)
    names = ("logits", "later") if kind == "lookahead" else ("logits",)
    orders = rng.permuted(np.tile(np.arange(n), (num_components, S, 1)), axis=-1)
    dtype = jnp.result_type(float)
    return Family(
        {name: jnp.asarray(spread * rng.standard_normal(shape), dtype) for name in names},
        jnp.asarray(rng.standard_normal(num_components), dtype),
        jnp.asarray(orders, jnp.int32),
        structure,
        kind,
    )


def all_choices(problem):
    """(count, S, n) all matchings as choices."""
    perms = list_all(problem).reshape(-1, problem.num_sites, problem.shape[0])
    return np.where(perms < 0, problem.shape[1], perms)


def one_component(family):
    return dataclasses.replace(
        family,
        params={name: value[:1] for name, value in family.params.items()},
        log_weights=family.log_weights[:1],
        orders=family.orders[:1],
    )


def count(draws, choices):
    """(count,) how often each of the choices was drawn."""
    place = {choice.tobytes(): i for i, choice in enumerate(choices.astype(np.int64))}
    found = [place[draw.tobytes()] for draw in np.asarray(draws).astype(np.int64)]
    return np.bincount(found, minlength=len(choices))
