import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from jax.test_util import check_grads as jax_check_grads

from permvi.transforms import sticks
from permvi.transforms.sticks import Sticks

KEY = jax.random.key(7)
# Four standard errors each side: one statistical assertion in 16,000 fails by chance, and the
# seeds are fixed.
NUM_SIGMAS = 4

logistic = jax.jit(sticks.logistic)
kumaraswamy = jax.jit(sticks.kumaraswamy)
kumaraswamy_log_prob = jax.jit(sticks.kumaraswamy_log_prob)
beta_log_prob = jax.jit(sticks.beta_log_prob)


def eps_of(array):
    return float(jnp.finfo(array.dtype).eps)


def roundings(array):
    """Errors in units of eps: XLA's float64 log1p alone is off by 120 of them near -0.41."""
    return 16 if array.dtype == jnp.float32 else 200


def mp_logistic(psi, temperature):
    """log beta, log(1 - beta) and log d beta / d psi from their definitions."""
    log_beta = -mpmath.log1p(mpmath.exp(-mpmath.mpf(psi) / temperature))
    log_rest = -mpmath.log1p(mpmath.exp(mpmath.mpf(psi) / temperature))
    return log_beta, log_rest, log_beta + log_rest - mpmath.log(temperature)


def mp_kumaraswamy(u, a, b):
    beta = (1 - (1 - mpmath.mpf(u)) ** (1 / mpmath.mpf(b))) ** (1 / mpmath.mpf(a))
    return mpmath.log(beta), mpmath.log(1 - beta)


def mp_kumaraswamy_log_prob(u, a, b):
    beta = (1 - (1 - mpmath.mpf(u)) ** (1 / mpmath.mpf(b))) ** (1 / mpmath.mpf(a))
    a, b = mpmath.mpf(a), mpmath.mpf(b)
    return mpmath.log(a * b * beta ** (a - 1) * (1 - beta**a) ** (b - 1))


def check_grads(function, *arguments):
    """Reverse derivatives against central differences."""
    jax_check_grads(jax.jit(function), arguments, 1, modes=("rev",), rtol=1e-5, atol=1e-5)


def from_beta(beta):
    return Sticks(jnp.log(beta), jnp.log1p(-beta))


class TestLogistic:
    @pytest.mark.float32
    def test_against_mpmath_up_to_the_extremes(self):
        psi = jnp.array([-500.0, -50.0, -3.0, -1e-3, 0.0, 0.7, 50.0, 500.0])
        for temperature in (1e-3, 0.5, 1.0, 7.0):
            tau = float(jnp.asarray(temperature, psi.dtype))
            result, log_det = logistic(psi, temperature)
            with mpmath.workdps(30):
                exact = np.array([mp_logistic(float(p), tau) for p in psi], dtype=float)
            ours = np.stack([*result, log_det], axis=-1)
            # The quotient psi / tau is rounded once, which exp turns into a relative error.
            tolerance = eps_of(psi) * (4 + 2 * np.abs(np.array(psi) / tau))
            tiny = np.abs(exact) < float(jnp.finfo(psi.dtype).tiny)
            error = np.where(tiny, np.abs(ours), np.abs(ours - exact) / np.abs(exact + tiny))
            assert np.all(error <= np.maximum(tolerance[:, None] * ~tiny, 1e-37))

    @pytest.mark.float32
    @pytest.mark.parametrize("temperature", [1e-3, 1.0])
    def test_gradients_are_finite_at_the_extremes(self, temperature):
        psi = jnp.array([-500.0, -50.0, 50.0, 500.0])

        def total(psi, tau):
            result, log_det = logistic(psi, tau)
            return result.log_beta.sum() + 2 * result.log_complement.sum() + log_det.sum()

        for gradient in jax.jit(jax.grad(total, argnums=(0, 1)))(psi, jnp.asarray(temperature)):
            assert np.all(np.isfinite(gradient))

    def test_log_det_and_inverse(self, rng):
        psi = jnp.asarray(rng.normal(size=(2, 3)) * 4)
        tau = jnp.array([[0.3], [2.0]])
        result, log_det = logistic(psi, tau)
        np.testing.assert_allclose(sticks.logistic_inverse(result, tau), psi, rtol=1e-12)

        def beta(p, t):
            return jnp.exp(sticks.logistic(p, t)[0].log_beta)

        slope = jax.jit(jax.vmap(jax.vmap(jax.grad(beta))))(psi, jnp.broadcast_to(tau, psi.shape))
        np.testing.assert_allclose(log_det, np.log(slope), rtol=1e-9, atol=1e-9)
        check_grads(logistic, psi, tau)


