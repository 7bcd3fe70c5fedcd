"""Permutations and weights of shared dynamics, one given the other: "mcmc" and "map"."""

import itertools
import warnings

import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy.special import softmax

import permvi as pv
from permvi.inference.dynamics import JointState, alternate, run_gibbs, swap_kernels
from permvi.inference.dynamics.joint import weight_scores
from permvi.inference.dynamics.matching import PairScores
from permvi.inference.map import MapOptions
from permvi.inference.mcmc import MCMCOptions
from tests.inference.collapsed_cases import (
    model_of,
    model_of_worms,
    random_perms,
    regression,
    scales_of,
    worms,
)

# Of the largest of a few dozen absolute standard scores.
Z = 4.5
QUICK = {"mcmc": {"num_steps": 8}, "map": {"num_restarts": 1}}


def fit(model, method, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, method, **options)


def state_of(model, rng):
    problem = regression(model)
    J, m = problem.mask.shape[:2]
    return JointState(problem, random_perms(rng, J, m), scales_of(model))


def rows_of(model, perms):
    """(J, m) as the model takes it."""
    rows = perms[..., : model.shape[0]]
    return rows[..., 0, :] if model.num_sites == 1 else rows


def joint_density(model, perms, W):
    """Log density of recordings, permutations (J, m) or (J, n) and weights, from its definition."""
    noise, variance = float(model.noise_scale) ** 2, float(model.weight_scale) ** 2
    rows, table = perms[..., : model.shape[0]], np.zeros((model.num_labels, model.num_labels))
    table[tuple(np.asarray(model.edges).T)] = W
    total = -(W**2).sum() / variance - len(W) * np.log(2 * np.pi * variance)
    for j, perm in enumerate(rows):
        M, here = table[np.ix_(perm, perm)], model.recorded[j]
        left = model.squares[j] - 2 * (model.C1[j] * M).sum(axis=1)
        left += np.einsum("ia,ab,ib->i", M, model.C0[j], M)
        count = model.num_steps[j] * here.sum()
        total -= left[here].sum() / noise + count * np.log(2 * np.pi * noise)
    return total / 2 + log_prior(model, rows_of(model, perms)[None])[0]


def ridge_posterior(model, rows):
    """(E,) and (E, E): the moments of W given permutations (J, n), row by row from scratch."""
    edges, noise = np.asarray(model.edges), float(model.noise_scale) ** 2
    mean, cov = np.zeros(len(edges)), np.zeros((len(edges), len(edges)))
    for a in range(model.num_labels):
        at = np.flatnonzero(edges[:, 0] == a)
        S, r = noise / float(model.weight_scale) ** 2 * np.eye(len(at)), np.zeros(len(at))
        for j, perm in enumerate(np.reshape(rows, (model.num_sites, -1))):
            place = {label: i for i, label in enumerate(perm) if model.recorded[j, i]}
            if a not in place:
                continue
            here = [place.get(b) for b in edges[at, 1]]
            for p, i in enumerate(here):
                r[p] += 0 if i is None else model.C1[j, place[a], i]
                for q, k in enumerate(here):
                    S[p, q] += 0 if None in (i, k) else model.C0[j, i, k]
        mean[at] = np.linalg.solve(S, r)
        cov[np.ix_(at, at)] = noise * np.linalg.inv(S)
    return mean, cov


def all_rows(model):
    """Every allowed (n,) or (J, n) of a small model."""
    n, m = model.shape
    J = model.num_sites
    mask = np.ones((J, n, m), bool) if model.mask is None else np.reshape(model.mask, (J, n, m))
    known = np.full((J, n), -1) if model.known is None else np.reshape(model.known, (J, n))
    each = [
        [
            perm
            for perm in itertools.permutations(range(m), n)
            if all(mask[j, i, a] and known[j, i] in (-1, a) for i, a in enumerate(perm))
        ]
        for j in range(J)
    ]
    found = np.array(list(itertools.product(*each)))
    return found[:, 0] if J == 1 else found


