"""Method "quadratic": its parts against closed forms, its answers against enumeration."""

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest

import permvi as pv
from benchmarks import graphs
from permvi.inference.auto import choose
from permvi.inference.interruptible import Stop
from permvi.inference.map import Quadratic
from permvi.inference.quadratic import QuadraticOptions, cells_kernels, sample
from permvi.inference.quadratic import tempering_kernels as kernels
from permvi.inference.quadratic.form import Lists, square_form, with_penalties
from permvi.inference.quadratic.modes import climbed, find_modes, orbit
from permvi.inference.quadratic.tempering import Ensemble, Reference, log_evidence
from permvi.inference.quadratic.twins import Cells, Twins
from permvi.problem.prepare import prepare


def fit(model, **options):
    """Without the warning about a verdict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, options.pop("method", "quadratic"), **options)


def cycle(n):
    ones = np.roll(np.eye(n), 1, axis=0)
    return ones + ones.T


def permutations(n):
    return np.array(list(itertools.permutations(range(n))))


def random_form(rng, n, allowed=None, *, symmetric=False):
    A, B, C = rng.normal(size=(3, n, n))
    if symmetric:
        A, B = A + A.T, B + B.T
    allowed = np.ones((n, n), bool) if allowed is None else allowed
    best = np.arange(n)
    return with_penalties(Quadratic(A, B, C), allowed, 0.0, (n, n), best)


def tilted_path_model(n, seed):
    """A path, and scores that prefer one of its two directions a little."""
    rng = np.random.default_rng(seed)
    path = np.diag(np.ones(n - 1), 1)
    path, order = path + path.T, rng.permutation(n)
    scores = 0.3 * rng.normal(size=(n, n))
    return pv.models.GraphMatching(path[np.ix_(order, order)], path, scale=4.0, scores=scores)


def tilted_path(n, seed):
    square, allowed, log_copies = square_form(prepare(tilted_path_model(n, seed)))
    return with_penalties(square, allowed, log_copies, (n, n), np.arange(n))


def listed(form, rng):
    """The form with a fifth of the edges of A left, loops among them, and in lists."""
    A = np.where(rng.random(form.A.shape) < 0.2, form.A, 0.0)
    A[0, 0] = 1.5
    if form.symmetric:
        A = A + A.T
    made = Lists.of(A if np.count_nonzero(A) <= A.size / 4 else np.pad(A, (0, len(A))))
    begins = made.begins[:, : len(A) + 1]
    return dataclasses.replace(form, A=A, lists=made._replace(begins=begins), best_value=-np.inf)


ONE_BY_ONE = None
IN_CELLS = Cells(np.array([1, 0, 0, 2, 0]), 1)


@pytest.mark.parametrize("cells", [ONE_BY_ONE, IN_CELLS])
def test_the_evidence_of_a_reference_is_its_sum(rng, cells):
    pulls, centre = np.append(rng.exponential(size=4), 0.0), rng.permutation(5)
    if cells is not None:
        pulls[[1, 2, 4]] = 1.3
    perms = permutations(5)
    law = Reference.around(centre, pulls, cells)
    labels = np.arange(5) if cells is None else cells.of_row
    inside = labels[np.argsort(centre)[perms]] == labels
    np.testing.assert_array_equal(law.in_cells(perms), inside)
    assert law.log_total == pytest.approx(np.log(np.exp(inside @ pulls).sum()))
    uniform = Reference.around(centre, np.zeros(5), cells)
    assert uniform.log_total == pytest.approx(math.log(120))


@pytest.mark.parametrize("cells", [ONE_BY_ONE, Cells(np.array([1, 0, 0, 2]), 1)])
def test_draws_from_a_reference_have_its_probabilities(rng, cells):
    pulls, centre = np.array([2.0, 0.5, 0.5, 1.0]), rng.permutation(4)
    law = Reference.around(centre, pulls, cells)
    perms = permutations(4)
    p = np.exp(law.in_cells(perms) @ pulls - law.log_total)
    num = 40_000
    drawn = np.empty((num, 4), np.int64)
    cells_kernels.draw_reference(*law.tables, law.members, law.bounds, centre, drawn, rng)
    places = {tuple(one): k for k, one in enumerate(perms)}
    counts = np.bincount([places[tuple(one)] for one in drawn], minlength=24)
    # Chi-square with 23 degrees of freedom exceeds 58 once in 10,000.
    assert ((counts - num * p) ** 2 / (num * p)).sum() < 58


@pytest.mark.parametrize("symmetric", [False, True])
def test_gains_of_swaps_are_differences_of_values(rng, symmetric):
    form = random_form(rng, 6, symmetric=symmetric)
    assert form.symmetric == symmetric
    perm, P = rng.permutation(6), np.empty((6, 6))
    kernels.place(form.B, perm, P)
    before = kernels.value_of(form.A, form.B, form.C, perm)
    assert before == pytest.approx(float(form.values(perm)))
    for i, j in itertools.permutations(range(6), 2):
        swapped = perm.copy()
        swapped[[i, j]] = perm[[j, i]]
        gain = kernels.swap_gain(form.A, P, form.C, perm, symmetric, i, j)
        assert gain == pytest.approx(float(form.values(swapped)) - before)


@pytest.mark.parametrize("symmetric", [False, True])
def test_gains_by_lists_are_those_by_tables(rng, symmetric):
    form = listed(random_form(rng, 7, symmetric=symmetric), rng)
    assert form.symmetric == symmetric
    assert form.lists.others.shape == (2, np.count_nonzero(form.A))
    perm = rng.permutation(7)
    before = float(form.values(perm))
    for i, j in itertools.permutations(range(7), 2):
        swapped = perm.copy()
        swapped[[i, j]] = perm[[j, i]]
        gain = kernels.listed_gain(
            form.A, form.B, form.turned, form.C, *form.lists, perm, symmetric, i, j
        )
        assert gain == pytest.approx(float(form.values(swapped)) - before)


@pytest.mark.parametrize("as_lists", [False, True])
@pytest.mark.parametrize("cells", [ONE_BY_ONE, Cells(np.array([1, 2, 0, 0]), 1)])
def test_sweeps_with_jumps_keep_the_posterior(as_lists, cells):
    # The modes are no symmetries: the balance must not depend on that.
    rng = np.random.default_rng(3)
    form = random_form(rng, 4)
    if as_lists:
        form = listed(form, rng)
    perms = permutations(4)
    p = np.exp(form.values(perms))
    p /= p.sum()
    modes = perms[[0, 7, 16]]
    law = Reference.around(modes[0], np.array([1.0, 0.5, 0.2, 0.2]), cells)
    ensemble = Ensemble(form, law, modes, None, rng)
    for sweeps in (50, 100):
        ensemble.adapt(sweeps, Stop())
    found = ensemble.run(8000, Stop())
    places = {tuple(one): k for k, one in enumerate(perms)}
    states = np.array([places[tuple(perm)] for perm in found.kept])
    batches = np.stack([np.bincount(part, minlength=24) for part in np.split(states, 20)]) / 400
    error = batches.std(axis=0, ddof=1) / np.sqrt(20)
    z = (batches.mean(axis=0) - p) / np.maximum(error, 1e-3)
    # Student's t with 19 degrees of freedom: 24 of them exceed 5 once in 500 times.
    assert np.abs(z).max() < 5
    assert ensemble.num_jumps > 100
    marginals = np.zeros((4, 4))
    for perm, weight in zip(perms, p, strict=True):
        marginals[np.arange(4), perm] += weight
    np.testing.assert_allclose(found.counts / found.counts[0].sum(), marginals, atol=0.04)


def test_acceptance_ratios_add_up_to_the_evidence():
    # Normal variates: f = -x^2 / 2 after g = 0, on a line of unit density between -5 and 5.
    rng = np.random.default_rng(0)
    betas = np.array([0.0, 0.1, 0.4, 1.0])
    x = rng.uniform(-5, 5, size=(4000, 1))
    others = []
    for beta in betas[1:]:
        draws = rng.normal(scale=beta**-0.5, size=40_000)
        others.append(draws[np.abs(draws) < 5][:4000, None])
    trace = -0.5 * np.concatenate([x, *others], axis=1) ** 2
    found = log_evidence(betas, trace, np.ones(4000, bool), math.log(10.0), 20)
    assert abs(found.value - math.log(math.sqrt(2 * math.pi))) < 4 * found.error
    assert 0.003 < found.error < 0.1


def test_levels_that_never_exchange_leave_the_evidence_unknown():
    # Replicas of both levels stay where they are, so that nothing varies between batches.
    trace = np.array([18.8, 71.4]) + np.random.default_rng(0).normal(scale=0.3, size=(1500, 2))
    found = log_evidence(np.array([0.0, 1.0]), trace, np.ones(1500, bool), 0.0, 20)
    assert found.value == -np.inf
    assert found.error == np.inf


def test_climbs_from_what_chains_have_seen_lead_to_more_modes():
    # Two orders of a path, the better one known.
    form = tilted_path(8, seed=7005)
    best = find_modes(form.quadratic, form.allowed, np.random.default_rng(0)).perms[0]
    other = climbed(form.quadratic, form.allowed, best[None], 7 - best[None], form.twins)
    assert len(other) == 2
    np.testing.assert_array_equal(other[0], best)
    assert (other[1] != best).all()
    assert form.values(other[1]) > form.values(best) - 8
    again = climbed(form.quadratic, form.allowed, other, other, form.twins)
    np.testing.assert_array_equal(again, other)


def test_modes_that_only_chains_find_are_weighed():
    # Before, an ensemble whose replicas kept to one of both orders had the wrong evidence, 1.5 nats
    # too high with a standard error of .005.
    model = tilted_path_model(8, seed=7005)
    truth, found = (fit(model, method=method) for method in ("exact", "quadratic"))
    assert found.diagnostics.verdict == "trust"
    error = pv.metrics.total_variation_per_row(found.marginals, truth.marginals).mean()
    assert error < 0.02
    assert abs(found.log_evidence - truth.log_evidence) < 4 * found.log_evidence_se


def test_symmetries_complete_the_modes(rng):
    square = Quadratic(cycle(7), cycle(7), np.zeros((7, 7)))
    allowed = np.ones((7, 7), bool)
    turned, mirrored = np.roll(np.arange(7), 1), np.arange(7)[::-1]
    twins = Twins.of(square, allowed)
    modes = orbit(square, allowed, np.stack([np.arange(7), turned, mirrored]), twins)
    assert len(modes) == len(np.unique(modes, axis=0)) == 14
    np.testing.assert_allclose(square.values(modes), 14.0)
    assert len(find_modes(square, allowed, rng).perms) == 14


def twin_form(rng):
    """Rows 0, 2 and 3 are twins that have edges to each other, and columns 1 and 4."""
    A, B, C = rng.normal(size=(3, 6, 6))
    others = [1, 4, 5]
    A[np.ix_([0, 2, 3], others)] = A[0, others]
    A[np.ix_(others, [0, 2, 3])] = A[others, :1]
    A[np.ix_([0, 2, 3], [0, 2, 3])] = 0.7 - np.eye(3)
    B[4], B[:, 4] = B[1], B[:, 1]
    B[[1, 4], [4, 1]] = B[1, 1]
    B[4, 4] = B[1, 1]
    C[[2, 3]] = C[0] + np.array([[0.5], [-2.0]])
    C[:, 4] = C[:, 1] + 1.0
    allowed = np.ones((6, 6), bool)
    allowed[5, [1, 4]] = False
    return Quadratic(A, B, C), allowed


def test_twins_are_what_can_be_exchanged(rng):
    square, allowed = twin_form(rng)
    perms = permutations(6)
    values = square.values(perms)
    # Constants of C are not the same to the last bit.
    twins = Twins.of(square, allowed, most=(1e-9, 1e-9))
    for i, j in itertools.combinations(range(6), 2):
        swapped = perms.copy()
        swapped[:, [i, j]] = perms[:, [j, i]]
        same = np.abs(square.values(swapped) - values).max() < 1e-9
        assert same == (twins.rows[i] == twins.rows[j])
        moved = np.where(perms == i, j, np.where(perms == j, i, perms))
        same = np.abs(square.values(moved) - values).max() < 1e-9
        assert same == (twins.cols[i] == twins.cols[j])
    np.testing.assert_array_equal(twins.rows, [0, 1, 0, 0, 4, 5])
    np.testing.assert_array_equal(twins.cols, [0, 1, 2, 3, 1, 5])
    # Other pairs may differ in what is allowed.
    allowed[3, 0] = False
    twins = Twins.of(square, allowed, most=(1e-9, 1e-9))
    np.testing.assert_array_equal(twins.rows, [0, 1, 0, 3, 4, 5])


def test_the_bound_of_near_twins_holds(rng):
    A, B, C = 0.1 * rng.normal(size=(3, 6, 6))
    square, allowed, perm = Quadratic(A, B, C), np.ones((6, 6), bool), rng.permutation(6)
    value, near = float(square.values(perm)), 0
    for most in ((0.4, 0.1), (0.4, 0.3), (0.6, 0.2), (0.8, 0.3)):
        found, tolerance = Twins.of(square, allowed, perm, most), sum(most)
        for i, j in enumerate(found.rows):
            swapped = perm.copy()
            swapped[[i, j]] = perm[[j, i]]
            assert abs(float(square.values(swapped)) - value) <= tolerance + 1e-12
            near += i != j
        for a, b in enumerate(found.cols):
            moved = np.where(perm == a, b, np.where(perm == b, a, perm))
            assert abs(float(square.values(moved)) - value) <= tolerance + 1e-12
            near += a != b
    assert near > 5


def test_twins_average_and_shuffle_over_all_arrangements(rng):
    twins = Twins(np.array([0, 1, 0, 0]), np.array([0, 1, 1, 3]))
    table = rng.random((4, 4))
    rows = [list(p) for p in permutations(4) if (twins.rows[p] == twins.rows).all()]
    cols = [list(p) for p in permutations(4) if (twins.cols[p] == twins.cols).all()]
    assert len(rows), len(cols) == (6, 2)
    wanted = np.mean([table[r][:, c] for r in rows for c in cols], axis=0)
    np.testing.assert_allclose(twins.averaged(table), wanted)
    perm = np.array([2, 0, 1, 3])
    made = {tuple(np.array(c)[perm[r]]) for r in rows for c in cols}
    drawn = twins.shuffled(np.tile(perm, (6000, 1)), rng)
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert {tuple(one) for one in found} == made
    assert len(set(twins.keys(found))) == 1
    assert twins.keys(np.array([[2, 3, 1, 0]]))[0] not in twins.keys(found)
    # All are equally probable: chi-square with as many degrees of freedom, less one.
    excess = ((counts - 6000 / len(made)) ** 2 / (6000 / len(made))).sum()
    assert excess < len(made) + 5 * math.sqrt(2 * len(made))


def masked(rng, n):
    mask = rng.random((n, n)) < 0.6
    mask[np.arange(n), rng.permutation(n)] = True
    return mask


def cases():
    rng = np.random.default_rng(5)
    normal = rng.normal
    yield "directed", pv.models.GraphMatching(*normal(size=(2, 6, 6)), 0.4, normal(size=(6, 6)))
    yield "cycle", pv.models.GraphMatching(cycle(7), cycle(7), 1.0)
    star = np.zeros((7, 7))
    star[0, 1:6] = star[1, 6] = 1.0
    yield "leaves", pv.models.GraphMatching(star + star.T, (star + star.T)[::-1, ::-1], 1.0)
    near = normal(scale=0.2, size=(7, 7))
    yield "nearly leaves", pv.models.GraphMatching(star + star.T, star + star.T, 1.0, near)
    yield "mask", pv.models.GraphMatching(*normal(size=(2, 6, 6)), 0.4, mask=masked(rng, 6))
    wide = normal(size=(4, 4)), normal(size=(6, 6))
    yield "surplus", pv.models.GraphMatching(*wide, 0.4, prior_scores=normal(size=(4, 6)))
    yield "known", pv.models.GraphMatching(*normal(size=(2, 7, 7)), 0.3, known={0: 2, 5: 1})
    alone = {"row_unmatched": normal(size=4), "col_unmatched": normal(size=3)}
    few = normal(size=(4, 4)), normal(size=(3, 3)), 0.6, normal(size=(4, 3))
    yield "partial", pv.models.GraphMatching(*few, **alone)


@pytest.mark.float32
@pytest.mark.parametrize(("name", "model"), list(cases()))
def test_it_agrees_with_enumeration(name, model):
    exact = pv.fit(model, "exact")
    found = fit(model, seed=1)
    both = (exact.marginals, exact.p_unmatched_rows), (found.marginals, found.p_unmatched_rows)
    error = sum(
        0.5 * np.abs(a - b).reshape(len(a), -1).sum(axis=1) for a, b in zip(*both, strict=True)
    )
    assert error.mean() < 0.015
    # Errors are stated, so four of them are a bound; enumeration is in single precision here.
    tolerance = 4 * found.log_evidence_se + 1e-4
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=tolerance)
    assert found.log_evidence_se < 0.1
    assert found.log_evidence_kind == "estimate"
    assert found.diagnostics.verdict == "trust"
    best = float(exact.log_prob(exact.mode))
    assert float(exact.log_prob(found.mode)) == pytest.approx(best, abs=1e-4)
    if name == "mask":
        assert not found.marginals[~np.asarray(model.mask)].any()


@pytest.mark.parametrize("noise", [pytest.param(0.0, marks=pytest.mark.slow), 0.2])
def test_leaves_have_their_exact_marginals_and_evidence(noise):
    case = graphs.leaves(80, noise, seed=1)
    wanted = case.marginals
    np.testing.assert_allclose([wanted.sum(axis=0), wanted.sum(axis=1)], 1.0)
    assert (wanted.max(axis=1) < 0.9).sum() > 15
    found = fit(case.model, method="auto")
    assert found.diagnostics.verdict == "trust"
    assert 0.5 * np.abs(found.marginals - wanted).sum(axis=1).mean() < (0.01 if noise else 1e-4)
    assert found.log_evidence_se < 0.2
    assert abs(found.log_evidence - case.log_evidence) < 4 * found.log_evidence_se
    # Draws are as the marginals, although chains need not exchange leaves themselves.
    draws = found.sample(400, 0)
    shares = (draws[..., None] == np.arange(80)).mean(axis=0)
    error = np.sqrt(np.maximum(wanted * (1 - wanted), 1e-3) / 400)
    assert (np.abs(shares - wanted) / error).max() < (5 if noise == 0 else 8)


def test_all_modes_of_symmetric_graphs_are_weighed():
    W = np.random.default_rng(0).normal(size=(7, 7))
    G = np.kron(np.eye(2), W + W.T)
    found = fit(pv.models.GraphMatching(G, G), method="auto")
    assert found.method == "quadratic"
    assert found.diagnostics.verdict == "trust"
    assert found.diagnostics.extras["num_modes"] == 2
    # Each node is itself in either copy.
    wanted = np.kron(np.full((2, 2), 0.5), np.eye(7))
    assert 0.5 * np.abs(found.marginals - wanted).sum(axis=1).max() < 0.05


def test_a_planted_matching_is_found_and_certain():
    rng = np.random.default_rng(2)
    A = np.triu(rng.random((40, 40)) < 0.4, 1).astype(float)
    B = np.abs(A - np.triu(rng.random((40, 40)) < 0.05, 1))
    truth = rng.permutation(40)
    model = pv.models.GraphMatching((B + B.T)[np.ix_(truth, truth)], A + A.T, 0.5)
    found = fit(model, method="auto")
    assert found.method == "quadratic"
    np.testing.assert_array_equal(found.mode, truth)
    assert found.diagnostics.verdict == "trust"
    assert found.marginals[np.arange(40), truth].mean() > 0.9
    assert found.log_evidence >= float(model.log_density_of(truth)) - 4 * found.log_evidence_se


def test_ctrl_c_gives_what_is_known(rng):
    model = pv.models.GraphMatching(*rng.normal(size=(2, 9, 9)), 0.2)
    square, allowed, copies = square_form(prepare(model))
    modes = find_modes(square, allowed, rng).perms
    form = with_penalties(square, allowed, copies, (9, 9), modes[0])

    class After(Stop):
        def __call__(self, steps):
            self.asked = super().__call__(steps) or self.done > self.last
            return self.asked

    for last in (0, 300_000):
        stop = After()
        stop.last = last
        found = sample(form, modes, QuadraticOptions(), np.random.default_rng(0), stop)
        assert not found.finished
        np.testing.assert_allclose(found.marginals.sum(axis=0), 1.0)
        np.testing.assert_allclose(found.marginals.sum(axis=1), 1.0)
        assert np.isinf(found.evidence.error) == (last == 0)


def test_the_benchmark_of_graphs_agrees_with_enumeration():
    case = graphs.random_graphs(6, 0.5, 0.05, 0)
    row = graphs.small_row(case, 0)
    assert row["error"] < 0.02
    assert abs(row["z"]) < 4
    exact = pv.fit(case.model, "exact").marginals
    # Two runs of 3,750 sweeps each at the last level, or of two thirds of that with a bias.
    for planted in (None, case.planted):
        truth, apart = graphs.reference(case.model, 400_000, None, planted)
        assert apart < 0.05
        np.testing.assert_allclose(truth, exact, atol=0.05)


def test_the_reference_of_the_benchmark_keeps_known_pairs():
    case = graphs.random_graphs(7, 0.5, 0.1, 0, num_known=2)
    truth, apart = graphs.reference(case.model, 400_000, None, case.planted)
    assert apart < 0.05
    assert (truth[[0, 1], case.planted[:2]] == 1.0).all()
    np.testing.assert_allclose(truth, pv.fit(case.model, "exact").marginals, atol=0.05)


def test_graphs_of_the_benchmark_have_the_symmetries_they_say():
    for case in graphs.symmetric_graphs():
        B = np.asarray(case.model.B)
        assert len(np.unique(case.automorphisms, axis=0)) == len(case.automorphisms)
        for g in case.automorphisms:
            np.testing.assert_array_equal(B[np.ix_(g, g)], B)


def test_the_mode_is_at_least_as_probable_as_the_answer_of_map(rng):
    # Hard enough for restarts to disagree, so that populations follow.
    A, B = rng.integers(0, 100, size=(2, 16, 16))
    model = pv.models.GraphMatching(A + A.T, B + B.T, 0.01)
    for seed in range(2):
        values = [
            float(model.log_density_of(fit(model, method=method, seed=seed, **options).mode))
            for method, options in (("map", {}), ("quadratic", {"num_steps": 1000}))
        ]
        assert values[1] >= values[0] - 1e-3


def test_the_same_seed_gives_the_same_answer(rng):
    model = pv.models.GraphMatching(*rng.normal(size=(2, 10, 10)), 0.3)
    one, two = (fit(model, seed=7, num_steps=200_000) for _ in range(2))
    np.testing.assert_array_equal(one.marginals, two.marginals)
    assert one.log_evidence == two.log_evidence


def test_auto_takes_it_where_exact_is_too_slow(rng):
    large, small = (pv.models.GraphMatching(*rng.normal(size=(2, n, n))) for n in (14, 5))
    assert choose(prepare(large)).name == "quadratic"
    assert choose(prepare(small)).name == "exact"


def test_graphs_beyond_reach_are_refused_with_advice():
    graph = cycle(2100)
    message = "at most 2000 items whose match is unknown .* got 2100; give known pairs"
    with pytest.raises(ValueError, match=message):
        fit(pv.models.GraphMatching(graph, graph), method="auto")
    known = np.where(np.arange(2100) < 2090, np.arange(2100), -1)
    assert choose(prepare(pv.models.GraphMatching(graph, graph, known=known))).name == "quadratic"


@pytest.mark.parametrize("scale", [pytest.param(3.0, marks=pytest.mark.slow), 0.02])
def test_many_items_are_trusted_only_near_what_the_search_found(rng, scale):
    # A planted matching that is certain, and graphs that say next to nothing.
    upper = np.triu(rng.random((120, 120)) < 0.1, 1)
    graph, order = (upper + upper.T).astype(float), rng.permutation(120)
    model = pv.models.GraphMatching(graph[np.ix_(order, order)], graph, scale)
    found = fit(model, tolerance=0.2)
    assert np.array_equal(found.mode, order)
    certain = scale > 1
    assert (found.diagnostics.verdict == "trust") == certain
    near = float(found.diagnostics.extras["share_near_modes"])
    assert near > 0.99 if certain else near < 0.1


def test_models_without_a_quadratic_form_are_refused(rng):
    with pytest.raises(ValueError, match="must have a quadratic form for method 'quadratic', got"):
        fit(lambda X: X.sum(), n=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance must be a positive number, got 0"),
        ({"num_ensembles": 1}, "num_ensembles must be an integer of at least 2, got 1"),
        ({"num_draws": 2.5}, "num_draws must be an integer, got 2.5"),
        ({"num_steps": 0}, "num_steps must be an integer of at least 1, got 0"),
        ({"search_budget": 0}, "search_budget must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options_get_one_sentence(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        QuadraticOptions(**options)


def test_a_problem_without_any_matching_is_refused():
    mask = [[True, False], [True, False]]
    model = pv.models.LinearMatching(np.zeros((2, 2)), mask, col_unmatched=0.0)
    with pytest.raises(ValueError, match="must leave a feasible matching"):
        pv.fit(model, "quadratic")


def test_one_item_is_left_to_exact(rng):
    """Chains would read beyond their arrays, since there is nothing to swap it with."""
    scores = rng.normal(size=(3, 3))
    found = pv.fit(pv.models.LinearMatching(scores, known=[1, 2, -1]), "quadratic")
    np.testing.assert_array_equal(found.marginals, np.eye(3)[[1, 2, 0]])
    assert found.log_evidence == pytest.approx(scores[[0, 1, 2], [1, 2, 0]].sum())
    assert found.diagnostics.verdict == "trust"


def test_scores_of_any_size_have_an_evidence():
    scores = (
        np.array([[-1.3, 0.6, 0.7], [0.5, -1.0, 2.5], [-0.3, -0.7, 0.9], [2.1, 0.9, 0.1]]) * 1e300
    )
    alone = np.array([-6.4, 7.5, -8.9, -np.inf])
    model = pv.models.LinearMatching(scores, row_unmatched=alone)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        found = pv.fit(model, "quadratic", seed=8)
    assert np.isfinite(found.log_evidence)
    np.testing.assert_array_equal(found.mode, pv.fit(model, "exact").mode)