class TestKumaraswamy:
    @pytest.mark.float32
    def test_sticks_and_density_against_mpmath(self):
        shapes = np.array([1e-2, 0.4, 1.0, 30.0, 1e3])
        uniforms = np.array([1e-6, 0.3, 0.95, 1 - 2.0**-20])
        a, b, u = (jnp.asarray(axis.ravel()) for axis in np.meshgrid(shapes, shapes, uniforms))
        result = kumaraswamy(u, a, b, 1.0)
        density = kumaraswamy_log_prob(result, a, b, 1.0)
        arguments = [tuple(map(float, row)) for row in zip(u, a, b, strict=True)]
        # Digits enough for 1 - beta = exp(-1400) to be told from zero.
        with mpmath.workdps(1300):
            exact = np.array([mp_kumaraswamy(*row) for row in arguments], dtype=float)
            exact_density = [float(mp_kumaraswamy_log_prob(*row)) for row in arguments]
        for ours, truth, other in zip(result, exact.T, exact.T[::-1], strict=True):
            # -log of the near-one side is exp(-large): an ulp of `large` is a relative error.
            tolerance = eps_of(u) * roundings(u) * (1 + np.abs(other))
            floor = 2 * float(jnp.finfo(u.dtype).tiny)
            assert np.all(np.abs(np.array(ours) - truth) <= tolerance * np.abs(truth) + floor)
        scale = (
            1 + (1 + np.array(a)) * np.abs(exact[:, 0]) + (1 + np.array(b)) * np.abs(exact[:, 1])
        )
        assert np.all(
            np.abs(np.array(density) - exact_density) <= 2 * roundings(u) * eps_of(u) * scale
        )

    @pytest.mark.float32
    def test_values_and_gradients_are_finite_over_the_whole_range(self):
        grid = np.array([1e-2, 1.0, 1e3])
        a, b = (jnp.asarray(axis.ravel()) for axis in np.meshgrid(grid, grid))

        def total(a, b, tau):
            draws = sticks.kumaraswamy_sample(KEY, a, b, tau, (500, 9))
            densities = sticks.kumaraswamy_log_prob(draws, a, b, tau)
            return sum(part.sum() for part in (*draws, densities)), (*draws, densities)

        gradients, values = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(
            a, b, jnp.asarray(1.0)
        )
        for array in (*gradients, *values):
            assert np.all(np.isfinite(array))

    def test_density_is_the_derivative_of_the_inverse_and_integrates_to_one(self, rng):
        a, b, tau = 1.7, 0.8, 0.6
        u = jnp.asarray(rng.uniform(size=20))
        slope = jax.jit(
            jax.vmap(jax.grad(lambda v: jnp.exp(sticks.kumaraswamy(v, a, b, tau).log_beta)))
        )(u)
        result = kumaraswamy(u, a, b, tau)
        density = kumaraswamy_log_prob(result, a, b, tau)
        np.testing.assert_allclose(density, -np.log(slope), rtol=1e-9, atol=1e-9)

        nodes, weights = scipy.special.roots_jacobi(80, b / tau - 1, a / tau - 1)
        beta = jnp.asarray((nodes + 1) / 2)
        smooth = np.exp(
            kumaraswamy_log_prob(from_beta(beta), a, b, tau)
            - (a / tau - 1) * np.log(1 + nodes)
            - (b / tau - 1) * np.log(1 - nodes)
        )
        assert abs(float(weights @ smooth) / 2 - 1) < 1e-6

    def test_gradients_against_central_differences(self, rng):
        u = jnp.asarray(rng.uniform(size=4))
        a, b = jnp.asarray(rng.uniform(0.3, 3, size=(2, 4)))
        check_grads(kumaraswamy, u, a, b, jnp.array(0.7))
        beta = jnp.asarray(rng.uniform(size=4))
        check_grads(
            lambda beta, a, b: sticks.kumaraswamy_log_prob(from_beta(beta), a, b, 0.7),
            beta,
            a,
            b,
        )

    def test_the_ends_of_the_uniform_are_the_ends_of_the_stick(self):
        result = sticks.kumaraswamy(jnp.array([0.0, 1.0]), 2.0, 3.0, 1.0)
        np.testing.assert_array_equal(result.log_beta, [-jnp.inf, 0.0])
        np.testing.assert_array_equal(result.log_complement, [0.0, -jnp.inf])

    def test_samples_follow_the_distribution_function(self):
        a, b, tau = 1.7, 0.8, 0.6
        beta = np.exp(sticks.kumaraswamy_sample(KEY, a, b, tau, (20_000,)).log_beta)
        test = scipy.stats.kstest(beta, lambda x: 1 - (1 - x ** (a / tau)) ** (b / tau))
        assert test.pvalue > 1e-4


