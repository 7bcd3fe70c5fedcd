"""Verdicts on linear models that are too broad for a search, by the answer of method "linear"."""

import numpy as np
import pytest

import permvi as pv
from permvi.inference.verdict.coverage import examine
from permvi.problem.prepare import prepare


@pytest.fixture(scope="module", params=["square", "partial", "sites"])
def broad(request):
    rng = np.random.default_rng(7)
    if request.param == "sites":
        return pv.models.LinearMatching(rng.normal(size=(2, 9, 9)))
    unmatched = {"row_unmatched": 0.5, "col_unmatched": 0.0} if request.param == "partial" else {}
    return pv.models.LinearMatching(rng.normal(size=(12, 12)), **unmatched)


def test_a_search_alone_cannot_tell(broad):
    problem = prepare(broad).problem
    layout = problem.layout
    start = np.broadcast_to(np.arange(layout.num_rows), layout.event_shape)
    assert not examine(problem, start[None]).closed


@pytest.mark.parametrize("method", ["map", "sinkhorn", "bethe", "naive"])
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_the_bias_that_decides_is_the_true_one(broad, method):
    found, exact = pv.fit(broad, method), pv.fit(broad, "exact")
    error = pv.metrics.total_variation_per_row(
        found.marginals, exact.marginals, found.p_unmatched_rows, exact.p_unmatched_rows
    )
    bias = found.diagnostics.bias_by_row
    # The answer to compare with is exact here, but for what "linear" may leave out.
    np.testing.assert_allclose(bias, error, atol=1e-6)
    if error.mean() > 0.1:
        assert found.diagnostics.verdict == "do not trust"
    elif error.mean() > 0.03 or error.max() > 0.05:
        assert found.diagnostics.verdict == "check"
    else:
        assert found.diagnostics.verdict == "trust"


def test_answers_that_were_sampled_count_up_to_their_error():
    model = pv.models.LinearMatching(2 * np.random.default_rng(1).normal(size=(26, 26)))
    # A table for the true marginals: chains with many more steps and another seed.
    truth = pv.fit(model, "linear", seed=5, tolerance=0.001)
    assert truth.diagnostics.sampling_error_by_row.mean() > 0
    with pytest.warns(pv.FitWarning):
        found = pv.fit(model, "sinkhorn")
    error = pv.metrics.total_variation_per_row(found.marginals, truth.marginals)
    assert found.diagnostics.bias_by_row.mean() == pytest.approx(error.mean(), abs=0.015)
