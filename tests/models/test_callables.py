"""Functions as models: four kinds, one answer."""

import jax.numpy as jnp
import numpy as np
import pytest

from permvi.models import CallableModel

SCORES = np.random.default_rng(5).normal(size=(4, 4))


def loop_matrix(X):
    return sum(SCORES[i, j] * X[i, j] for i in range(4) for j in range(4) if X[i, j] > 0)


def loop_perm(perm):
    return sum(SCORES[i, j] for i, j in enumerate(perm) if j >= 0)


def jax_perm(perm):
    return jnp.sum(jnp.where(perm >= 0, jnp.asarray(SCORES)[jnp.arange(4), perm], 0))


KINDS = [
    (lambda X: jnp.sum(X * SCORES), "matrix", True),
    (jax_perm, "perm", True),
    (loop_matrix, "matrix", False),
    (loop_perm, "perm", False),
]


@pytest.mark.parametrize(("function", "kind", "traceable"), KINDS)
def test_all_kinds_agree(function, kind, traceable):
    model = CallableModel(function, 4, kind)
    assert model.traceable == traceable
    assert model.relaxed == (traceable and kind == "matrix")
    perms = np.array([[0, 1, 2, 3], [3, -1, 0, 1]])
    wanted = [np.trace(SCORES), SCORES[0, 3] + SCORES[2, 0] + SCORES[3, 1]]
    np.testing.assert_allclose(model.log_density_of(perms), wanted, rtol=1e-6)
    np.testing.assert_allclose(model.log_density_of(perms[0]), wanted[0], rtol=1e-6)
    matrices = np.eye(5)[perms][..., :4]
    np.testing.assert_allclose(model.log_density(matrices), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"function": 3, "n": 2}, TypeError, "function must be callable, got int"),
        ({"function": loop_perm, "n": 0}, ValueError, "n must be a positive integer or a pair"),
        ({"function": loop_perm, "n": 2, "input": "vector"}, ValueError, "input must be 'matrix'"),
        (
            {"function": lambda X: X, "n": 2},
            ValueError,
            r"function must return one number for one matching, got shape \(2, 2\)",
        ),
    ],
)
def test_mistakes_are_answered_in_one_sentence(arguments, error, message):
    with pytest.raises(error, match=message):
        CallableModel(**arguments)


def test_a_host_function_has_to_return_a_number():
    model = CallableModel(lambda perm: "high", 2, "perm", jax=False)
    with pytest.raises(ValueError, match=r"function must return one number .* got 'high'"):
        model.log_density_of(np.arange(2))
