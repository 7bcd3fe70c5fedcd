"""Groups of voters against sums over all orders, shares and dispersions, and on simulations."""

import functools
import itertools

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

import permvi as pv
from permvi.inference.rankings import families, groups, solve
from permvi.inference.rankings.voices import VOICES
from permvi.models.rankings import Ballots
from permvi.models.rankings.ballots import log_geometric
from tests import ranking_oracle


def simulated(order, theta, num, rng):
    """Draw rankings of a Mallows model, item by item."""
    rankings = []
    for _ in range(num):
        left, ranking = list(order), []
        while left:
            weights = np.exp(-theta * np.arange(len(left)))
            ranking.append(left.pop(rng.choice(len(left), p=weights / weights.sum())))
        rankings.append(ranking)
    return rankings


def log_probabilities(ballots, thetas):
    """(orders, R, T) log probabilities of ballots, by the distances of all orders."""
    n = len(ballots.items)
    found = []
    for ranks in itertools.permutations(range(n)):
        apart = [
            sum(
                0 <= row[j] < row[i]
                for i in range(n)
                for j in range(n)
                if ranks[i] < ranks[j]
            )
            for row in ballots.levels
        ]  # fmt: skip
        found.append(-np.outer(apart, thetas))
    return np.array(found) - ballots.choices @ log_geometric(np.arange(1, n + 1), thetas)


def summed_up(ballots, num=61, shares=24):
    """The log evidence of two groups, and the law of the order of the one that holds ballot 0.

    Dispersions are integrated by the trapezoidal rule in log theta, shares by Gauss-Legendre.
    """
    u = np.linspace(np.log(1e-4), np.log(30.0), num)
    thetas, step = np.exp(u), u[1] - u[0]
    log_prior = np.log(step) + u - thetas
    log_p = log_probabilities(ballots, thetas)
    orders, _, T = log_p.shape
    states = log_p.transpose(0, 2, 1).reshape(orders * T, -1)
    log_states = np.tile(log_prior, orders) - np.log(orders)
    nodes, weights = np.polynomial.legendre.leggauss(shares)
    total = []
    for share, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        both = np.logaddexp(
            np.log(share) + states[:, None, :], np.log1p(-share) + states[None, :, :]
        )
        terms = both @ ballots.counts + log_states[:, None] + log_states[None, :]
        total.append(np.log(weight) + logsumexp(terms))
    return float(logsumexp(total))


def evidence_of_worths(ballots, draws=400_000):
    """The log evidence of a Plackett-Luce model, a function of how often each ballot was given.

    It is a mean over draws of the prior; the order of tied items is summed over one by one.
    """
    rng = np.random.default_rng(1)
    sigmas = np.exp(rng.normal(size=draws))
    worths = np.exp(sigmas[:, None] * rng.normal(size=(draws, len(ballots.items))))
    p = np.zeros((draws, len(ballots.levels)))
    for r, groups_of_ties in enumerate(ballots.groups):
        for parts in itertools.product(*map(itertools.permutations, groups_of_ties)):
            order = [item for part in parts for item in part]
            chances = [worths[:, i] / worths[:, order[k:]].sum(axis=1) for k, i in enumerate(order)]
            p[:, r] += np.prod(chances, axis=0)
    logs = np.log(p)
    return functools.cache(lambda own: np.log(np.exp(logs @ np.array(own)).mean()))


def evidence_of_orders(name, ballots, num=300):
    """The log evidence of a Mallows model, a function of how often each ballot was given.

    Orders are summed over; dispersions are integrated by the trapezoidal rule in log theta.
    """
    n = len(ballots.items)
    rate = ranking_oracle.prior_rate(name, n)
    u = np.linspace(np.log(1e-7), np.log(60.0), num) - np.log(rate)
    thetas, step = np.exp(u), u[1] - u[0]
    log_prior = np.log(step * rate) + u - rate * thetas
    logs = np.array([
        ranking_oracle.likelihoods(name, ballots.levels, ranks, thetas)
        for ranks in itertools.permutations(range(n))
    ])  # fmt: skip

    def evidence(own):
        by_place = logsumexp(np.einsum("ojrt,r->ojt", logs, own) + log_prior, axis=2)
        return float(logsumexp(by_place.sum(axis=1)) - np.log(len(logs)))

    return functools.cache(evidence)


