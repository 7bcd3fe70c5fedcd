import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
from jax.test_util import check_grads as jax_check_grads

from permvi.transforms import simplex, sticks
from permvi.transforms.sticks import Sticks

# Four standard errors each side: one statistical assertion in 16,000 fails by chance, and the
# seeds are fixed.
NUM_SIGMAS = 4

stick_breaking = jax.jit(simplex.stick_breaking)
stick_breaking_inverse = jax.jit(simplex.stick_breaking_inverse)
from_sticks = jax.jit(simplex.from_sticks)
sticks_of = jax.jit(simplex.sticks_of)
pi_to_rho = jax.jit(simplex.pi_to_rho)
rho_to_pi = jax.jit(simplex.rho_to_pi)
limit_probabilities = jax.jit(simplex.limit_probabilities)
log_limit_probabilities = jax.jit(simplex.log_limit_probabilities)


def eps_of(array):
    return float(jnp.finfo(array.dtype).eps)


def check_grads(function, *arguments):
    """Reverse derivatives against central differences."""
    jax_check_grads(jax.jit(function), arguments, 1, modes=("rev",), rtol=1e-5, atol=1e-5)


def loop_stick_breaking(psi, temperature):
    """The supplement's equations, one entry at a time, with the Jacobian's diagonal."""
    beta = scipy.special.expit(np.asarray(psi) / temperature)
    x, log_det = [], 0.0
    for proportion in beta:
        remaining = 1 - sum(x)
        x.append(proportion * remaining)
        log_det += np.log(remaining * proportion * (1 - proportion) / temperature)
    return np.array([*x, 1 - sum(x)]), log_det


def mp_stick_breaking_log_det(psi, temperature):
    log_rest, log_det = mpmath.mpf(0), mpmath.mpf(0)
    for value in psi:
        logit = mpmath.mpf(float(value)) / temperature
        log_beta, log_complement = (-mpmath.log1p(mpmath.exp(-v)) for v in (logit, -logit))
        log_det += log_rest + log_beta + log_complement - mpmath.log(temperature)
        log_rest += log_complement
    return log_det


