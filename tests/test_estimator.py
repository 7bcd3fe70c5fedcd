"""The estimator for scikit-learn against brute force, and inside scikit-learn's tools."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from permvi import MatchingClassifier

CENTERS = np.array([[0.0, 0.0], [1.0, 0.5], [2.0, 2.0], [0.5, 2.5]])
NAMES = np.array(["d", "a", "c", "b"])


def brute_force(items, centers, scale):
    """(n, m) probabilities of pairs, by all ways to give items different centres."""
    n, m = len(items), len(centers)
    total, table = 0.0, np.zeros((n, m))
    for perm in itertools.permutations(range(m), n):
        weight = np.exp(-0.5 * np.sum(((items - centers[list(perm)]) / scale) ** 2))
        total += weight
        table[np.arange(n), perm] += weight
    return table / total


def test_probabilities_are_those_of_all_assignments(rng):
    items = CENTERS[[2, 0, 1]] + rng.normal(scale=0.8, size=(3, 2))
    model = MatchingClassifier(scale=0.8).fit(CENTERS, NAMES)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    wanted = brute_force(items, CENTERS[np.argsort(NAMES)], 0.8)
    np.testing.assert_allclose(model.predict_proba(items), wanted, atol=1e-12)
    hits = {perm: wanted[np.arange(3), perm].sum() for perm in itertools.permutations(range(4), 3)}
    best = max(hits, key=hits.get)
    assert model.predict(items).tolist() == model.classes_[list(best)].tolist()


def test_centres_are_means_and_a_class_is_used_once(rng):
    points = np.repeat(CENTERS, 5, axis=0) + rng.normal(scale=0.1, size=(20, 2))
    model = MatchingClassifier(scale=0.3).fit(points, np.repeat([3, 1, 2, 7], 5))
    np.testing.assert_allclose(model.centers_[2], points[:5].mean(axis=0))
    crowd = np.zeros((4, 2))
    assert sorted(model.predict(crowd).tolist()) == [1, 2, 3, 7]


def test_items_without_a_class():
    model = MatchingClassifier(scale=1.0).fit([[0.0], [3.0]], ["Ada", "Bo"])
    assert model.predict([[1.9], [1.0], [9.0]]).tolist() == ["Bo", "Ada", None]
    assert model.predict_proba([[1.9], [1.0], [9.0]])[2].sum() < 0.01
    picky = MatchingClassifier(scale=1.0, unmatched=-4.0).fit([[0.0], [3.0]], ["Ada", "Bo"])
    assert picky.predict([[30.0]]).tolist() == [None]


def test_without_scikit_learn():
    # A new process: modules that were imported with it would keep it.
    code = (
        "import sys; sys.modules['sklearn'] = None; import permvi as pv; "
        "m = pv.MatchingClassifier(scale=1.0).fit([[0.0], [3.0]], ['Ada', 'Bo']); "
        "print(m.predict([[1.9], [1.0]]).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['Bo', 'Ada']\n"


def test_inside_scikit_learn(rng):
    base = pytest.importorskip("sklearn.base", reason="needs scikit-learn")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = MatchingClassifier(scale=0.2, seed=3)
    copy = base.clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(scale=0.5).scale == 0.5
    pipe = make_pipeline(StandardScaler(), model).fit(CENTERS, NAMES)
    order = rng.permutation(4)
    assert pipe.score(CENTERS[order], NAMES[order]) == 1
    assert pipe.predict(CENTERS[order]).tolist() == NAMES[order].tolist()


@pytest.mark.parametrize(
    ("fit", "items", "message"),
    [
        (
            ([[0.0]], ["a", "b"]),
            None,
            r"y must have a class for each of 1 points, got shape \(2,\)",
        ),
        (([0.0], ["a"]), None, r"X must be a table of points by features, got shape \(1,\)"),
        (([[np.nan]], ["a"]), None, "X must be finite, got NaN or infinity"),
        (([[0.0]], ["a"]), [[0.0, 1.0]], r"X must have 1 features, got shape \(1, 2\)"),
        (None, [[0.0]], "fit must be called before predict"),
    ],
)
def test_mistakes(fit, items, message):
    def use():
        model = MatchingClassifier(scale=1.0)
        if fit is not None:
            model.fit(*fit)
        return model.predict(items)

    with pytest.raises(ValueError, match=message):
        use()
