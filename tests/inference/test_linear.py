"""Method "linear": solved parts put together, far modes, options, interruption, and `fit`."""

import signal
import subprocess
import sys
import threading
import time

import linear_cases as cases
import numpy as np
import pytest

import permvi as pv
from permvi import metrics
from permvi.inference import auto, interruptible, sparse
from permvi.inference.exact import solve_exact
from permvi.inference.interruptible import Stop
from permvi.inference.linear import Candidates, LinearOptions, LinearResult, method, solve_linear
from permvi.problem.prepare import prepare

# Leave everything to chains.
SAMPLED = {"max_size": 0, "max_states": 0}


def grounded(problem, result):
    """(n+1, m+1) marginals of a result."""
    n, m = problem.shape
    table = np.zeros((n + 1, m + 1))
    table[problem.rows, problem.cols] = result.pairs
    table[:n, m], table[n, :m] = result.rows, result.cols
    return table


def errors_of(problem, result, exact):
    """(n,) total variations from an exact result."""
    table = grounded(problem, result)[:-1, :-1]
    return metrics.total_variation_per_row(
        table, exact.marginals, result.rows, exact.p_unmatched_rows
    )


def merged(rng, sizes, *, alone):
    """Blocks that know nothing of each other, their rows and columns shuffled."""
    n = sum(sizes)
    scores, mask = 2.0 * rng.normal(size=(n, n)), np.zeros((n, n), bool)
    start = 0
    for size in sizes:
        mask[start : start + size, start : start + size] = True
        start += size
    order = rng.permutation(n), rng.permutation(n)
    given = {"scores": scores[np.ix_(*order)], "mask": mask[np.ix_(*order)]}
    if alone:
        given |= {"row_unmatched": rng.normal(size=n), "col_unmatched": rng.normal(size=n)}
    return given


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("options", [{}, {"max_size": 0}], ids=["subsets", "frontier"])
def test_small_parts_are_solved_exactly(options, alone, rng):
    given = merged(rng, [1, 2, 3, 4, 5, 9], alone=alone)
    problem, exact = Candidates.from_table(**given), solve_exact(**given)
    result = solve_linear(problem, LinearOptions(num_draws=50, **options))
    assert result.exact
    assert (result.num_steps, result.log_evidence_se, result.finished) == (0, 0.0, True)
    assert result.proven_error <= 2e-9
    atol = 1e-11 + result.proven_error
    assert errors_of(problem, result, exact).max() <= atol
    np.testing.assert_allclose(result.cols, exact.p_unmatched_cols, atol=atol)
    assert result.log_evidence == pytest.approx(exact.log_evidence, abs=1e-8)
    np.testing.assert_array_equal(result.mode, exact.mode)
    assert np.isfinite(exact.log_prob(result.draws)).all()


@pytest.mark.parametrize("alone", [True, False])
def test_sampled_and_exact_parts_are_put_together(alone, rng):
    """Blocks of up to 9, of which those beyond 5 are left to chains."""
    given = merged(rng, [3, 5, 7, 8, 9], alone=alone)
    problem, exact = Candidates.from_table(**given), solve_exact(**given)
    options = LinearOptions(max_size=5, max_states=0, num_steps=2_000_000)
    result = solve_linear(problem, options)
    assert np.count_nonzero(result.exact_rows) >= 8
    assert result.finished
    table = grounded(problem, result)
    np.testing.assert_allclose(table[:-1].sum(axis=1), 1, atol=1e-7)
    np.testing.assert_allclose(table[:, :-1].sum(axis=0), 1, atol=1e-7)
    error, sampled = errors_of(problem, result, exact), ~result.exact_rows
    assert error[result.exact_rows].max() <= 1e-8
    assert sampled.sum() >= 15
    assert error[sampled].max() <= 0.02
    # The stated error is the expected one: neither far too small nor far too large on average.
    assert 0.3 < error[sampled].mean() / result.sampling_error[sampled].mean() < 3
    assert abs(result.log_evidence - exact.log_evidence) <= 4 * result.log_evidence_se < 2.0
    assert np.isfinite(exact.log_prob(result.draws)).all()
    # Draws keep apart what is known for certain, and follow the marginals.
    used = np.array([(result.draws == j).mean(axis=0) for j in range(table.shape[1] - 1)]).T
    assert np.abs(used - exact.marginals).max() < 6 * 0.5 / np.sqrt(len(result.draws) / 5)