class TestBeta:
    def test_density_against_scipy(self, rng):
        a, b = rng.uniform(0.3, 4, size=(2, 5))
        beta = rng.uniform(size=5)
        density = beta_log_prob(from_beta(jnp.asarray(beta)), a, b, 0.5)
        np.testing.assert_allclose(
            density, scipy.stats.beta.logpdf(beta, a / 0.5, b / 0.5), rtol=1e-9, atol=1e-9
        )
        check_grads(
            lambda beta, a, b, t: sticks.beta_log_prob(from_beta(beta), a, b, t),
            *map(jnp.asarray, (beta, a, b, 0.7)),
        )

    @pytest.mark.parametrize(("a", "b", "tau"), [(1.7, 0.8, 0.6), (0.05, 0.02, 1.0)])
    def test_samples_follow_the_distribution_function(self, a, b, tau):
        log_beta, log_complement = sticks.beta_sample(KEY, a, b, tau, (5_000,))

        def cdf(logit):
            lower = scipy.stats.beta.cdf(scipy.special.expit(logit), a / tau, b / tau)
            upper = scipy.stats.beta.sf(scipy.special.expit(-logit), b / tau, a / tau)
            return np.where(logit < 0, lower, upper)

        test = scipy.stats.kstest(log_beta - log_complement, cdf)
        assert test.pvalue > 1e-4

    @pytest.mark.float32
    def test_implicit_gradient_of_the_means(self):
        # E[log beta] = digamma(a) - digamma(a + b) and E[beta] = a / (a + b); at a = 0.01 four
        # draws in ten lie below the smallest float32.
        num_draws = 10_000

        @jax.jit
        def draw_with_slope(a, b):
            def draw(a):
                return sticks.beta_sample(KEY, a, b, 1.0, (num_draws,)).log_beta

            return jax.jvp(draw, (a,), (jnp.ones_like(a),))

        for a, b in [(0.01, 0.01), (0.5, 2.0), (40.0, 3.0)]:
            log_beta, slope = (np.array(part, float) for part in draw_with_slope(a, b))
            trigamma = scipy.special.polygamma(1, [a, a + b])
            for slopes, exact in [
                (slope, trigamma[0] - trigamma[1]),
                (slope * np.exp(log_beta), b / (a + b) ** 2),
            ]:
                standard_error = slopes.std() / num_draws**0.5
                assert abs(slopes.mean() - exact) < NUM_SIGMAS * standard_error

    def test_implicit_gradient_holds_the_distribution_function(self):
        # Moved along the slope, a gamma draw keeps the value of its distribution function.
        a, h = 0.7, 1e-6
        log_gamma = jnp.array([-60.0, -40.0, -10.0, -1.0, 0.5, 1.5])
        gradient = jax.grad(sticks._with_implicit_gradient, argnums=1)
        slope = jax.jit(jax.vmap(gradient, (0, None)))(log_gamma, a)
        ends = [
            np.log(scipy.special.gammainc(a + step, np.exp(log_gamma + step * slope)))
            for step in (-h, h)
        ]
        np.testing.assert_allclose((ends[1] - ends[0]) / (2 * h), 0, atol=1e-6)

    @pytest.mark.float32
    def test_finite_from_tiny_to_large_concentrations(self):
        grid = np.array([1e-2, 1.0, 1e3])
        a, b = (jnp.asarray(axis.ravel()) for axis in np.meshgrid(grid, grid))

        def total(a, b, tau):
            draws = sticks.beta_sample(KEY, a, b, tau, (20, 9))
            densities = sticks.beta_log_prob(draws, a, b, tau)
            return sum(part.sum() for part in (*draws, densities)), (*draws, densities)

        gradients, values = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(
            a, b, jnp.asarray(1.0)
        )
        for array in (*gradients, *values):
            assert np.all(np.isfinite(array))


