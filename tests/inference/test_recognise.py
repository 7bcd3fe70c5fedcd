"""Functions whose form is found, against the models that say the same, and others against none."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from permvi.inference import _recognise as module
from permvi.inference._edges import merged
from permvi.inference._recognise import recognise
from permvi.problem.prepare import prepare

N = 12
S, OTHER = np.random.default_rng(3).normal(size=(2, N, N))
MASK = np.random.default_rng(4).random((N, N)) < 0.7
MASK[np.arange(N), np.arange(N)] = True
KNOWN = np.where(np.arange(N) == 2, 2, -1)


def graph(seed, directed=False):
    weights = np.random.default_rng(seed).normal(size=(N, N))
    return weights if directed else np.triu(weights, 1) + np.triu(weights, 1).T


def form_of(function, n=N, **kwargs):
    return recognise(prepare(pv.models.CallableModel(function, n, **kwargs)))


def matched(perm, table):
    """The sum of the pairs of a matching on the host."""
    rows = np.flatnonzero(perm >= 0)
    return float(table[rows, perm[rows]].sum())


CONSTRAINTS = {
    "none": {},
    "mask, known, prior": {"mask": MASK, "known": KNOWN, "prior_scores": OTHER},
    "partial": {"row_unmatched": -0.5, "col_unmatched": 0.2},
}


@pytest.mark.parametrize("given", CONSTRAINTS.values(), ids=CONSTRAINTS)
@pytest.mark.parametrize("kind", ["matrix", "perm", "host"])
def test_a_sum_over_pairs_is_solved_as_a_table(kind, given):
    arguments = {
        "matrix": {"function": lambda X: 3.0 + jnp.sum(S * X)},
        "perm": {
            "function": lambda perm: (
                3.0 + jnp.where(perm >= 0, jnp.asarray(S)[jnp.arange(N), perm], 0).sum()
            ),
            "input": "perm",
        },
        "host": {"function": lambda perm: 3.0 + matched(perm, S), "input": "perm", "jax": False},
    }[kind]
    found = pv.fit(pv.models.CallableModel(n=N, **arguments, **given))
    table = pv.fit(pv.models.LinearMatching(S, **given))
    assert (found.method, found.diagnostics.verdict) == ("exact", "trust")
    assert "is a sum over pairs" in found.diagnostics.reasons[-1]
    np.testing.assert_allclose(found.marginals, table.marginals, atol=1e-5)
    np.testing.assert_allclose(found.p_unmatched_rows, table.p_unmatched_rows, atol=1e-5)
    assert found.log_evidence == pytest.approx(table.log_evidence + 3.0, abs=1e-4)
    assert found.num_evaluations > 500


@pytest.mark.parametrize("shape", [(N, N - 3), (N - 3, N)])
@pytest.mark.parametrize("on_host", [False, True])
def test_more_items_than_labels_or_fewer(shape, on_host):
    table = S[: shape[0], : shape[1]]
    if on_host:
        found = pv.fit(lambda perm: matched(perm, table), n=shape, input="perm", jax=False)
    else:
        found = pv.fit(lambda X: jnp.sum(table * X), n=shape)
    expected = pv.fit(pv.models.LinearMatching(table))
    assert found.diagnostics.verdict == "trust"
    np.testing.assert_allclose(found.marginals, expected.marginals, atol=1e-5)


def test_a_density_that_is_linear_on_matchings_alone(rng):
    observed = rng.normal(size=(N, 2))
    centers = observed[rng.permutation(N)] + 0.3 * rng.normal(size=(N, 2))
    found = pv.fit(lambda X: -0.5 * jnp.sum((observed - X @ centers) ** 2) / 0.09, n=N)
    squares = ((observed[:, None] - centers) ** 2).sum(axis=-1)
    expected = pv.fit(pv.models.LinearMatching(-0.5 * squares / 0.09))
    np.testing.assert_allclose(found.marginals, expected.marginals, atol=1e-4)
    # Neither the gradient at zero nor the second derivatives say what a pair is worth.
    assert form_of(lambda X: jnp.sum(S * X**2), row_unmatched=0.0, col_unmatched=0.0) is not None


@pytest.mark.float32
def test_a_large_constant_takes_no_digits():
    found = pv.fit(lambda X: 1e7 + jnp.sum(S * X), n=N)
    expected = pv.fit(pv.models.LinearMatching(S))
    assert found.diagnostics.verdict == "trust"
    np.testing.assert_allclose(found.marginals, expected.marginals, atol=1e-6)
    assert found.log_evidence - 1e7 == pytest.approx(expected.log_evidence, abs=1e-5)


A, B = graph(5), graph(6)
D, E = graph(7, directed=True), graph(8, directed=True)
# Edges closer than 1e-6 of the largest are equal: each of 132 may be off by that, on both sides.
QUADRATIC = {
    "trace": (lambda X: jnp.trace(A @ X @ B @ X.T), 1e-3),
    "frobenius": (lambda X: -0.5 * jnp.sum((A @ X - X @ B) ** 2), 1e-3),
    "between graphs": (lambda X: -0.5 * jnp.sum((A - X @ B @ X.T) ** 2), 1e-3),
    "directed, with scores": (lambda X: jnp.sum(D * (X @ E @ X.T)) + jnp.sum(S * X), 5e-3),
    "antisymmetric": (lambda X: jnp.sum((D - D.T) * (X @ (E - E.T) @ X.T)), 5e-3),
}


@pytest.mark.float32
@pytest.mark.parametrize(("function", "tolerance"), QUADRATIC.values(), ids=QUADRATIC)
def test_the_form_of_two_graphs_has_the_values_of_the_function(rng, function, tolerance):
    found = form_of(function)
    assert isinstance(found.model, pv.models.GraphMatching)
    perms = np.array([rng.permutation(N) for _ in range(50)])
    values = np.array([float(function(jnp.eye(N)[perm])) for perm in perms])
    np.testing.assert_allclose(found.form.values(perms), values, atol=tolerance)
    # The model says the same but for a constant.
    constant = found.model.log_constant
    of_model = np.asarray(found.model.log_density_of(perms)) + constant
    np.testing.assert_allclose(of_model, values, atol=10 * tolerance)


BY_SWAPS = {
    "assignment of facilities": lambda perm: float((A * B[np.ix_(perm, perm)]).sum()),
    "directed, with scores": lambda perm: (
        float((D * E[np.ix_(perm, perm)]).sum()) + matched(perm, S)
    ),
    "a round trip": lambda perm: -float(D[perm, np.roll(perm, -1)].sum()),
    "a linear order": lambda perm: float(np.triu(D[np.ix_(perm, perm)]).sum()),
    "antisymmetric": lambda perm: float(((D - D.T) * (E - E.T)[np.ix_(perm, perm)]).sum()),
}


@pytest.mark.parametrize("function", BY_SWAPS.values(), ids=BY_SWAPS)
def test_edges_of_plain_functions_are_found_by_swaps(rng, function):
    found = form_of(function, input="perm", jax=False)
    assert isinstance(found.model, pv.models.GraphMatching)
    perms = np.array([rng.permutation(N) for _ in range(200)])
    values = np.array([function(perm) for perm in perms])
    # Edges are rounded as above, and twelve scores to 1e-4.
    np.testing.assert_allclose(found.form.values(perms), values, atol=2e-3)


def test_edges_by_swaps_of_functions_without_second_derivatives(rng):
    graphs = np.triu(rng.random((2, N, N)) < 0.4, 1)
    first, second = (graphs | graphs.transpose(0, 2, 1)).astype(float)
    found = form_of(lambda X: -jnp.abs(first @ X - X @ second).sum())
    perm = rng.permutation(N)
    X = np.eye(N)[perm]
    off = np.abs(first @ X - X @ second).sum()
    assert found.form.values(perm[None])[0] == pytest.approx(-off, abs=2e-3)


@pytest.mark.float32
@pytest.mark.parametrize("weight", [1.0, 400.0])
def test_rounding_breaks_no_ties(rng, weight):
    points = rng.random((30, 2))
    distances = jnp.asarray(np.linalg.norm(points[:, None] - points, axis=-1))
    found = form_of(
        lambda perm: -weight * distances[perm, jnp.roll(perm, -1)].sum(), n=30, input="perm"
    )
    # A round trip may begin anywhere and go either way.
    assert len(np.unique(found.form.A)) == 3
    assert not found.form.C.any()
    # In float32, values of size 6,000 and their sums are rounded.
    assert found.deviation <= (1e-3 if weight == 1.0 else 0.05)


def test_numbers_that_are_nearly_equal_are_made_equal(rng):
    values = rng.permutation(np.repeat([-0.5, 0.0, 1e-5, 2.0], 25))
    noisy = (values + rng.uniform(-1e-7, 1e-7, 100)).reshape(10, 10)
    np.testing.assert_allclose(merged(noisy, 1e-6), values.reshape(10, 10), atol=1e-7)
    assert len(np.unique(merged(noisy, 1e-6))) == 4
    assert np.count_nonzero(merged(noisy, 1e-6) == 0) == 25
    # A range without gaps is no single number.
    dense = np.linspace(0, 1, 10_000).reshape(100, 100)
    np.testing.assert_array_equal(merged(dense, 2e-4), dense)


def test_a_plain_function_is_solved_as_two_graphs(rng):
    order = rng.permutation(N)
    noisy = B + 0.1 * graph(9)
    truth = pv.fit(pv.models.GraphMatching(B[np.ix_(order, order)], noisy))
    found = pv.fit(
        lambda perm: float((B[np.ix_(order, order)] * noisy[np.ix_(perm, perm)]).sum()),
        n=N,
        input="perm",
        jax=False,
    )
    assert (found.method, found.diagnostics.verdict) == ("quadratic", "trust")
    np.testing.assert_allclose(found.marginals, truth.marginals, atol=0.02)
    assert (
        abs(found.log_evidence - truth.log_evidence)
        < 4 * np.hypot(found.log_evidence_se, truth.log_evidence_se) + 2e-3
    )


def test_edges_that_are_equal_stay_equal():
    ring = np.roll(np.eye(N), 1, 1) + np.roll(np.eye(N), -1, 1)
    form = form_of(lambda X: -0.7 * jnp.sum((ring @ X - X @ ring) ** 2)).form
    assert len(np.unique(form.A)) == len(np.unique(form.B)) == 2
    assert not form.C.any()
    np.testing.assert_array_equal(form.A != 0, ring != 0)
    np.testing.assert_array_equal(form.B != 0, ring != 0)


def bonus(perm):
    """A sum over pairs but for one pair of pairs, which 1 in 130 random matchings have."""
    return matched(perm, S) + 2.0 * (perm[0] == 0 and perm[1] == 1)


def tardiness(perm):
    """Weighted lateness of jobs in this order: each depends on all before it."""
    hours, due, weight = np.abs(S[:3])
    return -float((weight[perm] * np.maximum(np.cumsum(hours[perm]) - 4 * due[perm], 0)).sum())


OTHERS = {
    "square": {"function": lambda X: jnp.sum(S * X) + 0.1 * jnp.sum(OTHER * X) ** 2},
    "two peaks": {
        "function": lambda X: jnp.logaddexp(
            12 * jnp.trace(X), 12 * jnp.sum(np.roll(np.eye(N), 1, 1) * X)
        )
    },
    "three pairs": {"function": lambda X: jnp.sum(S * X) + 9 * X[0, 3] * X[1, 1] * X[2, 8]},
    "two kinds of edges": {
        "function": lambda X: jnp.trace(A @ X @ B @ X.T) + jnp.sum(D * (X @ E @ X.T))
    },
    "-inf": {"function": lambda X: jnp.sum(S * X) + jnp.where(X[0, 0] > 0.5, -jnp.inf, 0.0)},
    "no derivatives": {
        "function": lambda X: jnp.argmax(X[0]) * jnp.argmax(X[1]) * jnp.argmax(X[2]) / 9.0
    },
    "one in order": {"function": lambda X: jnp.sum(S * X) + jnp.where(jnp.trace(X) == N, 9.0, 0)},
    "a pair of pairs on the host": {"function": bonus, "input": "perm", "jax": False},
    "tardiness on the host": {"function": tardiness, "input": "perm", "jax": False},
}


@pytest.mark.parametrize("arguments", OTHERS.values(), ids=OTHERS)
def test_other_functions_have_no_form(arguments):
    assert form_of(**arguments) is None


def test_one_pair_of_pairs_is_an_edge():
    found = form_of(lambda X: jnp.sum(S * X) + 5 * X[0, 0] * X[1, 1])
    assert found.form.A.any()
    assert found.deviation < 1e-4


def hidden(perm):
    """A sum over pairs but for a bonus of the best matching."""
    return matched(perm, S) + 3.0 * np.array_equal(perm, BEST)


BEST = np.asarray(pv.fit(pv.models.LinearMatching(S)).mode)


def test_what_the_answer_shows_decides():
    """Random matchings do not find the bonus, but the draws have it: another method then."""
    model = pv.models.CallableModel(hidden, N, "perm", jax=False)
    assert recognise(prepare(model)) is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        found = pv.fit(model)
    assert found.method == "sequential"
    # One matching has weight e^3 times what it would have.
    table = pv.fit(pv.models.LinearMatching(S))
    p = np.exp(float(table.log_prob(BEST)))
    assert found.log_evidence == pytest.approx(
        table.log_evidence + np.log1p(p * (np.exp(3) - 1)), abs=0.1
    )


def test_a_method_by_name_and_options_take_the_function_as_it_is(monkeypatch):
    def never(prepared):
        raise AssertionError

    monkeypatch.setattr(module, "recognise", never)
    function = lambda X: jnp.sum(S[:5, :5] * X)  # noqa: E731
    assert pv.fit(function, "importance", n=5).method == "importance"
    assert pv.fit(function, n=5, max_size=10).method == "exact"


def test_many_functions_at_once():
    models = [pv.models.CallableModel(lambda X, k=k: jnp.sum((k + 1) * S * X), N) for k in range(2)]
    models.append(pv.models.LinearMatching(3 * S))
    found = pv.fit_many(models)
    for k, posterior in enumerate(found):
        expected = pv.fit(pv.models.LinearMatching((k + 1) * S))
        assert posterior.method == "exact"
        np.testing.assert_allclose(posterior.marginals, expected.marginals, atol=1e-5)


def test_the_posterior_is_one_of_the_function():
    model = pv.models.CallableModel(lambda X: jnp.sum(S * X), N)
    found = pv.fit(model)
    assert found.fingerprint == pv.models.fingerprint(model)
    assert found.check(model).verdict is not None
