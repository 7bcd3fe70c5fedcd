"""Sorting networks, relaxations over the permutahedron and over the Birkhoff polytope."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

import permvi as pv
from permvi.inference.convex import (
    Inequalities,
    Permutahedron,
    batcher,
    gilmore_lawler,
    matrices,
    maximise_quadratic,
    minimise_linear,
    minimise_quadratic,
    relax_quadratic,
    vector_form,
)
from permvi.inference.map import Quadratic
from permvi.permutations import enumerate_permutations


def fit(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "convex", **options)


def facets(values):
    """All inequalities of the permutahedron, 2^n - 2 of them, and its equation."""
    n = len(values)
    sums = np.cumsum(np.sort(values))
    rows, sides = [], []
    for size in range(1, n):
        for chosen in itertools.combinations(range(n), size):
            rows.append(-np.isin(np.arange(n), chosen).astype(float))
            sides.append(-sums[size - 1])
    return np.array(rows), np.array(sides), np.ones((1, n)), sums[-1:]


def a_before_b(n, a, b, gap):
    row = np.zeros((1, n))
    row[0, [a, b]] = 1.0, -1.0
    return Inequalities(row, np.array([-gap]))


@pytest.mark.parametrize("n", range(1, 10))
def test_networks_sort_all_zeros_and_ones(n):
    """Which is all that there is to check (Knuth 1998, the zero-one principle)."""
    wires = np.array(list(itertools.product([0, 1], repeat=n)))
    for i, j in batcher(n):
        assert i < j
        wires[:, [i, j]] = np.sort(wires[:, [i, j]], axis=1)
    assert (np.diff(wires, axis=1) >= 0).all()


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_membership_is_that_of_the_facets(n, rng):
    values = rng.normal(size=n)
    hull = Permutahedron(values)
    A, b, equal, total = facets(values)
    answers = []
    for scale in (0.3, 0.6, 1.0, 1.5):
        x = values.mean() + scale * (rng.permutation(values) - values.mean())
        x = x + 0.1 * scale * rng.normal(size=n)
        x += values.mean() - x.mean()
        inside = n == 1 or bool((A @ x <= b + 1e-9).all())
        assert abs(equal @ x - total) < 1e-9
        assert hull.contains(x) == inside
        answers.append(inside)
    assert n == 1 or len(set(answers)) == 2
    assert not hull.contains(values + 1)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
def test_linear_functions_are_minimised_exactly(n, rng):
    values, c = rng.normal(size=n), rng.normal(size=n)
    smallest = (values[enumerate_permutations(n)] @ c).min()
    found = minimise_linear(c, values)
    assert found.bound == found.value == pytest.approx(smallest)
    np.testing.assert_allclose(values[found.perm], found.x)
    # The network without anything cut off, through the linear programme.
    nothing = Inequalities(np.zeros((1, n)), np.zeros(1))
    network = minimise_linear(c, values, nothing)
    assert network.bound == pytest.approx(smallest)
    assert Permutahedron(values).contains(network.x, 1e-7)


def test_a_cut_permutahedron_is_that_of_its_facets(rng):
    values, c = np.arange(5.0), rng.normal(size=5)
    order = np.argsort(c)
    # Against what the slopes want.
    extra = a_before_b(5, order[0], order[-1], 1.0)
    A, b, equal, total = facets(values)
    expected = linprog(
        c, np.vstack([A, extra.A]), np.append(b, extra.b), equal, total, bounds=(None, None)
    )
    found = minimise_linear(c, values, extra)
    assert found.bound == pytest.approx(expected.fun)
    assert found.bound > minimise_linear(c, values).bound + 0.1
    assert Permutahedron(values, extra).contains(found.x, 1e-7)
    assert found.value >= minimise_linear(c, values).value - 1e-12
    with pytest.raises(ValueError, match="extra must leave some point, got none"):
        minimise_linear(c, values, a_before_b(5, 0, 1, 5.0))


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_a_point_is_a_mixture_of_permutations(n, rng):
    values = rng.normal(size=n)
    if n > 2:
        values[1] = values[0]
    perms = enumerate_permutations(n)
    x = rng.dirichlet(np.full(len(perms), 0.05)) @ values[perms]
    M = Permutahedron(values).mixture(x)
    np.testing.assert_allclose(M @ values, x, atol=1e-7)
    np.testing.assert_allclose(M.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(M.sum(axis=1), 1, atol=1e-12)
    assert M.min() >= 0


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize("kind", ["any", "positive", "2-sum"])
def test_quadratic_bounds_are_bounds(n, kind, rng):
    perms = enumerate_permutations(n)
    for _ in range(4):
        values, c, Q = rng.normal(size=n), rng.normal(size=n), rng.normal(size=(n, n))
        if kind == "positive":
            Q = Q @ Q.T
        elif kind == "2-sum":
            weights = np.abs(Q + Q.T)
            Q, c, values = np.diag(weights.sum(axis=1)) - weights, 0 * c, np.arange(n, dtype=float)
        x = values[perms]
        smallest = (np.einsum("ki,ij,kj->k", x, Q, x) + x @ c).min()
        found = minimise_quadratic(Q, c, values)
        y = values[found.perm]
        assert found.value == pytest.approx(y @ Q @ y + c @ y)
        assert sorted(found.perm.tolist()) == list(range(n))
        assert found.bound <= smallest + 1e-9
        assert found.value >= smallest - 1e-9
        assert Permutahedron(values).contains(found.x, 1e-8)
        if kind == "2-sum" and n > 2:
            # Without the shift it would be zero, attained where all entries are equal.
            assert found.bound > 0.5 * smallest


def test_a_relaxation_is_solved(rng):
    """Against another solver with all facets; a bound is never above the optimum."""
    n = 4
    values, c = rng.normal(size=n), rng.normal(size=n)
    root = rng.normal(size=(n, n))
    Q = root @ root.T
    centred = np.eye(n) - 1 / n
    # The smallest eigenvalue on vectors of sum zero is taken off.
    shift = np.sort(np.linalg.eigvalsh(centred @ Q @ centred))[1]
    A, b, equal, total = facets(values)

    def relaxed(x):
        return x @ Q @ x + c @ x - shift * (x @ x - values @ values)

    expected = minimize(
        relaxed,
        np.full(n, values.mean()),
        constraints=[
            {"type": "ineq", "fun": lambda x: b - A @ x},
            {"type": "eq", "fun": lambda x: equal @ x - total},
        ],
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    found = minimise_quadratic(Q, c, values, max_iter=3000)
    assert found.bound == pytest.approx(expected.fun, abs=2e-3)
    assert found.bound <= expected.fun + 1e-6
    assert relaxed(found.x) >= expected.fun - 1e-6
    early = minimise_quadratic(Q, c, values, max_iter=3)
    assert early.bound <= found.bound


def test_an_inequality_breaks_the_tie_between_an_order_and_its_reverse(rng):
    """Lim and Wright's (2014) constraint for seriation: one item comes before another."""
    n = 6
    weights = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) == 1
    order = rng.permutation(n)
    weights = weights[np.ix_(order, order)].astype(float)
    Q = np.diag(weights.sum(axis=1)) - weights
    first, last = int(np.argmin(order)), int(np.argmax(order))
    found = minimise_quadratic(
        Q, np.zeros(n), np.arange(n, dtype=float), a_before_b(n, first, last, 1.0), max_iter=60
    )
    assert found.value == pytest.approx(n - 1)
    assert 0.5 * (n - 1) < found.bound <= n - 1
    assert found.x[first] + 1 <= found.x[last] + 1e-7


