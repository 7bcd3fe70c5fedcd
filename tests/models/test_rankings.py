"""Rankings from Python: the posterior against quadrature, and equal to that of ``permvi rank``."""

import itertools
import json

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import permvi as pv
from permvi import cli
from permvi.models import Rankings
from tests.cli.test_rank import COMPLETE, law

LISTS = [("AB", 2), ("BCA", 1), ("CD", 1.5)]


def model_of(rankings, **settings):
    orders, counts = zip(*rankings, strict=True)
    return Rankings([list(order) for order in orders], counts=counts, **settings)


@pytest.mark.parametrize(
    ("rankings", "unranked"), [(COMPLETE, "absent"), (LISTS, "absent"), (LISTS, "below")]
)
def test_the_posterior_is_that_of_quadrature(rankings, unranked):
    model = model_of(rankings, unranked=unranked)
    posterior = pv.fit(model, seed=0)
    exact, evidence, theta = law(rankings, model.items, below=unranked == "below")
    assert posterior.method == "exact"
    assert posterior.log_evidence == pytest.approx(np.log(evidence), abs=1e-6)
    for order, p in exact.items():
        ranks = [order.index(item) for item in model.items]
        assert np.exp(posterior.log_prob(ranks)) == pytest.approx(p, abs=1e-6)
    assert posterior.latents["theta"].mean == pytest.approx(theta, rel=1e-6)
    assert posterior.top(1)[0].perm.tolist() == posterior.mode.tolist()


def test_densities_of_permutations_and_of_matrices():
    model = model_of(LISTS)
    exact, evidence, _ = law(LISTS, model.items)
    orders = list(itertools.permutations(range(4)))
    perms = np.array([np.argsort(order) for order in orders])
    expected = [np.log(exact[tuple(model.items[i] for i in order)] * evidence) for order in orders]
    found = model.log_density_of(perms)
    np.testing.assert_allclose(found + model.log_constant, expected, atol=2e-5)
    assert float(found.max()) <= 0
    np.testing.assert_array_equal(model.log_density(np.eye(4)[perms]), found)
    np.testing.assert_array_equal(model.log_density_of(perms.reshape(2, 12, 4)).ravel(), found)


def test_a_model_is_a_pytree():
    model, perms = model_of(LISTS), np.array(list(itertools.permutations(range(4))))
    one_by_one = jax.jit(jax.vmap(type(model).log_density_of, in_axes=(None, 0)))
    expected = model.log_density_of(perms)
    np.testing.assert_allclose(one_by_one(model, perms), expected, rtol=1e-6)
    again = jax.tree.unflatten(jax.tree.structure(model), jax.tree.leaves(model))
    assert (again.items, again.shape, again.unranked) == (model.items, (4, 4), "absent")


FORMS = {
    "orders": (
        "j,k,l\nA,B,C\nB,A,\nC,A,B\n",
        [],
        lambda: Rankings(map(list, ["ABC", "BA", "CAB"])),
    ),
    "below": (
        "count,j,k\n2,A,B\n0.5,B,C\n0,D,A\n",
        ["--others-below"],
        lambda: Rankings(
            [["A", "B"], ["B", "C"], ["D", "A"]], counts=[2, 0.5, 0], unranked="below"
        ),
    ),
    "ranks": (
        "A,B,C,votes\n1,2,,3\n7,1,5,1\n",
        ["--ranks"],
        lambda: Rankings.from_ranks(
            pd.DataFrame({"A": [1, 7], "B": [2, 1], "C": [np.nan, 5]}), counts=[3, 1]
        ),
    ),
    "comparisons": (
        "winner,loser,games\nA,B,3\nB,A,1\nC,B,2\n",
        [],
        lambda: Rankings.from_comparisons([("A", "B", 3), ("B", "A"), ("C", "B", 2)]),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_command_gives_the_same_numbers(form, tmp_path):
    content, options, build = FORMS[form]
    path = tmp_path / "r.csv"
    path.write_text(content)
    command = ["rank", str(path), *options, "--seed", "5", "--no-robust", "--json"]
    found = json.loads(CliRunner().invoke(cli.app, command).stdout)
    model = build()
    posterior = pv.fit(model, seed=5)
    # The constant of the model is taken off and added again.
    assert found["log_evidence"] == pytest.approx(posterior.log_evidence, rel=1e-12)
    theta = posterior.latents["theta"]
    assert found["latents"]["theta"] == {"mean": float(theta.mean), "sd": float(theta.sd)}
    ranks = posterior.expected_loss("footrule").perm
    for row in found["items"]:
        i = model.items.index(row["item"])
        assert row["rank"] == ranks[i] + 1
        assert row["probability"] == posterior.marginals[i, ranks[i]]
        assert row["p_first"] == posterior.marginals[i, 0]


def test_all_ways_to_give_the_same_rankings():
    names = Rankings([["0", "1", "2"], ["1", "0"]])
    same = [
        Rankings([[0, 1, 2], [1, 0]]),
        Rankings(np.array([[0, 1, 2], [1, 0, -1]])),
        Rankings(pd.DataFrame([["0", "1", "2"], ["1", "0", None]])),
        Rankings([[0, 1, 2], [1, 0], [2, 0]], counts=[1, 1, 0]),
        Rankings.from_ranks([[1, 2, 3], [2, 1, np.nan]]),
        Rankings((order for order in ([0, 1, 2], [1, 0])), items=[0, 1, 2]),
    ]
    for model in same:
        assert model.items == names.items
        np.testing.assert_array_equal(model.orders, names.orders)
        np.testing.assert_array_equal(model.against, names.against)
        assert pv.models.fingerprint(model) == pv.models.fingerprint(names)


def test_integers_are_names_before_they_are_positions():
    assert Rankings([[7, 3]], items=[3, 7, 9]).orders.tolist() == [[1, 0]]
    assert Rankings([[1, 0]], items=["A", "B", "C"]).orders.tolist() == [[1, 0]]
    model = Rankings.from_comparisons(np.array([[0, 2], [2, 1]]))
    assert model.items == ("0", "1", "2")
    assert model.against.tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0]]


