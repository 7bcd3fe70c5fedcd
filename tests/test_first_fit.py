"""The benchmark of first fits runs and counts; nothing is timed here."""

import pytest

from benchmarks import first_fit


@pytest.mark.slow
def test_each_fit_has_a_process_with_an_empty_and_one_with_a_full_cache():
    empty, full = first_fit.run(["points"], [3], ["exact", "gibbs"])
    assert (empty["cache"], full["cache"]) == ("empty", "full")
    for row in (empty, full):
        assert (row["model"], row["n"], row["method"]) == ("points", 3, "exact")
        assert row["verdict"] == "trust"
        assert 0 < row["fit_wall"] < row["wall"]
        assert row["compiled"] == row["from_cache"] == 0
        assert [part["metric"] for part in first_fit._summary(row)] == list(first_fit.METRICS)


@pytest.mark.parametrize("kind", first_fit.MODELS)
def test_problems_have_the_size_that_is_asked_for(kind):
    model = first_fit.problem(kind, 4)
    assert model.shape == (4, 4)
    assert bool(getattr(model, "latents", None)) == (kind == "latent")