def vector_problem(rng, n):
    """A graph matching whose labels are positions on a line."""
    v = rng.normal(size=n)
    B = 1.3 * np.outer(v, v) + (2 * v)[:, None] - v**2 + 0.7
    C = np.outer(rng.normal(size=n), v) + rng.normal(size=(n, 1)) + rng.normal(size=n)
    return Quadratic(rng.normal(size=(n, n)), B, C, 0.3)


@pytest.mark.parametrize("n", [2, 4, 6])
def test_vector_forms_have_the_same_values(n, rng):
    perms = enumerate_permutations(n)
    positions = np.arange(n, dtype=float)
    squares = -(np.subtract.outer(positions, positions) ** 2)
    two_sum = Quadratic(rng.normal(size=(n, n)), squares, np.zeros((n, n)))
    for quadratic in (vector_problem(rng, n), two_sum):
        form = vector_form(quadratic)
        x = form.values[perms]
        found = np.einsum("ki,ij,kj->k", x, form.Q, x) + x @ form.c + form.constant
        np.testing.assert_allclose(found, quadratic.values(perms), atol=1e-10)


def test_what_is_no_vector_problem(rng):
    n = 5
    A, B, C = rng.normal(size=(3, n, n))
    assert vector_form(Quadratic(A, B, C)) is None
    assert vector_form(Quadratic(A, np.zeros((n, n)), C)) is None
    lined = vector_problem(rng, n)
    assert vector_form(Quadratic(lined.A, lined.B, C)) is None
    assert vector_form(Quadratic(A, rng.normal(size=(6, 6)), rng.normal(size=(n, 6)))) is None


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_bounds_of_graph_matchings(masked, symmetric, rng):
    for n in (1, 2, 3, 6):
        perms = enumerate_permutations(n)
        A, B, C = rng.normal(size=(3, n, n))
        if symmetric:
            A, B = A + A.T, B + B.T
        mask = None
        if masked:
            mask = pv.assignment.prune_mask((rng.random((n, n)) < 0.6) | np.eye(n, dtype=bool))
            perms = perms[mask[np.arange(n), perms].all(axis=1)]
        quadratic = Quadratic(A, B, C, 0.7)
        largest = quadratic.values(perms).max()
        found = maximise_quadratic(quadratic, mask)
        assert found.value == pytest.approx(quadratic.values(found.perm))
        assert found.value <= largest + 1e-9
        assert largest <= found.bound + 1e-9
        assert largest <= gilmore_lawler(quadratic, mask) + 1e-9
        np.testing.assert_allclose(found.X.sum(axis=0), 1)
        np.testing.assert_allclose(found.X.sum(axis=1), 1)
        if masked:
            assert mask[np.arange(n), found.perm].all()
            assert not found.X[~mask].any()