@pytest.mark.parametrize("kind", ["square", "oblong", "tall", "partial", "rows", "mixed"])
def test_sampled_problems_agree_with_the_subset_programme(kind):
    """Over four problems each: the stated errors are the true ones, of marginals and evidence."""
    ratios, scores = [], []
    for seed in range(4):
        rng = np.random.default_rng([7, seed])
        problem = cases.candidates(cases.KINDS[kind](rng, 9, (0.7, 1.5)[seed % 2]))
        alone = {"row_unmatched": problem.row_alone, "col_unmatched": problem.col_alone}
        exact = solve_exact(problem.table(), **alone)
        result = solve_linear(problem, LinearOptions(num_steps=400_000, **SAMPLED), seed)
        assert not result.exact
        ratios.append(errors_of(problem, result, exact).mean() / result.sampling_error.mean())
        scores.append((result.log_evidence - exact.log_evidence) / result.log_evidence_se)
        assert result.disagreement.max() <= 0.01
    assert 0.3 < np.mean(ratios) < 2.0
    assert np.sqrt(np.mean(np.square(scores))) < 2.2


def test_the_truth_about_cycles_equals_enumeration():
    table, scores = cases.cycle(6, 3.0, score=2.0)
    exact = solve_exact(table)
    log_evidence, diagonal = cases.cycle_truth(6, scores)
    assert log_evidence == pytest.approx(exact.log_evidence)
    assert diagonal == pytest.approx(exact.marginals[0, 0], abs=1e-6)


