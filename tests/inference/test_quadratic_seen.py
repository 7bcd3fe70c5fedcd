"""What ensembles that do not count have found alone, against what was put there."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import permvi as pv
from permvi.inference.interruptible import Stop
from permvi.inference.map import Quadratic
from permvi.inference.quadratic import method
from permvi.inference.quadratic.form import with_penalties
from permvi.inference.quadratic.sample import _combined, sample
from permvi.inference.quadratic.tempering import Evidence
from permvi.inference.quadratic.twins import Twins, unseen

N = 6
APART = Twins(np.arange(N), np.arange(N))


def test_what_is_a_swap_away_has_been_seen():
    known = np.arange(N)[None]
    draws = np.array([[0, 1, 2, 3, 4, 5], [0, 4, 2, 3, 1, 5], [1, 2, 0, 3, 4, 5]])
    assert unseen(draws, known, APART) == pytest.approx(1 / 3)
    assert unseen(draws, draws, APART) == 0.0
    assert unseen(draws[:0], known, APART) == 0.0


def test_twins_can_be_in_any_arrangement(rng):
    twins = Twins(np.array([0, 0, 0, 0, 4, 5]), np.array([0, 1, 1, 3, 4, 5]))
    known = rng.permutation(N)[None]
    same = twins.shuffled(np.repeat(known, 50, axis=0), rng)
    assert unseen(same, known, twins) == 0.0
    assert unseen(same, known, APART) > 0.5


def test_few_of_many_draws_are_looked_at(rng):
    draws = np.array([rng.permutation(N) for _ in range(5000)])
    far = (draws != np.arange(N)).sum(axis=1) > 2
    found = unseen(draws, np.arange(N)[None], APART)
    assert abs(found - far.mean()) < 4 * np.sqrt(far.mean() * (1 - far.mean()) / 200)


class Seen:
    """An ensemble that has seen permutations (k, N) equally often, as if without noise."""

    def __init__(self, perms, log_evidence):
        self.ensemble = SimpleNamespace(best=perms[0], best_value=0.0, num_jumps=0)
        self.evidence = lambda: Evidence(log_evidence, 0.01)
        self.draws = [np.repeat(perms, 100, axis=0)]
        self.mean = np.mean([np.eye(N)[perm] for perm in perms], axis=0)
        self.variance = np.zeros((N, N))


@pytest.mark.parametrize("below", [1.0, 3.0])
def test_only_what_is_new_is_missed(rng, below):
    best, zero = np.arange(N), np.zeros((N, N))
    # Densities of single matchings, about -30, are far below the evidence of any ensemble.
    table = Quadratic(zero, zero, rng.normal(-5, 0.1, size=(N, N)))
    form = with_penalties(table, np.ones((N, N), bool), 0.0, (N, N), best)
    both, elsewhere = np.stack([best, np.roll(best, 1)]), np.roll(best, 2)[None]
    share = 1 / (1 + np.exp(below))

    def missed(perms):
        members = [Seen(both, 0.0), Seen(perms, -below)]
        return _combined(form, members, both, 10, Stop(), rng).missed

    # One of two modes that are known, one of its neighbours, and a third mode.
    assert missed(both[:1]) == 0.0
    assert missed(best[None, [1, 0, 2, 3, 4, 5]]) == 0.0
    assert missed(elsewhere) == pytest.approx(share)
    half = np.concatenate([both[:1], elsewhere])
    assert missed(half) == pytest.approx(share / 2)

    # An evidence below the density of what an ensemble has seen is wrong.
    members = [Seen(both, form.values(elsewhere)[0] - below), Seen(elsewhere, -60.0)]
    found = _combined(form, members, both, 10, Stop(), rng)
    assert found.missed == pytest.approx(1 - share)


def test_ensembles_that_begin_in_several_modes_all_count():
    """Before they learnt modes from each other, two of four never left the lesser mode."""
    scores = 20 * np.random.default_rng((880_000, 8, 10_000_000)).normal(size=(8, 8))
    model = pv.models.LinearMatching(scores)
    found, exact = (pv.fit(model, method) for method in ("quadratic", "exact"))
    assert found.diagnostics.extras["ensembles_counted"] == 4
    assert found.diagnostics.verdict == "trust"
    by_row = pv.metrics.total_variation_per_row(found.marginals, exact.marginals)
    assert by_row.mean() < 0.01


def test_a_lesser_mode_is_known_though_tabu_search_leaves_it():
    """Two copies of a graph: with seed 217 all tabu searches ended in the better arrangement."""
    rng = np.random.default_rng([7101, 116])
    half = (rng.random((10, 10)) < 0.8) * rng.normal(size=(10, 10))
    np.fill_diagonal(half, 0)
    B = np.kron(np.eye(2), half)
    C, order = 0.3 * rng.normal(size=(20, 20)), rng.permutation(20)
    model = pv.models.GraphMatching(B[np.ix_(order, order)], B, 6.0, C)
    # Hardly anything but the two arrangements has any probability.
    both = np.stack([order, (order + 10) % 20])
    weights = np.exp(C[np.arange(20), both].sum(axis=1))
    truth = np.einsum("k,kij->ij", weights / weights.sum(), np.eye(20)[both])
    found = pv.fit(model, seed=217)
    by_row = pv.metrics.total_variation_per_row(found.marginals, truth)
    assert found.diagnostics.verdict == "trust"
    assert by_row.mean() < 0.03


@pytest.mark.slow
def test_the_tolerance_is_that_of_items(rng):
    """A graph in a larger one: of the 16 rows of the square form, 12 fill up."""
    A = rng.normal(size=(4, 4)) + np.eye(4)
    B = 0.3 * rng.normal(size=(16, 16))
    # Two places where the graph fits, far from each other.
    B[:4, :4], B[8:12, 8:12] = A, A
    model = pv.models.GraphMatching(A, B, 1.5)
    found, exact = (pv.fit(model, method, seed=1) for method in ("quadratic", "exact"))
    assert found.diagnostics.sampling_error_by_row.mean() <= 0.006
    by_row = pv.metrics.total_variation_per_row(found.marginals, exact.marginals)
    assert by_row.mean() < 0.03


def test_an_answer_for_a_table_is_compared_with_that_of_linear(monkeypatch):
    """Two modes differ in all rows, and chains that believe all is well have seen one alone."""
    rng = np.random.default_rng((1730001, 8, 1_000_000))
    tilt = rng.uniform(0, np.log(5)) / 8
    eye = np.eye(8)
    scores = 12 * (eye + np.roll(eye, 1, 1)) - tilt * np.roll(eye, 1, 1)
    model = pv.models.LinearMatching(scores[np.ix_(rng.permutation(8), rng.permutation(8))])
    exact = pv.fit(model, "exact")
    right = pv.fit(model, "quadratic")
    assert right.diagnostics.verdict == "trust"
    assert pv.metrics.total_variation_per_row(right.marginals, exact.marginals).max() < 0.03

    def in_one_mode(form, *rest):
        found = sample(form, *rest)
        return found._replace(marginals=np.eye(8)[form.best], draws=form.best[None])

    monkeypatch.setattr(method, "sample", in_one_mode)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        wrong = pv.fit(model, "quadratic")
    error = pv.metrics.total_variation_per_row(wrong.marginals, exact.marginals)
    assert error.max() > 0.2
    assert wrong.diagnostics.verdict == "do not trust"
    assert "try method='linear'" in wrong.diagnostics.reasons[0]
    np.testing.assert_allclose(wrong.diagnostics.bias_by_row, error, atol=1e-6)
