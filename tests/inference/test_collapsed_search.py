"""Pair scores, chains against enumerated posteriors, and the search."""

import itertools

import numpy as np
import pytest
import scipy.stats

from permvi.inference.dynamics import CollapsedOptions, evidence_kernels
from permvi.inference.dynamics.chains import run_chain
from permvi.inference.dynamics.evidence import CollapsedState, Moves, Screen, differences
from permvi.inference.dynamics.matching import (
    Beliefs,
    Edges,
    climb,
    estimate_edges,
    frank_wolfe,
    pair_scores,
)
from permvi.inference.dynamics.regression import Lists
from tests.inference.collapsed_cases import model_of, random_perms, regression, scales_of

NO_CYCLES = Moves.single(np.empty((0, 3)))


def some_scores(rng, m=6, recorded=6):
    z = rng.normal(size=(m, m))
    here = (np.arange(m) < recorded).astype(float)
    both = np.outer(here, here)
    z *= both
    np.fill_diagonal(z, 0.0)
    support = rng.random((m, m)) < 0.4
    np.fill_diagonal(support, val=False)
    beliefs = Beliefs(rng.normal(size=(m, m)) * support, rng.random((m, m)) * support)
    edges = Edges(z, 0.5, both)
    return edges, beliefs, support, pair_scores(edges, beliefs, rng.normal(size=(m, m)))


@pytest.mark.parametrize("recorded", [6, 4])
def test_pair_scores_are_log_densities_of_the_estimates(rng, recorded):
    """Up to a constant, and without the diagonal and what is not recorded."""
    edges, beliefs, _, scores = some_scores(rng, recorded=recorded)
    off = (edges.recorded > 0) & ~np.eye(6, dtype=bool)

    def direct(perm):
        mean, variance = (table[np.ix_(perm, perm)] for table in beliefs)
        normal = scipy.stats.norm.logpdf(edges.z, mean, np.sqrt(variance + 0.25))
        return normal[off].sum() + scores.C[np.arange(6), perm].sum()

    perms = random_perms(rng, 5, 6)
    gaps = [scores.value(perm) - direct(perm) for perm in perms]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-10)


def test_swap_gains_and_the_screen_are_differences(rng):
    _, _, support, scores = some_scores(rng, recorded=5)
    perm = rng.permutation(6)
    rows, gains = np.argsort(perm), scores.swap_gains(perm)
    neighbours = Lists.of(support | support.T)
    screen = Screen(scores.A[None], scores.B[None], np.zeros(0))
    unused = np.zeros((1, 6, 6))
    subjects = evidence_kernels.Subjects(
        unused, unused, unused > 0, scores.C[None], rows[None].astype(np.int64)
    )
    for i, k in itertools.combinations(range(6), 2):
        swapped = perm.copy()
        swapped[[i, k]] = swapped[[k, i]]
        expected = scores.value(swapped) - scores.value(perm)
        np.testing.assert_allclose(gains[i, k], expected, atol=1e-10)
        screened = evidence_kernels._screen(screen, subjects, neighbours, 0, perm[i], perm[k])
        np.testing.assert_allclose(screened, expected, atol=1e-10)


def test_frank_wolfe_and_swaps_find_a_clear_optimum(rng):
    """Beliefs about the very edges that were estimated, under a mask."""
    m, truth = 12, rng.permutation(12)
    support = rng.random((m, m)) < 0.4
    np.fill_diagonal(support, val=False)
    weights = rng.normal(size=(m, m)) * support
    z = weights[np.ix_(truth, truth)] + 0.05 * rng.normal(size=(m, m))
    np.fill_diagonal(z, 0.0)
    scores = pair_scores(Edges(z, 0.05, np.ones((m, m))), Beliefs(weights, 0.01 * support), 0 * z)
    mask = (rng.random((m, m)) < 0.7) | np.eye(m, dtype=bool)[truth]
    start = np.full((m, m), 1 / m)
    perm, num_gradients = frank_wolfe(scores, start, mask)
    assert mask[np.arange(m), perm].all()
    assert num_gradients >= 2
    found = climb(scores, perm, mask)
    assert mask[np.arange(m), found].all()
    assert scores.value(found) >= scores.value(perm)
    np.testing.assert_array_equal(found, truth)


