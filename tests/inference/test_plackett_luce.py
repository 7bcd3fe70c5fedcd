"""Plackett-Luce models fitted to rankings and to densities, and their law as a posterior."""

import itertools
import math
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import permvi as pv
from permvi.distributions import PlackettLuce
from permvi.inference.plackett_luce import fit_rankings, fit_target
from permvi.inference.plackett_luce.method import PlackettLuceLaw
from permvi.inference.plackett_luce.target import TargetOptions
from permvi.problem.prepare import prepare

DATA = Path(__file__).parents[3] / "shared" / "data" / "rankings"
PERMS = np.array(list(itertools.permutations(range(4))))
WORTHS = np.array([1.5, -0.5, 0.3, -1.3])
RAGGED = np.array(
    [[0, 1, 2, 3], [2, 0, 1, -1], [3, 2, -1, -1], [1, 3, 0, -1], [1, 0, 3, 2], [0, 2, -1, -1]]
)
COUNTS = np.array([2.0, 1.0, 0.5, 1.0, 3.0, 1.0])


def fit(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "plackett_luce", **options)


def choices(rankings, n, unranked):
    """Every choice as (ranking, item chosen, items that it was chosen from)."""
    for k, ranking in enumerate(rankings):
        listed = [int(i) for i in ranking if i >= 0]
        left = list(listed) if unranked == "absent" else list(range(n))
        for item in listed:
            yield k, item, list(left)
            left.remove(item)


def slow_log_likelihood(log_worths, rankings, weights, unranked="absent"):
    return math.fsum(
        weights[k] * (log_worths[item] - math.log(sum(math.exp(log_worths[i]) for i in left)))
        for k, item, left in choices(rankings, len(log_worths), unranked)
    )


def hunter(rankings, weights, n, num_steps, unranked="absent"):
    """Hunter's minorisation-maximisation (2004), straight from the paper."""
    made = [c for c in choices(rankings, n, unranked) if len(c[2]) > 1]
    worths = np.ones(n)
    for _ in range(num_steps):
        wins, losses = np.zeros(n), np.zeros(n)
        for k, item, left in made:
            wins[item] += weights[k]
            losses[left] += weights[k] / worths[left].sum()
        worths = wins / losses
    return np.log(worths) - np.log(worths).mean()


@pytest.mark.parametrize("unranked", ["absent", "below"])
def test_few_rankings_against_other_optimisers(unranked):
    found = fit_rankings(RAGGED, COUNTS, unranked=unranked)
    assert found.converged
    np.testing.assert_allclose(
        found.log_worths, hunter(RAGGED, COUNTS, 4, 400, unranked), atol=1e-5
    )
    best = minimize(
        lambda w: -slow_log_likelihood(w, RAGGED, COUNTS, unranked),
        np.zeros(4),
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000},
    )
    assert found.log_likelihood == pytest.approx(-best.fun, abs=1e-6)
    assert found.log_likelihood == pytest.approx(
        slow_log_likelihood(found.log_worths, RAGGED, COUNTS, unranked), abs=1e-12
    )


def test_two_items_have_a_closed_form():
    found = fit_rankings([[0, 1], [1, 0]], weights=[3.0, 1.0])
    assert found.log_worths[0] - found.log_worths[1] == pytest.approx(np.log(3), abs=1e-7)


def test_weights_are_repetitions_and_zeros_are_nothing():
    weighted = fit_rankings(RAGGED, [2, 1, 0, 1, 3, 1])
    repeated = fit_rankings(np.repeat(RAGGED, [2, 1, 0, 1, 3, 1], axis=0))
    np.testing.assert_allclose(weighted.log_worths, repeated.log_worths, atol=1e-7)


def test_rankings_give_back_the_worths():
    num = 2000
    noise = np.random.default_rng(2).gumbel(size=(num, 4))
    found = fit_rankings(np.argsort(-(WORTHS + noise), axis=1))
    # The information is what the choices' covariances add up to.
    information = np.zeros((4, 4))
    for perm in PERMS:
        p = math.exp(slow_log_likelihood(WORTHS, [perm], [1.0]))
        for t in range(4):
            share = np.zeros(4)
            share[perm[t:]] = np.exp(WORTHS[perm[t:]]) / np.exp(WORTHS[perm[t:]]).sum()
            information += p * (np.diag(share) - np.outer(share, share))
    errors = np.sqrt(np.diag(np.linalg.pinv(num * information)))
    assert (np.abs(found.log_worths - WORTHS) < 4 * errors).all()