def log_prior(model, rows):
    if model.prior_scores is None:
        return np.zeros(len(rows))
    scores = np.broadcast_to(model.prior_scores, (*rows.shape, model.num_labels))
    chosen = np.take_along_axis(scores, rows[..., None], axis=-1)
    return chosen.reshape(len(rows), -1).sum(axis=-1)


# --- one given the other --------------------------------------------------------------------------


@pytest.fixture(params=[(6, 6), (6, 4), (5,)], ids=["whole", "unequal", "one"])
def model(request, rng):
    sizes = request.param
    scores = [rng.normal(size=(n, 6)) for n in sizes]
    prior = scores[0] if len(sizes) == 1 else scores
    return model_of(rng, m=6, sizes=sizes, prior_scores=prior)


def test_densities_are_those_of_the_model(model, rng):
    state = state_of(model, rng)
    for _ in range(3):
        state.swap(3, rng)
        collapsed = state.regress(rng)
        rows = rows_of(model, state.perms)
        W = state.weights
        joint = float(model.log_density_of(rows, W) + model.latents["W"].log_prob(W))
        joint += log_prior(model, rows[None])[0]
        assert state.log_density == pytest.approx(joint, rel=1e-9)
        assert state.log_density == pytest.approx(joint_density(model, state.perms, W), rel=1e-12)
        expected = model.collapsed_log_density(rows) + log_prior(model, rows[None])[0]
        assert collapsed == pytest.approx(float(expected), rel=1e-12)


def test_exchanges_add_what_the_model_says(model, rng):
    state = state_of(model, rng)
    state.regress(rng)
    W, J = state.weights, len(state.perms)
    for j, (a, b) in itertools.product(range(J), itertools.combinations(range(6), 2)):
        before = joint_density(model, state.perms, W)
        system, subject = state._system, state._subjects[j]
        gain = swap_kernels.gain_of_exchange(system, subject, a, b)
        swap_kernels.exchange(system, subject, a, b)
        after = joint_density(model, state.perms, W)
        assert gain == pytest.approx(after - before, abs=1e-8 * abs(before))
        # What is kept along has moved with it.
        assert state.log_density == pytest.approx(after, rel=1e-9)


def test_weights_are_drawn_from_their_conditional(rng):
    model = model_of(rng, m=4, sizes=(4, 3))
    state = state_of(model, rng)
    mean, cov = ridge_posterior(model, state.perms[:, :4])
    np.testing.assert_allclose(state.weights, mean, rtol=1e-9)
    num, draws = 4000, []
    for _ in range(num):
        state.regress(rng)
        draws.append(state.weights)
    sd = np.sqrt(np.diag(cov))
    assert (np.abs(np.mean(draws, axis=0) - mean) < Z * sd / np.sqrt(num)).all()
    # An entry of an empirical covariance has the variance (v_i v_k + c_ik^2) / num.
    error = np.sqrt((np.outer(sd, sd) ** 2 + cov**2) / num)
    assert (np.abs(np.cov(np.transpose(draws)) - cov) < Z * error + 1e-12).all()


def test_scores_are_differences_of_the_density(rng):
    model = model_of(rng, m=6, sizes=(6, 6))
    state = state_of(model, rng)
    noise = float(model.noise_scale) ** 2
    here = state.perms[1]
    scores = weight_scores(regression(model), 1, state.table, here, noise)
    other = rng.permutation(6)
    before, value = scores.value(here), state.log_density
    state.move(1, other)
    assert scores.value(other) - before == pytest.approx(state.log_density - value, abs=1e-9)
    plain, X = PairScores(scores.A, scores.B, scores.C), rng.random((6, 6))
    np.testing.assert_allclose(scores.slope(other), plain.slope(other), atol=1e-9)
    np.testing.assert_allclose(scores.slope_at(X), plain.slope_at(X), atol=1e-9)


# --- mcmc -----------------------------------------------------------------------------------------