def summed_over_memberships(ballots, num_groups, evidence):
    """The log evidence of groups, by all splits of the voters of each ballot."""
    counts = ballots.counts.astype(int).tolist()
    shares = gammaln(num_groups) - gammaln(sum(counts) + num_groups)
    total = []
    # How many voters of each ballot are in each group.
    ways = [
        [way for way in itertools.product(range(c + 1), repeat=num_groups) if sum(way) == c]
        for c in counts
    ]
    for split in itertools.product(*ways):
        table = np.array(split)
        number = gammaln(np.array(counts) + 1).sum() - gammaln(table + 1).sum()
        of_shares = shares + gammaln(table.sum(axis=0) + 1).sum()
        total.append(number + of_shares + sum(map(evidence, map(tuple, table.T.tolist()))))
    return float(logsumexp(total))


BALLOTS = {
    "strict": Ballots.of("abc", [[(0,), (1,), (2,)], [(2,), (1,), (0,)]], np.array([4.0, 3.0])),
    "four": Ballots.of(
        "abcd",
        [[(0,), (1,), (2,), (3,)], [(3,), (2,), (1,), (0,)], [(2,), (3,), (0,), (1,)]],
        np.array([3.0, 3.0, 1.0]),
    ),
    "best": Ballots.of(
        "abcd",
        [[(0,), (1,), (2, 3)], [(3,), (2,), (1,), (0,)], [(2,), (0, 1, 3)]],
        np.array([3.0, 3.0, 2.0]),
    ),
    "tied": Ballots.of(
        "abc", [[(0, 1), (2,)], [(2,), (0,)], [(1,), (2,), (0,)]], np.array([3.0, 2.0, 2.0])
    ),
}


@pytest.mark.parametrize("kind", ["strict", "tied"])
def test_the_evidence_of_two_groups_is_that_of_all_orders_shares_and_dispersions(kind):
    ballots = BALLOTS[kind]
    found = groups.solve(ballots, 2, seed=1)
    # Four runs give a standard error with three degrees of freedom: 5 of them are p < .02.
    assert abs(found.log_evidence - summed_up(ballots)) < max(5 * found.log_evidence_se, 0.05)
    assert found.log_evidence_se < 0.5


@pytest.mark.parametrize(
    ("kind", "num_groups"),
    [pytest.param("strict", 2, marks=pytest.mark.slow), ("tied", 2), ("tied", 3)],
)
def test_the_evidence_of_groups_with_worths_is_that_of_all_memberships(kind, num_groups):
    ballots = BALLOTS[kind]
    found = groups.solve(ballots, num_groups, seed=1, model="plackett_luce")
    expected = summed_over_memberships(ballots, num_groups, evidence_of_worths(ballots))
    assert abs(found.log_evidence - expected) < max(5 * found.log_evidence_se, 0.05)
    assert found.log_evidence_se < 0.3


@pytest.mark.parametrize("model", families.FAMILIES)
@pytest.mark.parametrize(("kind", "num_groups"), [("strict", 2), ("four", 2), ("four", 3)])
def test_the_evidence_of_groups_of_all_distances_is_that_of_all_memberships(
    model, kind, num_groups
):
    ballots = BALLOTS[kind]
    found = groups.solve(ballots, num_groups, seed=1, model=model)
    expected = summed_over_memberships(ballots, num_groups, evidence_of_orders(model, ballots))
    assert abs(found.log_evidence - expected) < max(5 * found.log_evidence_se, 0.05)
    assert found.log_evidence_se < 0.3


def test_best_of_lists_in_groups_with_a_dispersion_for_each_place():
    ballots = BALLOTS["best"]
    found = groups.solve(ballots, 2, seed=1, model="generalised_mallows")
    evidence = evidence_of_orders("generalised_mallows", ballots)
    expected = summed_over_memberships(ballots, 2, evidence)
    assert abs(found.log_evidence - expected) < max(5 * found.log_evidence_se, 0.05)
    assert found.thetas.shape == (2, 2, 3)