SAMPLERS = [sticks.kumaraswamy_sample, sticks.beta_sample]


@pytest.mark.parametrize("sample", SAMPLERS)
def test_shapes_dtypes_and_temperature_of_samplers(sample):
    single = jnp.float32([0.5, 2.0])
    result = sample(KEY, single, 1.5, 1.0)
    assert result.log_beta.shape == (2,)
    assert result.log_beta.dtype == result.log_complement.dtype == jnp.float32
    assert sample(KEY, jnp.float32(0.5), 1.5, 1.0, (3, 2)).log_beta.shape == (3, 2)
    scaled = sample(KEY, single / 0.25, 1.5 / 0.25, 1.0, (3, 2))
    for ours, direct in zip(sample(KEY, single, 1.5, 0.25, (3, 2)), scaled, strict=True):
        np.testing.assert_allclose(ours, direct, rtol=1e-6)
    with pytest.raises(ValueError, match=r"shape must be one that \(2,\)"):
        sample(KEY, single, 1.5, 1.0, (2, 3))


def test_one_trace_for_all_temperatures_and_data():
    traces = []

    @jax.jit
    def everything(psi, a, tau):
        traces.append(None)
        drawn = sticks.beta_sample(KEY, a, a, tau)
        other = sticks.kumaraswamy(jax.nn.sigmoid(psi), a, a, tau)
        return sticks.logistic(psi, tau), drawn, sticks.kumaraswamy_log_prob(other, a, a, tau)

    for tau in (0.5, 2.0):
        everything(jnp.full(3, tau), jnp.full(3, 1 + tau), tau)
    assert len(traces) == 1


def test_bad_values_are_nan_inside_jit():
    result, log_det = jax.jit(sticks.logistic)(jnp.ones(2), -1.0)
    assert np.all(np.isnan(result.log_beta))
    assert np.all(np.isnan(log_det))
    result = jax.jit(sticks.kumaraswamy)(jnp.array(0.5), jnp.array([1.0, -1.0]), 1.0, 1.0)
    np.testing.assert_array_equal(np.isnan(result.log_beta), [False, True])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sticks.logistic(jnp.ones(2), 0.0), ValueError, "temperature must be positive"),
        (lambda: sticks.logistic(jnp.ones(2), jnp.nan), ValueError, "temperature must be positive"),
        (lambda: sticks.logistic(jnp.ones(2), jnp.ones(3)), ValueError, "temperature must be a"),
        (lambda: sticks.logistic(jnp.arange(2), 1.0), TypeError, "psi must be a floating-point"),
        (lambda: sticks.kumaraswamy(0.5, 0.0, 1.0, 1.0), ValueError, "a must be positive, got 0.0"),
        (lambda: sticks.beta_sample(KEY, 1.0, -2.0, 1.0), ValueError, "b must be positive"),
        (lambda: sticks.beta_sample(KEY, 1, 2.0, 1.0), TypeError, "a must be a floating-point"),
        (
            lambda: sticks.kumaraswamy(jnp.ones(2) / 2, jnp.ones(3), 1.0, 1.0),
            ValueError,
            r"u, a, b must broadcast together, got shapes \(2,\), \(3,\), \(\)",
        ),
        (
            lambda: sticks.logistic_inverse(Sticks(jnp.zeros(2), jnp.zeros(3)), 1.0),
            ValueError,
            "log_beta and log_complement must have the same shape",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
