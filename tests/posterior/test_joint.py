"""Joint statements against sums over all matchings."""

import itertools

import numpy as np
import pytest

import permvi as pv
from permvi.posterior import Diagnostics, Posterior
from permvi.posterior.marginal_law import MarginalsLaw
from tests.posterior import cases

ONE_SITE = [name for name in cases.PROBLEMS if "sites" not in name]


def oracle(problem, holds):
    """The probability of all matchings for which ``holds`` is true, by enumeration."""
    perms, log_weights = cases.table(problem)
    probs = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    return sum(p for perm, p in zip(perms, probs, strict=True) if holds(perm))


@pytest.mark.parametrize("law", ["exact", "tabular", "weighted"])
@pytest.mark.parametrize("name", ONE_SITE)
def test_every_pair_of_pairs_has_its_exact_probability(rng, name, law):
    problem = cases.PROBLEMS[name](rng)
    posterior = cases.make(law, problem, rng, log_evidence=0.0, log_evidence_kind="exact")
    n, m = posterior.shape
    last = n - 1
    for a, b in itertools.product(range(-1, m), repeat=2):
        wanted = oracle(problem, lambda x, a=a, b=b: x[0] == a and x[last] == b)
        found = posterior.probability({0: a, last: b} if last else {0: a})
        if last or a == b:
            assert found == pytest.approx(wanted, abs=1e-12)
        assert found.se == 0
        wanted = oracle(problem, lambda x, a=a, b=b: x[0] == a and x[last] != b)
        found = posterior.probability({0: a}, excluding={last: b})
        assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("law", ["exact", "tabular"])
@pytest.mark.parametrize("name", ["two_sites", "two_sites_partial"])
def test_statements_about_two_sites(rng, name, law):
    problem = cases.PROBLEMS[name](rng)
    posterior = cases.make(law, problem, rng)
    m = posterior.shape[1]
    for a, b in itertools.product(range(-1, m), repeat=2):
        wanted = oracle(problem, lambda x, a=a, b=b: x[0, 0] == a and x[1, 1] != b)
        found = posterior.probability({(0, 0): a}, excluding={(1, 1): b})
        assert found == pytest.approx(wanted, abs=1e-12)
    same = oracle(problem, lambda x: x[0, 0] == x[1, 1] >= 0)
    assert posterior.together((0, 0), (1, 1)).same == pytest.approx(same, abs=1e-12)
    assert posterior.together((0, 0), (0, 1)).same == 0


def test_names_and_sets_of_labels(rng):
    problem = cases.partial(rng)
    labels = (["r1", "r2", "r3", "r4"], ["Anna", "Bea", "Cleo"])
    posterior = cases.make("exact", problem, rng, labels=labels)
    by_name = posterior.probability({"r1": ["Anna", None], "r3": "unmatched"}, {"r2": "Bea"})
    wanted = oracle(problem, lambda x: x[0] in (0, -1) and x[2] == -1 and x[1] != 1)
    assert by_name == pytest.approx(wanted, abs=1e-12)
    assert posterior.probability({}) == 1
    assert posterior.probability({"r1": "Anna", "r2": "Anna"}) == 0
    with pytest.raises(ValueError, match="item must be the name of one item, got 'r9'"):
        posterior.probability({"r9": "Anna"})
    with pytest.raises(ValueError, match="label must be 0 to 2 or a name, got 7"):
        posterior.probability({"r1": 7})
    with pytest.raises(TypeError, match="pairs must map items to labels"):
        posterior.probability("r1")


def test_draws_have_honest_standard_errors(rng):
    problem = cases.square(rng)
    wanted = oracle(problem, lambda x: x[0] == 1 and x[1] != 2)
    z = []
    for _ in range(200):
        posterior = cases.make("draws", problem, rng)
        found = posterior.probability({0: 1}, excluding={1: 2})
        z.append((found - wanted) / found.se)
    # The standard deviation of 200 z-scores has a standard error of .05.
    assert np.std(z) == pytest.approx(1, abs=0.2)
    never = posterior.probability({0: 1, 1: 1})
    assert never == 0
    assert 0 < never.se < 0.01
    poor = Diagnostics("check", (), ess_per_draw=0.25)
    chain = cases.make("draws", problem, rng, diagnostics=poor)
    assert chain.probability({0: 0, 1: 1}).se == pytest.approx(
        posterior.probability({0: 0, 1: 1}).se * 2, rel=0.25
    )