def largest_eigenvalue(A, B):
    """That of <A, D B D'> on all D whose rows and columns sum to zero, as one large matrix."""
    centred = np.eye(len(A)) - 1 / len(A)
    form = np.kron(centred @ A @ centred, centred @ B @ centred)
    return np.linalg.eigvalsh((form + form.T) / 2)


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_relaxation_over_doubly_stochastic_matrices(symmetric, rng, monkeypatch):
    """Its own bound, without Gilmore's and Lawler's, against another solver."""
    monkeypatch.setattr(matrices, "gilmore_lawler", lambda *_: np.inf)
    n = 3
    A, B, C = rng.normal(size=(3, n, n))
    if symmetric:
        A, B = A + A.T, B + B.T
    exact = largest_eigenvalue(A, B)[-1]
    shift = matrices._largest_eigenvalue(A, B)
    assert shift == pytest.approx(exact) if symmetric else shift >= exact
    quadratic = Quadratic(A, B, C)

    def relaxed(x):
        X = x.reshape(n, n)
        return (A * (X @ B @ X.T)).sum() + (C * X).sum() - shift * ((X**2).sum() - n)

    sums = np.vstack([np.kron(np.eye(n), np.ones((1, n))), np.kron(np.ones((1, n)), np.eye(n))])
    expected = minimize(
        lambda x: -relaxed(x),
        np.full(n * n, 1 / n),
        bounds=[(0, 1)] * (n * n),
        # The last sum follows from the others.
        constraints={"type": "eq", "fun": lambda x: (sums @ x - 1)[:-1]},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    found = maximise_quadratic(quadratic, max_iter=300)
    assert found.bound >= -expected.fun - 1e-6
    # What is left of the gap after so many steps of a method whose error falls like 1 / steps.
    assert found.bound == pytest.approx(-expected.fun, abs=0.05)
    assert quadratic.values(enumerate_permutations(n)).max() <= found.bound


def test_the_better_relaxation_counts(rng):
    quadratic = vector_problem(rng, 6)
    largest = quadratic.values(enumerate_permutations(6)).max()
    found = relax_quadratic(quadratic)
    assert found.by_network
    assert largest <= found.bound < maximise_quadratic(quadratic).bound
    assert found.value == pytest.approx(quadratic.values(found.perm))
    np.testing.assert_allclose(found.X.sum(axis=0), 1)
    general = relax_quadratic(Quadratic(*rng.normal(size=(3, 4, 4))))
    assert not general.by_network


@pytest.mark.float32
def test_the_method_on_linear_models(rng):
    model = pv.models.LinearMatching(rng.normal(size=(2, 3, 4)))
    posterior, exact = fit(model), pv.fit(model, "exact")
    np.testing.assert_array_equal(posterior.mode, exact.mode)
    assert posterior.diagnostics.extras["log_density_upper"] == pytest.approx(
        posterior.log_evidence
    )
    assert "no matching is more probable than this one" in posterior.diagnostics.reasons
    np.testing.assert_array_equal(fit(model, marginals="relaxed").marginals, posterior.marginals)


@pytest.mark.parametrize("case", ["square", "wide", "masked", "known", "line"])
@pytest.mark.parametrize("marginals", ["mode", "relaxed"])
def test_the_method_on_graphs(case, marginals, rng):
    n, m = 5, 7 if case == "wide" else 5
    A, B, scores = rng.random((n, n)), rng.random((m, m)), rng.normal(size=(n, m))
    constraints = {"scores": scores, "prior_scores": rng.normal(size=(n, m))}
    if case == "masked":
        constraints["mask"] = (rng.random((n, m)) < 0.6) | np.eye(n, dtype=bool)
    if case == "known":
        constraints["known"] = np.array([-1, 3, -1, -1, -1])
    if case == "line":
        B, constraints = -(np.subtract.outer(np.arange(5.0), np.arange(5.0)) ** 2), {}
    model = pv.models.GraphMatching(A, B, 0.8, **constraints)
    posterior, exact = fit(model, marginals=marginals), pv.fit(model, "exact")
    found = posterior.diagnostics.extras
    best = exact.log_prob(exact.mode) + exact.log_evidence
    own = exact.log_prob(posterior.mode) + exact.log_evidence
    assert posterior.log_evidence == pytest.approx(own)
    assert own <= best + 1e-9 <= found["log_density_upper"] + 2e-9
    assert found["by_network"] == (case == "line")
    rows = posterior.marginals.sum(axis=1)
    np.testing.assert_allclose(rows, 1, atol=1e-9)
    if case == "masked":
        assert not posterior.marginals[~constraints["mask"]].any()
    if case == "known":
        np.testing.assert_array_equal(posterior.marginals[1], np.eye(5)[3])
    if marginals == "mode":
        np.testing.assert_array_equal(posterior.marginals, np.eye(m)[posterior.mode])


def test_what_is_refused():
    with pytest.raises(ValueError, match="model must have scores, or one site and a quadratic"):
        pv.fit(lambda X: (X**2).sum(axis=(-2, -1)), "convex", n=4)
    model = pv.models.LinearMatching(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="marginals must be 'mode' or 'relaxed', got 'both'"):
        fit(model, marginals="both")
    with pytest.raises(ValueError, match="max_iter must be"):
        fit(model, max_iter=0)
    with pytest.raises(ValueError, match=r"Q must have shape \(3, 3\), got shape \(2, 2\)"):
        minimise_quadratic(np.eye(2), np.zeros(3), np.arange(3.0))
    with pytest.raises(ValueError, match=r"c must be finite and of shape \(3,\), got \(2,\)"):
        minimise_linear(np.zeros(2), np.arange(3.0))
    with pytest.raises(ValueError, match="values must be a finite vector"):
        Permutahedron(np.zeros((2, 2)))
