"""Every kind of law on every kind of problem, against the table of all matchings."""

import pickle

import numpy as np
import pytest
from scipy.special import logsumexp

from permvi.inference.exact import enumerate_log_density
from permvi.posterior import DrawsLaw, ExactLaw, Posterior, TabularLaw, laws
from permvi.posterior.laws import restore_law
from tests.posterior import cases

each_law = pytest.mark.parametrize("law", cases.LAWS)
each_problem = pytest.mark.parametrize("problem", cases.PROBLEMS.values(), ids=cases.PROBLEMS)


@each_law
@each_problem
def test_rows_and_columns_sum_to_one(law, problem, rng):
    posterior = cases.make(law, problem(rng), rng)
    rows = posterior.marginals.sum(-1) + posterior.p_unmatched_rows
    cols = posterior.marginals.sum(-2) + posterior.p_unmatched_cols
    np.testing.assert_allclose(rows, 1.0, atol=1e-12)
    np.testing.assert_allclose(cols, 1.0, atol=1e-12)


@pytest.mark.parametrize("law", ["exact", "tabular", "weighted"])
@each_problem
def test_marginals_and_mode_are_those_of_the_table(law, problem, rng):
    arguments = problem(rng)
    posterior = cases.make(law, arguments, rng)
    perms, log_weights = cases.table(arguments)
    probs = np.exp(log_weights - logsumexp(log_weights))
    found = (posterior.marginals, posterior.p_unmatched_rows, posterior.p_unmatched_cols)
    for ours, theirs in zip(found, cases.grounded(perms, probs, posterior.shape), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    np.testing.assert_array_equal(posterior.mode, perms[np.argmax(log_weights)])


@pytest.mark.parametrize("law", ["exact", "tabular"])
@each_problem
def test_exact_laws_know_probabilities_evidence_and_entropy(law, problem, rng):
    arguments = problem(rng)
    posterior = cases.make(law, arguments, rng)
    perms, log_weights = cases.table(arguments)
    log_probs = log_weights - logsumexp(log_weights)
    np.testing.assert_allclose(posterior.log_prob(perms), log_probs, atol=1e-9)
    np.testing.assert_allclose(posterior.log_evidence, logsumexp(log_weights), rtol=1e-12)
    np.testing.assert_allclose(posterior.joint_entropy, -np.exp(log_probs) @ log_probs, atol=1e-9)
    assert posterior.log_evidence_kind == "exact"
    assert posterior.diagnostics.verdict == "trust"


def test_log_prob_takes_any_batch_shape(rng):
    posterior = cases.make("exact", cases.two_sites(rng), rng)
    draws = posterior.sample(6)
    together = posterior.log_prob(draws.reshape(2, 3, 2, 3))
    assert together.shape == (2, 3)
    assert posterior.log_prob(draws[0]).shape == ()
    np.testing.assert_array_equal(together.ravel(), posterior.log_prob(draws))
    impossible = np.array([[0, 0, 1], [2, 0, 1]])
    assert posterior.log_prob(impossible) == -np.inf


@each_law
@each_problem
def test_samples_follow_the_marginals(law, problem, rng):
    posterior = cases.make(law, problem(rng), rng)
    num = 4000
    draws = posterior.sample(num, seed=1)
    assert draws.shape == (num, *posterior.mode.shape)
    np.testing.assert_array_equal(draws, posterior.sample(num, seed=1))
    frequencies = (draws[..., None] == np.arange(posterior.shape[1])).mean(axis=0)
    p = posterior.marginals
    # Four standard errors in some 200 entries: a false alarm in about one of a hundred seeds.
    assert (np.abs(frequencies - p) <= 4 * np.sqrt(p * (1 - p) / num) + 1e-12).all()


@pytest.mark.parametrize("law", ["exact", "tabular", "weighted"])
@each_problem
def test_top_lists_the_most_probable(law, problem, rng):
    arguments = problem(rng)
    posterior = cases.make(law, arguments, rng)
    perms, log_weights = cases.table(arguments)
    probs = np.sort(np.exp(log_weights - logsumexp(log_weights)))[::-1]
    for k in (1, 5, len(perms) + 3):
        found = posterior.top(k)
        np.testing.assert_allclose([p for _, p in found], probs[:k], atol=1e-12)
        assert len({tuple(perm.ravel()) for perm, _ in found}) == min(k, len(perms))
        assert found[0].perm.shape == posterior.mode.shape


def test_top_of_draws_adds_up_repeats():
    draws = [[0, 1], [1, 0], [0, 1], [0, 1]]
    posterior = Posterior.from_draws(draws, np.log([0.1, 0.6, 0.2, 0.1]), shape=(2, 2))
    best, second = posterior.top(5)
    assert best.perm.tolist() == [1, 0]
    np.testing.assert_allclose([best.probability, second.probability], [0.6, 0.4])
    assert posterior.mode.tolist() == [1, 0]


def test_draws_have_neither_density_nor_entropy(rng):
    posterior = cases.make("draws", cases.square(rng), rng)
    assert posterior.joint_entropy is None
    with pytest.raises(ValueError, match="made of draws"):
        posterior.log_prob(posterior.mode)


def test_zero_weights_are_never_drawn():
    law = DrawsLaw([[0, 1], [1, 0], [0, 1]], [-np.inf, 0.0, -np.inf])
    assert (law.sample(100, np.random.default_rng(0)) == [1, 0]).all()


def test_equal_weights_give_back_each_draw_once():
    draws = np.array([np.roll(np.arange(7), k) for k in range(7)])
    again = DrawsLaw(draws).sample(7, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(again[:, 0]), np.arange(7))


def test_a_single_site_axis_is_dropped():
    posterior = Posterior.from_draws([[[0, 1]], [[1, 0]]], shape=(2, 2))
    assert posterior.num_sites == 1
    assert posterior.sample(3).shape == (3, 2)


@pytest.mark.parametrize("partial", [False, True])
def test_table_of_a_general_density(partial, rng):
    values = rng.normal(size=(5, 4, 4))

    def log_density(perms):
        return sum(values[perms[:, i], i, perms[:, i - 1]] for i in range(perms.shape[1]))

    mask = np.ones((4, 3), dtype=bool)
    mask[0, 1] = False
    result = enumerate_log_density(log_density, 4, 3, mask=mask, partial=partial)
    posterior = Posterior.from_exact(TabularLaw.from_result(result, partial=partial))
    np.testing.assert_allclose(posterior.marginals, result.marginals, atol=1e-12)
    np.testing.assert_allclose(posterior.log_evidence, result.log_evidence)
    np.testing.assert_allclose(posterior.joint_entropy, result.entropy)
    draws = result.sample(50, 0)
    np.testing.assert_allclose(posterior.log_prob(draws), result.log_prob(draws))


@each_law
def test_laws_survive_arrays_and_pickle(law, rng):
    posterior = cases.make(law, cases.two_sites_partial(rng), rng)
    restored = restore_law(posterior.law.kind, posterior.law.to_arrays())
    for other in (restored, pickle.loads(pickle.dumps(posterior.law))):
        draws = other.sample(20, np.random.default_rng(3))
        np.testing.assert_array_equal(draws, posterior.sample(20, seed=3))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ExactLaw(np.zeros(3)), r"scores must have shape \(n, m\)"),
        (lambda: ExactLaw(np.zeros((2, 3, 3)), known=[0, 1]).result, "known must broadcast"),
        (lambda: TabularLaw([[0, 1], [0, 1]], [0.0, 0.0], 2), "perms must be distinct"),
        (lambda: TabularLaw([[0, 1], [1, 0]], [0.0], 2), "perms must have shape"),
        (lambda: TabularLaw([[0, 1], [1, 0]], [np.nan, 0.0], 2), "log_weights must be"),
        (lambda: TabularLaw([[0, 2]], [0.0], 2), "perms must hold columns 0 to 1 or -1, got 2"),
        (lambda: TabularLaw(np.zeros((1, 40, 2), int), [0.0], 2), "fit into 62 bits"),
        (lambda: DrawsLaw([0, 1]), "draws must be integers of shape"),
        (lambda: DrawsLaw([[0.0, 1.0]]), "draws must be integers of shape"),
        (lambda: DrawsLaw([[0, 1]], [0.0, 1.0]), "log_weights must have one entry for each of 1"),
        (lambda: DrawsLaw([[0, 1]], [np.nan]), "log_weights must be"),
        (lambda: restore_law("none", {}), "kind must be a registered law"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(build, message):
    with pytest.raises(ValueError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_distinct_draws_of_large_problems(rng, monkeypatch):
    draws = rng.permuted(np.tile(np.arange(4), (50, 1)), axis=1)
    weights = rng.normal(size=50)
    small = DrawsLaw(draws, weights).top(30)
    monkeypatch.setattr(laws, "_MAX_SORTED", 0)
    large = DrawsLaw(draws, weights).top(30)
    np.testing.assert_array_equal(large[0], small[0])
    np.testing.assert_allclose(large[1], small[1])