@pytest.mark.parametrize("model", families.FAMILIES)
def test_ballots_are_weighed_as_distances_say(model, rng):
    ballots = BALLOTS["four"]
    voice = VOICES[model](ballots, (6, 2), rng)
    log_p = np.zeros((len(ballots.levels), 2))
    for k in range(6):
        voice.score(k, log_p)
        for g, (ranks, thetas) in enumerate(zip(voice.ranks[k], voice.scales[k], strict=True)):
            logs = ranking_oracle.likelihoods(model, ballots.levels, ranks, thetas)
            # Each place has its own dispersion.
            np.testing.assert_allclose(log_p[:, g], np.einsum("jrj->r", logs), atol=1e-6)


# Chains of exchanges, and dispersions for each place, take their time.
_SLOW = ("cayley", "generalised_mallows")


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=[pytest.mark.slow] if model in _SLOW else [])
        for model in groups.MODELS
    ],
)
def test_evidence_does_not_suffer_from_many_items(model):
    # A prior draw agrees with the first of these voters in one of 3.6 million cases.
    rng = np.random.default_rng(9)
    data = pv.models.Rankings(simulated(range(10), 1.5, 20, rng))
    found = [groups.solve(data.ballots, 1, seed=seed, model=model) for seed in range(2)]
    expected, error = solve.log_evidence(model, data.ballots, 0)
    # A standard error of four runs has three degrees of freedom; of two, 5 of them are p < .003.
    value = np.mean([one.log_evidence for one in found])
    apart = np.sqrt(np.mean([one.log_evidence_se**2 for one in found]) / 2)
    assert abs(value - expected) < 5 * np.hypot(apart, error)
    assert found[0].log_evidence_se < 0.8


def test_one_group_of_worths_is_the_plackett_luce_model():
    ballots = BALLOTS["strict"]
    found = groups.solve(ballots, 1, seed=2, model="plackett_luce")
    alone = solve.answer("plackett_luce", ballots, 0)
    error = 4 * np.sqrt(alone.solved.marginals * (1 - alone.solved.marginals) / 500) + 1e-3
    assert (np.abs(found.orders[0].marginals - alone.solved.marginals) < error).all()
    np.testing.assert_allclose(found.log_worths[0], alone.worths.mean, atol=0.1)
    assert found.thetas[0, 0] == pytest.approx(alone.solved.thetas[0, 0], rel=0.15)


@pytest.mark.slow
def test_groups_of_the_model_that_voters_follow_have_more_evidence():
    rng = np.random.default_rng(6)
    worths = np.array([[3.0, 2.5, 0.0, -2.0, -2.2], [-2.0, 0.0, 2.0, 2.2, -1.0]])
    keys = np.repeat(worths, [40, 25], axis=0) + rng.gumbel(size=(65, 5))
    found = pv.rank(np.argsort(-keys, axis=1).tolist(), "auto", groups=2)
    assert found.groups.model == "plackett_luce"
    # The best model of all voters together is compared, too.
    compared = {one.model for one in found.compared_groups}
    assert compared == {"mallows", "plackett_luce", found.model}
    assert found.groups.shares[0, 1] < 40 / 65 < found.groups.shares[0, 2]
    # The standard errors of log worths of a group are about .3.
    centred = worths - worths.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found.groups.log_worths, centred, atol=1.2)
    assert [found.group_order(g)[0] for g in range(2)] == ["0", "3"]


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("mallows", "strict"),
        ("mallows", "tied"),
        ("generalised_mallows", "best"),
        *((name, "four") for name in families.FAMILIES),
    ],
)
def test_one_group_is_the_model_without_groups(model, kind):
    ballots = BALLOTS[kind]
    found = groups.solve(ballots, 1, seed=2, model=model)
    exact = solve.answer(model, ballots, 0)
    assert abs(found.log_evidence - exact.solved.log_evidence) < 5 * found.log_evidence_se + 0.02
    law = found.orders[0]
    # 4 x 128 particles with 5 draws each; particles share ancestors, so count 500 of 2,560 draws.
    error = 4 * np.sqrt(exact.solved.marginals * (1 - exact.solved.marginals) / 500) + 1e-3
    assert (np.abs(law.marginals - exact.solved.marginals) < error).all()
    means = np.atleast_2d(found.thetas[0].T)[:, 0]
    np.testing.assert_allclose(means, exact.solved.thetas[:, 0], rtol=0.15)