def triangle_quadrature(size=100):
    """Nodes (size, size, 3) on the simplex of three categories and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    nodes, weights = (nodes + 1) / 2, weights / 2
    x, v = np.meshgrid(nodes, nodes, indexing="ij")
    X = np.stack([x, (1 - x) * v, (1 - x) * (1 - v)], axis=-1)
    return jnp.asarray(X), np.outer(weights, weights) * (1 - x)


class TestStickBreaking:
    @pytest.mark.parametrize("n", [1, 2, 3, 6, 17])
    @pytest.mark.parametrize("temperature", [0.4, 2.0])
    def test_against_the_loop_and_back(self, rng, n, temperature):
        psi = rng.normal(size=n - 1)
        X, log_det = stick_breaking(jnp.asarray(psi), temperature)
        expected, expected_log_det = loop_stick_breaking(psi, temperature)
        np.testing.assert_allclose(X, expected, atol=1e-12)
        np.testing.assert_allclose(log_det, expected_log_det, rtol=1e-9, atol=1e-9)
        back, inverse_log_det = stick_breaking_inverse(X, temperature)
        np.testing.assert_allclose(back, psi, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(inverse_log_det, -log_det, rtol=1e-9, atol=1e-9)

    def test_log_det_is_that_of_the_jacobian(self, rng):
        psi = jnp.asarray(rng.normal(size=5))

        @jax.jit
        def log_dets(psi):
            X, log_det = simplex.stick_breaking(psi, 0.7)
            _, inverse_log_det = simplex.stick_breaking_inverse(X, 0.7)
            jacobian = jax.jacfwd(lambda p: simplex.stick_breaking(p, 0.7)[0][:-1])(psi)
            # The inverse on the chart in which the last entry is one minus the others.
            inverse_jacobian = jax.jacfwd(
                lambda x: simplex.stick_breaking_inverse(jnp.append(x, 1 - x.sum()), 0.7)[0]
            )(X[:-1])
            return (log_det, inverse_log_det), (jacobian, inverse_jacobian)

        ours, jacobians = log_dets(psi)
        exact = [np.linalg.slogdet(jacobian)[1] for jacobian in jacobians]
        np.testing.assert_allclose(ours, exact, rtol=1e-9, atol=1e-9)

    def test_gradients_against_central_differences(self, rng):
        psi = jnp.asarray(rng.normal(size=(2, 3)))
        tau = jnp.array([0.5, 1.5])
        check_grads(stick_breaking, psi, tau)
        check_grads(stick_breaking_inverse, jnp.asarray(rng.dirichlet(np.full(4, 9), 2)), tau)

    @pytest.mark.float32
    @pytest.mark.parametrize("n", [2, 10, 1000])
    def test_on_the_simplex(self, rng, n):
        psi = jnp.asarray(rng.normal(size=(20, n - 1)) * 3)
        for temperature in (1e-3, 1.0, 50.0):
            X, _ = stick_breaking(psi, temperature)
            assert np.min(X) >= 0
            assert np.all(np.abs(np.sum(X, axis=-1) - 1) <= 8 * n * eps_of(X))

    @pytest.mark.float32
    def test_extremes_against_mpmath(self, rng):
        signs = rng.choice([-1.0, 1.0, 0.5], size=(4, 30))

        def total(psi, tau):
            X, log_det = simplex.stick_breaking(psi, tau)
            return X[..., ::2].sum() + log_det.sum(), (X, log_det)

        graded = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))
        for size, temperature in [(5.0, 1e-3), (50.0, 1.0), (50.0, 1e-3), (500.0, 1e-3)]:
            psi, tau = jnp.asarray(signs * size), jnp.asarray(temperature)
            gradients, (X, log_det) = graded(psi, tau)
            for array in (*gradients, X):
                assert np.all(np.isfinite(array))
            with mpmath.workdps(30):
                exact = [float(mp_stick_breaking_log_det(row, float(tau))) for row in psi]
            np.testing.assert_allclose(log_det, exact, rtol=16 * eps_of(psi))

    @pytest.mark.float32
    def test_zero_temperature_gives_vertices(self, rng):
        psi = jnp.asarray(rng.uniform(0.2, 1, size=(40, 5)) * rng.choice([-1, 1], size=(40, 5)))
        X, _ = stick_breaking(psi, 1e-4)
        first = np.where((psi > 0).any(-1), (psi > 0).argmax(-1), 5)
        np.testing.assert_array_equal(X, np.eye(6)[first])

    def test_infinite_temperature_halves_the_stick(self):
        X, _ = stick_breaking(jnp.array([3.0, -2.0, 1.0]), 1e12)
        np.testing.assert_allclose(X, [1 / 2, 1 / 4, 1 / 8, 1 / 8], atol=1e-9)

    def test_logistic_normal_density_integrates_to_one(self):
        loc, scale, tau = np.array([0.3, -0.4]), np.array([0.8, 1.1]), 0.9
        X, weights = triangle_quadrature()
        psi, log_det = stick_breaking_inverse(X, tau)
        density = scipy.stats.norm.pdf(psi, loc, scale).prod(-1) * np.exp(log_det)
        assert abs((weights * density).sum() - 1) < 1e-6

    @pytest.mark.float32
    def test_vertices_come_back_as_infinities(self):
        psi, log_det = stick_breaking_inverse(jnp.eye(3), 0.5)
        inf = np.inf
        np.testing.assert_array_equal(psi, [[inf, -inf], [-inf, inf], [-inf, -inf]])
        assert np.all(log_det == jnp.inf)


@jax.jit
def beta_stick_density(beta, a, b, temperature):
    """The point of the simplex with these proportions and its density if they are Beta."""
    broken = Sticks(jnp.log(beta), jnp.log1p(-beta))
    X, log_det = simplex.from_sticks(broken)
    return X, sticks.beta_log_prob(broken, a, b, temperature).sum(-1) - log_det


class TestSticks:
    def test_beta_sticks_are_generalised_dirichlet(self, rng):
        # Connor and Mosimann (1969), for n = 4 categories.
        a, b = rng.uniform(0.5, 3, size=(2, 3))
        X, log_prob = beta_stick_density(rng.uniform(size=(5, 3)), a, b, 0.8)
        a, b, X = a / 0.8, b / 0.8, np.array(X)
        exponents = np.append(b[:-1] - a[1:] - b[1:], b[-1] - 1)
        remaining = 1 - np.cumsum(X, axis=-1)[:, :-1]
        expected = (a - 1) * np.log(X[:, :-1]) + exponents * np.log(remaining)
        expected = (expected - scipy.special.betaln(a, b)).sum(-1)
        np.testing.assert_allclose(log_prob, expected, rtol=1e-9, atol=1e-9)

    def test_beta_sticks_of_falling_weight_are_dirichlet(self, rng):
        alpha = np.array([0.6, 1.3, 2.0, 0.9])
        tail = np.cumsum(alpha[::-1])[::-1][1:]
        X, log_prob = beta_stick_density(rng.uniform(size=(5, 3)), alpha[:-1], tail, 1.0)
        expected = scipy.stats.dirichlet.logpdf(np.array(X).T, alpha)
        np.testing.assert_allclose(log_prob, expected, rtol=1e-9, atol=1e-9)

    def test_kumaraswamy_density_integrates_to_one(self):
        a, b = jnp.array([1.6, 2.2]), jnp.array([2.5, 1.9])
        X, weights = triangle_quadrature()
        broken = sticks_of(X)
        log_prob = sticks.kumaraswamy_log_prob(broken, a, b, 0.9).sum(-1)
        density = np.exp(log_prob - from_sticks(broken)[1])
        assert abs((weights * density).sum() - 1) < 1e-4

    @pytest.mark.float32
    def test_round_trip_keeps_relative_precision_at_both_ends(self):
        psi = jnp.array([[-69.0], [-27.0], [-5.0], [0.3], [6.0], [30.0], [70.0]])
        broken, _ = sticks.logistic(psi, 1.0)
        back = sticks_of(from_sticks(broken)[0])
        for ours, expected in zip(back, broken, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=200 * eps_of(psi))

    def test_logarithm_goes_on_where_the_point_underflows(self):
        broken, _ = sticks.logistic(jnp.full(3, -2.0, jnp.float32), 1e-3)
        log_X = simplex.log_from_sticks(broken)
        np.testing.assert_allclose(log_X, [-2000, -2000, -2000, 0], atol=1e-6)
        assert from_sticks(broken)[0].tolist() == [0, 0, 0, 1]


class TestLimit:
    @pytest.mark.float32
    def test_pi_and_rho_by_hand_and_back(self, rng):
        pi = jnp.asarray(rng.dirichlet(np.ones(5), size=(2, 3)))
        rho = pi_to_rho(pi)
        assert rho.shape == (2, 3, 4)
        for row, got in zip(np.array(pi).reshape(-1, 5), rho.reshape(-1, 4), strict=True):
            expected = [row[k] / (1 - row[:k].sum()) for k in range(4)]
            np.testing.assert_allclose(got, expected, rtol=512 * eps_of(pi))
        np.testing.assert_allclose(rho_to_pi(rho), pi, rtol=32 * eps_of(pi))

    @pytest.mark.float32
    def test_zeros_and_ones(self):
        pi = jnp.array([[0.5, 0.5, 0.0, 0.0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
        rho = pi_to_rho(pi)
        expected = [[0.5, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0]]
        np.testing.assert_array_equal(rho, expected)
        np.testing.assert_array_equal(rho_to_pi(rho), pi)
        weights = jnp.arange(1.0, 5.0)
        there = jax.jit(jax.grad(lambda p: (pi_to_rho(p) * weights[:3]).sum()))(pi)
        back = jax.jit(jax.grad(lambda r: (rho_to_pi(r) * weights).sum()))(rho)
        assert np.all(np.isfinite(there))
        # pi is linear in each rho, so one-sided differences at the ends are exact.
        for k in range(3):
            step = np.eye(3)[k] * np.where(np.array(rho)[:, k : k + 1] > 0.5, -0.25, 0.25)
            moved = rho_to_pi(jnp.asarray(rho + step, rho.dtype)) - pi
            np.testing.assert_allclose(back[:, k], moved @ weights / step[:, k], atol=1e-5)

    def test_gradients_against_central_differences(self, rng):
        check_grads(pi_to_rho, jnp.asarray(rng.dirichlet(np.ones(4))))
        check_grads(rho_to_pi, jnp.asarray(rng.uniform(size=3)))
        check_grads(
            log_limit_probabilities,
            jnp.asarray(rng.normal(size=(2, 3)) * 3),
            jnp.asarray(rng.uniform(0.5, 2, size=3)),
        )

    @pytest.mark.float32
    def test_limit_probabilities(self, rng):
        loc, scale = rng.normal(size=(2, 4)), rng.uniform(0.5, 2, size=4)
        pi = limit_probabilities(jnp.asarray(loc), jnp.asarray(scale))
        rho = jnp.asarray(scipy.stats.norm.cdf(loc / scale))
        np.testing.assert_allclose(pi, rho_to_pi(rho), rtol=64 * eps_of(pi))
        log_pi = log_limit_probabilities(jnp.array([30.0, -3.0]), 1.0)
        logs = scipy.stats.norm.logcdf([-30, -3, 3])
        np.testing.assert_allclose(
            log_pi, [0, logs[0] + logs[1], logs[0] + logs[2]], rtol=1e-5, atol=1e-30
        )

    def test_cold_stick_breaking_realises_a_given_categorical(self, rng):
        # The supplement's proposition: choose pi, set the means by it, count the cold samples.
        pi, num_draws = rng.dirichlet(np.ones(6)), 100_000
        scale = rng.uniform(0.5, 2, size=5)
        loc = scale * scipy.stats.norm.ppf(pi_to_rho(jnp.asarray(pi)))
        np.testing.assert_allclose(limit_probabilities(loc, scale), pi, rtol=1e-9)
        psi = jnp.asarray(loc + scale * rng.normal(size=(num_draws, 5)))
        X, _ = stick_breaking(psi, 1e-3)
        frequencies = np.bincount(X.argmax(-1), minlength=6) / num_draws
        standard_errors = np.sqrt(pi * (1 - pi) / num_draws)
        assert np.all(np.abs(frequencies - pi) < NUM_SIGMAS * standard_errors)


# name: (map of (input, temperature), size of its input for n = 4, what makes an input of normals)
MAPS = {
    "stick_breaking": (simplex.stick_breaking, 3, lambda z: z),
    "stick_breaking_inverse": (simplex.stick_breaking_inverse, 4, jax.nn.softmax),
    "rounding": (simplex.rounding, 4, lambda z: z),
    "rounding_inverse": (simplex.rounding_inverse, 4, lambda z: z),
    "in_rounding_support": (simplex.in_rounding_support, 4, lambda z: z),
    "gumbel_softmax": (simplex.gumbel_softmax, 4, lambda z: z),
}


@pytest.mark.float32
@pytest.mark.parametrize("name", MAPS)
def test_batches_jit_and_vmap_agree(rng, name):
    function, size, make = MAPS[name]
    inputs = make(jnp.asarray(rng.normal(size=(2, 3, size))))
    tau = jnp.asarray(rng.uniform(0.3, 1, size=(2, 3)))
    plain = function(inputs, tau)
    mapped = jax.jit(jax.vmap(jax.vmap(function)))(inputs, tau)
    tolerance = 32 * eps_of(inputs)
    for ours, rows in zip(*map(jax.tree.leaves, (plain, mapped)), strict=True):
        assert ours.shape[:2] == (2, 3)
        np.testing.assert_allclose(ours, rows, rtol=tolerance, atol=tolerance)


@pytest.mark.float32
@pytest.mark.parametrize("name", ["stick_breaking", "rounding", "gumbel_softmax"])
def test_vmap_of_grad_is_the_gradient_of_the_batch(rng, name):
    function, size, _ = MAPS[name]
    psi = jnp.asarray(rng.normal(size=(3, size)))

    def total(psi, tau):
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(function(psi, tau)))

    batched = jax.jit(jax.grad(total))(psi, 0.6)
    mapped = jax.jit(jax.vmap(jax.grad(total), (0, None)))(psi, 0.6)
    np.testing.assert_allclose(mapped, batched, rtol=64 * eps_of(psi), atol=8 * eps_of(psi))


@pytest.mark.parametrize("name", MAPS)
def test_one_trace_and_nan_for_bad_temperatures_inside_jit(name):
    function, size, make = MAPS[name]
    traces = []

    @jax.jit
    def counted(inputs, tau):
        traces.append(None)
        return function(inputs, tau)

    for tau in (0.5, 0.9, -1.0):
        result = counted(make(jnp.full((2, size), tau, jnp.float32)), tau)
    assert len(traces) == 1
    for leaf in jax.tree.leaves(result):
        bad = ~leaf if leaf.dtype == bool else np.isnan(leaf)
        assert leaf.dtype in (bool, jnp.float32)
        assert np.all(bad)


def test_one_category():
    X, log_det = stick_breaking(jnp.zeros((3, 0)), 0.5)
    assert X.tolist() == [[1], [1], [1]]
    assert log_det.tolist() == [0, 0, 0]
    psi, log_det = stick_breaking_inverse(X, 0.5)
    assert psi.shape == (3, 0)
    assert log_det.tolist() == [0, 0, 0]
    assert simplex.pi_to_rho(jnp.array([1.0])).shape == (0,)
    assert simplex.rho_to_pi(jnp.zeros(0)).tolist() == [1]
    assert simplex.limit_probabilities(jnp.zeros(0), 1.0).tolist() == [1]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: simplex.stick_breaking(jnp.array(1.0), 1.0),
            ValueError,
            r"psi must have shape \(..., n-1\) with n >= 1, got shape \(\)",
        ),
        (lambda: simplex.stick_breaking(jnp.ones(2), 0.0), ValueError, "temperature must be pos"),
        (lambda: simplex.stick_breaking(jnp.ones(2), jnp.nan), ValueError, "temperature must be"),
        (lambda: simplex.stick_breaking(jnp.arange(2), 1.0), TypeError, "psi must be a floating"),
        (
            lambda: simplex.stick_breaking(jnp.ones((2, 3)), jnp.ones(3)),
            ValueError,
            r"temperature must be a scalar or broadcast to the batch shape \(2,\)",
        ),
        (
            lambda: simplex.stick_breaking_inverse(jnp.ones(0), 1.0),
            ValueError,
            r"X must have shape \(..., n\)",
        ),
        (
            lambda: simplex.from_sticks(Sticks(jnp.zeros(2), jnp.zeros(3))),
            ValueError,
            "log_beta and log_complement must have the same shape",
        ),
        (
            lambda: simplex.rounding(jnp.ones(2), 1.01),
            ValueError,
            r"temperature must be in \(0, 1\], got 1.01",
        ),
        (lambda: simplex.rounding_inverse(jnp.ones(2), 2.0), ValueError, "temperature must be in"),
        (lambda: simplex.round_to_vertex(jnp.arange(2)), TypeError, "psi must be a floating"),
        (
            lambda: simplex.rounding(jnp.ones((2, 2)), 0.5, np.array([[True, True], [False] * 2])),
            ValueError,
            "mask must allow at least one entry",
        ),
        (lambda: simplex.rounding(jnp.ones(2), 0.5, jnp.ones(2)), TypeError, "mask must be a bool"),
        (
            lambda: simplex.round_to_vertex(jnp.ones(2), np.ones(3, bool)),
            ValueError,
            r"mask must broadcast to the shape \(2,\) of psi, got shape \(3,\)",
        ),
        (lambda: simplex.limit_probabilities(jnp.ones(2), 0.0), ValueError, "scale must be pos"),
        (lambda: simplex.project(jnp.ones(0)), ValueError, r"m must have shape \(..., n\)"),
        (lambda: simplex.rho_to_pi(jnp.array(0.5)), ValueError, r"rho must have shape"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
