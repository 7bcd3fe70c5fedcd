"""Best matchings, the gauge, its bounds, pruning and the frontier programme by enumeration."""

import itertools

import linear_cases as cases
import numpy as np
import pytest
from exact_oracle import brute_force, summarise
from scipy import stats

from permvi.inference.exact import solve_exact
from permvi.inference.linear import Candidates
from permvi.inference.linear.frontier import solve_frontier
from permvi.inference.linear.gauge import prune
from permvi.problem.candidates import best_matching, far_matching, split, used_pairs

SCALES = [1e-3, 0.1, 1.0, 3.0, 10.0, 100.0, 1e3]


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_the_best_matching_and_the_pairs_in_use(kind, rng):
    for _ in range(5):
        given = cases.KINDS[kind](rng, 5, 2.0)
        problem = Candidates.from_table(**{**given, "scores": np.nan_to_num(given["scores"])})
        found = brute_force(**given)
        best = best_matching(problem)
        assert found[tuple(best.tolist())] == pytest.approx(max(found.values()))
        assert problem.log_weight(best) == pytest.approx(max(found.values()))
        pairs = {(i, j) for perm in found for i, j in enumerate(perm) if j >= 0}
        expected = [pair in pairs for pair in zip(problem.rows, problem.cols, strict=True)]
        np.testing.assert_array_equal(used_pairs(problem, best), expected)
        # The far matching is the best of those that share the fewest choices with the best one.
        shared = {perm: sum(np.equal(perm, best)) for perm in found}
        far = tuple(far_matching(problem, best).tolist())
        assert shared[far] == min(shared.values())
        rivals = [found[perm] for perm in found if shared[perm] == shared[far]]
        assert found[far] == pytest.approx(max(rivals))


def test_nothing_feasible_is_one_sentence():
    problem = Candidates.from_table(np.zeros((2, 2)), np.array([[True, False], [True, False]]))
    with pytest.raises(ValueError, match="must leave a feasible matching, got none") as caught:
        best_matching(problem)
    assert "\n" not in str(caught.value)


def test_parts_are_connected_and_cover_everything():
    mask = np.kron(np.eye(3, dtype=bool), np.ones((2, 3), bool))
    mask = np.pad(mask, ((0, 1), (0, 0)))
    problem = Candidates.from_table(np.zeros((7, 9)), mask, np.zeros(7), np.zeros(9))
    parts = split(problem, np.ones(len(problem.rows), bool))
    assert sorted(len(part.pairs) for part in parts) == [0, 6, 6, 6]
    assert sorted(np.concatenate([part.rows for part in parts]).tolist()) == list(range(7))
    assert sorted(np.concatenate([part.cols for part in parts]).tolist()) == list(range(9))


def problems(rng, kind, n=5):
    """One problem of each scale, and one with Cauchy scores."""
    for scale in SCALES:
        yield cases.candidates(cases.KINDS[kind](rng, n, scale))
    given = cases.KINDS[kind](rng, n, 3.0)
    given["scores"] = 3.0 * rng.standard_cauchy(given["scores"].shape)
    yield cases.candidates(given)


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_the_gauge_rescales_the_weights(kind, rng):
    for problem in problems(rng, kind):
        gauge = cases.gauge_of(problem)
        np.testing.assert_allclose(gauge.col_sums, 1.0, atol=1e-12)
        assert (gauge.col_alone <= 1.0).all()
        a, b = gauge.log_rows, gauge.log_cols
        for scaled, expected in (
            (gauge.weights, problem.scores + a[problem.rows] + b[problem.cols]),
            (gauge.row_alone, problem.row_alone + a),
            (gauge.col_alone, problem.col_alone + b),
        ):
            # Relative to the scores, and absolute where weights underflow.
            largest = max(1.0, np.abs(problem.scores).max())
            np.testing.assert_allclose(scaled, np.exp(expected), rtol=1e-12 * largest, atol=1e-300)


@pytest.mark.parametrize("kind", ["square", "partial", "oblong", "rows", "mixed"])
def test_soft_tables_are_scaled_to_doubly_stochastic_ones(kind, rng):
    for scale, n in itertools.product([1e-3, 1.0, 2.0], [3, 6, 12]):
        problem = cases.candidates(cases.KINDS[kind](rng, n, scale))
        gauge = cases.gauge_of(problem)
        np.testing.assert_allclose(gauge.row_sums, 1.0, atol=1e-9)
        np.testing.assert_allclose(gauge.col_sums, 1.0, atol=1e-12)
        assert gauge.log_ceiling == pytest.approx(0.0, abs=1e-8)


