"""LinearMatching: its density, its checks, and that it is a pytree."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from permvi import permutations
from permvi.models import LinearMatching, Model, PointMatching, fingerprint


def test_density_is_the_sum_over_pairs(rng):
    scores = rng.normal(size=(4, 4))
    model = LinearMatching(scores)
    perms = permutations.enumerate_permutations(4)
    wanted = [sum(scores[i, j] for i, j in enumerate(perm)) for perm in perms]
    np.testing.assert_allclose(model.log_density_of(perms), wanted)
    np.testing.assert_allclose(model.log_density(permutations.to_matrix(perms)), wanted)
    np.testing.assert_allclose(model.log_density(np.full((4, 4), 0.25)), scores.mean() * 4)
    assert isinstance(model, Model)
    assert (model.shape, model.num_sites) == ((4, 4), 1)


def test_several_sites_and_unmatched_rows(rng):
    scores = rng.normal(size=(3, 2, 4))
    model = LinearMatching(scores)
    assert (model.shape, model.num_sites) == ((2, 4), 3)
    perm = np.array([[0, 3], [-1, 2], [1, -1]])
    wanted = scores[0, 0, 0] + scores[0, 1, 3] + scores[1, 1, 2] + scores[2, 0, 1]
    np.testing.assert_allclose(model.log_density_of(perm), wanted)
    np.testing.assert_allclose(model.log_density_of(np.stack([perm] * 5)), [wanted] * 5)
    matrix = np.array(jax.nn.one_hot(perm, 4))
    np.testing.assert_allclose(model.log_density(np.stack([matrix] * 5)), [wanted] * 5)


def test_a_single_site_needs_no_axis(rng):
    assert LinearMatching(rng.normal(size=(1, 3, 3))).scores.shape == (3, 3)


def test_scores_stay_float64_on_the_host():
    model = LinearMatching(jnp.ones((2, 2), jnp.float32))
    assert isinstance(model.scores, np.ndarray)
    assert model.scores.dtype == np.float64


def test_forbidden_scores_are_ignored():
    model = LinearMatching([[0.0, -np.inf], [np.nan, 1.0]], mask=np.eye(2, dtype=bool))
    assert float(model.log_density(np.eye(2))) == 1.0


def test_models_are_pytrees(rng):
    models = [LinearMatching(rng.normal(size=(3, 3)), labels=(list("abc"), None)) for _ in "ab"]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    found = jax.vmap(lambda model: model.log_density(jnp.eye(3)))(stacked)
    np.testing.assert_allclose(found, [np.trace(model.scores) for model in models])


def test_frames_bring_labels():
    frame = pd.DataFrame(np.zeros((2, 3)), index=["u", "v"], columns=["a", "b", "c"])
    mask = pd.DataFrame(np.ones((2, 3), bool), index=frame.index, columns=frame.columns)
    model = LinearMatching(frame, mask=mask, known={"u": "c", 1: 0})
    assert model.labels == (("u", "v"), ("a", "b", "c"))
    assert model.known.tolist() == [2, 0]
    assert LinearMatching(frame, labels=(["x", "y"], None)).labels == (("x", "y"), ("a", "b", "c"))
    assert LinearMatching(pd.DataFrame(np.zeros((2, 2)))).labels == (None, None)
    with pytest.raises(ValueError, match="mask must name its columns as the model does"):
        LinearMatching(frame, mask=mask[["b", "a", "c"]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": [1.0, 2.0]}, r"scores must be a non-empty array with 2 or 3 axes, got shape"),
        ({"scores": [[np.nan]]}, r"scores must be finite .*mask=.* got nan at index \(0, 0\)"),
        ({"scores": [[0.0, np.inf]]}, r"mask= forbids .* got inf at index \(0, 1\)"),
        ({"costs": [[0.0, -np.inf]]}, r"costs must be finite .* at index \(0, 1\)"),
        ({"scores": [[0.0]], "temperature": 0.0}, "temperature must be a positive number, got 0"),
        ({"scores": np.zeros((2, 2)), "mask": np.ones((3, 2), bool)}, r"mask must have shape"),
        ({"scores": np.zeros((2, 2)), "known": [0, 0]}, "known must use each column at most once"),
        ({"scores": np.zeros((2, 2)), "known": [0, 5]}, "known must hold columns 0 to 1 or -1"),
        (
            {"scores": np.zeros((2, 2)), "known": [0]},
            r"known must have shape \(2,\), got shape \(1,\)",
        ),
        ({"scores": np.zeros((2, 2)), "known": {"z": 0}}, "known rows must be 0 to 1, got 'z'"),
        (
            {"scores": np.zeros((2, 2)), "known": [1, -1], "mask": np.eye(2, dtype=bool)},
            "known must respect mask, got the forbidden pair of row 0 and column 1",
        ),
        (
            {"scores": np.zeros((2, 2)), "labels": (["a"], None)},
            "labels must name each of 2 rows, got 1 names",
        ),
        ({"scores": np.zeros((2, 2)), "labels": "ab"}, "labels must be a pair"),
        ({"scores": np.zeros((2, 2)), "labels": ["a", "b"]}, "labels must be a pair"),
        ({"scores": np.zeros((2, 2)), "row_unmatched": np.nan}, "row_unmatched must be finite"),
        ({"scores": np.zeros((2, 2)), "col_unmatched": np.zeros(3)}, r"must be a number or have"),
        ({"scores": np.zeros((2, 2)), "prior_scores": np.zeros((2, 3))}, "prior_scores must have"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        LinearMatching(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": [["a", "b"]]}, "scores must be an array of real numbers"),
        ({"scores": np.zeros((2, 2)), "mask": np.ones((2, 2))}, "mask must be a boolean array"),
        ({"scores": np.zeros((2, 2)), "known": [0.0, 1.0]}, "known must be an integer array"),
    ],
)
def test_wrong_kinds_are_type_errors(arguments, message):
    with pytest.raises(TypeError, match=message):
        LinearMatching(**arguments)


def test_fingerprints_tell_data_apart_but_not_names(rng):
    scores = rng.normal(size=(3, 3))
    first = fingerprint(LinearMatching(scores))
    assert len(first) == 64
    assert fingerprint(LinearMatching(scores, labels=(list("abc"), None))) == first
    assert fingerprint(LinearMatching(scores + 1e-9)) != first
    assert fingerprint(LinearMatching(scores, known=[0, -1, -1])) != first


def test_costs_are_negative_scores(rng):
    costs = rng.normal(size=(3, 3))
    costs[0, 2] = np.inf
    mask = np.ones((3, 3), bool)
    mask[1, 1] = False
    frame = pd.DataFrame(costs, index=list("xyz"), columns=list("ABC"))
    model = LinearMatching(costs=frame, temperature=2.0, mask=mask)
    possible = mask & np.isfinite(costs)
    np.testing.assert_array_equal(model.mask, possible)
    np.testing.assert_allclose(model.scores[possible], -costs[possible] / 2)
    assert model.labels == (("x", "y", "z"), ("A", "B", "C"))


def test_a_score_of_minus_infinity_forbids_a_pair(rng):
    scores = rng.normal(size=(2, 3, 3))
    scores[0, 1, 2] = -np.inf
    model = LinearMatching(scores)
    assert not model.mask[0, 1, 2]
    assert model.mask.sum() == 17
    assert np.isfinite(model.scores).all()
    with pytest.raises(ValueError, match="known must respect mask"):
        LinearMatching(scores[0], known=[-1, 2, -1])


@pytest.mark.parametrize("given", [{}, {"scores": np.eye(2), "costs": np.eye(2)}])
def test_scores_or_costs_are_needed(given):
    with pytest.raises(TypeError, match=r"scores or costs must be given, got (neither|both)"):
        LinearMatching(**given)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"who": ["r", "s"], "A": [1.0, 2.0]}, r"in 'who'; if .*use frame.set_index\('who'\)"),
        (
            {"A": [1.0, 2.0], "B": ["x", "y"]},
            r"must have numbers in all columns, got \w+ in 'B'\.$",
        ),
        ({"id": [17, 23], "A": [1.0, 2.0]}, r"seems to name the rows in 'id'.*set_index\('id'\)"),
        ({"Unnamed: 0": [0, 1], "A": [1.0, 2.0]}, r"seems to name the rows in 'Unnamed: 0'"),
    ],
)
def test_a_frame_whose_first_column_names_the_rows_is_refused(columns, message):
    frame = pd.DataFrame(columns)
    for model in (LinearMatching, lambda frame: PointMatching(frame, frame, scale=1.0)):
        with pytest.raises((TypeError, ValueError), match=message):
            model(frame)


def test_other_frames_are_tables_of_numbers():
    for columns in ({"id": [0.5, 0.7], "A": [1.0, 2.0]}, {"A": [0, 1], "id": [1.0, 2.0]}):
        assert LinearMatching(pd.DataFrame(columns)).shape == (2, 2)
    assert LinearMatching(pd.DataFrame({"id": [0, 1], "A": [1, 2]}, index=["r", "s"])).shape[0] == 2


def test_known_pairs_by_a_name_that_several_have_are_refused():
    labels = (["a", "a", "b"], ["A", "B", "C"])
    with pytest.raises(ValueError, match=r"known must give the name of one item.* of 2"):
        LinearMatching(np.eye(3), known={"a": "A"}, labels=labels)
    assert LinearMatching(np.eye(3), known={"b": "A"}, labels=labels).known.tolist() == [-1, -1, 0]
