"""Wrong edges, heavy tails and measurement noise of shared dynamics."""

import itertools

import collapsed_cases
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import permvi as pv
from permvi.experiments._worms import candidates, move_edges, simulate_worms
from permvi.inference.dynamics import wiring
from permvi.inference.dynamics.chains import run_chain
from permvi.inference.dynamics.evidence import Moves
from permvi.inference.dynamics.matching import Edges, estimate_edges
from permvi.inference.dynamics.measurement import measurement_noise
from permvi.inference.dynamics.wiring import Estimates, Wiring, WiringState

ERRORS = Wiring(0.8, 0.1, 1.5, 0.3, 1.3, symmetric=True)
DIRECTED = ERRORS._replace(symmetric=False)


def estimates_of(rng, sizes, m):
    """Random estimates of subjects with so many recorded rows out of m."""
    found = []
    for n in sizes:
        here = np.arange(m) < n
        recorded = np.outer(here, here).astype(float)
        z = rng.normal(size=(m, m)) * recorded
        np.fill_diagonal(z, 0.0)
        found.append(Edges(z, float(rng.uniform(0.5, 1.0)), recorded))
    return found


def state_of(rng, law, sizes=(5, 4), m=5):
    model = collapsed_cases.model_of(rng, m=m, sizes=sizes)
    problem = collapsed_cases.regression(model, prior=rng.normal(size=(len(sizes), m, m)))
    if law.symmetric:
        upper = np.triu(problem.support, 1)
        vars(problem)["support"] = upper | upper.T
    edges = estimates_of(rng, sizes, m)
    perms = collapsed_cases.random_perms(rng, len(sizes), m)
    return WiringState(problem, edges, perms, law), edges


def density_by_integration(state, edges):
    """The log evidence ratio, from joint normal densities of all estimates of each pair."""
    law, support, rows = state.scales, state.problem.support, np.argsort(state.perms, axis=1)
    total = state.problem.log_prior(state.perms)
    m = len(support)
    pairs = itertools.combinations(range(m), 2)
    even, odd = law.even, law.odd
    prior = 0.5 * np.array([[even + odd, even - odd], [even - odd, even + odd]])
    for a, b in pairs if law.symmetric else itertools.permutations(range(m), 2):
        directions = [(a, b), (b, a)] if law.symmetric else [(a, b)]
        values, errors, designs = [], [], []
        for each, place in zip(edges, rows, strict=True):
            if each.recorded[place[a], place[b]]:
                for k, (to, source) in enumerate(directions):
                    values.append(each.z[place[to], place[source]])
                    errors.append(law.error * each.s**2)
                    designs.append(np.eye(2)[k] if law.symmetric else np.ones(1))
        if not values:
            continue
        slab = prior if law.symmetric else np.array([[odd]])
        noise, design = np.diag(errors), np.stack(designs)
        p = law.kept if support[a, b] else law.missing
        null = multivariate_normal.logpdf(values, cov=noise)
        edge = multivariate_normal.logpdf(values, cov=noise + design @ slab @ design.T)
        total += np.logaddexp(np.log1p(-p) + null, np.log(p) + edge) - null
    return total


@pytest.mark.parametrize("law", [ERRORS, DIRECTED])
def test_evidence_is_that_of_spikes_and_slabs(rng, law):
    for _ in range(3):
        state, edges = state_of(rng, law)
        expected = density_by_integration(state, edges)
        np.testing.assert_allclose(state.log_density, expected, rtol=1e-5)


@pytest.mark.parametrize("law", [ERRORS, DIRECTED])
def test_moves_gain_the_difference_of_densities(rng, law):
    state, edges = state_of(rng, law)
    exchanges = [(j, a, b) for j in (-1, 0, 1) for a, b in itertools.combinations(range(5), 2)]
    longer = np.array([[0, 1, 2], [0, 1, 3], [1, 0, 4]])
    moves = Moves.single(np.array(exchanges)).followed_by(Moves(longer, np.array([3])))
    before = state.perms
    for move in range(moves.num):
        other = WiringState(state.problem, edges, before, law)
        gain = other.walk(moves, np.array([move]), np.array([-np.inf]))[0]
        fresh = WiringState(state.problem, edges, other.perms, law)
        assert (other.perms != before).any()
        np.testing.assert_allclose(gain, fresh.log_density - state.log_density, atol=1e-4)
        np.testing.assert_allclose(other.log_density, fresh.log_density, atol=1e-4)
    state.walk(moves, np.arange(moves.num), np.full(moves.num, np.inf))
    assert (state.perms == before).all()