# Only everybody at home and everybody one further: swaps alone never get there.
CYCLE = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]], bool)
CASES = {
    "one": {"m": 4, "sizes": (4,)},
    "two": {"m": 3, "sizes": (3, 3)},
    "mask": {"m": 4, "sizes": (4,), "mask": MASK},
    "cycle": {"m": 3, "sizes": (3, 3), "mask": np.stack([CYCLE, CYCLE])},
    "known": {"m": 4, "sizes": (4, 4), "known": [[-1, 2, -1, -1], [-1, -1, 0, -1]]},
    "fewer": {"m": 4, "sizes": (3, 2), "known": [[-1, 2, -1], [-1, -1]]},
}


@pytest.mark.parametrize("case", CASES)
def test_chains_have_the_joint_posterior(case):
    rng = np.random.default_rng(list(CASES).index(case))
    given = CASES[case]
    scores = [rng.normal(size=(n, given["m"])) for n in given["sizes"]]
    prior = scores[0] if len(scores) == 1 else scores
    model = model_of(rng, **given, steps=12, prior_scores=prior)
    every = all_rows(model)
    weights = softmax(model.collapsed_log_density(every) + log_prior(model, every))
    result = run_gibbs(
        regression(model),
        scales_of(model),
        rng,
        MCMCOptions(num_chains=4, num_steps=1000, swaps_per_proposal=4),
    )
    draws = rows_of(model, result.chains.draws)
    labels = np.arange(given["m"])
    seen = (draws[..., None] == labels).astype(np.float64)
    indicators = every[..., None] == labels
    exact = np.tensordot(weights, indicators, axes=1)
    possible = indicators.any(axis=0) & ~indicators.all(axis=0)
    np.testing.assert_allclose(seen.mean(axis=(0, 1))[~possible], exact[~possible], atol=1e-12)
    error = np.sqrt((exact * (1 - exact))[possible] / effective_sample_size(seen[..., possible]))
    assert error.max() < 0.1
    assert (np.abs(seen.mean(axis=(0, 1)) - exact)[possible] < Z * error).all()
    # The weights are a mixture of ridge posteriors.
    means, covs = zip(*(ridge_posterior(model, rows) for rows in every), strict=True)
    first = weights @ np.array(means)
    second = weights @ (np.array(means) ** 2 + np.array([np.diag(cov) for cov in covs]))
    for power, moment in ((1, first), (2, second)):
        values = result.weights**power
        error = values.std(axis=(0, 1)) / np.sqrt(effective_sample_size(values))
        assert (np.abs(values.mean(axis=(0, 1)) - moment) < Z * error).all()


@pytest.fixture(scope="module")
def recorded():
    return worms(0, num_steps=300, m=20)


@pytest.fixture(scope="module")
def sampled(recorded):
    return fit(model_of_worms(*recorded), "mcmc", num_chains=4, num_steps=60)


def test_chains_at_the_front_door(recorded, sampled):
    found, model = recorded[0], model_of_worms(*recorded)
    known = found.known >= 0
    np.testing.assert_array_equal(sampled.mode[known], found.known[known])
    assert not sampled.marginals[~np.asarray(model.mask)].any()
    latent = sampled.latents["W"]
    assert latent.draws.shape == (4 * 54, len(model.edges))
    assert sampled.log_evidence_kind == "bound"
    assert sampled.log_evidence >= float(model.collapsed_log_density(sampled.mode)) - 1e-6
    rates = {name for name in sampled.diagnostics.extras if name.startswith("acceptance")}
    assert rates == {"acceptance_swap", "acceptance_cycle"}
    # Every sweep draws the weights once.
    assert sampled.num_evaluations > 4 * 60
    assert sampled.diagnostics.r_hat >= 1


def test_the_same_seed_gives_the_same_chains(recorded, sampled):
    again = fit(model_of_worms(*recorded), "mcmc", num_chains=4, num_steps=60)
    np.testing.assert_array_equal(again.marginals, sampled.marginals)
    np.testing.assert_array_equal(again.latents["W"].draws, sampled.latents["W"].draws)