@pytest.mark.slow
def test_two_groups_of_voters_are_found_and_counted():
    rng = np.random.default_rng(5)
    first, second = [0, 1, 2, 3, 4], [4, 2, 3, 1, 0]
    rankings = simulated(first, 1.2, 50, rng) + simulated(second, 1.8, 30, rng)
    data = pv.models.Rankings(rankings)
    found, tried = groups.choose(data.ballots, seed=0, most=3)
    assert len(found) == 2
    assert [one.num_groups for one in tried] == [1, 2, 3]
    assert tried[1].log_evidence > tried[0].log_evidence + 10
    assert found.orders[0].mode.tolist() == np.argsort(first).tolist()
    assert found.orders[1].mode.tolist() == np.argsort(second).tolist()
    assert found.shares[0, 1] < 50 / 80 < found.shares[0, 2]
    np.testing.assert_allclose(found.memberships.sum(axis=1), 1.0)
    # Voters are told apart: the ballot of each true order surely belongs to its group.
    levels = data.ballots.levels.tolist()
    for group, order in enumerate((first, second)):
        ballot = levels.index(np.argsort(order).tolist())
        assert found.memberships[ballot, group] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "thetas"),
    [("footrule", [0.7]), ("spearman", [0.3]), ("cayley", [2.5]),
     ("generalised_mallows", [2.5, 1.0, 0.5, 0.2])],
)  # fmt: skip
def test_two_groups_are_found_with_every_distance(model, thetas):
    rng = np.random.default_rng(8)
    perms = np.array(list(itertools.permutations(range(5))))
    centres, sizes = np.array([[0, 1, 2, 3, 4], [4, 2, 3, 1, 0]]), (40, 25)
    drawn = []
    for ranks, size in zip(centres, sizes, strict=True):
        by_place = ranking_oracle.likelihoods(model, perms, ranks, np.array(thetas))
        # Place j of the model has dispersion j.
        log_p = np.array([by_place[j, :, j] for j in range(len(thetas))]).sum(axis=0)
        drawn.append(perms[rng.choice(len(perms), size=size, p=np.exp(log_p))])
    ballots = pv.models.Rankings.from_ranks(np.concatenate(drawn)).ballots
    found = groups.solve(ballots, 2, seed=0, model=model)
    alone = solve.answer(model, ballots, 0).solved.log_evidence
    assert found.log_evidence > alone + 10
    assert found.shares[0, 1] < 40 / 65 < found.shares[0, 2]
    for group, ranks in enumerate(centres):
        assert found.orders[group].mode.tolist() == ranks.tolist()
        # Standard deviations of dispersions are those of their posteriors.
        mean, sd = found.thetas[group]
        assert (np.abs(mean - thetas) < 4 * sd).all()


def test_evidence_that_is_as_good_is_no_reason_for_more_groups():
    lists = [[(0,), (1, 2)], [(0, 3)], [(2,)]]
    ballots = Ballots.of("abcd", lists, np.array([3.0, 2.0, 1.0]), "below")
    found, tried = groups.choose(ballots, seed=0)
    assert len(tried) == 4
    assert max(one.log_evidence for one in tried) < tried[0].log_evidence + 1
    assert len(found) == 1


def test_the_same_seed_gives_the_same_groups():
    again = [groups.solve(BALLOTS["tied"], 2, seed=3) for _ in range(2)]
    assert again[0].log_evidence == again[1].log_evidence
    np.testing.assert_array_equal(again[0].shares, again[1].shares)


def test_bad_groups_are_refused():
    fractions = Ballots.of("abc", [[(0,), (1,), (2,)]], np.array([1.5]))
    with pytest.raises(ValueError, match=r"whole numbers, got 1\.5"):
        groups.solve(fractions, 2, seed=0)
    with pytest.raises(ValueError, match="groups must be at most 6, got 7"):
        groups.solve(BALLOTS["strict"], 7, seed=0)
    with pytest.raises((TypeError, ValueError), match=r"groups must be .* got 1\.5"):
        pv.rank([["a", "b"], ["b", "a"]], groups=1.5)
    with pytest.raises(ValueError, match=r"left out for the model 'davidson', .* one voter, got 2"):
        pv.rank([["a", "b"], ["b", "a"]], "davidson", groups=2)
    with pytest.raises(ValueError, match="cayley takes complete rankings without ties, got others"):
        groups.solve(BALLOTS["tied"], 2, seed=0, model="cayley")
