"""Orders from rankings: Kemeny, exact sums, chains and worths against enumeration."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp

import permvi as pv
from permvi._rank import interval
from permvi.inference.rankings import (
    chains,
    consensus,
    exact,
    exchanges,
    families,
    robust,
    solve,
    subset_kernels,
    worths,
)
from permvi.models import Rankings
from tests.ranking_oracle import cycles, distance

RANKS = {n: np.array(list(itertools.permutations(range(n)))) for n in range(2, 7)}


def noisy(rng, n, num, noise):
    """Ranks (num, n) in noisy copies of the order 0, 1, ..."""
    keys = np.arange(n) + noise * rng.normal(size=(num, n))
    return np.argsort(np.argsort(keys, axis=1), axis=1)


def enumerated(name, ballots):
    """Probabilities of all orders and the log evidence, with theta integrated by quadrature."""
    n = ballots.shape[1]
    lengths = np.array([distance(name, order, range(n)) for order in RANKS[n]])
    rate = lengths.mean() / (n * (n - 1) / 4)

    def density(theta, energy):
        log_z = logsumexp(-theta * lengths)
        return rate * np.exp(-rate * theta - theta * energy - len(ballots) * log_z)

    energies = [sum(distance(name, b, order) for b in ballots) for order in RANKS[n]]
    points = [0.1 / rate, 1 / rate, 5 / rate]
    integrals = {
        e: quad(density, 0, 60 / rate, args=(e,), points=points, limit=400, epsabs=0)[0]
        for e in set(energies)
    }
    found = np.array([integrals[e] for e in energies])
    return found / found.sum(), np.log(found.mean())


@pytest.mark.parametrize("name", ["mallows", "footrule", "spearman", "cayley"])
@pytest.mark.parametrize(("n", "num"), [(2, 1), (3, 4), (5, 6)])
def test_distances_against_enumeration(name, n, num, rng):
    ballots = noisy(rng, n, num, 1.5)
    expected, evidence = enumerated(name, ballots)
    found = solve.answer(name, Rankings.from_ranks(ballots).ballots, 0)
    assert found.method == "exact"
    assert found.solved.log_evidence == pytest.approx(evidence, abs=1e-6)
    np.testing.assert_allclose(np.exp(found.solved.law.log_prob(RANKS[n])), expected, atol=1e-6)
    assert expected[(RANKS[n] == found.solved.mode).all(axis=1)] == pytest.approx(expected.max())
    for i, j in itertools.permutations(range(n), 2):
        p = expected[RANKS[n][:, i] < RANKS[n][:, j]].sum()
        assert found.solved.before[i, j] == pytest.approx(p, abs=1e-6)
    posterior = found.posterior()
    share = np.array([expected[RANKS[n][:, 0] == k].sum() for k in range(n)])
    np.testing.assert_allclose(posterior.marginals[0], share, atol=1e-6)
    # Four standard errors of 10,000 draws.
    drawn = np.bincount(found.solved.draws[:, 0], minlength=n) / len(found.solved.draws)
    assert (abs(drawn - share) <= 4 * np.sqrt(share * (1 - share) / 10_000) + 1e-9).all()


def test_a_dispersion_for_each_place(rng):
    ballots = noisy(rng, 4, 5, 1.0)
    model = Rankings([*(np.argsort(b).tolist() for b in ballots), [2, 0]], unranked="below")

    def likelihood(order, stage, theta):
        product = 1.0
        for row, count in zip(model.levels, model.counts, strict=True):
            chosen = np.flatnonzero(row == stage)
            later = np.flatnonzero(row > stage)
            if len(chosen) == 1 and len(later):
                cost = (order[later] < order[chosen]).sum()
                product *= (
                    np.exp(-theta * cost) / np.exp(-theta * np.arange(len(later) + 1)).sum()
                ) ** count
        return product

    def density(theta, order, stage):
        return np.exp(-theta) * likelihood(order, stage, theta)

    joint = [
        np.prod([quad(density, 0, 50, args=(order, s))[0] for s in range(3)]) for order in RANKS[4]
    ]
    found = solve.answer("generalised_mallows", model.ballots, 0)
    assert found.solved.log_evidence == pytest.approx(np.log(np.mean(joint)), abs=1e-6)
    expected = np.array(joint) / np.sum(joint)
    np.testing.assert_allclose(np.exp(found.solved.law.log_prob(RANKS[4])), expected, atol=1e-6)
    with pytest.raises(ValueError, match="takes ties at the ends of rankings only"):
        families.generalised(Rankings([[(0, 1), 2]]).ballots)


def test_ties_are_summed_over():
    # The probability of a ballot with ties is that of all rankings that agree with it.
    tied = Rankings([[(0, 1), (2, 3), 4]])
    agree = [Rankings([[*a, *b, 4]]) for a in ((0, 1), (1, 0)) for b in ((2, 3), (3, 2))]
    order = np.array([1, 0, 3, 4, 2])

    def log_density(model):
        energy = (np.less.outer(order, order) * model.against).sum()
        return -0.7 * energy - model.ballots.log_normaliser(np.array([0.7]))[0]

    expected = logsumexp([log_density(model) for model in agree])
    assert log_density(tied) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [3, 6])
def test_the_normaliser_of_spearmans_distance(n):
    lengths = [distance("spearman", order, range(n)) for order in RANKS[n]]
    thetas = np.geomspace(1e-9, 60, 100)
    expected = [logsumexp(-theta * np.array(lengths)) for theta in thetas]
    np.testing.assert_allclose(families.log_spearman(thetas, n), expected, atol=2e-9)


def test_the_permanent_against_sums_over_subsets(rng):
    places = rng.gamma(1.0, size=(12, 12))
    nothing = np.zeros((12, 12))
    before, _, _ = subset_kernels.optima(nothing, places, 0.0)
    expected = subset_kernels.partition(nothing, places, 1.0, before)
    assert np.log(subset_kernels.permanent(np.exp(-places))) == pytest.approx(expected, abs=1e-10)


def test_descents_by_exchanges_end_at_the_nearest_order(rng):
    model = Rankings.from_ranks(noisy(rng, 6, 15, 1.0))
    energies = families.cayley(model.ballots).energies(RANKS[6])[:, 0]
    found = exchanges.nearest(model.ballots.levels.astype(np.int16), model.ballots.counts, rng)
    assert families.cayley(model.ballots).energies(found[None])[0, 0] == energies.min()


@pytest.mark.parametrize("name", ["mallows", "footrule", "generalised_mallows", "cayley"])
def test_chains_against_sums(name, rng):
    model = Rankings.from_ranks(noisy(rng, 7, 6, 3.0))
    family = families.FAMILIES[name](model.ballots)
    sums = exact.solve(family, 0)
    sample = exchanges.sample if name == "cayley" else chains.sample
    found = sample(family, solve._start(family), 1)
    assert abs(found.solved.marginals - sums.marginals).sum(axis=1).max() / 2 < 0.02
    assert abs(found.solved.before - sums.before).max() < 0.02
    # Sums over subsets give the evidence of the others, but for the posterior density.
    tolerance = 5 * found.evidence_se + 1e-3 if name == "cayley" else 0.05
    assert found.solved.log_evidence == pytest.approx(sums.log_evidence, abs=tolerance)
    np.testing.assert_allclose(found.solved.thetas, sums.thetas, rtol=0.1)
    if name != "generalised_mallows":
        both = family.energies(np.stack([found.solved.mode, sums.mode]))
        assert both[0] == both[1]


def test_exchanges_know_their_cycles(rng):
    from permvi.inference.rankings import exchange_kernels

    ballots = np.array([rng.permutation(9) for _ in range(5)]).astype(np.int16)
    counts = rng.random(5)
    order = rng.permutation(9)
    relative, label = np.empty((2, 9, 5), np.int16)
    distances = exchange_kernels.label_cycles(order, ballots, relative, label)
    for _ in range(300):
        a, b = rng.choice(9, 2, replace=False)
        change = exchange_kernels.exchange_cost(label, counts, a, b)
        exchange_kernels.exchange(order, relative, label, a, b)
        found = np.array([9 - cycles(ballot[order].tolist()) for ballot in ballots])
        assert change == pytest.approx(counts @ (found - distances))
        distances = found


@pytest.mark.parametrize("counts", [None, [0.3, 2.6, 1.0, 0.7, 4.2, 1.9]])
def test_tempered_chains_pass_between_far_modes(counts, rng):
    # Two camps, one the reverse of the other: few exchanges lead from one to the other upwards.
    camp = np.arange(7)
    ballots = [camp, camp[::-1], np.roll(camp, 1), camp[::-1], camp, np.roll(camp[::-1], 1)]
    model = Rankings.from_ranks(np.array(ballots), counts=counts)
    family = families.cayley(model.ballots)
    sums = exact.solve(family, 0)
    found = exchanges.sample(family, solve._start(family), 0)
    assert abs(found.solved.marginals - sums.marginals).sum(axis=1).max() / 2 < 0.02
    assert abs(found.by_chain[0] - found.by_chain[1]).sum(axis=1).max() / 2 < 0.04
    assert found.solved.log_evidence == pytest.approx(
        sums.log_evidence, abs=5 * found.evidence_se + 1e-3
    )
    np.testing.assert_allclose(found.solved.thetas, sums.thetas, rtol=0.02)


def test_thermodynamic_integration_against_sums(rng, monkeypatch):
    model = Rankings.from_ranks(noisy(rng, 8, 6, 3.0))
    family = families.kendall(model.ballots)
    order, point = np.arange(8), np.array([0.4])
    sums, _ = chains._log_sum(family, point, order, 0)
    monkeypatch.setattr(chains, "MAX_EXACT", 0)
    found, error = chains._log_sum(family, point, order, 0)
    assert found == pytest.approx(sums, abs=0.1 + 4 * error)


def plackett_luce(order, worths):
    left = np.cumsum(worths[list(order)][::-1])[::-1]
    return np.prod(worths[list(order)] / left)


def test_the_likelihood_of_worths_sums_over_ties(rng):
    from permvi.inference.rankings import worth_kernels

    model = Rankings([[0, (1, 2), 3], [(2, 3, 1), 0], [3, 1]], items="abcd")
    choices = worths._Choices.of(model.ballots)
    draws = 2 * rng.normal(size=(4, 4))
    found = worth_kernels.log_likelihoods(draws, *choices[:3], worths._LOG_U, worths._WEIGHTS)
    for value, log_worths in zip(found, draws, strict=True):
        w = np.exp(log_worths)
        first = sum(plackett_luce(order, w) for order in ([0, 1, 2, 3], [0, 2, 1, 3]))
        second = sum(plackett_luce([*g, 0], w) for g in itertools.permutations([1, 2, 3]))
        third = w[3] / (w[3] + w[1])
        assert value == pytest.approx(np.log(first * second * third), abs=1e-6)
    gradients, hessian = choices.slopes(draws[0])
    step = 1e-4 * np.eye(4)

    def log_likelihood(point):
        return worths._breslow(choices, point[None])[0]

    for i in range(4):
        up, down = draws[0] + step[i], draws[0] - step[i]
        slope = (log_likelihood(up) - log_likelihood(down)) / 2e-4
        assert choices.counts @ gradients[:, i] == pytest.approx(slope, abs=1e-6)
        change = choices.slopes(up)[0] - choices.slopes(down)[0]
        np.testing.assert_allclose(hessian[i], choices.counts @ change / 2e-4, atol=1e-6)


@pytest.mark.parametrize("ties", [False, True])
def test_worths_against_prior_draws(ties, rng):
    orders = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1], [3, 0]]
    model = Rankings([*orders, [(0, 1), (2, 3)]] if ties else orders)
    found = worths.solve(model.ballots, 0)
    sigma = np.exp(rng.normal(size=200_000))
    draws = sigma[:, None] * rng.normal(size=(200_000, 4))
    w = np.exp(draws)
    likelihood = np.ones(len(w))
    for order in orders:
        left = np.cumsum(w[:, order[::-1]], axis=1)[:, ::-1]
        likelihood *= (w[:, order] / left).prod(axis=1)
    if ties:
        rest = w[:, 2] + w[:, 3]
        of_one = 1 / (w[:, 1] + rest) + 1 / (w[:, 0] + rest)
        likelihood *= w[:, 0] * w[:, 1] / w.sum(axis=1) * of_one
    weights = likelihood / likelihood.sum()
    effective = 1 / (weights**2).sum()
    ranks = np.argsort(np.argsort(-draws, axis=1), axis=1)
    expected = np.stack([np.bincount(ranks[:, i], weights, minlength=4) for i in range(4)])
    # Four standard errors of the reference, and those of the fit, which are smaller.
    error = 4 * np.sqrt(0.25 / effective) + 0.005
    assert error < 0.02
    assert abs(found.solved.marginals - expected).max() < error
    evidence = np.log(likelihood.mean())
    assert found.solved.log_evidence == pytest.approx(evidence, abs=4 / np.sqrt(effective) + 0.01)
    assert found.effective > 1000


GAMES = [("a", "b", 4), ("b", "a", 1), ("b", "c", 2), ("c", "b", 2), ("a", "c", 1)]


@pytest.mark.parametrize(
    "orders",
    [
        # Ballots that leave much open: the posterior of the worths is skew and long-tailed.
        [[(0, 1), 2]] * 3 + [[2, 0]] * 2 + [[1, 2, 0]] * 2,
        [[(0, 1), (2, 3), 4]] * 2 + [[1, (0, 4), 2]] * 2,
        [[0, 1, (2, 3)]] * 4 + [[(0, 2), 3]],
    ],
)
def test_worths_that_ballots_say_little_of_against_prior_draws(orders, rng):
    data = Rankings(orders)
    found = solve.answer("plackett_luce", data.ballots, 0)
    n, num = len(data.items), 1_000_000
    sigmas = np.exp(rng.normal(size=num))
    draws = sigmas[:, None] * rng.normal(size=(num, n))
    p = np.ones(num)
    for ballot, count in zip(data.ballots.groups, data.ballots.counts, strict=True):
        once = np.zeros(num)
        for parts in itertools.product(*map(itertools.permutations, ballot)):
            order = [item for part in parts for item in part]
            keys = np.exp(draws[:, order])
            left = np.cumsum(keys[:, ::-1], axis=1)[:, ::-1]
            once += (keys / left).prod(axis=1)
        p *= once**count
    error = p.std() / p.mean() / np.sqrt(num)
    expected = np.log(p.mean())
    # The sum over sigma leaves out what is beyond exp(4.5) and below exp(-3).
    apart = abs(found.solved.log_evidence - expected)
    assert apart < 4 * np.hypot(error, found.evidence_se) + 0.01
    ranks = np.argsort(np.argsort(-draws, axis=1), axis=1)
    true = np.stack([np.bincount(ranks[:, i], p, minlength=n) for i in range(n)]) / p.sum()
    effective = p.sum() ** 2 / (p**2).sum()
    spread = np.sqrt(true * (1 - true) / effective).sum(axis=1)
    apart = 0.5 * np.abs(np.asarray(found.solved.marginals) - true).sum(axis=1)
    assert (apart < 0.01 + spread).all()
    assert found.diagnostics.verdict == "trust"


def test_ties_of_comparisons_as_results_against_prior_draws(rng):
    # Three ties of a and b, and one of b and c.
    rows = [[(first,), (second,)] for first, second, _ in GAMES] + [[("a", "b")], [("b", "c")]]
    counts = [*(count for *_, count in GAMES), 3, 1]
    model = Rankings([[x for (x,) in row] if len(row) == 2 else row for row in rows], counts=counts)
    found = worths.solve(model.ballots, 0, ties=True)
    place = {item: k for k, item in enumerate(model.items)}
    num = 400_000
    log_tie = rng.normal(size=num)
    draws = np.exp(rng.normal(size=num))[:, None] * rng.normal(size=(num, 3))
    log_likelihood = np.zeros(num)
    for (first, second), tie, count in [
        *(((a, b), False, count) for a, b, count in GAMES),
        (("a", "b"), True, 3),
        (("b", "c"), True, 1),
    ]:
        a, b = draws[:, place[first]], draws[:, place[second]]
        middle = log_tie + (a + b) / 2
        total = np.log(np.exp(a) + np.exp(b) + np.exp(middle))
        log_likelihood += count * ((middle if tie else a) - total)
    weights = np.exp(log_likelihood - log_likelihood.max())
    evidence = np.log(weights.mean()) + log_likelihood.max()
    weights /= weights.sum()
    effective = 1 / (weights**2).sum()
    ranks = np.argsort(np.argsort(-draws, axis=1), axis=1)
    expected = np.stack([np.bincount(ranks[:, i], weights, minlength=3) for i in range(3)])
    error = 4 * np.sqrt(0.25 / effective) + 0.005
    assert error < 0.02
    assert abs(found.solved.marginals - expected).max() < error
    assert found.solved.log_evidence == pytest.approx(evidence, abs=4 / np.sqrt(effective) + 0.01)
    mean = weights @ log_tie
    sd = np.sqrt(weights @ (log_tie - mean) ** 2)
    assert found.log_tie == pytest.approx((mean, sd), abs=4 * sd / np.sqrt(effective) + 0.01)


def test_slopes_of_comparisons_with_ties(rng):
    model = Rankings([["a", "b"], [("a", "c")], ["c", "b"]], counts=[2, 3, 1])
    data = worths._Comparisons.of(model.ballots)
    point, step = rng.normal(size=4), 1e-5 * np.eye(4)
    gradients, hessian = data.slopes(point)
    for i in range(4):
        up, down = data.log_likelihoods(np.stack([point + step[i], point - step[i]]))
        assert data.counts @ gradients[:, i] == pytest.approx((up - down) / 2e-5, abs=1e-6)
        change = data.slopes(point + step[i])[0] - data.slopes(point - step[i])[0]
        np.testing.assert_allclose(hessian[i], data.counts @ change / 2e-5, atol=1e-6)
    # Win, loss and tie of one pair add up to one.
    alone = [worths._Comparisons(np.array([[i, j]]), np.array([r]), np.ones(1), 3)
             for i, j, r in ((0, 1, 0), (1, 0, 0), (0, 1, 2))]  # fmt: skip
    chances = [np.exp(one.log_likelihoods(point[None])[0]) for one in alone]
    assert sum(chances) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="davidson takes comparisons of two items"):
        worths.solve(Rankings([["a", "b", "c"]]).ballots, 0, ties=True)


def test_comparisons_with_ties_choose_the_model_that_knows_them():
    rows = [["a", "b"]] * 5 + [["b", "c"]] * 4 + [[("a", "b")]] * 3 + [["c", "a"]]
    found = pv.rank(rows, model="auto", robust=True, seed=1)
    assert found.model == "davidson"
    assert {"log_worth", "log_tie", "sigma"} <= set(found.posterior.latents)
    others = [one for one in found.compared if one.log_evidence is not None][1:]
    assert others
    assert all("cannot be compared" in one.note for one in others)
    assert found.table()[0].item == "a"


def test_kemeny_against_enumeration(rng):
    for k in range(40):
        n = int(rng.integers(2, 7))
        against = np.zeros((n, n))
        for row in noisy(rng, n, int(rng.integers(1, 8)), rng.choice([1, 3, 30])):
            against += row[:, None] > row
        if k % 3 == 0:
            against *= rng.random((n, n)) < 0.6
        if k % 4 == 0:
            against *= 0.37
        costs = consensus.contradicted(RANKS[n], against)
        found = consensus.kemeny(against)
        assert found.contradicted == pytest.approx(costs.min())
        assert found.proven
        assert found.lower_bound == found.contradicted
        assert found.num_optimal == np.count_nonzero(costs < costs.min() + 1e-9)


def test_the_integer_programme_against_subsets(rng):
    for n in (6, 9, 12):
        against = np.zeros((n, n))
        for row in noisy(rng, n, 5, 1e3):
            against += row[:, None] > row
        for scale in (1.0, 0.37):
            by_subsets = consensus._by_subsets(scale * against)
            found = consensus._by_programme(scale * against, 60.0)
            assert found.proven
            assert found.contradicted == pytest.approx(by_subsets.contradicted)


def test_kemeny_of_many_items(rng):
    votes = noisy(rng, 30, 7, 40.0)
    found = consensus.kemeny(Rankings.from_ranks(votes).against)
    assert found.proven
    assert found.lower_bound == found.contradicted
    other = consensus.descend(Rankings.from_ranks(votes).against, rng.permutation(30))
    worse = consensus.contradicted(np.argsort(other)[None], Rankings.from_ranks(votes).against)
    assert found.contradicted <= worse[0]


# All models that take rankings of more than two items.
OF_RANKINGS = [name for name in solve.MODELS if name != solve.DAVIDSON]


@pytest.mark.parametrize("name", OF_RANKINGS)
def test_ballots_of_the_model_itself_fit(name, rng):
    true = solve.answer(name, Rankings.from_ranks(noisy(rng, 5, 30, 1.5)).ballots, 0)
    drawn = robust.simulate(true, np.arange(5), 200, rng)
    again = solve.answer(name, Rankings.from_ranks(drawn).ballots, 0)
    assert robust.check(again, 0).verdict == "fits"
    # Half of the voters hold the opposite view.
    mixed = np.concatenate([drawn, 4 - drawn[:90]])
    assert robust.check(solve.answer(name, Rankings.from_ranks(mixed).ballots, 0), 0).verdict == (
        "does not fit"
    )


@pytest.mark.parametrize("name", OF_RANKINGS)
def test_the_bootstrap_resamples_the_most_probable_order(name):
    # Every resample has the same majority.
    sure = solve.answer(name, Rankings([[0, 1, 2]], counts=[50]).ballots, 0)
    found = robust.bootstrap(sure, 0, num=20)
    assert (found.law.draws == [0, 1, 2]).all()
    # A single voter decides between two orders.
    close = solve.answer(name, Rankings([[0, 1, 2], [1, 0, 2]], counts=[51, 50]).ballots, 0)
    share = robust.bootstrap(close, 0, num=400).marginals[0, 0]
    # P(more than half of 101) plus or minus four standard errors.
    assert share == pytest.approx(0.54, abs=0.1)


def test_the_bootstrap_of_comparisons_with_ties():
    games = [[0, 1], [1, 0], [(0, 1)], [1, 2]]
    close = solve.answer("davidson", Rankings(games, counts=[51, 50, 20, 40]).ballots, 0)
    found = robust.bootstrap(close, 0, num=400)
    # P(more than half of those among 101 that are no tie) plus or minus four standard errors.
    assert found.marginals[0, 0] == pytest.approx(0.54, abs=0.1)
    assert found.marginals[2, 2] > 0.99


def test_rank_and_its_parts():
    votes = [["A", "B", "C"], ["A", "C", "B"], ["B", "A", "C"]]
    found = pv.rank(votes, seed=3)
    posterior = pv.fit(Rankings(votes), seed=3)
    np.testing.assert_array_equal(found.posterior.marginals, posterior.marginals)
    assert found.posterior.log_evidence == pytest.approx(posterior.log_evidence)
    assert [row.rank for row in found.table()] == [1, 2, 3]
    assert found.p_order == pytest.approx(found.posterior.top(1)[0].probability, abs=1e-12)
    again = pv.rank(Rankings(votes), robust=True)
    assert again.shown is again.bootstrap
    assert again.before[0, 1] + again.before[1, 0] == pytest.approx(1)
    assert pv.plots.before(found).get_xlabel() == "is better than"
    with pytest.raises(ValueError, match="did you mean 'mallows'"):
        pv.rank(votes, "malows")


def test_intervals_are_nearest_to_their_level():
    # 0.93 is nearer than 1, and 0.89 is not.
    assert interval(np.array([0.93, 0.07]), 0.95) == (0, 0)
    assert interval(np.array([0.89, 0.11]), 0.95) == (0, 1)
    assert interval(np.array([0.0, 0.97, 0.03]), 0.95) == (1, 1)
    assert interval(np.array([0.5, 0.3, 0.15, 0.05]), 0.9) == (0, 2)
    assert interval(np.array([0.25, 0.25, 0.25, 0.25]), 1.0) == (0, 3)