def test_chains_can_be_observed(recorded):
    seen = []
    model = model_of_worms(*recorded)
    options = {"num_chains": 3, "num_steps": 10, "thin": 2, "warmup": 0.0}
    posterior = fit(model, "mcmc", observe=lambda *state: seen.append(state), **options)
    perms, W = (np.stack(part) for part in zip(*seen, strict=True))
    assert perms.shape == (6, 3, 2, 20)
    np.testing.assert_array_equal(perms[1:].swapaxes(0, 1).reshape(-1, 2, 20), posterior.law.draws)
    np.testing.assert_array_equal(
        W[1:].swapaxes(0, 1).reshape(15, -1), posterior.latents["W"].draws
    )


def test_chains_may_start_at_the_best(recorded):
    model = model_of_worms(*recorded)
    seen = []
    options = {"num_chains": 2, "num_steps": 5, "warmup": 0.0}
    fit(model, "mcmc", start="map", observe=lambda perms, W: seen.append(perms), **options)
    np.testing.assert_array_equal(seen[0][0], seen[0][1])
    best = JointState(regression(model), seen[0][0], scales_of(model)).log_density
    rng = np.random.default_rng(0)
    start = alternate(regression(model), scales_of(model), rng, MapOptions(num_restarts=1))
    assert best == pytest.approx(start.found.restart_values.max(), rel=1e-9)


# --- map ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["one", "cycle", "known", "fewer"])
def test_the_best_of_all_is_kept(case):
    rng = np.random.default_rng(list(CASES).index(case))
    model = model_of(rng, **CASES[case], steps=12)
    every = all_rows(model)
    means = [ridge_posterior(model, rows)[0] for rows in every]
    pairs = zip(every.reshape(len(every), model.num_sites, -1), means, strict=True)
    values = np.array([joint_density(model, *pair) for pair in pairs])
    # Noise has many local optima, so that the best ones are given.
    best = np.argsort(-values)[:4]
    posterior = fit(model, "map", num_restarts=1, start=every[best[::-1]])
    mode = int(np.flatnonzero((every == posterior.mode).reshape(len(every), -1).all(axis=1))[0])
    assert values[mode] == pytest.approx(values[best[0]], abs=1e-9)
    assert posterior.diagnostics.extras["restart_values"].max() == pytest.approx(values[mode])
    latent = posterior.latents["W"]
    np.testing.assert_allclose(latent.mean, means[mode], atol=1e-9)
    cov = ridge_posterior(model, every[mode])[1]
    np.testing.assert_allclose(latent.sd**2, np.diag(cov), rtol=1e-8)
    evidence = float(model.collapsed_log_density(every[mode]))
    assert posterior.log_evidence == pytest.approx(evidence, rel=1e-10)
    assert posterior.diagnostics.verdict == "check"


def test_the_best_of_all_is_found():
    model = model_of(np.random.default_rng(1), m=3, sizes=(3, 3), steps=12)
    every = all_rows(model)
    values = [joint_density(model, rows, ridge_posterior(model, rows)[0]) for rows in every]
    posterior = fit(model, "map", num_restarts=30)
    np.testing.assert_array_equal(posterior.mode, every[np.argmax(values)])


@pytest.mark.parametrize("num_recorded", [None, 15])
@pytest.mark.parametrize("polish", ["swap", "none"])
def test_the_density_never_falls(num_recorded, polish):
    found, *network = worms(1, num_steps=100, m=20, num_recorded=num_recorded)
    model = model_of_worms(found, *network)
    options = MapOptions(num_restarts=2, polish=polish)
    rng = np.random.default_rng(0)
    seen = []
    result = alternate(
        regression(model),
        scales_of(model),
        rng,
        options,
        observe=lambda *state: seen.append(state),
    )
    # Every restart rises from where it starts, and ends where nothing changes any more.
    assert all(trace[-1] > trace[0] for trace in result.traces)
    assert all((np.diff(trace) >= -1e-6).all() for trace in result.traces)
    assert all(trace[-1] == pytest.approx(trace[-2], abs=1e-6) for trace in result.traces)
    joint = joint_density(model, result.found.perm, result.weights)
    assert result.found.restart_values.max() == pytest.approx(joint, rel=1e-9)
    best = [JointState(regression(model), perms[0], scales_of(model)) for perms, _ in seen]
    assert (np.diff([state.log_density for state in best]) >= -1e-6).all()
    np.testing.assert_array_equal(seen[-1][0][0], result.found.perm)
    np.testing.assert_array_equal(seen[-1][1][0], result.weights)