@pytest.mark.parametrize("law", [ERRORS, DIRECTED])
def test_scores_of_one_subject_are_exact(rng, law):
    state, edges = state_of(rng, law, sizes=(4,))
    scores = wiring.lone_scores(state.problem, edges, law, 0)
    found, expected = [], []
    for perm in itertools.permutations(range(5)):
        state.move_to(np.array([perm]))
        found.append(scores.value(np.array(perm)))
        expected.append(state.log_density)
    np.testing.assert_allclose(np.ptp(np.subtract(found, expected)), 0, atol=1e-4)


def test_chains_sample_the_posterior_under_wrong_edges(rng):
    """The standard error of a probability from 4000 correlated draws is below .02."""
    law = ERRORS
    state, edges = state_of(rng, law, sizes=(4,), m=4)
    everything = np.array(list(itertools.permutations(range(4))))
    values = []
    for perm in everything:
        state.move_to(perm[None])
        values.append(state.log_density)
    exact = np.exp(np.array(values) - logsumexp(values))
    nothing = Moves.single(np.empty((0, 3)))
    chain = run_chain(
        state, edges, nothing, rng, num_steps=60_000, num_draws=4000, temperatures=1.0
    )
    shares = (chain.draws[:, 0, None] == everything).all(axis=-1).mean(axis=0)
    np.testing.assert_allclose(shares, exact, atol=0.06)


@pytest.mark.parametrize("law", [ERRORS, DIRECTED])
def test_learning_finds_the_errors_and_raises_the_density(rng, law):
    """Estimates of 80 labels; rates within five binomial standard errors, variances within 15 %."""
    m, s = 80, 0.25
    truth = law._replace(kept=0.7, missing=0.03)
    draw = rng.random((m, m)) < 0.1
    support, chance = np.triu(draw, 1), rng.random((m, m))
    support = support | support.T
    chance = np.triu(chance, 1) + np.triu(chance, 1).T if law.symmetric else chance
    present = chance < np.where(support, truth.kept, truth.missing)
    odd, even = np.sqrt(truth.odd) * rng.normal(size=(m, m)), rng.normal(size=(m, m))
    if law.symmetric:
        odd, even = np.triu(odd, 1), np.triu(np.sqrt(truth.even) * even, 1)
        weights = (odd - odd.T + even + even.T) / np.sqrt(2)
    else:
        weights = odd
    z = weights * present + s * np.sqrt(truth.error) * rng.normal(size=(m, m))
    np.fill_diagonal(z, 0.0)
    sums = Estimates.of([Edges(z, s, np.ones((m, m)))]).by_label(np.arange(m)[None])
    found, values = law._replace(odd=1.0, even=1.0, error=1.0), []
    for _ in range(4):
        found, value = wiring.learn(sums, support, found)
        values.append(value)
    assert (np.diff(values) > -1e-6).all()
    num = support.sum() / (2 if law.symmetric else 1)
    assert abs(found.kept - truth.kept) < 5 * np.sqrt(0.21 / num)
    assert abs(found.missing - truth.missing) < 0.01
    np.testing.assert_allclose(found.odd, truth.odd, rtol=0.3)
    np.testing.assert_allclose(found.error, truth.error, rtol=0.1)
    share = np.mean((wiring.edge_probabilities(sums, support, found) > 0.5) == present)
    assert share > 0.95


