"""The filter for identities against Bayes' rule on a list of all permutations, and the method."""

import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import permvi as pv
from permvi.inference.fourier import IdentityFilter, filter_scores, inverse_transform, tuples
from permvi.permutations import enumerate_permutations

PAGE = Path(__file__).parents[2] / "docs" / "mathematics" / "fourier.md"


class Listed:
    """The same filter with a probability for each permutation."""

    def __init__(self, n):
        self.perms = enumerate_permutations(n)
        self.place = {tuple(perm): k for k, perm in enumerate(self.perms.tolist())}
        self.probs = np.full(len(self.perms), 1 / len(self.perms))
        self.log_evidence = 0.0

    def predict(self, perms, probs):
        found = np.zeros_like(self.probs)
        for move, q in zip(np.asarray(perms), probs, strict=True):
            for perm, p in zip(self.perms, self.probs, strict=True):
                found[self.place[tuple(perm[move].tolist())]] += p * q
        self.probs = found

    def observe(self, track, likelihood):
        joint = self.probs * likelihood[self.perms[:, track]]
        self.log_evidence += math.log(joint.sum())
        self.probs = joint / joint.sum()

    @property
    def marginals(self):
        return np.tensordot(self.probs, np.eye(self.perms.shape[1])[self.perms], axes=1)


def swapped(n, i, j):
    perm = np.arange(n)
    perm[[i, j]] = j, i
    return perm


def fit(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "fourier", **options)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_prediction_is_exact_at_every_order(order, rng):
    """Mixing alone is closed: marginals of an order depend on those of that order only."""
    n = 4
    start = rng.permutation(n)
    state, listed = IdentityFilter(n, order, start), Listed(n)
    listed.probs = np.eye(24)[listed.place[tuple(start.tolist())]]
    state = state.swap(0, 2, 0.3)
    listed.predict([np.arange(n), swapped(n, 0, 2)], [0.7, 0.3])
    moves, probs = np.stack([rng.permutation(n) for _ in range(3)]), rng.dirichlet(np.ones(3))
    state = state.predict(moves, probs)
    listed.predict(moves, probs)
    state = state.mix(0.4)
    pairs = [swapped(n, i, j) for i in range(n) for j in range(i)]
    listed.predict([np.arange(n), *pairs], [0.6, *[0.4 / 6] * 6])
    np.testing.assert_allclose(state.marginals, listed.marginals, atol=1e-12)
    if order >= 2:
        joint = state.tuple_marginals(2)
        a, b = tuples(n, 2)[5], tuples(n, 2)[7]
        both = (listed.perms[:, a] == b).all(axis=1)
        assert joint[5, 7] == pytest.approx(listed.probs[both].sum(), abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_without_a_band_limit_the_filter_is_bayes_rule(n, rng):
    state, listed = IdentityFilter(n, n - 1), Listed(n)
    assert state.is_exact
    for step in range(4):
        likelihood, track = rng.random(n) ** 3, int(rng.integers(n))
        state, exchanged = state.observe(track, likelihood), (step % n, (step + 1) % n)
        listed.observe(track, likelihood)
        state = state.swap(*exchanged, 0.2)
        listed.predict([np.arange(n), swapped(n, *exchanged)], [0.8, 0.2])
    np.testing.assert_allclose(state.marginals, listed.marginals, atol=1e-12)
    np.testing.assert_allclose(inverse_transform(state.coefficients), listed.probs, atol=1e-12)
    assert state.log_evidence == pytest.approx(listed.log_evidence, abs=1e-12)


def test_one_observation_of_a_uniform_distribution_is_exact(rng):
    """A product of a constant and a first-order function has order one."""
    n, likelihood = 5, rng.random(5)
    listed = Listed(n)
    listed.observe(2, likelihood)
    for order in (1, 2):
        state = IdentityFilter(n, order).observe(2, likelihood)
        np.testing.assert_allclose(state.marginals, listed.marginals, atol=1e-9)
        assert state.log_evidence == pytest.approx(listed.log_evidence, abs=1e-12)


def test_what_a_band_limit_costs_is_known(rng, record_property):
    """The error against the exact filter where conditioning is not closed, by order."""
    n, orders = 5, (1, 2, 3)
    errors = {order: [] for order in orders}
    for _ in range(10):
        exact = IdentityFilter(n, n - 1, start=np.arange(n))
        states = {order: IdentityFilter(n, order, start=np.arange(n)) for order in orders}
        for _ in range(6):
            i, j = (int(track) for track in rng.choice(n, 2, replace=False))
            track, likelihood = int(rng.integers(n)), np.full(n, 0.1)
            likelihood[rng.integers(n)] = 0.6
            exact = exact.swap(i, j, 0.4).mix(0.2).observe(track, likelihood)
            for order, state in states.items():
                states[order] = state.swap(i, j, 0.4).mix(0.2).observe(track, likelihood)
                found = states[order].marginals
                assert found.min() >= -1e-8
                np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-9)
                np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-9)
                distance = pv.metrics.total_variation_per_row(np.clip(found, 0, 1), exact.marginals)
                errors[order].append(distance.mean())
    means = {order: float(np.mean(values)) for order, values in errors.items()}
    for order, mean in means.items():
        record_property(f"total_variation_order_{order}", mean)
    # Measured, so that a change of the approximation does not go unnoticed.
    assert means == pytest.approx({1: 0.158, 2: 0.045, 3: 0.0055}, rel=0.02)