def test_edge_estimates_have_the_errors_that_they_state(rng):
    """Over weights of the prior and noise, with the inputs as they are."""
    model = model_of(rng, m=20, sizes=(20,), steps=60, weight_scale=0.3, noise_scale=0.8)
    problem, scales = regression(model), scales_of(model)
    density, root = problem.support.mean(), np.linalg.cholesky(problem.C0[0])
    errors, num = [], 200
    for _ in range(num):
        # Anybody may be anybody: edges are anywhere.
        W = rng.normal(size=(20, 20)) * 0.3 * (rng.random((20, 20)) < density)
        np.fill_diagonal(W, 0.0)
        problem.C1[0] = W @ problem.C0[0] + 0.8 * rng.normal(size=(20, 20)) @ root.T
        edges = estimate_edges(problem, 0, scales)
        errors.append(edges.z - W)
    off = ~np.eye(20, dtype=bool)
    # Columns are brought to one error, which shrinks or stretches W a little: compare on average.
    ratio = np.sqrt((np.stack(errors)[:, off] ** 2).mean()) / edges.s
    assert 0.9 < ratio < 1.1


def enumerate_posterior(state, temperature):
    """All permutations of all subjects and their tempered probabilities."""
    J, m = state.perms.shape
    single = np.array(list(itertools.permutations(range(m))))
    perms = np.array([np.stack(each) for each in itertools.product(single, repeat=J)])
    values = np.array([CollapsedState(state.problem, p, state.scales).log_density for p in perms])
    weights = np.exp((values - values.max()) / temperature)
    return perms, weights / weights.sum()


@pytest.mark.parametrize(
    ("m", "sizes", "temperature"),
    [(4, (4,), 1.0), (4, (3,), 1.5), (3, (3, 3), 1.0), (3, (3, 2), 2.0)],
)
def test_chains_follow_the_tempered_posterior(rng, m, sizes, temperature):
    model = model_of(rng, m=m, sizes=sizes, steps=8)
    problem, scales = regression(model), scales_of(model)
    state = CollapsedState(problem, random_perms(rng, len(sizes), m), scales)
    perms, probs = enumerate_posterior(state, temperature)
    edges = [estimate_edges(problem, j, scales) for j in range(len(sizes))]
    cycles = differences([random_perms(rng, len(sizes), m)], state.perms)
    num = 3000
    chain = run_chain(
        state, edges, cycles, rng,
        num_steps=num * 40, num_draws=num, temperatures=temperature,
    )  # fmt: skip
    codes = {p.tobytes(): i for i, p in enumerate(perms)}
    counts = np.bincount([codes[d.tobytes()] for d in chain.draws], minlength=len(perms))
    expected = probs * num
    # Cells that are hardly ever visited are put together for the chi-squared test.
    large = expected >= 5
    observed, wanted = counts[large], expected[large]
    if not large.all():
        observed = np.append(observed, counts[~large].sum())
        wanted = np.append(wanted, expected[~large].sum())
    assert large.sum() > 5
    # With 40 proposals between them draws are nearly independent; one test in 10,000 may fail.
    assert scipy.stats.chisquare(observed, wanted * num / wanted.sum()).pvalue > 1e-4
    values = [CollapsedState(problem, d, scales).log_density for d in chain.draws[:5]]
    np.testing.assert_allclose(chain.log_densities[:5], values, atol=1e-8)


def test_a_chain_without_moves_stays(rng):
    model = model_of(rng, m=3, sizes=(3,))
    mask = np.eye(3, dtype=bool)[None]
    problem = regression(model, mask)
    state = CollapsedState(problem, np.arange(3)[None], scales_of(model))
    edges = [estimate_edges(problem, 0, state.scales)]
    chain = run_chain(state, edges, NO_CYCLES, rng, num_steps=9, num_draws=4, temperatures=1.0)
    np.testing.assert_array_equal(chain.draws, np.broadcast_to(np.arange(3), (4, 1, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_restarts": 0}, "num_restarts must be"),
        ({"temperature": 0.0}, "temperature must be a positive number"),
        ({"num_steps": 10, "num_draws": 20}, "num_steps must be at least num_draws"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        CollapsedOptions(**options)
