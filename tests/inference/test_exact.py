"""Exact inference against brute force: every quantity, every kind of problem, both methods."""

import itertools
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import CASES, partial
from exact_oracle import brute_force, summarise

from permvi.inference.exact import solve_exact

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("method", ["dp", "enumeration", "auto"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_brute_force(name, method, rng):
    problem = CASES[name](rng)
    n, m = np.shape(problem["scores"])
    found = brute_force(**problem)
    log_evidence, marginals, entropy, log_probs = summarise(found, (n, m))
    result = solve_exact(**problem, method=method)

    np.testing.assert_allclose(result.log_evidence, log_evidence, **TOLERANCE)
    np.testing.assert_allclose(result.marginals, marginals[:n, :m], **TOLERANCE)
    np.testing.assert_allclose(result.p_unmatched_rows, marginals[:n, m], **TOLERANCE)
    np.testing.assert_allclose(result.p_unmatched_cols, marginals[n, :m], **TOLERANCE)
    np.testing.assert_allclose(result.entropy, entropy, **TOLERANCE)
    np.testing.assert_allclose(result.log_prob(list(found)), log_probs, **TOLERANCE)
    np.testing.assert_allclose(found[tuple(result.mode)], max(found.values()), **TOLERANCE)
    np.testing.assert_allclose(result.mode_log_prob, log_probs.max(), **TOLERANCE)
    samples = result.sample(50, seed=3)
    assert samples.shape == (50, n)
    assert {tuple(sample) for sample in samples} <= set(found)


@pytest.mark.parametrize("method", ["dp", "enumeration"])
def test_many_random_partial_problems(method, rng):
    for _ in range(60):
        n, m = rng.integers(1, 5, size=2)
        problem = partial(rng, n, m, density=0.6)
        for side in ("row_unmatched", "col_unmatched"):
            problem[side][rng.random(len(problem[side])) < 0.3] = -np.inf
        found = brute_force(**problem)
        if not found:
            with pytest.raises(ValueError, match="must leave a feasible matching"):
                solve_exact(**problem, method=method)
            continue
        log_evidence, marginals, entropy, _ = summarise(found, (n, m))
        result = solve_exact(**problem, method=method)
        np.testing.assert_allclose(result.log_evidence, log_evidence, **TOLERANCE)
        np.testing.assert_allclose(result.marginals, marginals[:n, :m], **TOLERANCE)
        np.testing.assert_allclose(result.entropy, entropy, **TOLERANCE)


def test_blocks_are_found_and_agree_with_their_product(rng):
    sizes = [3, 1, 4, 2]
    offsets = np.cumsum([0, *sizes])
    mask = np.zeros((10, 10), dtype=bool)
    for start, stop in itertools.pairwise(offsets):
        mask[start:stop, start:stop] = True
    # Entries in no perfect matching tie the blocks together until they are recognised as such.
    mask[:3, 3:] = True
    scores = 3 * rng.normal(size=(10, 10))
    rows, cols = rng.permutation(10), rng.permutation(10)
    result = solve_exact(scores[rows][:, cols], mask=mask[rows][:, cols], method="dp")
    assert sorted(result.block_sizes) == [(2, 2), (3, 3), (4, 4)]

    parts = [
        solve_exact(scores[start:stop, start:stop], method="enumeration")
        for start, stop in itertools.pairwise(offsets)
    ]
    expected = np.zeros((10, 10))
    for part, start, stop in zip(parts, offsets[:-1], offsets[1:], strict=True):
        expected[start:stop, start:stop] = part.marginals
    np.testing.assert_allclose(result.marginals, expected[rows][:, cols], **TOLERANCE)
    total = sum(part.log_evidence for part in parts)
    np.testing.assert_allclose(result.log_evidence, total, **TOLERANCE)
    np.testing.assert_allclose(result.entropy, sum(part.entropy for part in parts), **TOLERANCE)
    matched = mask[rows][:, cols][np.arange(10), result.sample(200, seed=0)]
    assert matched.all()


def test_partial_blocks_split_although_all_may_stay_unmatched(rng):
    mask = np.kron(np.eye(3, dtype=bool), np.ones((2, 3), dtype=bool))
    problem = {**partial(rng, 6, 9), "mask": mask}
    result = solve_exact(**problem, method="dp")
    assert result.block_sizes == ((2, 3),) * 3
    log_evidence, marginals, entropy, _ = summarise(brute_force(**problem), (6, 9))
    np.testing.assert_allclose(result.log_evidence, log_evidence, **TOLERANCE)
    np.testing.assert_allclose(result.marginals, marginals[:6, :9], **TOLERANCE)
    np.testing.assert_allclose(result.entropy, entropy, **TOLERANCE)


def test_sixty_items_in_blocks_of_fifteen(rng):
    mask = np.kron(np.eye(4, dtype=bool), np.ones((15, 15), dtype=bool))
    result = solve_exact(rng.normal(size=(60, 60)), mask=mask)
    assert result.block_sizes == ((15, 15),) * 4
    np.testing.assert_allclose(result.marginals.sum(axis=0), 1.0, **TOLERANCE)
    np.testing.assert_allclose(result.marginals.sum(axis=1), 1.0, **TOLERANCE)


@pytest.mark.parametrize("shape", [(14, 14), (10, 16)])
def test_tables_that_are_recomputed_agree_with_kept_ones(shape, rng, monkeypatch):
    problem = partial(rng, *shape)
    kept = solve_exact(**problem, method="dp")
    monkeypatch.setattr("permvi.inference.exact.subset_dp._KEEP_ALL_BYTES", 0)
    recomputed = solve_exact(**problem, method="dp")
    np.testing.assert_array_equal(recomputed.marginals, kept.marginals)
    np.testing.assert_array_equal(recomputed.sample(100, seed=1), kept.sample(100, seed=1))


def test_prices_of_rows_and_columns_cancel(rng):
    # Far beyond enumeration: adding to a row or column shifts the evidence and nothing else.
    scores = 1e3 * rng.integers(0, 2, size=(12, 12)) + rng.normal(size=(12, 12))
    rows, cols = 1e3 * rng.normal(size=(12, 1)), 1e3 * rng.normal(size=(1, 12))
    plain, shifted = solve_exact(scores), solve_exact(scores + rows + cols)
    np.testing.assert_allclose(shifted.marginals, plain.marginals, **TOLERANCE)
    np.testing.assert_allclose(shifted.entropy, plain.entropy, **TOLERANCE)
    shift = rows.sum() + cols.sum()
    np.testing.assert_allclose(shifted.log_evidence, plain.log_evidence + shift, **TOLERANCE)


@pytest.mark.parametrize("alone", [(None, None), (-1.0, -2.0)])
def test_rows_and_columns_may_change_places(alone, rng):
    scores = 3 * rng.normal(size=(9, 13))
    row_unmatched, col_unmatched = alone
    result = solve_exact(scores, None, None, row_unmatched, col_unmatched)
    turned = solve_exact(scores.T, None, None, col_unmatched, row_unmatched)
    np.testing.assert_allclose(turned.log_evidence, result.log_evidence, **TOLERANCE)
    np.testing.assert_allclose(turned.marginals.T, result.marginals, **TOLERANCE)
    np.testing.assert_allclose(turned.p_unmatched_rows, result.p_unmatched_cols, **TOLERANCE)
    np.testing.assert_allclose(turned.entropy, result.entropy, **TOLERANCE)


def test_permanent_of_ones_is_a_factorial():
    # log 18!, and each of the 18! permutations equally likely.
    result = solve_exact(np.zeros((18, 18)))
    np.testing.assert_allclose(result.log_evidence, 36.39544520803305, rtol=1e-12)
    np.testing.assert_allclose(result.entropy, 36.39544520803305, rtol=1e-12)
    np.testing.assert_allclose(result.marginals, 1 / 18, rtol=1e-10)


@pytest.mark.float32
def test_input_types_do_not_change_the_answer(rng):
    scores = rng.integers(-3, 4, size=(5, 5))
    exact = solve_exact(scores.astype(np.float64))
    for other in (scores, scores.astype(np.float32), jnp.asarray(scores), scores.tolist()):
        result = solve_exact(other)
        assert result.marginals.dtype == np.float64
        assert result.log_evidence == exact.log_evidence
        np.testing.assert_array_equal(result.marginals, exact.marginals)


def test_numba_loads_only_for_the_subset_programme():
    code = (
        "import sys, numpy as np; from permvi.inference.exact import solve_exact, k_best;"
        "solve_exact(np.zeros((5, 5))); k_best(np.zeros((3, 3)), 2);"
        "print('numba' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.split() == ["False"]


def test_kernels_compile_where_nothing_can_be_cached(monkeypatch):
    from permvi import _compiled
    from permvi.inference.exact import subset_kernels

    njit = _compiled.numba.njit

    def njit_without_cache(*, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(_compiled, "numba", SimpleNamespace(njit=njit_without_cache))
    assert _compiled.compiled()(subset_kernels._next_set.py_func)(0b0110) == 0b1001
