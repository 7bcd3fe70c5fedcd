"""The best matching of lists of pairs, against all matchings."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from permvi._assignment.lists import Pairs, solve_pairs


def log_weights(table, row_alone, col_alone):
    """The log weight of every partial matching."""
    n, m = table.shape
    for perm in itertools.product(range(-1, m), repeat=n):
        used = [j for j in perm if j >= 0]
        if len(set(used)) == len(used):
            of_rows = sum(row_alone[i] if j < 0 else table[i, j] for i, j in enumerate(perm))
            yield of_rows + sum(col_alone[j] for j in range(m) if j not in used)


@pytest.mark.parametrize("row_share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("col_share", [0.0, 0.5, 1.0])
def test_best_matching_and_prices(row_share, col_share, rng):
    for _ in range(60):
        n, m = rng.integers(1, 6, size=2)
        rows, cols = np.nonzero(rng.random((n, m)) < 0.7)
        scores = 3 * rng.normal(size=len(rows))
        alone = [
            np.where(rng.random(size) < share, rng.normal(size=size), -np.inf)
            for size, share in ((n, row_share), (m, col_share))
        ]
        table = np.full((n, m), -np.inf)
        table[rows, cols] = scores
        best = max(log_weights(table, *alone))
        pairs = Pairs(rows, cols, scores, *alone)
        if best == -np.inf:
            with pytest.raises(ValueError, match="must leave a feasible matching"):
                solve_pairs(pairs)
            continue
        perm, of_rows, of_cols = solve_pairs(pairs)
        used = perm[perm >= 0]
        assert len(set(used.tolist())) == len(used)
        value = np.where(perm < 0, alone[0], table[np.arange(n), perm]).sum()
        value += alone[1][np.setdiff1d(np.arange(m), used)].sum()
        assert value == pytest.approx(best)
        gaps = of_rows[rows] + of_cols[cols] - scores
        assert gaps.min(initial=0.0) >= -1e-9
        np.testing.assert_allclose(gaps[cols == perm[rows]], 0.0, atol=1e-9)
        for i, j, gap in zip(rows, cols, gaps, strict=True):
            forced = table.copy()
            forced[i], forced[:, j] = -np.inf, -np.inf
            forced[i, j] = table[i, j]
            lone = alone[0].copy(), alone[1].copy()
            lone[0][i] = lone[1][j] = -np.inf
            assert max(log_weights(forced, *lone)) <= best - gap + 1e-9


@pytest.mark.parametrize("scale", [1.0, 1e6], ids=["ties", "reals"])
def test_large_lists_against_scipy(scale, rng):
    """Whole numbers have many ties, where bids must not go round in circles."""
    for n in (40, 150):
        rows, cols = np.nonzero((rng.random((n, n)) < 0.1) | np.eye(n, dtype=bool))
        scores = np.round(scale * rng.normal(size=len(rows))) / scale
        must = np.full(n, -np.inf)
        perm, of_rows, of_cols = solve_pairs(Pairs(rows, cols, scores, must, must))
        table = np.full((n, n), -np.inf)
        table[rows, cols] = scores
        best = table[linear_sum_assignment(table, maximize=True)].sum()
        assert table[np.arange(n), perm].sum() == pytest.approx(best)
        gaps = of_rows[rows] + of_cols[cols] - scores
        assert gaps.min() >= -1e-9
        np.testing.assert_allclose(gaps[cols == perm[rows]], 0.0, atol=1e-9)


def test_another_thread_can_end_the_search():
    pairs = Pairs(np.arange(3), np.arange(3), np.zeros(3), *np.full((2, 3), -np.inf))
    with pytest.raises(KeyboardInterrupt):
        solve_pairs(pairs, np.ones(1, bool))
    np.testing.assert_array_equal(solve_pairs(pairs, np.zeros(1, bool)).perm, np.arange(3))