@pytest.mark.parametrize(
    ("rankings", "options", "message"),
    [
        ([[0.0, 1.0]], {}, r"rankings must be integers of shape \(K, L\)"),
        ([[0, 0, 1]], {}, "list an item once each"),
        ([[-1, -1]], {}, "rankings must list some items, got none"),
        ([[0, 1]], {"num_items": 0}, "num_items must be an integer of at least 1, got 0"),
        ([[0, -1, 1]], {}, "have -1 at their ends only"),
        ([[0, 1, -2]], {}, "hold items from 0 to 1, or -1, got -2 to 1"),
        ([[0, 3]], {"num_items": 3}, "hold items from 0 to 2, or -1, got 0 to 3"),
        ([[0, 1]], {"weights": [1.0, 2.0]}, "one entry for each of 1 rankings"),
        ([[0, 1]], {"weights": [-1.0]}, "weights must be finite, at least 0 and not all 0"),
        ([[0, 1]], {"unranked": "last"}, "unranked must be 'absent' or 'below', got 'last'"),
        # Item 2 was always the last, item 3 never there.
        ([[0, 1, 2], [1, 0, 2]], {}, r"got 2 groups, one of them with the items \[2\]"),
        ([[0, 1], [1, 0]], {"num_items": 3}, r"got 2 groups, one of them with the items \[2\]"),
    ],
)
def test_bad_rankings(rankings, options, message):
    with pytest.raises(ValueError, match=message):
        fit_rankings(rankings, **options)


@pytest.mark.skipif(not (DATA / "nascar2002.csv").is_file(), reason="shared rankings are missing")
def test_nascar_gives_the_published_worths():
    """Table 2 of Hunter (2004), without the four drivers who were last whenever they raced."""
    races = np.loadtxt(DATA / "nascar2002.csv", delimiter=",", skiprows=1, dtype=int) - 1
    lines = (DATA / "nascar2002_drivers.csv").read_text(encoding="utf-8").splitlines()[1:]
    names = [line.split(",")[1] for line in lines]
    with pytest.raises(ValueError, match="got 5 groups"):
        fit_rankings(races)
    left_out = ("Andy Hillenburg", "Gary Bradberry", "Jason Hedlesky", "Randy Renfrow")
    kept = [i for i, name in enumerate(names) if name not in left_out]
    place = {item: k for k, item in enumerate(kept)}
    lists = np.full(races.shape, -1)
    for row, race in zip(lists, races, strict=True):
        items = [place[item] for item in race.tolist() if item in place]
        row[: len(items)] = items
    found = fit_rankings(lists)
    assert found.converged
    worths = np.exp(found.log_worths)
    worths = dict(zip([names[i] for i in kept], worths / worths.sum(), strict=True))
    published = {
        "PJ Jones": 0.1864, "Scott Pruett": 0.1096, "Mark Martin": 0.0235, "Tony Stewart": 0.0184
    }  # fmt: skip
    for name, worth in published.items():
        assert worths[name] == pytest.approx(worth, abs=5e-5 + 1e-12)


@pytest.mark.skipif(not (DATA / "apa1980_full.csv").is_file(), reason="shared rankings are missing")
def test_ballots_win_as_often_as_expected():
    """At the maximum each candidate's expected number of choices is the observed one."""
    table = np.loadtxt(DATA / "apa1980_full.csv", delimiter=",", skiprows=1, dtype=int)
    ballots, counts = np.argsort(table[:, :5], axis=1), table[:, 5]
    found = fit_rankings(ballots, counts)
    worths = np.exp(found.log_worths)
    wins, expected = np.zeros(5), np.zeros(5)
    for k, item, left in choices(ballots, 5, "absent"):
        wins[item] += counts[k]
        expected[left] += counts[k] * worths[left] / worths[left].sum()
    np.testing.assert_allclose(expected, wins, rtol=1e-5)
    assert counts.sum() == 5738


# Densities that are Plackett-Luce laws, up to a constant of two nats.
MODELS = {
    "columns": pv.models.CallableModel(
        lambda perm: 2.0 + PlackettLuce(jnp.asarray(WORTHS)).log_prob(perm), 4, "perm"
    ),
    "rows": pv.models.CallableModel(
        lambda perm: 2.0 + PlackettLuce(jnp.asarray(WORTHS)).log_prob(jnp.argsort(perm)), 4, "perm"
    ),
}


@pytest.mark.float32
@pytest.mark.parametrize(("items", "wanted"), [("rows", "auto"), ("columns", "columns")])
def test_a_density_of_the_family_is_found(items, wanted):
    problem = prepare(MODELS[items]).problem
    found = fit_target(problem, jax.random.key(0), TargetOptions(items=wanted))
    assert found.items == items
    np.testing.assert_allclose(found.log_worths, WORTHS, atol=0.02)
    # Where the model is right the ELBO is the evidence, and its draws do not differ.
    assert found.elbo == pytest.approx(2.0, abs=1e-3)
    assert found.num_evaluations == (2 if wanted == "auto" else 1) * 800 * 16


def test_a_fit_to_another_density():
    scores = np.random.default_rng(3).normal(size=(4, 4))
    model = pv.models.LinearMatching(scores)
    exact = pv.fit(model, "exact")
    posterior = fit(model)
    extras = posterior.diagnostics.extras
    assert extras["elbo"] < posterior.log_evidence <= exact.log_evidence + 1e-9
    assert posterior.log_evidence_kind == "bound"
    probs = np.exp(posterior.log_prob(PERMS))
    assert probs.sum() == pytest.approx(1)
    # What was fitted is the best of its family: the exact ELBO falls in every direction.
    densities = exact.log_prob(PERMS) + exact.log_evidence
    law = posterior.law

    def elbo(log_worths):
        moved = PlackettLuceLaw(log_worths, law.items, known=law.known, num_cols=4)
        log_q = moved.log_prob(PERMS)
        return np.exp(log_q) @ (densities - log_q)

    best = minimize(lambda w: -elbo(w), law.log_worths, method="Nelder-Mead")
    assert -best.fun - elbo(law.log_worths) < 0.01
    assert elbo(law.log_worths) == pytest.approx(float(extras["elbo"]), abs=0.1)