def test_a_search_can_be_started_and_stopped(recorded):
    found, model = recorded[0], model_of_worms(*recorded)
    posterior = fit(model, "map", num_restarts=1, max_iter=1, start=found.truth)
    values = posterior.diagnostics.extras["restart_values"]
    assert len(values) == 2
    truth = JointState(regression(model), found.truth, scales_of(model)).log_density
    assert values[0] >= truth - 1e-6
    assert not posterior.diagnostics.converged
    short = fit(model, "map", max_evaluations=1)
    assert short.num_evaluations < posterior.num_evaluations
    assert "allow more evaluations" in short.diagnostics.reasons[-1]
    known = found.known >= 0
    np.testing.assert_array_equal(short.mode[known], found.known[known])


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["mcmc", "map"])
def test_what_is_known_completely_is_left_alone(method, rng):
    model = model_of(rng, m=4, sizes=(4,), known=[2, 0, 3, 1])
    posterior = fit(model, method, **QUICK[method])
    np.testing.assert_array_equal(posterior.mode, [2, 0, 3, 1])
    evidence = float(model.collapsed_log_density(np.array([2, 0, 3, 1])))
    assert posterior.log_evidence == pytest.approx(evidence, rel=1e-9)
    assert posterior.diagnostics.verdict == "trust"


@pytest.mark.parametrize("method", ["mcmc", "map"])
def test_posteriors_survive_a_save(method, rng, tmp_path):
    posterior = fit(
        model_of(rng, m=4, sizes=(4, 3)), method, observe=lambda perms, W: None, **QUICK[method]
    )
    posterior.save(tmp_path / "fit.nc")
    loaded = pv.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded.marginals, posterior.marginals)
    np.testing.assert_array_equal(loaded.latents["W"].mean, posterior.latents["W"].mean)


def test_models_run_one_by_one(rng):
    models = [model_of(rng, m=4, sizes=(4,)) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        together = pv.fit_many(models, "mcmc", num_steps=10)
    alone = fit(models[1], "mcmc", num_steps=10)
    np.testing.assert_array_equal(together[1].marginals, alone.marginals)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("mcmc", {"num_temperatures": 3}, "num_temperatures must be 1 for shared dynamics, got 3"),
        ("mcmc", {"proposal": "sequential"}, "proposal must be 'none' for shared dynamics"),
        ("mcmc", {"num_steps": 2}, "num_steps must leave at least 4 draws"),
        ("map", {"start": [1, 2, 1, 0]}, "start must give every row a label of its own"),
        ("map", {"start": [0, 2, 3, 1]}, "start must respect the mask of the model"),
    ],
)
def test_bad_options_get_one_sentence(method, options, message, rng):
    model = model_of(rng, m=4, sizes=(4,), mask=~np.eye(4, dtype=bool))
    with pytest.raises(ValueError, match=message):
        pv.fit(model, method, **options)


@pytest.mark.parametrize("method", ["mcmc", "map"])
def test_observers_are_functions_of_dynamics(method, rng):
    with pytest.raises(TypeError, match="observe must be a function of permutations and W, got 3"):
        pv.fit(model_of(rng, m=4, sizes=(4,)), method, observe=3)
    linear = pv.models.LinearMatching(np.eye(3))
    with pytest.raises(
        ValueError, match=f"options of method '{method}' must be one of .*, got 'observe'"
    ):
        pv.fit(linear, method, observe=print)