@pytest.mark.parametrize("law", cases.LAWS)
def test_joint_labels_come_in_order(rng, law):
    problem = cases.partial(rng)
    posterior = cases.make(law, problem, rng)
    found = posterior.together(0, 2, k=30)
    assert found.same == 0
    probabilities = [one.probability for one in found.labels]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, abs=1e-9)
    for labels, p in found.labels:
        states = [-1 if label is None else label for label in labels]
        wanted = oracle(problem, lambda x, s=states: [x[0], x[2]] == s)
        # The error of a share of 400 draws, and none where the law is exact.
        assert (
            abs(p - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / 400) * (law == "draws") + 1e-12
        )
    with pytest.raises(ValueError, match="two different items"):
        posterior.together(0, 0)


def test_co_assignment_from_draws(rng):
    problem = cases.two_sites(rng)
    same = oracle(problem, lambda x: x[0, 0] == x[1, 2] >= 0)
    found = cases.make("draws", problem, rng).together((0, 0), (1, 2)).same
    assert abs(found - same) <= 4 * found.se


@pytest.mark.parametrize("law", ["exact", "tabular"])
@pytest.mark.parametrize("name", ["square", "partial", "certain", "two_sites"])
def test_credible_matchings_are_the_fewest(rng, name, law):
    problem = cases.PROBLEMS[name](rng)
    posterior = cases.make(law, problem, rng)
    _, log_weights = cases.table(problem)
    probs = np.sort(np.exp(log_weights - np.logaddexp.reduce(log_weights)))[::-1]
    found = posterior.credible_matchings(0.8)
    assert found.reached
    assert len(found.perms) == np.searchsorted(np.cumsum(probs), 0.8) + 1
    np.testing.assert_allclose(found.probabilities, probs[: len(found.perms)], atol=1e-12)
    few = posterior.credible_matchings(1.0, max_matchings=2)
    if len(probs) > 2 and probs[2] > 1e-9:
        assert not few.reached
        assert "only" in few.note


def test_draws_that_cannot_give_credible_matchings_say_so(rng):
    perms = np.array([rng.permutation(12) for _ in range(500)])
    found = Posterior.from_draws(perms, shape=(12, 12)).credible_matchings()
    assert not found.reached
    assert "too few" in found.note
    enough = cases.make("draws", cases.square(rng), rng).credible_matchings(0.8)
    assert enough.reached
    assert enough.probabilities.sum() >= 0.8
    law = MarginalsLaw(np.full((3, 3), 1 / 3))
    posterior = Posterior(law=law, marginals=np.full((3, 3), 1 / 3), mode=[0, 1, 2])
    for ask in (posterior.credible_matchings, lambda: posterior.together(0, 1)):
        with pytest.raises(ValueError, match="got a posterior made of marginals"):
            ask()
    assert posterior.probability({0: 1}) == pytest.approx(1 / 3)


def test_the_mode_comes_first_where_draws_disagree():
    draws = np.array([[0, 1, 2]] * 5 + [[1, 0, 2]] * 4 + [[2, 1, 0]] * 3)
    posterior = Posterior.from_draws(draws, shape=(3, 3), mode=[1, 0, 2])
    first, second, third = posterior.top(3)
    np.testing.assert_array_equal(first.perm, posterior.mode)
    # The shares 4/12 and 5/12 contradict what is known of the mode, and are averaged.
    assert first.probability == second.probability == pytest.approx(4.5 / 12)
    assert third.probability == pytest.approx(3 / 12)
    never_drawn = Posterior.from_draws(draws, shape=(3, 3), mode=[0, 2, 1]).top(10)
    assert [m.probability for m in never_drawn] == pytest.approx([0.25] * 4)
    np.testing.assert_array_equal(posterior.top(1)[0].perm, posterior.mode)


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_a_ranking_by_chains_has_one_mode(rng):
    orders = [np.argsort(np.arange(10) + rng.normal(size=10)).tolist() for _ in range(3)]
    model = pv.models.Rankings(orders)
    posterior = pv.fit(model, "mcmc")
    listed = posterior.top(50)
    np.testing.assert_array_equal(listed[0].perm, posterior.mode)
    probabilities = [p for _, p in listed]
    assert probabilities == sorted(probabilities, reverse=True)
    densities = np.asarray(model.log_density_of(np.array([perm for perm, _ in listed])))
    assert densities[0] >= densities.max() - 1e-5