@pytest.mark.parametrize("symmetric", [False, True])
def test_estimates_given_inputs_are_those_of_regressions(rng, symmetric):
    """The law of one weight, flat before the data, with all others of its row integrated out."""
    model = collapsed_cases.model_of(rng, m=5, sizes=(5, 4))
    problem, scales = collapsed_cases.regression(model), collapsed_cases.scales_of(model)
    perms = collapsed_cases.random_perms(rng, 2, 5)
    found = wiring.given_inputs(problem, np.argsort(perms, axis=1), scales, symmetric=symmetric)
    x, precision = np.zeros((2, 5, 5))
    for a, c in itertools.permutations(range(5), 2):
        inputs = np.union1d(np.flatnonzero(problem.support[a]), [c])
        second, cross = np.zeros((5, 5)), np.zeros(5)
        for j, perm in enumerate(perms):
            row = int(np.argsort(perm)[a])
            if problem.recorded[j, row]:
                second[np.ix_(perm, perm)] += problem.C0[j]
                cross[perm] += problem.C1[j, row]
        prior = np.where(inputs == c, 0.0, 1 / scales.weight)
        covariance = np.linalg.pinv(second[np.ix_(inputs, inputs)] / scales.noise + np.diag(prior))
        at = int(np.flatnonzero(inputs == c)[0])
        mean = (covariance @ (cross[inputs] / scales.noise))[at]
        x[a, c], precision[a, c] = mean / covariance[at, at], 1 / covariance[at, at]
    if symmetric:
        mean = (precision + precision.T) / 2
        x *= np.sqrt(mean / np.where(precision > 0, precision, 1.0))
        precision = mean
    np.testing.assert_allclose(found.precision, precision, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found.x, x, rtol=1e-8, atol=1e-12)


def worms_of(rng, *, rewired=0.0, m=50, num_steps=800, **settings):
    """One worm with a random connectome, of which a share of the edges is moved."""
    adjacency = collapsed_cases.graph(rng, m, 0.15)
    positions = np.round(np.sort(rng.random(m)), 2)
    found = simulate_worms(adjacency, positions, rng, num_known=5, num_steps=num_steps, **settings)
    mask = candidates(found.positions, positions, 0.2)
    diagram = move_edges(adjacency, rewired, rng)
    return found, pv.models.SharedDynamics(
        list(found.recordings), diagram, mask=mask, known=found.known
    )


@pytest.mark.parametrize(("rewired", "expected"), [(0.0, False), (0.2, True)])
def test_wrong_edges_are_found_only_where_there_are_some(rng, rewired, expected):
    found, model = worms_of(rng, rewired=rewired)
    problem, scales = collapsed_cases.regression(model), collapsed_cases.scales_of(model)
    edges = [estimate_edges(problem, 0, scales)]
    law = wiring.wrong_edges(problem, edges, found.truth, scales)
    assert (law is not None) == expected
    if law is not None:
        wrong, missing = law.errors(problem.support)
        assert 0.1 < wrong < 0.35
        assert 0.1 < missing < 0.35


def test_short_recordings_do_not_look_like_wrong_edges(rng):
    """As many steps as neurons: estimates of all pairs leak, and alone would show wrong edges."""
    found, model = worms_of(rng, m=100, num_steps=130)
    problem, scales = collapsed_cases.regression(model), collapsed_cases.scales_of(model)
    edges = [estimate_edges(problem, 0, scales)]
    sums = Estimates.of(edges).by_label(np.argsort(found.truth, axis=1))
    begin = Wiring(0.9, 0.005, scales.weight, scales.weight, 1.0, symmetric=True)
    assert wiring.learn(sums, problem.support, begin)[0].errors(problem.support)[1] > 0.06
    assert wiring.wrong_edges(problem, edges, found.truth, scales) is None


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_measurement_noise_is_found_only_where_there_is_some(rng, scale):
    found, model = worms_of(rng, measurement_scale=scale)
    problem, scales = collapsed_cases.regression(model), collapsed_cases.scales_of(model)
    noise = measurement_noise(
        problem, found.truth, problem.support, scales, model.filtered_statistics,
        weight=True, noise=True,
    )  # fmt: skip
    assert (noise is not None) == (scale > 0)
    if noise is not None:
        # The gain is one of a few values, so the scale is coarse.
        assert 0.7 < noise.noise_scale < 1.4
        assert (noise.problem.support == problem.support).all()


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_fits_say_what_they_allow_for(rng):
    _, model = worms_of(rng, rewired=0.25)
    posterior = pv.fit(model, "collapsed", num_restarts=2, num_steps=3000)
    reasons = " ".join(posterior.diagnostics.reasons)
    assert "allowed for: edges of the support seem wrong" in reasons
    assert 0.1 < posterior.diagnostics.extras["missing_edges"] < 0.5
    assert posterior.log_evidence is None
    # The model is checked with the edges that were found, not with those of the diagram.
    assert (posterior.latents["edges"].mean > 0.5).sum() != model.support.sum()
    assert posterior.check(model).verdict == "fits"
    strict = pv.fit(model, "collapsed", num_restarts=2, num_steps=3000, forgive=False)
    assert "allowed for" not in " ".join(strict.diagnostics.reasons)
    assert strict.log_evidence is not None
