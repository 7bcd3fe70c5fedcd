"""Distances that are as rare as a normal number is so far away."""

import numpy as np
import pytest
from scipy.stats import chi2, norm
from scipy.stats import t as student

from permvi.models.points import log_density
from permvi.models.rarity import log_density_as_rare


@pytest.mark.parametrize("d", [1, 2, 6])
def test_gaussian_distances_are_quantiles_of_chi_square(d):
    scale = np.linspace(0.5, 2.0, d)
    found = log_density_as_rare("gaussian", 3.0, scale, 4.0)
    at_best = norm.logpdf(0.0, scale=scale).sum()
    assert found == pytest.approx(at_best - chi2.isf(2 * norm.sf(3.0), d) / 2, rel=1e-12)


def test_one_feature_is_at_a_quantile():
    for distance in (1e-3, 2.0, 30.0, 1e6):
        found = log_density_as_rare("gaussian", distance, np.array([0.7]), 4.0)
        assert found == pytest.approx(norm.logpdf(0.7 * distance, scale=0.7), rel=1e-9, abs=1e-9)
    for distance in (0.5, 2.0, 5.0):
        found = log_density_as_rare("student_t", distance, np.array([0.7]), 4.0)
        away = 0.7 * student.isf(norm.sf(distance), 4.0)
        # Between cells of the grid, the distribution is taken to be linear.
        assert found == pytest.approx(student.logpdf(away, 4.0, scale=0.7), abs=2e-3)


@pytest.mark.parametrize(("df", "d"), [(1.0, 2), (4.0, 3), (4.0, 6), (30.0, 6)])
def test_as_many_draws_of_student_t_are_less_dense(df, d):
    scale, num = np.linspace(0.5, 2.0, d), 200_000
    draws = scale * np.random.default_rng(0).standard_t(df, size=(num, d))
    values = log_density("student_t", draws, scale, df)
    for distance in (1.0, 3.0):
        share = (values < log_density_as_rare("student_t", distance, scale, df)).mean()
        right = 2 * norm.sf(distance)
        # Four standard errors.
        assert abs(share - right) < 4 * np.sqrt(right * (1 - right) / num)


@pytest.mark.parametrize("noise", ["gaussian", "student_t"])
def test_further_is_rarer_also_where_tails_underflow(noise):
    distances = np.geomspace(0.01, 1e9, 60)
    found = [log_density_as_rare(noise, float(far), np.ones(5), 4.0) for far in distances]
    assert np.isfinite(found).all()
    assert (np.diff(found) < 0).all()


def test_the_noise_is_one_of_those_known():
    with pytest.raises(ValueError, match="noise"):
        log_density_as_rare("laplace", 3.0, np.ones(2), 4.0)