@pytest.mark.parametrize("ratio", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("n", [24, 40])
def test_far_modes_are_found_and_weighed(n, ratio):
    """Left to chains; the modes differ in every row."""
    table, scores = cases.cycle(n, ratio)
    log_evidence, diagonal = cases.cycle_truth(n, scores)
    problem = Candidates.from_table(table)
    options = LinearOptions(num_draws=100, **SAMPLED)
    result = solve_linear(problem, options, seed=1)
    found = np.diag(grounded(problem, result))[:n]
    assert np.abs(found - diagonal).mean() <= 0.05
    assert np.abs(found - diagonal).mean() <= 4 * result.sampling_error.mean()
    assert abs(result.log_evidence - log_evidence) <= 3 * result.log_evidence_se < 1.5
    assert result.disagreement.max() <= 0.05


def test_far_modes_of_the_default_are_exact():
    """The subset programme or the frontier programme knows both modes."""
    table, scores = cases.cycle(24, 3.0)
    posterior = pv.fit(pv.models.LinearMatching(table), "linear", num_draws=10)
    log_evidence, diagonal = cases.cycle_truth(24, scores)
    np.testing.assert_allclose(np.diag(posterior.marginals), diagonal, atol=1e-3)
    assert posterior.log_evidence == pytest.approx(log_evidence, abs=1e-3)
    assert posterior.diagnostics.verdict == "trust"


def test_the_seed_determines_the_result():
    problem = cases.candidates(cases.KINDS["partial"](np.random.default_rng(3), 12, 1.0))
    options = LinearOptions(num_steps=50_000, num_draws=20, **SAMPLED)
    first, again, other = (solve_linear(problem, options, seed) for seed in (5, 5, 6))
    for name in LinearResult._fields:
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert (first.pairs != other.pairs).any()
    assert (first.draws != other.draws).any()
    assert first.log_evidence != other.log_evidence


def test_several_sites_are_solved_as_one(rng):
    scores = rng.normal(size=(3, 6, 7))
    exact = [solve_exact(table, row_unmatched=0.3, col_unmatched=-0.2) for table in scores]
    model = pv.models.LinearMatching(scores, row_unmatched=0.3, col_unmatched=-0.2)
    posterior = pv.fit(model, "linear", max_size=0, num_draws=20)
    marginals = np.stack([site.marginals for site in exact])
    np.testing.assert_allclose(posterior.marginals, marginals, atol=1e-8)
    total = sum(site.log_evidence for site in exact)
    assert posterior.log_evidence == pytest.approx(total, abs=1e-8)
    assert posterior.log_evidence_kind == "exact"
    assert posterior.sample(4).shape == (4, 3, 6)
    sampled = pv.fit(model, "linear", num_steps=1_000_000, **SAMPLED)
    assert sampled.method == "linear"
    assert sampled.log_evidence_kind == "estimate"
    assert abs(sampled.log_evidence - total) <= 4 * sampled.log_evidence_se
    assert np.abs(sampled.marginals - marginals).sum(axis=-1).mean() <= 0.02


def random_candidates(rng, n, degree, **constraints):
    """Few random candidates for each item, the true label among them."""
    rows = np.repeat(np.arange(n), degree)
    cols = rng.integers(n, size=n * degree)
    cols[::degree] = rng.permutation(n)
    codes = np.unique(rows * n + cols)
    scores = 2.0 * rng.normal(size=len(codes))
    return pv.models.SparseMatching(codes // n, codes % n, scores, (n, n), **constraints)


def test_the_front_door_takes_sparse_models(rng):
    model = random_candidates(rng, 600, 5, row_unmatched=-1.0, col_unmatched=-1.0)
    assert auto.choose(prepare(model)).name == "linear"
    options = {"num_steps": 600_000, "num_draws": 200}
    posterior = pv.fit(model, **options)
    assert posterior.method == "linear"
    assert posterior.diagnostics.verdict == "trust"
    assert posterior.log_evidence_kind == "estimate"
    assert not posterior.marginals[~model.mask].any()
    # The former name gives the same.
    again = pv.fit(model, "sparse", **options)
    assert again.method == "linear"
    np.testing.assert_array_equal(again.marginals, posterior.marginals)
    # The evidence is at least that of the best matching.
    best = float(model.log_density_of(posterior.mode)) - 2.0 * (posterior.mode < 0).sum()
    assert posterior.log_evidence >= best


def test_the_former_module_has_the_same_objects():
    assert sparse.solve_sparse is solve_linear
    assert sparse.SparseOptions is LinearOptions
    assert sparse.SparseResult is LinearResult
    assert sparse.SparseProblem is Candidates


def test_known_pairs_and_lists_agree_with_masked_tables(rng):
    alone = {"row_unmatched": -0.5, "col_unmatched": 0.0}
    model = random_candidates(rng, 40, 3, **alone)
    known = {int(model.rows[7]): int(model.cols[7])}
    tables = pv.models.LinearMatching(model.scores, mask=model.mask, known=known, **alone)
    lists = pv.models.SparseMatching(
        model.rows, model.cols, model.pair_weights, model.shape, known=known, **alone
    )
    one, two = (pv.fit(each, "linear", num_draws=20) for each in (tables, lists))
    np.testing.assert_array_equal(one.marginals, two.marginals)
    assert one.diagnostics.verdict == "trust"
    assert one.log_evidence_kind == "exact"
    sampled = pv.fit(lists, "linear", num_steps=8_000_000, **SAMPLED)
    pair = next(iter(known.items()))
    for posterior in (one, sampled):
        assert posterior.marginals[pair] == 1.0
        assert (posterior.sample(10)[:, pair[0]] == pair[1]).all()
    error = metrics.total_variation_per_row(
        one.marginals, sampled.marginals, one.p_unmatched_rows, sampled.p_unmatched_rows
    )
    stated = sampled.diagnostics.sampling_error_by_row
    assert error.mean() <= 2 * stated.mean()
    assert (error <= 5 * stated + 1e-3).all()
    assert error.max() <= 0.02
    assert abs(sampled.log_evidence - one.log_evidence) <= 4 * sampled.log_evidence_se


def test_few_steps_have_large_stated_errors():
    errors = []
    for seed in range(6):
        table = 1.5 * np.random.default_rng(seed).normal(size=(14, 14))
        problem, exact = Candidates.from_table(table), solve_exact(table)
        result = solve_linear(problem, LinearOptions(num_steps=10, **SAMPLED), seed)
        errors.append((errors_of(problem, result, exact).mean(), result.sampling_error.mean()))
        assert np.isfinite(exact.log_prob(result.draws)).all()
    found, stated = np.mean(errors, axis=0)
    assert 0.005 < found < 2 * stated


def test_automatic_choice_prefers_exact_blocks_in_medium_problems(rng):
    model = pv.models.LinearMatching(**merged(rng, [5] * 20, alone=True))
    assert auto.choose(prepare(model)).name == "exact"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_size": 40}, "max_size must be in 0..24, got 40"),
        ({"max_size": True}, "max_size must be in 0..24, got True"),
        ({"max_states": -1}, "max_states must be an integer of at least 0, got -1"),
        ({"tolerance": 0.0}, "tolerance must be"),
        ({"num_chains": 0}, "num_chains must be an integer of at least 1, got 0"),
        ({"num_draws": 0}, "num_draws must be an integer of at least 1, got 0"),
        ({"num_steps": 0}, "num_steps must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options_get_one_sentence(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        LinearOptions(**options)
    assert "\n" not in str(caught.value)


def soft_table(n):
    return np.random.default_rng(0).normal(size=(n, n))


def test_asking_chains_to_stop_gives_what_they_have():
    """From another thread, while they run; without that they would run for hours."""
    stop = Stop()
    problem = Candidates.from_table(soft_table(60))
    options = LinearOptions(num_steps=4 * 10**9, num_draws=10)

    def ask():
        while stop.done < 10_000_000:
            time.sleep(0.01)
        stop.asked = True

    thread = threading.Thread(target=ask)
    thread.start()
    result = solve_linear(problem, options, stop=stop)
    thread.join()
    assert not result.finished
    assert stop.done <= stop.total
    np.testing.assert_allclose(grounded(problem, result)[:-1].sum(axis=1), 1.0, atol=1e-6)
    assert np.isfinite([problem.log_weight(draw) for draw in result.draws]).all()


@pytest.mark.parametrize("ratio", [None, 3.0], ids=["soft", "far-modes"])
def test_stopping_before_anything_is_known_gives_beliefs(ratio):
    table = soft_table(30) if ratio is None else cases.cycle(24, ratio)[0]
    problem, stop = Candidates.from_table(table), Stop()
    stop.asked = True
    result = solve_linear(problem, LinearOptions(**SAMPLED, num_draws=5), stop=stop)
    assert not result.finished
    assert not np.isfinite(result.log_evidence_se)
    np.testing.assert_allclose(grounded(problem, result)[:-1].sum(axis=1), 1.0, atol=1e-6)
    assert np.isfinite([problem.log_weight(draw) for draw in result.draws]).all()


def test_an_interrupted_fit_is_marked():
    """Ctrl-C reaches the thread that shows the progress."""
    seen = []

    def progress(what, done, total):
        seen.append((what, done, total))
        if done >= 5_000_000:
            raise KeyboardInterrupt

    model = pv.models.LinearMatching(soft_table(60))
    with pytest.warns(pv.FitWarning, match="do not trust"):
        posterior = pv.fit(model, "linear", num_steps=4 * 10**9, num_draws=10, progress=progress)
    assert posterior.diagnostics.verdict == "do not trust"
    assert posterior.diagnostics.reasons[0].startswith("interrupted")
    assert posterior.diagnostics.converged is False
    # That it was heard is said before the chains sum up.
    assert seen.index(("interrupted, summing up", 0, 1)) == 1 + next(
        k for k, (_, done, _) in enumerate(seen) if done >= 5_000_000
    )
    steps = [shown for shown in seen if shown[0] != "interrupted, summing up"]
    assert {what for what, _, _ in steps} == {"linear"}
    done = [count for _, count, _ in steps]
    assert done == sorted(done)
    assert all(0 <= count <= total for _, count, total in steps)
    np.testing.assert_allclose(posterior.marginals.sum(axis=1), 1.0, atol=1e-6)


def test_the_plan_follows_the_error():
    """The first plan has the most steps allowed; the last one is about what it took."""

    class Plans(Stop):
        def __init__(self):
            super().__init__()
            self.totals = []

        def plan(self, total):
            super().plan(total)
            self.totals.append(total)

    stop = Plans()
    solve_linear(Candidates.from_table(soft_table(40)), LinearOptions(**SAMPLED), stop=stop)
    assert stop.totals[-1] < stop.totals[0]
    assert 0.5 * stop.totals[-1] <= stop.done <= 1.1 * stop.totals[-1]


def context(progress):
    return method.Context("linear", 0, {}, progress)


def test_an_interruption_without_any_result_is_raised(monkeypatch):
    monkeypatch.setattr(interruptible, "_PATIENCE", 0.05)
    stop, done = Stop(), threading.Event()
    stop.plan(1)

    def progress(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interruptible.interruptible(lambda: done.wait(5), stop, context(progress))
    assert stop.asked
    done.set()


def test_errors_of_the_solver_and_of_the_progress_are_raised():
    stop, done = Stop(), threading.Event()
    stop.plan(1)
    with pytest.raises(ZeroDivisionError):
        interruptible.interruptible(lambda: 1 // 0, stop, context(lambda *_: None))
    with pytest.raises(ZeroDivisionError):
        interruptible.interruptible(lambda: done.wait(5), stop, context(lambda *_: 1 // 0))
    # Nobody waits for the chains any more.
    assert stop.asked
    done.set()


# A shell starts jobs in the background with this signal ignored.
SCRIPT = """
import signal

import numpy as np
import permvi as pv

signal.signal(signal.SIGINT, signal.default_int_handler)

def progress(what, done, total):
    if done:
        print("chains", flush=True)

model = pv.models.LinearMatching(np.random.default_rng(0).normal(size=(1000, 1000)))
posterior = pv.fit(model, "linear", progress=progress)
print(posterior.diagnostics.verdict, posterior.diagnostics.reasons[0], sep="; ")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_control_c_prints_what_is_known():
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "chains\n"
            process.send_signal(signal.SIGINT)
            printed = process.communicate(timeout=10)[0].splitlines()
        finally:
            process.kill()
    assert printed[-1].startswith("do not trust; interrupted")