def test_many_tracks():
    state = IdentityFilter(40, 1, start=np.arange(40)).mix(0.5).observe(3, np.eye(40)[7] + 0.01)
    assert state.marginals.shape == (40, 40)
    np.testing.assert_allclose(state.marginals.sum(axis=0), 1, atol=1e-9)
    assert state.marginals.min() >= -1e-8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: IdentityFilter(1), "n must be at least 2, got 1"),
        (lambda: IdentityFilter(4, 0), "order must be"),
        (lambda: IdentityFilter(30, 2), "order must be lower for 30 tracks, got 2"),
        (lambda: IdentityFilter(3, start=[0, 0, 1]), "start must hold each of 0 to 2 once"),
        (lambda: IdentityFilter(3).swap(0, 3, 0.1), "second must be a track from 0 to 2, got 3"),
        (lambda: IdentityFilter(3).mix(1.5), r"probability must be in \[0, 1\], got 1.5"),
        (lambda: IdentityFilter(3).observe(0, [1, 1]), "likelihood must be 3 finite numbers"),
        (lambda: IdentityFilter(3).observe(0, [0, 0, 0]), "likelihood must be positive for an"),
        (
            lambda: IdentityFilter(3, start=[0, 1, 2]).observe(0, [0, 1, 0]),
            "likelihood must be positive for an identity that track 0 may have",
        ),
        (lambda: IdentityFilter(3).predict([[0, 1, 2]], [0.5]), "probs must sum to one, got 0.5"),
        (lambda: IdentityFilter(3).predict([[0, 1, 2]], [1, 0]), "probs must be 1 probabilities"),
        (lambda: IdentityFilter(4).tuple_marginals(2), "order must be at most the band limit 1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("n", "scale"), [(2, 1.0), (4, 1.0), (5, 30.0)])
def test_the_method_without_a_band_limit_is_exact(n, scale, rng):
    model = pv.models.LinearMatching(scale * rng.normal(size=(n, n)))
    posterior, exact = fit(model, order=n - 1), pv.fit(model, "exact")
    assert posterior.log_evidence_kind == "exact"
    assert posterior.log_evidence == pytest.approx(exact.log_evidence, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-12)
    perms = enumerate_permutations(n)
    probs = np.exp(posterior.log_prob(perms))
    np.testing.assert_allclose(probs, np.exp(exact.log_prob(perms)), atol=1e-12)


@pytest.mark.float32
def test_the_method_with_known_pairs_and_none_left(rng):
    scores = rng.normal(size=(5, 5))
    known = np.array([-1, 2, -1, -1, -1])
    model = pv.models.LinearMatching(scores, known=known)
    np.testing.assert_allclose(
        fit(model, order=3).marginals, pv.fit(model, "exact").marginals, atol=1e-12
    )
    limited = fit(model, order=1)
    np.testing.assert_array_equal(limited.marginals[1], np.eye(5)[2])
    # So many items that their matchings have no place in a table.
    wide = pv.models.LinearMatching(np.zeros((20, 20)), known=np.append([-1, -1], np.arange(2, 20)))
    assert fit(wide).log_evidence == pytest.approx(math.log(2))
    one = pv.models.LinearMatching(scores[:2, :2], known=np.array([0, -1]))
    np.testing.assert_array_equal(fit(one).marginals, np.eye(2))


def test_higher_orders_are_nearer(rng, record_property):
    errors = {order: [] for order in (1, 2)}
    for _ in range(8):
        model = pv.models.LinearMatching(rng.normal(size=(6, 6)))
        exact = pv.fit(model, "exact")
        for order, values in errors.items():
            posterior = fit(model, order=order)
            assert posterior.log_evidence <= exact.log_evidence
            assert posterior.log_evidence_kind == "bound"
            np.testing.assert_array_equal(posterior.mode, exact.mode)
            values.append(np.abs(posterior.marginals - exact.marginals).sum() / 12)
            estimate = posterior.diagnostics.extras["log_evidence_estimate"]
            assert abs(estimate - exact.log_evidence) < 0.5
    means = {order: float(np.mean(values)) for order, values in errors.items()}
    for order, mean in means.items():
        record_property(f"total_variation_order_{order}", mean)
    assert means[2] < 0.5 * means[1] < 0.1


def test_contradictory_scores_are_no_impossible_observation():
    scores = np.array([[0.0, -900.0, -900.0], [0.0, -1000.0, -1100.0], [0.0, -1.0, -2.0]])
    exact = pv.fit(pv.models.LinearMatching(scores), "exact")
    found = filter_scores(scores, 2)
    np.testing.assert_allclose(found.state.marginals, exact.marginals, atol=1e-12)
    assert found.log_evidence == pytest.approx(exact.log_evidence)
    assert fit(pv.models.LinearMatching(scores), order=1).marginals.min() >= 0


def test_what_the_method_refuses(rng):
    with pytest.raises(ValueError, match="order must be below n - 1 for more than 6 items"):
        fit(pv.models.LinearMatching(np.zeros((7, 7))), order=6)
    with pytest.raises(ValueError, match="model must be linear"):
        fit(pv.models.GraphMatching(np.eye(3), np.eye(3)))
    with pytest.raises(ValueError, match="as many items as labels"):
        fit(pv.models.LinearMatching(np.zeros((2, 3))))


def test_the_example_of_the_page():
    text = PAGE.read_text(encoding="utf-8")
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    for order, error in names["errors"].items():
        assert f"| {order} | {error:.3f} |" in text
