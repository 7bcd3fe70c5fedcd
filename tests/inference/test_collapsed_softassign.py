"""The mean field of soft permutations, alone, in batches, and as a method."""

import itertools
import warnings

import jax
import numpy as np
import pytest

import permvi as pv
from permvi import assignment
from permvi.inference.dynamics import SoftassignOptions, run_softassign, softassign
from permvi.inference.dynamics.matching import estimate_edges, pair_scores, prior_beliefs
from tests.inference.collapsed_cases import (
    graph,
    model_of,
    model_of_worms,
    random_perms,
    regression,
    scales_of,
    worms,
)

QUICK = SoftassignOptions(num_steps=30)


def dynamics(rng, num_subjects, num_known, m=8, steps=100):
    """Recordings of subjects some of whose neurons are known, and all permutations of the rest."""
    support = graph(rng, m, 0.5)
    W = np.where(support, rng.normal(size=(m, m)), 0.0)
    W *= 0.8 / np.abs(np.linalg.eigvals(W)).max()
    truth, recordings = random_perms(rng, num_subjects, m), []
    for perm in truth:
        y = rng.normal(size=(steps, m))
        for t in range(1, steps):
            y[t] += W @ y[t - 1]
        recordings.append(y[:, perm])
    known = np.where(truth < num_known, truth, -1)
    rest = np.array(list(itertools.permutations(range(num_known, m))))
    every = np.repeat(known[None], len(rest) ** num_subjects, axis=0)
    for perms, labels in zip(every, itertools.product(rest, repeat=num_subjects), strict=True):
        perms[known < 0] = np.concatenate(labels)
    model = pv.models.SharedDynamics(
        recordings, support, known=known if num_subjects > 1 else known[0]
    )
    return model, every


@pytest.mark.float32
@pytest.mark.parametrize(("num_subjects", "num_known"), [(1, 4), (2, 5)])
def test_the_mean_field_finds_the_best_of_all_permutations(num_subjects, num_known):
    """Of all 24, or all 36 pairs, the exact evidence likes one best."""
    drawn = [dynamics(np.random.default_rng(seed), num_subjects, num_known) for seed in range(6)]
    models = [model for model, _ in drawn]
    results = run_softassign(
        [regression(model) for model in models], [scales_of(model) for model in models], QUICK
    )
    for (model, every), found in zip(drawn, results, strict=True):
        evidence = model.collapsed_log_density(every if num_subjects > 1 else every[:, 0])
        perms = assignment.solve(found.matrices, backend="host")
        np.testing.assert_array_equal(perms, every[np.argmax(evidence)])


@pytest.mark.parametrize("sizes", [(6, 6), (6, 4)], ids=["complete", "incomplete"])
def test_the_gradient_is_that_of_the_pair_scores(rng, sizes):
    model = model_of(rng, m=6, sizes=sizes)
    problem, scales = regression(model, prior=rng.normal(size=(2, 6, 6))), scales_of(model)
    arrays = softassign.soft_problem(problem, scales)
    perms = random_perms(rng, 2, 6)
    P = np.eye(6)[perms]
    beliefs = prior_beliefs(problem, scales)
    found = softassign._gradient(
        arrays,
        P,
        np.broadcast_to(beliefs.mean, P.shape),
        np.broadcast_to(beliefs.variance, P.shape),
        complete=problem.complete,
    )
    # Of subjects with all recorded the pair scores leave out a term that no permutation changes.
    for j in range(2) if problem.complete else (1,):
        edges = estimate_edges(problem, j, scales)
        scores = pair_scores(edges, beliefs, problem.prior[j])
        np.testing.assert_allclose(found[j], scores.slope(perms[j]) + scores.C, atol=1e-8)


def test_messages_are_moments_of_the_estimates(rng):
    """Over independent draws of both ends' rows, by enumeration."""
    model = model_of(rng, m=3, sizes=(3,))
    arrays = softassign.soft_problem(regression(model), scales_of(model))
    P = np.tensordot(rng.dirichlet(np.ones(4)), np.eye(3)[random_perms(rng, 4, 3)], axes=1)
    precision, weighted = (np.asarray(part)[0] for part in softassign._messages(arrays, P[None]))
    z, recorded = arrays.z[0], arrays.recorded[0]
    for a, b in itertools.product(range(3), repeat=2):
        p = P[:, a][:, None] * P[:, b] * recorded
        share = p.sum()
        mean = (p * z).sum() / p.sum()
        variance = (p * z**2).sum() / p.sum() - mean**2 + arrays.error[0] ** 2
        np.testing.assert_allclose(precision[a, b], share / variance, rtol=1e-8)
        np.testing.assert_allclose(weighted[a, b], share / variance * mean, rtol=1e-8, atol=1e-12)