def test_square_parts_of_one_sided_problems_are_scaled_too(rng):
    """Columns that no matching leaves unused must not slow Sinkhorn down."""
    for n in (3, 6):
        given = {"scores": rng.normal(size=(n, n)), "col_unmatched": rng.normal(size=n)}
        problem = Candidates.from_table(**given)
        gauge = cases.gauge_of(problem)
        np.testing.assert_allclose(gauge.row_sums, 1.0, atol=1e-9)
        assert not gauge.col_alone.any()
        log_total = cases.log_evidence(problem) - gauge.log_factor
        assert gauge.log_floor <= log_total <= gauge.log_ceiling


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_the_total_lies_between_its_bounds(kind, rng):
    """Also in parts of gauges, with fewer pairs, before and after they are polished."""
    bethe = 0
    for problem in problems(rng, kind):
        gauge = cases.gauge_of(problem)
        n, m = problem.shape
        some = rng.random(len(problem.scores)) < 0.7
        some[problem.pairs_of(gauge.best)[gauge.best >= 0]] = True
        part = gauge.part(np.arange(n), np.arange(m), np.flatnonzero(some))
        for one in (gauge, part, part.polished()):
            # The scores are sums of this size, which is where rounding comes from.
            slack = 1e-8 + 1e-13 * np.abs(one.problem.scores).sum()
            log_total = cases.log_evidence(one.problem) - one.log_factor
            assert one.log_floor - slack <= log_total <= one.log_ceiling + slack
            best = one.problem.log_weight(one.best) - one.log_factor
            assert one.log_floor >= best
            bethe += one.log_floor > best
    assert bethe >= 4


