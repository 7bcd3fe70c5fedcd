"""PointMatching against SciPy's densities."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from permvi.models import PointMatching


@pytest.fixture
def points(rng):
    return rng.normal(size=(4, 3)), rng.normal(size=(4, 3))


@pytest.mark.parametrize("scale", [0.3, [0.1, 0.2, 0.5]])
@pytest.mark.parametrize(
    ("noise", "reference"), [("gaussian", stats.norm), ("student_t", stats.t(df=3))]
)
def test_scores_are_log_densities(points, scale, noise, reference):
    y, c = points
    model = PointMatching(y, c, scale=scale, noise=noise, df=3)
    z = (y[:, None] - c[None]) / np.asarray(scale)
    wanted = (reference.logpdf(z) - np.log(scale)).sum(axis=-1)
    np.testing.assert_allclose(model.scores, wanted)
    assert model.scores.dtype == np.float64
    traced = jax.jit(lambda model: model.scores)(model)
    np.testing.assert_allclose(traced, wanted, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (3, 4), (4, 3)])
def test_relaxations_agree_on_matchings(rng, shape):
    n, m = shape
    y, c = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    perm = np.full(n, -1)
    perm[: min(n, m)] = rng.permutation(m)[: min(n, m)]
    matrix = np.array(jax.nn.one_hot(perm, m))
    linear = PointMatching(y, c, 0.2)
    mean = PointMatching(y, c, 0.2, relaxation="mean")
    np.testing.assert_allclose(linear.log_density(matrix), linear.log_density_of(perm), rtol=1e-5)
    np.testing.assert_allclose(mean.log_density(matrix), linear.log_density_of(perm), rtol=1e-5)


def test_mean_relaxation_is_the_papers(points):
    y, c = points
    X = np.full((4, 4), 0.25)
    wanted = stats.norm.logpdf(y, X @ c, 0.2).sum()
    found = PointMatching(y, c, 0.2, relaxation="mean").log_density(X)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_an_unknown_scale_is_an_argument(points):
    y, c = points
    model, known = PointMatching(y, c, None), [PointMatching(y, c, s) for s in (0.2, 0.4)]
    assert model.scores is None
    assert list(model.latents) == ["scale"]
    X = np.stack([np.eye(4), np.eye(4)])
    for relaxation in ("linear", "mean"):
        model = PointMatching(y, c, None, relaxation=relaxation)
        wanted = [float(other.log_density(np.eye(4))) for other in known]
        found = model.log_density(X, scale=jnp.array([0.2, 0.4]))
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(model.pair_scores(np.float64(0.2)), known[0].scores)


def test_sites_share_or_have_their_own_centres(rng):
    y, c = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 3, 2))
    shared, own = PointMatching(y, c[0], 0.3), PointMatching(y, c, 0.3)
    assert shared.num_sites == own.num_sites == 2
    np.testing.assert_allclose(shared.scores[1], PointMatching(y[1], c[0], 0.3).scores)
    np.testing.assert_allclose(own.scores[1], PointMatching(y[1], c[1], 0.3).scores)
    X = np.stack([np.eye(3), np.eye(3)[::-1]])
    for relaxation in ("linear", "mean"):
        model = PointMatching(y, c, 0.3, relaxation=relaxation)
        np.testing.assert_allclose(model.log_density(X), (own.scores * X).sum(), rtol=1e-5)


def test_frames_name_items_and_labels(points):
    y, c = points
    frames = [pd.DataFrame(y, index=list("abcd")), pd.DataFrame(c, index=list("wxyz"))]
    assert PointMatching(*frames).labels == (tuple("abcd"), tuple("wxyz"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": 0.0}, "scale must be positive"),
        ({"scale": [1.0, 2.0]}, r"scale must be a number, have shape \(3,\), or be None"),
        ({"noise": "gausian"}, "noise must be .* did you mean 'gaussian'"),
        ({"relaxation": "none"}, "relaxation must be 'linear' or 'mean'"),
        ({"df": 0}, "df must be positive"),
        ({"observations": [[np.nan, 0, 0]]}, "observations must be finite, got nan"),
        ({"centers": np.zeros((4, 2))}, "must have the same number of dimensions"),
        ({"scale": None, "scale_prior": (0, 1)}, "scale_prior must be a pair of positive"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(points, changes, message):
    arguments = {"observations": points[0], "centers": points[1], **changes}
    with pytest.raises(ValueError, match=message):
        PointMatching(**arguments)


def test_columns_of_frames_are_matched_by_name(rng):
    seen = pd.DataFrame(rng.normal(size=(3, 2)), columns=["x", "y"])
    centers = pd.DataFrame(rng.normal(size=(3, 2)), columns=["y", "x"])
    model = PointMatching(seen, centers)
    np.testing.assert_array_equal(model.centers, centers[["x", "y"]])
    with pytest.raises(ValueError, match=r"centers must have the columns .*'x', 'y'.* got .*'z'"):
        PointMatching(seen, centers.rename(columns={"y": "z"}))