@pytest.mark.float32
def test_a_batch_is_the_problems_one_by_one(rng):
    models = [model_of(rng, m=6, sizes=(6, 5)) for _ in range(3)]
    problems, scales = [regression(m) for m in models], [scales_of(m) for m in models]
    together = run_softassign(problems, scales, QUICK)
    tolerance = 1e-9 if jax.config.jax_enable_x64 else 1e-4
    for problem, scale, found in zip(problems, scales, together, strict=True):
        [alone] = run_softassign([problem], [scale], QUICK)
        np.testing.assert_allclose(found.matrices, alone.matrices, atol=tolerance)
        np.testing.assert_allclose(found.mean, alone.mean, atol=tolerance)
        assert found.num_evaluations == alone.num_evaluations == 60


def test_problems_of_one_shape_compile_once(rng):
    softassign.iterate.clear_cache()
    for _ in range(2):
        model = model_of(rng, m=5, sizes=(5,))
        run_softassign([regression(model)], [scales_of(model)], QUICK)
    assert softassign.iterate._cache_size() == 1


@pytest.fixture(scope="module")
def fitted():
    """Worms, their models and posteriors; the last worms were hardly recorded."""
    cases = [worms(seed, num_known=10) for seed in (10, 11)]
    models = [model_of_worms(*case) for case in cases]
    cases.append(worms(12, num_steps=25, num_known=2))
    models.append(model_of_worms(*cases[-1], tolerance=np.inf))
    with pytest.warns(pv.FitWarning, match="3 of 3 fits"):
        return cases, models, pv.fit_many(models, "collapsed", search="softassign")


def test_worms_are_identified_and_never_trusted(fitted):
    for (found, *_), model, posterior in list(zip(*fitted, strict=True))[:2]:
        assert (posterior.mode == found.truth).mean() > 0.95
        assert posterior.diagnostics.verdict == "check"
        assert "error bars" in posterior.diagnostics.reasons[-1]
        assert not posterior.marginals[~np.asarray(model.mask)].any()
        known = found.known >= 0
        np.testing.assert_array_equal(posterior.mode[known], found.known[known])
        evidence = float(model.collapsed_log_density(posterior.mode))
        assert posterior.log_evidence == pytest.approx(evidence)
        W = found.weights[tuple(model.edges.T)]
        errors = (posterior.latents["W"].mean - W) / posterior.latents["W"].sd
        # Correlations are left out: the mean square is of order 1, and not exactly 1.
        assert 0.5 < (errors**2).mean() < 2


def test_too_little_data_is_not_trusted(fitted):
    (found, *_), _, posterior = (each[2] for each in fitted)
    assert posterior.diagnostics.verdict == "do not trust"
    assert "too little data" in posterior.diagnostics.reasons[0]
    assert (posterior.mode == found.truth).mean() < 0.7


def test_neurons_that_are_not_recorded_leave_labels_over():
    found, *rest = worms(12, num_worms=1, num_recorded=36, num_known=10)
    with pytest.warns(pv.FitWarning, match="mean field"):
        posterior = pv.fit(model_of_worms(found, *rest), "collapsed", search="softassign")
    assert posterior.marginals.shape == (36, 40)
    assert (posterior.mode == found.truth[0]).mean() > 0.85
    np.testing.assert_allclose(posterior.p_unmatched_cols.sum(), 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"search": "softmax"}, "search must be 'moves' or 'softassign'"),
        ({"search": "softassign", "num_restarts": 2}, "num_restarts is an option of search='mov"),
        ({"search": "softassign", "num_steps": 0}, "num_steps must be"),
        ({"search": "softassign", "temperature": -1.0}, "temperature must be a positive number"),
    ],
)
def test_bad_options(rng, options, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        with pytest.raises(ValueError, match=message) as caught:
            pv.fit(model_of(rng), "collapsed", **options)
    assert "\n" not in str(caught.value)