def test_parts_and_polishing_keep_the_problem(rng):
    blocks = [rng.normal(size=(4, 4)), rng.normal(size=(5, 5))]
    table = np.zeros((9, 9))
    table[:4, :4], table[4:, 4:] = blocks
    mask = table != 0.0
    problem = Candidates.from_table(table, mask)
    gauge = cases.gauge_of(problem)
    first = np.arange(4, 9)
    part = gauge.part(first, first, np.flatnonzero(problem.rows >= 4))
    np.testing.assert_array_equal(part.problem.table(), blocks[1])
    np.testing.assert_array_equal(part.best, best_matching(part.problem))
    np.testing.assert_allclose(part.row_sums, 1.0, atol=1e-9)
    kept = np.ones(len(part.weights), bool)
    kept[np.flatnonzero(part.problem.cols != part.best[part.problem.rows])[:3]] = False
    fewer = part.part(np.arange(5), np.arange(5), np.flatnonzero(kept))
    assert np.abs(fewer.row_sums - 1.0).max() > 1e-3
    again = fewer.polished()
    np.testing.assert_allclose(again.row_sums, 1.0, atol=1e-9)
    np.testing.assert_allclose(again.col_sums, 1.0, atol=1e-12)
    expected = again.problem.scores + again.log_rows[again.problem.rows]
    expected += again.log_cols[again.problem.cols]
    np.testing.assert_allclose(np.log(again.weights), expected, atol=1e-12)


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_pruned_pairs_have_at_most_the_stated_probability(kind, rng):
    """The probability of any of them is one less the share of the evidence that others have."""
    dropped = 0
    budgets = [1e-9, 1e-4, 0.03, 0.5]
    for n, scale, budget in itertools.product([4, 7, 10], [1.0, 4.0, 20.0], budgets):
        problem = cases.candidates(cases.KINDS[kind](rng, n, scale))
        gauge = cases.gauge_of(problem)
        found = prune(gauge, budget)
        assert found.lost <= budget
        assert found.kept[problem.pairs_of(gauge.best)[gauge.best >= 0]].all()
        if found.kept.all():
            assert found.lost == 0.0
            continue
        dropped += 1
        missing = cases.log_evidence(problem, found.kept) - cases.log_evidence(problem)
        assert -np.expm1(missing) <= found.lost * (1 + 1e-9) + 1e-12
    assert dropped >= 12


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_the_frontier_programme_equals_enumeration(kind, rng):
    for whole in problems(rng, kind):
        for problem in cases.parts(whole):
            gauge = cases.gauge_of(problem)
            found = solve_frontier(gauge, num_draws=50, rng=rng)
            log_evidence, pairs, rows, _ = cases.exact_law(problem)
            atol = 1e-10 + 1e-13 * np.abs(problem.scores).max()
            assert found.lost <= 1e-11
            np.testing.assert_allclose(found.pairs, pairs, atol=atol)
            np.testing.assert_allclose(found.rows, rows, atol=atol)
            # The gauge has rounding of its own.
            rounding = 1e-13 * np.abs(problem.scores).sum()
            assert found.log_total + gauge.log_factor == pytest.approx(
                log_evidence, rel=0, abs=1e-10 + rounding
            )
            law = cases.enumerate_law(problem)
            assert all(tuple(draw) in law for draw in found.draws.tolist())


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_draws_of_the_frontier_programme_follow_the_law(kind, rng):
    whole = cases.candidates(cases.KINDS[kind](rng, 5, 1.0))
    problem = max(cases.parts(whole), key=lambda part: len(part.rows))
    law = cases.enumerate_law(problem)
    assert len(law) > 5
    expected = 4000 * np.exp(summarise(law, problem.shape)[3])
    found = solve_frontier(cases.gauge_of(problem), num_draws=4000, rng=rng)
    counts = dict.fromkeys(law, 0)
    for draw in map(tuple, found.draws.tolist()):
        counts[draw] += 1
    seen, large = np.array(list(counts.values())), expected >= 5
    seen = np.append(seen[large], seen[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    kept = expected > 0.5
    share = expected[kept] * seen[kept].sum() / expected[kept].sum()
    assert stats.chisquare(seen[kept], share).pvalue > 1e-4


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_small_beams_lose_at_most_what_they_state(kind, rng):
    """Over problems of up to 10 rows: marginals, and the evidence, by the subset programme."""
    some = 0
    for n, scale, beam in itertools.product([6, 8, 10], [0.5, 2.0, 5.0], [3, 10, 40]):
        for problem in cases.parts(cases.candidates(cases.KINDS[kind](rng, n, scale))):
            gauge = cases.gauge_of(problem)
            found = solve_frontier(gauge, num_draws=1, rng=rng, beam=beam, largest_loss=1e9)
            if found is None:
                # Eight times the beam was not enough even before any state was dropped.
                continue
            exact = solve_exact(
                problem.table(), row_unmatched=problem.row_alone, col_unmatched=problem.col_alone
            )
            missing = -np.expm1(found.log_total + gauge.log_factor - exact.log_evidence)
            assert -1e-9 <= missing <= found.lost + 1e-10
            gaps = np.abs(found.pairs - exact.marginals[problem.rows, problem.cols])
            apart = np.bincount(problem.rows, gaps, problem.shape[0])
            apart = 0.5 * (apart + np.abs(found.rows - exact.p_unmatched_rows))
            assert apart.max() <= found.lost + 1e-10
            some += 1e-6 < found.lost < 0.5
    assert some >= 5


def banded(rng, n, width, *, alone):
    """Pairs with |i - j| <= width; with ``alone`` all may stay alone."""
    rows, cols = np.nonzero(np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= width)
    weights = [rng.normal(size=n) if alone else np.full(n, -np.inf) for _ in range(2)]
    return Candidates(rows, cols, rng.normal(size=len(rows)), *weights)


def transfer(problem, width):
    """Log evidence, pairs and unmatched rows of a banded problem by transfer matrices.

    A state is the set of used columns among i - width .. i + width - 1 before row i chooses.
    """
    n = problem.shape[0]
    table = np.exp(problem.table())
    stays, leaves = np.exp(problem.row_alone), np.exp(problem.col_alone)
    size = 1 << (2 * width)
    options = []
    for i in range(n):
        # Rows (state, next state, weight, column) of all that row i may do.
        found = []
        for state in range(size):
            for j in (-1, *range(max(0, i - width), min(n, i + width + 1))):
                bit = 0 if j < 0 else 1 << (j - i + width)
                if state & bit:
                    continue
                new, weight = state | bit, stays[i] if j < 0 else table[i, j]
                if i >= width and not new & 1:
                    weight = weight * leaves[i - width]
                found.append((state, new >> 1, weight, j))
        options.append([np.array(column) for column in zip(*found, strict=True)])
    ahead, log_total = [np.eye(size)[0]], 0.0
    for old, new, weight, _ in options:
        vector = np.bincount(new, ahead[-1][old] * weight, size)
        log_total += np.log(vector.sum())
        ahead.append(vector / vector.sum())
    # The last columns close together.
    last = np.arange(n - width, n)
    bits = np.arange(size)[:, None] >> np.arange(width) & 1
    beyond = np.arange(size) >> width == 0
    behind = np.where(bits == 1, 1.0, leaves[last]).prod(axis=1) * beyond
    log_total += np.log(ahead[-1] @ behind)
    pairs, rows = np.zeros((n, n)), np.zeros(n)
    for i in range(n - 1, -1, -1):
        old, new, weight, j = options[i]
        joint = ahead[i][old] * weight * behind[new]
        joint /= joint.sum()
        rows[i] = joint[j < 0].sum()
        np.add.at(pairs[i], j[j >= 0], joint[j >= 0])
        behind = np.bincount(old, weight * behind[new], size)
        behind /= behind.sum()
    return log_total, pairs[problem.rows, problem.cols], rows


def test_the_transfer_matrices_of_these_tests_equal_enumeration(rng):
    for alone in (True, False):
        problem = banded(rng, 5, 2, alone=alone)
        log_evidence, pairs, rows, _ = cases.exact_law(problem)
        found = transfer(problem, 2)
        assert found[0] == pytest.approx(log_evidence)
        np.testing.assert_allclose(found[1], pairs, atol=1e-12)
        np.testing.assert_allclose(found[2], rows, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "width", "alone"), [(300, 3, False), (300, 2, True), (3000, 1, True), (3000, 2, False)]
)
def test_banded_tables_of_any_length(n, width, alone, rng):
    problem = banded(rng, n, width, alone=alone)
    log_evidence, pairs, rows = transfer(problem, width)
    gauge = cases.gauge_of(problem)
    found = solve_frontier(gauge, num_draws=3, rng=rng)
    np.testing.assert_allclose(found.pairs, pairs, atol=1e-9)
    np.testing.assert_allclose(found.rows, rows, atol=1e-9)
    assert found.log_total + gauge.log_factor == pytest.approx(log_evidence, abs=1e-8)
    assert found.lost <= 1e-9
    for draw in found.draws:
        assert np.isfinite(problem.log_weight(draw))
        assert len(set(draw[draw >= 0])) == (draw >= 0).sum()


@pytest.mark.parametrize(
    ("n", "m", "options"),
    [
        (12, 12, {"beam": 20}),
        (12, 12, {"max_work": 1000}),
        (3, 65, {}),
        (70, 70, {"beam": 100}),
    ],
    ids=["beam", "work", "long-rows", "open-columns"],
)
def test_the_frontier_programme_gives_up(n, m, options, rng):
    gauge = cases.gauge_of(Candidates.from_table(rng.normal(size=(n, m))))
    assert solve_frontier(gauge, num_draws=1, rng=rng, **options) is None


def test_more_than_64_open_columns_are_too_many(rng):
    """Each row has few pairs, but rows do not share them until the last ones come."""
    n = 140
    mask = np.zeros((n, n), bool)
    for shift in (0, 1, 5, 25, 60, 101):
        mask |= np.roll(np.eye(n, dtype=bool), shift, axis=1)
    gauge = cases.gauge_of(Candidates.from_table(rng.normal(size=(n, n)), mask))
    assert solve_frontier(gauge, num_draws=1, rng=rng, beam=10**6, max_work=10**5) is None


def test_weights_that_underflow_do_no_harm(rng):
    """Scores that differ by thousands leave pairs of scaled weight zero."""
    for _ in range(20):
        table = 2000.0 * rng.normal(size=(6, 6))
        problem = Candidates.from_table(table)
        gauge = cases.gauge_of(problem)
        assert (gauge.weights == 0.0).any()
        found = solve_frontier(gauge, num_draws=1, rng=rng, beam=4, largest_loss=1.0)
        _, pairs, _, _ = cases.exact_law(problem)
        np.testing.assert_allclose(found.pairs, pairs, atol=1e-8 + found.lost)
