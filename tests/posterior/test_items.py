import itertools

import numpy as np
import pytest

from permvi.posterior import ExactLaw, Posterior
from tests.posterior import cases

each_problem = pytest.mark.parametrize("problem", cases.PROBLEMS.values(), ids=cases.PROBLEMS)


def states(posterior):
    """(all rows, m+1): -1 is the last, as it is in Python."""
    p = np.concatenate([posterior.marginals, posterior.p_unmatched_rows[..., None]], axis=-1)
    return p.reshape(-1, p.shape[-1])


def flat_sets(posterior, level):
    sets = posterior.credible_sets(level)
    return sets if posterior.num_sites == 1 else list(itertools.chain(*sets))


@pytest.mark.parametrize("level", [0.3, 0.5, 0.95, 1.0])
@each_problem
def test_credible_sets_reach_the_level_and_no_smaller_set_does(level, problem, rng):
    posterior = cases.make("exact", problem(rng), rng)
    sets = flat_sets(posterior, level)
    assert len(sets) == posterior.num_sites * posterior.shape[0]
    for p, chosen in zip(states(posterior), sets, strict=True):
        assert len(set(chosen)) == len(chosen)
        assert p[list(chosen)].sum() >= level - 1e-9
        for smaller in itertools.combinations(range(-1, len(p) - 1), len(chosen) - 1):
            assert p[list(smaller)].sum() < level


def test_credible_sets_take_what_reaches_the_level_up_to_rounding():
    draws = [[0, 1]] * 19 + [[1, 0]]
    posterior = Posterior.from_draws(draws, shape=(2, 2))
    assert posterior.credible_sets(0.95) == [(0,), (1,)]
    assert posterior.credible_sets(0.96) == [(0, 1), (1, 0)]


@each_problem
def test_item_entropy_is_that_of_the_labels(problem, rng):
    posterior = cases.make("exact", problem(rng), rng)
    expected = [-sum(x * np.log(x) for x in row if x > 0) for row in states(posterior)]
    assert posterior.entropy.shape == posterior.mode.shape
    np.testing.assert_allclose(posterior.entropy.ravel(), expected, atol=1e-12)


def test_most_uncertain_in_order_with_names():
    draws = [[0, 1, 2]] * 6 + [[1, 0, 2]] * 3 + [[2, 0, -1]]
    posterior = Posterior.from_draws(draws, shape=(3, 3), labels=("abc", "xyz"))
    first, second, third = posterior.most_uncertain(5)
    assert (first.item, first.best, first.runner_up) == ("a", "x", "y")
    assert (second.item, second.best, second.runner_up) == ("b", "y", "x")
    assert (third.item, third.best, third.runner_up) == ("c", "z", "unmatched")
    np.testing.assert_allclose([third.probability, third.runner_up_probability], [0.9, 0.1])
    np.testing.assert_allclose(third.p_unmatched, 0.1)
    assert third.credible_set == ("z", "unmatched")
    assert first.entropy > second.entropy > third.entropy
    assert [item.item for item in posterior.most_uncertain(1)] == ["a"]


def test_frame_is_tidy(rng):
    posterior = cases.make("exact", cases.partial(rng), rng)
    frame = posterior.to_frame(level=0.5)
    assert list(frame.columns) == [
        "item", "best", "probability", "one_to_one", "runner_up", "runner_up_probability",
        "p_unmatched", "entropy", "credible_set",
    ]  # fmt: skip
    assert frame["item"].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(frame["p_unmatched"], posterior.p_unmatched_rows)
    np.testing.assert_array_equal(frame["probability"], states(posterior).max(axis=1))
    assert frame["credible_set"].tolist() == posterior.credible_sets(0.5)


def test_frame_of_several_sites(rng):
    posterior = cases.make("exact", cases.two_sites(rng), rng, labels=("abc", "xyz"))
    frame = posterior.to_frame()
    assert frame["site"].tolist() == [0, 0, 0, 1, 1, 1]
    assert frame["item"].tolist() == list("abcabc")
    assert set(frame["best"]) <= set("xyz")
    assert frame["best"][4] == "x"


def test_repr_is_short_and_says_what_matters(rng):
    posterior = cases.make("exact", cases.two_sites(rng), rng, labels=("abc", "xyz"))
    text = repr(posterior)
    assert "2 x 3 items and 3 labels by 'exact'" in text
    assert "trust: computed exactly" in text
    assert f"{posterior.log_evidence:.6g} (exact)" in text
    assert len(text.splitlines()) <= 8
    draws = Posterior.from_draws(np.tile(np.arange(40), (3, 1)), shape=(40, 40))
    assert "..." in repr(draws)
    assert "least certain" not in repr(draws)


def test_html_escapes_what_users_wrote(rng):
    nasty = ["<script>alert(1)</script>", "a & b", "日本", '"quoted"']
    posterior = cases.make("exact", cases.square(rng), rng, labels=(nasty, nasty), method="<b>")
    html = posterior._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<b>" not in html.replace("<b>Posterior", "")
    assert "日本" in html
    assert "a &amp; b" in html


def test_names_in_top_and_in_credible_sets(rng):
    law = ExactLaw(rng.normal(size=(3, 3)), row_unmatched=0.5)
    rows, cols = ["a", "b", "c"], ["x", "y", "z"]
    posterior = Posterior.from_exact(law, labels=(rows, cols))
    names = [*cols, None]
    for plain, named in zip(posterior.top(5), posterior.top(5, names=True), strict=True):
        assert named.probability == plain.probability
        assert named.matching == {row: names[k] for row, k in zip(rows, plain.perm, strict=True)}
    sets = posterior.credible_sets(0.9)
    assert posterior.credible_sets(0.9, names=True) == {
        row: tuple(names[k] for k in found) for row, found in zip(rows, sets, strict=True)
    }
    plain = Posterior.from_exact(ExactLaw(rng.normal(size=(2, 3, 3))))
    (best,) = plain.top(1, names=True)
    assert [list(one.values()) for one in best.matching] == plain.mode.tolist()
    assert [list(one) for one in plain.credible_sets(names=True)] == [[0, 1, 2]] * 2


def test_frames_have_the_one_to_one_answer():
    posterior = Posterior.from_exact(ExactLaw(np.zeros((3, 3))), labels=(None, list("ABC")))
    frame = posterior.to_frame()
    assert list(frame["best"]) == ["A", "A", "A"]
    assert sorted(frame["one_to_one"]) == ["A", "B", "C"]
    assert list(frame.columns)[:4] == ["item", "best", "probability", "one_to_one"]
    alone = Posterior.from_exact(ExactLaw(np.zeros((2, 1))), labels=(None, ["A"]))
    assert sorted(alone.to_frame()["one_to_one"]) == ["A", "unmatched"]
