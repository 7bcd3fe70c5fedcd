"""Probabilities of whole matchings under linear posteriors that were sampled."""

import itertools

import numpy as np
import pytest

import permvi as pv
from tests.inference.exact_oracle import brute_force


def problems():
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(5, 5))
    mask = rng.random((5, 5)) < 0.7
    np.fill_diagonal(mask, True)
    yield "square", {"scores": scores}
    yield "masked", {"scores": scores, "mask": mask}
    yield "known", {"scores": scores, "known": [-1, 3, -1, -1, -1]}
    yield "rectangular", {"scores": rng.normal(size=(3, 5))}
    yield "partial", {"scores": scores, "row_unmatched": 0.3, "col_unmatched": -0.2}
    yield "sites", {"scores": rng.normal(size=(2, 3, 3))}


PROBLEMS = dict(problems())


@pytest.fixture(scope="module", params=PROBLEMS)
def fitted(request):
    arrays = PROBLEMS[request.param]
    model = pv.models.LinearMatching(**arrays)
    # No programme may answer, so that chains do.
    found = pv.fit(model, "linear", max_size=0, max_states=0, num_steps=400_000)
    return found, pv.fit(model, "exact")


def test_probabilities_are_those_of_the_model_up_to_the_evidence(fitted):
    found, exact = fitted
    perms = exact.sample(200, seed=1)
    # All of them are off by the same factor, that of the evidence.
    gap = exact.log_evidence - found.log_evidence
    np.testing.assert_allclose(found.log_prob(perms), exact.log_prob(perms) + gap, atol=1e-9)
    assert abs(gap) <= 4 * found.log_evidence_se


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "sites"])
def test_probabilities_add_up_over_all_matchings(name):
    arrays = PROBLEMS[name]
    found = pv.fit(pv.models.LinearMatching(**arrays), "linear", max_size=0, num_steps=400_000)
    weights = brute_force(**arrays)
    perms = np.array(list(weights))
    values = found.log_prob(perms)
    np.testing.assert_allclose(values, np.array(list(weights.values())) - found.log_evidence)
    others = np.array(list(itertools.permutations(range(-1, perms.max() + 1), perms.shape[1])))
    forbidden = np.array([tuple(perm.tolist()) not in weights for perm in others])
    assert np.isneginf(found.log_prob(others))[forbidden].all()
    if found.log_evidence_kind == "exact":
        assert np.exp(values).sum() == pytest.approx(1.0)


def test_the_most_probable_matchings_are_the_right_ones(fitted):
    found, exact = fitted
    gap = exact.log_evidence - found.log_evidence
    for one, other in zip(found.top(4), exact.top(4), strict=True):
        np.testing.assert_array_equal(one.perm, other.perm)
        assert one.probability == pytest.approx(other.probability * np.exp(gap))
    np.testing.assert_array_equal(found.mode, exact.mode)


def test_they_survive_a_file(fitted, tmp_path):
    found, _ = fitted
    found.save(tmp_path / "fit.nc")
    loaded = pv.load(tmp_path / "fit.nc")
    perms = found.sample(20, seed=0)
    np.testing.assert_array_equal(loaded.log_prob(perms), found.log_prob(perms))
    np.testing.assert_array_equal(loaded.top(1)[0].perm, found.mode)


def test_an_exact_answer_beyond_the_subset_programme_has_exact_probabilities():
    rng = np.random.default_rng(0)
    i, j = np.indices((30, 30))
    scores, mask = rng.normal(size=(30, 30)), abs(i - j) <= 1
    found = pv.fit(pv.models.LinearMatching(scores, mask=mask), "linear", max_size=0)
    assert found.log_evidence_kind == "exact"
    # Matchings of a band of three: each row keeps its column or swaps with the next one.
    weights, totals = np.exp(scores), [1.0, np.exp(scores[0, 0])]
    for k in range(1, 30):
        swap = weights[k, k - 1] * weights[k - 1, k]
        totals.append(weights[k, k] * totals[-1] + swap * totals[-2])
    expected = scores[np.arange(30), found.mode].sum() - np.log(totals[-1])
    assert found.log_prob(found.mode) == pytest.approx(expected, abs=1e-8)