def test_a_density_on_the_host():
    def density(perm):
        return float(2.0 + slow_log_likelihood(WORTHS, [perm], [1.0]))

    problem = prepare(pv.models.CallableModel(density, 4, "perm", jax=False)).problem
    options = TargetOptions(items="columns", num_steps=100)
    on_host = fit_target(
        problem,
        jax.random.key(1),
        options,
        lambda found: np.array([density(perm) for perm in found[:, 0]]),
    )
    inside = fit_target(prepare(MODELS["columns"]).problem, jax.random.key(1), options)
    np.testing.assert_allclose(on_host.log_worths, inside.log_worths, atol=1e-6)
    assert on_host.num_evaluations == 1600


def test_what_it_cannot_do():
    density = pv.models.CallableModel(lambda p: 0.0 if p[0] else -np.inf, 4, "perm", jax=False)
    with pytest.raises(ValueError, match=r"must be finite for all matchings .* got -inf"):
        fit(density, num_steps=10)
    with pytest.raises(ValueError, match="items must be 'columns', the larger side, for 2 rows"):
        fit(pv.models.LinearMatching(np.zeros((2, 3))), items="rows")
    with pytest.raises(ValueError, match="num_samples must be an integer of at least 2, got 1"):
        fit(pv.models.LinearMatching(np.zeros((2, 2))), num_samples=1)
    with pytest.raises(ValueError, match="learning_rate must be a positive number"):
        fit(pv.models.LinearMatching(np.zeros((2, 2))), learning_rate=0.0)


LAWS = {
    "rows": PlackettLuceLaw(WORTHS, "rows", known=[-1] * 4, num_cols=4),
    "columns": PlackettLuceLaw(WORTHS, "columns", known=[-1] * 4, num_cols=4),
    "known rows": PlackettLuceLaw(WORTHS, "rows", known=[-1, 2, -1, -1, -1], num_cols=5),
    "known columns": PlackettLuceLaw(WORTHS, "columns", known=[-1, -1, 3, -1, -1], num_cols=5),
    "more rows": PlackettLuceLaw(WORTHS, "rows", known=[-1, 0, -1, -1, -1], num_cols=3),
    "more columns": PlackettLuceLaw(WORTHS, "columns", known=[1, -1, -1], num_cols=5),
}


def matchings(law):
    """All ways to give rows distinct columns or none."""
    n, m = len(law.known), law.num_cols
    for perm in itertools.product(range(-1, m), repeat=n):
        used = [j for j in perm if j >= 0]
        if len(set(used)) == len(used):
            yield perm


@pytest.mark.parametrize("name", LAWS)
def test_the_law_is_that_of_its_orderings(name):
    law = LAWS[name]
    perms = np.array(list(matchings(law)))
    log_probs = law.log_prob(perms)
    possible = log_probs > -np.inf
    probs = np.exp(log_probs[possible])
    assert probs.sum() == pytest.approx(1)
    rows = np.flatnonzero(law.known < 0)
    cols = np.setdiff1d(np.arange(law.num_cols), law.known)
    for perm, log_prob in zip(perms[possible][:50], log_probs[possible][:50], strict=True):
        if law.items == "columns":
            order = [cols.tolist().index(j) for j in perm[rows]]
        else:
            order = [rows.tolist().index(perm.tolist().index(j)) for j in cols]
        left, expected = set(range(4)), 0.0
        for item in order:
            expected += WORTHS[item] - math.log(sum(math.exp(WORTHS[i]) for i in left))
            left.remove(item)
        assert log_prob == pytest.approx(expected, abs=1e-12)
    num = 20_000
    draws = law.sample(num, np.random.default_rng(4))
    code = 10 ** np.arange(perms.shape[1])
    drawn = (draws + 1) @ code
    counts = np.array([(drawn == wanted).sum() for wanted in (perms[possible] + 1) @ code])
    assert counts.sum() == num
    assert stats.chisquare(counts, num * probs / probs.sum()).pvalue > 1e-4
    found, best = law.top(7)
    np.testing.assert_allclose(best, np.sort(probs)[::-1][:7], rtol=1e-12)
    np.testing.assert_allclose(np.exp(law.log_prob(found)), best, rtol=1e-12)
    again = PlackettLuceLaw.from_arrays(law.to_arrays())
    np.testing.assert_array_equal(again.log_prob(perms), log_probs)


def test_all_of_few_matchings_can_be_listed():
    law = PlackettLuceLaw(WORTHS[:2], "rows", known=[-1, -1], num_cols=2)
    perms, probs = law.top(10)
    assert len(perms) == 2
    assert probs.sum() == pytest.approx(1)
    assert law.entropy is None