def test_many_items_are_left_to_chains():
    rng = np.random.default_rng(0)
    orders = [np.argsort(np.arange(18) + rng.normal(size=18)).tolist() for _ in range(40)]
    posterior = pv.fit(Rankings(orders), seed=1)
    assert (posterior.method, posterior.settings["requested"]) == ("mcmc", "auto")
    assert posterior.diagnostics.verdict == "trust"
    assert posterior.expected_loss("footrule").perm.tolist() == list(range(18))
    # Fewer items are summed over, and the chains agree.
    few = Rankings([[item for item in order if item < 10] for order in orders[:5]])
    exact, chains = pv.fit(few), pv.fit(few, "mcmc")
    assert exact.method == "exact"
    assert abs(exact.marginals - chains.marginals).sum(axis=1).max() / 2 < 0.02


def test_ties_and_ratings():
    ties = Rankings([["A", ("B", "C")], [["C"], {"A", "B"}]])
    assert ties.levels.tolist() == [[0, 1, 1], [1, 1, 0]]
    same = Rankings.from_ranks([[1, 2, 2], [4, 4, 3]], items="ABC")
    rated = Rankings.from_ratings(pd.DataFrame([[9, 5, 5], [0, 0, 0.5]], columns=list("ABC")))
    below = Rankings([["A"], ["C"]], items="ABC", unranked="below")
    for model in (same, rated, below):
        np.testing.assert_array_equal(model.levels, ties.levels)
        np.testing.assert_array_equal(model.table, ties.table)
    # A tie says nothing of its items.
    assert ties.against.tolist() == [[0, 0, 1], [1, 0, 1], [1, 0, 0]]
    twice = Rankings([[0, 1], [0, 1], [1, 0]])
    assert (twice.levels.tolist(), twice.counts.tolist()) == ([[0, 1], [1, 0]], [2, 1])


def test_several_models_at_once():
    models = [Rankings([[0, 1, 2], [1, 0, 2]]), Rankings([[2, 1, 0], [2, 0, 1], [1, 0]])]
    for model, posterior in zip(models, pv.fit_many(models, seed=3), strict=True):
        alone = pv.fit(model, seed=3)
        assert posterior.log_evidence == alone.log_evidence
        assert posterior.latents["theta"].mean == alone.latents["theta"].mean


def test_hooks_of_any_model():
    class Model:
        shape, num_sites = (4, 4), 1
        scores = np.diag(np.arange(4.0))
        log_constant = 2.5
        auto_method = ("mcmc", {"num_steps": 200})

        def log_density(self, X):
            return (self.scores * X).sum(axis=(-2, -1))

        def integrated_latents(self, draws):
            return {"fixed": (np.mean(draws == np.arange(4), axis=0), np.zeros(4))}

    plain = pv.fit(pv.models.LinearMatching(Model.scores))
    posterior = pv.fit(Model(), seed=0)
    # The exact method is affordable, and has no such option.
    assert (posterior.method, dict(posterior.settings)) == ("exact", {"requested": "auto"})
    assert posterior.log_evidence == pytest.approx(plain.log_evidence + 2.5)
    # Four standard errors of 4000 draws.
    p = np.diag(plain.marginals)
    assert (abs(posterior.latents["fixed"].mean - p) < 4 * np.sqrt(p * (1 - p) / 4000)).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Rankings("AB"), "orders must be a sequence of sequences of items, got 'AB'"),
        (lambda: Rankings(["AB"]), r"orders\[0\] must be a sequence of items, got 'AB'"),
        (lambda: Rankings([]), "orders must have at least one row, got none"),
        (lambda: Rankings([["A"]]), "one ranking and two items, got 1 rankings of 1 items"),
        (lambda: Rankings([[0, 1]], counts=[0]), "two items, got 0 rankings of 2 items"),
        (lambda: Rankings([["A", "B", "A"]]), r"orders\[0\] must list each item once, got 'A'"),
        (lambda: Rankings([[0, -1, 2]]), r"orders\[0\] must hold items or their numbers, got -1"),
        (lambda: Rankings([["A", "C"]], items="AB"), "items or their numbers, got 'C'"),
        (lambda: Rankings([[0, 1]], items="AA"), "items must differ from each other, got 'A'"),
        (lambda: Rankings([[0, 1]], counts=[1, 2]), r"counts must have shape \(1,\), got shape"),
        (lambda: Rankings([[0, 1]], counts=[-1]), "counts must be finite and at least 0, got -1"),
        (lambda: Rankings([[0, 1]], unranked="abve"), "unranked must be 'absent' or 'below', got"),
        (
            lambda: Rankings.from_comparisons([("A",)]),
            r"comparisons\[0\] must be \(winner, loser\) or \(winner, loser, count\), got \['A'\]",
        ),
        (
            lambda: Rankings.from_comparisons([("A", "A")]),
            r"comparisons\[0\] must list each item once, got 'A' twice",
        ),
        (
            lambda: Rankings.from_comparisons([("A", "B", np.nan)]),
            "counts of comparisons must be finite and at least 0, got nan",
        ),
        (
            lambda: Rankings.from_ranks([[1, 2]], items="ABC"),
            "items must name each of 2 columns of ranks, got 3",
        ),
        (lambda: Rankings.from_ranks([["x"]]), "ranks must be an array of real numbers, got"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()
