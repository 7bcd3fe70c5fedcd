import itertools

import numpy as np
import pytest

from permvi.posterior import Posterior
from tests.posterior import cases

each_problem = pytest.mark.parametrize("problem", cases.PROBLEMS.values(), ids=cases.PROBLEMS)


def hamming(x, y, m):
    return sum(a != b for a, b in zip(x, y, strict=True))


def footrule(x, y, m):
    return sum(m if (a < 0) != (b < 0) else abs(a - b) for a, b in zip(x, y, strict=True))


def candidates(posterior, site, *, only_probable):
    """Matchings that leave nothing unmatched that is never so, by recursion over all."""
    n, m = posterior.shape
    pairs = posterior.marginals.reshape(-1, n, m)[site]
    rows = posterior.p_unmatched_rows.reshape(-1, n)[site]
    cols = posterior.p_unmatched_cols.reshape(-1, m)[site]
    for x in itertools.product(range(-1, m), repeat=n):
        used = [j for j in x if j >= 0]
        if len(set(used)) < len(used):
            continue
        if any(cols[j] == 0 for j in range(m) if j not in used):
            continue
        if any(rows[i] == 0 for i, j in enumerate(x) if j < 0):
            continue
        if only_probable and any(pairs[i, j] == 0 for i, j in enumerate(x) if j >= 0):
            continue
        yield x


@pytest.mark.parametrize("loss", ["hamming", "footrule"])
@each_problem
def test_no_matching_has_less_expected_loss(loss, problem, rng):
    arguments = problem(rng)
    posterior = cases.make("tabular", arguments, rng)
    n, m = posterior.shape
    perms, log_weights = cases.table(arguments)
    probs = np.exp(log_weights - log_weights.max())
    probs /= probs.sum()
    perms = perms.reshape(len(perms), -1, n)
    measure = {"hamming": hamming, "footrule": footrule}[loss]
    best = 0.0
    for site in range(posterior.num_sites):
        ys, place = np.unique(perms[:, site], axis=0, return_inverse=True)
        weights = np.bincount(place.ravel(), weights=probs)
        best += min(
            sum(w * measure(x, y, m) for w, y in zip(weights, ys.tolist(), strict=True) if w)
            for x in candidates(posterior, site, only_probable=loss == "hamming")
        )
    decision = posterior.expected_loss(loss)
    assert decision.perm.shape == posterior.mode.shape
    np.testing.assert_allclose(decision.expected_loss, best, atol=1e-10)
    ours = decision.perm.reshape(-1, n).tolist()
    achieved = sum(
        w * sum(measure(x, y, m) for x, y in zip(ours, perm, strict=True))
        for w, perm in zip(probs, perms.tolist(), strict=True)
    )
    np.testing.assert_allclose(achieved, best, atol=1e-10)


def test_hamming_decoder_differs_from_the_mode_where_it_should():
    """The most probable matching has its first pair wrong more often than right."""
    draws = [[0, 1, 2]] * 4 + [[1, 0, 2]] * 3 + [[1, 2, 0]] * 3
    posterior = Posterior.from_draws(draws, shape=(3, 3))
    decision = posterior.expected_loss()
    assert posterior.mode.tolist() == [0, 1, 2]
    assert decision.perm.tolist() == [1, 0, 2]
    np.testing.assert_allclose(decision.expected_loss, 3 - (0.6 + 0.3 + 0.7))


def test_footrule_decoder_may_take_the_rank_between():
    draws = [[0, 1, 2], [2, 1, 0], [0, 2, 1], [2, 0, 1]]
    posterior = Posterior.from_draws(draws, shape=(3, 3))
    decision = posterior.expected_loss("footrule")
    np.testing.assert_allclose(decision.expected_loss, 1.0 + 0.5 + 1.0, atol=1e-12)


def test_hamming_decoder_avoids_impossible_pairs():
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool)
    posterior = cases.make("exact", {"scores": np.zeros((3, 3)), "mask": mask}, None)
    decision = posterior.expected_loss()
    assert mask[np.arange(3), decision.perm].all()
    np.testing.assert_allclose(decision.expected_loss, 1.5)
