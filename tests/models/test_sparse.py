"""Lists of pairs say what masked tables say."""

import jax
import numpy as np
import pytest
from scipy import sparse

import permvi as pv

ROWS, COLS = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0])
SCORES = np.array([0.5, -1.0, 2.0, 0.0, 1.5])


def model(**constraints):
    return pv.models.SparseMatching(ROWS, COLS, SCORES, (3, 4), **constraints)


@pytest.mark.float32
def test_densities_are_those_of_a_masked_table(rng):
    lists = model()
    tables = pv.models.LinearMatching(lists.scores, mask=lists.mask)
    X = rng.random((5, 3, 4))
    np.testing.assert_allclose(lists.log_density(X), tables.log_density(X * lists.mask), rtol=1e-5)
    perms = np.array([[0, 1, 2], [1, -1, 0], [-1, 1, 2]])
    np.testing.assert_allclose(lists.log_density_of(perms), tables.log_density_of(perms))
    batched = jax.jit(jax.vmap(lists.log_density_of))(perms)
    np.testing.assert_allclose(batched, [2.5, 0.5, 2.0], rtol=1e-6)


def test_the_posterior_is_that_of_a_masked_table():
    lists = model(row_unmatched=-1.0, col_unmatched=[0.0, -1.0, -2.0, 0.5])
    tables = pv.models.LinearMatching(
        lists.scores,
        mask=lists.mask,
        row_unmatched=-1.0,
        col_unmatched=[0.0, -1.0, -2.0, 0.5],
    )
    a, b = pv.fit(lists), pv.fit(tables)
    assert a.method == "exact"
    np.testing.assert_allclose(a.marginals, b.marginals)
    assert a.log_evidence == pytest.approx(b.log_evidence)


def test_a_sparse_array_keeps_its_stored_zeros():
    array = sparse.coo_array((SCORES, (ROWS, COLS)), shape=(3, 4))
    found = pv.models.SparseMatching.from_matrix(array.tocsr(), row_unmatched=0.0)
    np.testing.assert_array_equal(found.mask, model().mask)
    np.testing.assert_array_equal(found.scores, model().scores)
    assert (found.row_unmatched == 0).all()
    with pytest.raises(TypeError, match="matrix must be a SciPy sparse array"):
        pv.models.SparseMatching.from_matrix(np.eye(3))


def test_labels_and_known_pairs():
    found = model(labels=(["a", "b", "c"], ["w", "x", "y", "z"]), known={"c": "y"})
    np.testing.assert_array_equal(found.known, [-1, -1, 2])
    with pytest.raises(ValueError, match="known must respect mask"):
        model(known={0: 2})


def test_the_fingerprint_tells_lists_apart():
    other = pv.models.SparseMatching(ROWS, COLS, SCORES + 1, (3, 4))
    assert pv.models.fingerprint(model()) != pv.models.fingerprint(other)
    assert pv.models.fingerprint(model()) == pv.models.fingerprint(model())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ROWS, COLS, SCORES, (3, 2)), ValueError, r"cols must be in 0\.\.1, got 2"),
        ((ROWS, COLS[:3], SCORES, (3, 4)), ValueError, r"cols must have shape \(5,\)"),
        ((ROWS * 1.0, COLS, SCORES, (3, 4)), TypeError, "rows must be an integer array"),
        ((ROWS, COLS, SCORES * np.nan, (3, 4)), ValueError, "scores must be finite, got nan"),
        ((ROWS, COLS, SCORES, (3, 0)), ValueError, "shape must be two positive integers"),
        (([0, 0], [1, 1], [0.0, 1.0], (3, 4)), ValueError, r"list a pair once, got \(0, 1\) twice"),
    ],
)
def test_bad_lists_get_one_sentence(arguments, error, message):
    with pytest.raises(error, match=message) as caught:
        pv.models.SparseMatching(*arguments)
    assert "\n" not in str(caught.value)
