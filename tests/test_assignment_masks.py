import itertools

import jax
import numpy as np
import pytest

from permvi import assignment
from permvi._assignment import masks


def usable(mask):
    """The entries that some complete assignment uses, by trying all; None if there is none."""
    n, m = mask.shape
    if n > m:
        transposed = usable(mask.T)
        return None if transposed is None else transposed.T
    used = np.zeros_like(mask)
    rows = np.arange(n)
    for columns in itertools.permutations(range(m), n):
        if mask[rows, columns].all():
            used[rows, columns] = True
    return used if used.any() else None


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (5, 5), (2, 5), (3, 4), (4, 3), (5, 2)])
def test_pruning_keeps_what_some_assignment_uses(rng, shape):
    masks = rng.random((60, *shape)) < rng.choice([0.3, 0.5, 0.7], (60, 1, 1))
    feasible = assignment.is_feasible(masks)
    for mask, possible in zip(masks, feasible, strict=True):
        expected = usable(mask)
        assert possible == (expected is not None)
        if possible:
            np.testing.assert_array_equal(assignment.prune_mask(mask), expected)
        else:
            with pytest.raises(ValueError, match="mask must allow an assignment of every row"):
                assignment.prune_mask(mask)
    batch = masks[feasible][None]
    pruned = assignment.prune_mask(batch)
    assert pruned.shape == batch.shape
    np.testing.assert_array_equal(pruned[0], [usable(mask) for mask in batch[0]])
    np.testing.assert_array_equal(assignment.prune_mask(pruned), pruned)


def test_pruning_says_which_problem_is_infeasible():
    masks = np.ones((2, 3, 4, 4), bool)
    masks[1, 2, :, 0] = False
    assert assignment.is_feasible(masks).tolist() == [[True, True, True], [True, True, False]]
    with pytest.raises(ValueError, match="in problem 1, 2 of the batch"):
        assignment.prune_mask(masks)


def test_blocks_are_independent(rng):
    sizes = [1, 3, 2]
    mask = np.zeros((6, 6), bool)
    start = 0
    for size in sizes:
        mask[start : start + size, start : start + size] = True
        start += size
    # An entry between blocks, which no assignment can use.
    mask[0, 3] = True
    rows, cols = rng.permutation(6), rng.permutation(6)
    shuffled = mask[np.ix_(rows, cols)]
    found = assignment.blocks(shuffled)
    assert sorted(len(r) for r, _ in found) == sorted(sizes)
    assert [r[0] for r, _ in found] == sorted(r[0] for r, _ in found)
    pruned = assignment.prune_mask(shuffled)
    covered = np.zeros_like(pruned)
    for block_rows, block_cols in found:
        assert len(block_rows) == len(block_cols)
        covered[np.ix_(block_rows, block_cols)] = True
    np.testing.assert_array_equal(covered, pruned)


def test_blocks_of_rectangular_masks():
    mask = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]], bool)
    found = [(r.tolist(), c.tolist()) for r, c in assignment.blocks(mask)]
    assert found == [([0], [0, 1]), ([1], [2, 3])]
    found = [(r.tolist(), c.tolist()) for r, c in assignment.blocks(mask.T)]
    assert found == [([0, 1], [0]), ([2, 3], [1])]


def test_a_full_mask_is_one_block():
    assert assignment.prune_mask(np.ones((3, 4, 4), bool)).all()
    ((rows, cols),) = assignment.blocks(np.ones((4, 4), bool))
    np.testing.assert_array_equal(rows, np.arange(4))
    np.testing.assert_array_equal(cols, np.arange(4))


def test_bad_masks():
    with pytest.raises(TypeError, match="mask must be a boolean array, got dtype float64"):
        assignment.prune_mask(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"mask must have shape \(..., n, m\) with n, m >= 1"):
        assignment.is_feasible(np.ones(3, bool))
    with pytest.raises(ValueError, match=r"mask must have shape \(n, m\), got shape \(1, 2, 2\)"):
        assignment.blocks(np.ones((1, 2, 2), bool))
    with pytest.raises(ValueError, match="got one that allows none"):
        assignment.blocks(np.array([[True, False], [True, False]]))
    with pytest.raises(TypeError, match="mask must be known"):
        jax.jit(assignment.prune_mask)(np.ones((2, 2), bool))


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (5, 3), (4, 4)])
def test_conflicts_are_those_of_hall(rng, shape):
    n, m = shape
    found = []
    for _ in range(60):
        allowed = rng.random(shape) < 0.4
        rows, cols = np.nonzero(allowed)
        conflict = masks.conflict(rows, cols, shape)
        violated = any(
            np.count_nonzero(allowed[list(some)].any(axis=0)) < k
            for k in range(1, n + 1)
            for some in itertools.combinations(range(n), k)
        )
        assert (conflict is not None) == violated
        found.append(violated)
        if conflict is not None:
            some, their = conflict
            assert np.flatnonzero(allowed[some].any(axis=0)).tolist() == their.tolist()
            assert len(their) < len(some)
    assert n > m or set(found) == {True, False}
