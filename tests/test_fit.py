"""`fit` against brute force, for exact methods; models of all kinds; answers to mistakes."""

import dataclasses
import itertools
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, special, stats

import permvi as pv
from permvi.inference import auto
from permvi.problem import evaluation as density


def brute_force(log_density, n, m=None, mask=None):
    """All injective maps of n <= m rows, their log densities, evidence and marginals."""
    m = n if m is None else m
    perms = np.array(list(itertools.permutations(range(m), n)))
    if mask is not None:
        perms = perms[mask[np.arange(n), perms].all(axis=1)]
    values = np.array([log_density(perm) for perm in perms])
    evidence = special.logsumexp(values)
    p = np.exp(values - evidence)
    marginals = np.stack([p @ (perms == j) for j in range(m)], axis=1)
    return evidence, marginals


def pairs(scores):
    return lambda perm: sum(scores[i, j] for i, j in enumerate(perm))


def assert_same(posterior, evidence, marginals, atol=1e-10):
    np.testing.assert_allclose(posterior.marginals, marginals, atol=atol)
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-12, atol=atol)
    assert posterior.log_evidence_kind == "exact"
    assert posterior.diagnostics.verdict == "trust"


@pytest.mark.parametrize("shape", [(5, 5), (3, 5)])
@pytest.mark.float32
def test_linear_models_match_brute_force_in_any_precision(rng, shape):
    scores, prior = 3 * rng.normal(size=shape), rng.normal(size=shape)
    posterior = pv.fit(pv.models.LinearMatching(scores, prior_scores=prior))
    assert_same(posterior, *brute_force(pairs(scores + prior), *shape))
    assert posterior.method == "exact"
    assert posterior.settings["requested"] == "auto"
    assert posterior.seconds > 0
    assert len(posterior.fingerprint) == 64


def test_masks_and_known_pairs_match_brute_force(rng):
    scores, mask = rng.normal(size=(5, 5)), rng.random((5, 5)) < 0.7
    mask |= np.eye(5, dtype=bool)
    known = np.array([-1, 1, -1, -1, 4])
    fixed = mask & (known < 0)[:, None]
    fixed[1], fixed[4] = np.eye(5, dtype=bool)[[1, 4]]
    for model in (
        pv.models.LinearMatching(scores, mask=mask, known=known),
        pv.models.CallableModel(pairs(scores), 5, "perm", mask=mask, known=known),
    ):
        posterior = pv.fit(model)
        assert_same(posterior, *brute_force(pairs(scores), 5, mask=fixed))
        assert posterior.mode[1] == 1
        np.testing.assert_allclose(np.exp(posterior.log_prob(posterior.sample(3))) > 0, True)


def test_functions_of_all_four_kinds_agree(rng):
    scores = rng.normal(size=(5, 5))

    def quadratic(X):
        value = X @ scores
        return (value * value.T).sum()

    def as_perm(perm):
        return quadratic(jax.nn.one_hot(perm, 5, dtype=float))

    evidence, marginals = brute_force(lambda perm: quadratic(np.eye(5)[perm]), 5)
    for function, kind, traceable in [
        (quadratic, "matrix", True),
        (quadratic, "matrix", False),
        (as_perm, "perm", True),
        (lambda perm: quadratic(np.eye(5)[perm]), "perm", False),
    ]:
        posterior = pv.fit(function, n=5, input=kind, jax=traceable)
        assert_same(posterior, evidence, marginals)
        assert posterior.num_evaluations == 120


def test_rectangular_functions(rng):
    scores = rng.normal(size=(3, 5))
    posterior = pv.fit(pairs(scores), n=(3, 5), input="perm")
    assert_same(posterior, *brute_force(pairs(scores), 3, 5))
    np.testing.assert_allclose(posterior.p_unmatched_cols.sum(), 2)


def test_partial_matchings_agree_between_linear_and_general(rng):
    scores, row, col = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4)
    row[1] = -np.inf
    given = {"row_unmatched": row, "col_unmatched": col, "known": [-1, -1, 2]}
    linear = pv.fit(pv.models.LinearMatching(scores, **given))

    def function(perm):
        return sum(scores[i, j] for i, j in enumerate(perm) if j >= 0)

    general = pv.fit(pv.models.CallableModel(function, (3, 4), "perm", **given))
    assert_same(general, linear.log_evidence, linear.marginals)
    np.testing.assert_allclose(general.p_unmatched_rows, linear.p_unmatched_rows, atol=1e-12)
    assert linear.p_unmatched_rows[1] == 0


@pytest.mark.parametrize("known", [None, [[0, -1, -1], [-1, 2, -1]], [[0, -1, -1], [-1, -1, -1]]])
def test_several_sites(rng, known):
    scores = rng.normal(size=(2, 3, 3))
    known = None if known is None else np.array(known)
    linear = pv.fit(pv.models.LinearMatching(scores, known=known))

    class General:
        """The same density, but nothing says that it is linear."""

        shape, num_sites = (3, 3), 2

        def __init__(self):
            self.known = known

        def log_density(self, X):
            return jnp.sum(X * scores, axis=(-3, -2, -1))

    general = pv.fit(General())
    assert linear.marginals.shape == (2, 3, 3)
    assert_same(general, linear.log_evidence, linear.marginals)
    assert general.sample(4).shape == (4, 2, 3)


def test_known_pairs_may_settle_everything(rng):
    scores = rng.normal(size=(3, 3))
    for model in (
        pv.models.LinearMatching(scores, known=[2, 0, 1]),
        pv.models.CallableModel(pairs(scores), 3, "perm", known=[2, 0, 1]),
    ):
        posterior = pv.fit(model)
        np.testing.assert_array_equal(posterior.marginals, np.eye(3)[[2, 0, 1]])
        np.testing.assert_allclose(posterior.log_evidence, pairs(scores)([2, 0, 1]))


def test_many_known_pairs_leave_a_small_problem(rng):
    scores = rng.normal(size=(40, 40))
    known = np.arange(40)
    known[:4] = -1
    model = pv.models.CallableModel(lambda X: jnp.sum(X * scores), 40, known=known)
    posterior = pv.fit(model)
    evidence, marginals = brute_force(pairs(scores[:4, :4]), 4)
    np.testing.assert_allclose(posterior.marginals[:4, :4], marginals, atol=1e-10)
    np.testing.assert_allclose(posterior.log_evidence, evidence + np.trace(scores[4:, 4:]))


def test_a_masked_problem_of_sixty_items_is_exact(rng):
    order = rng.permutation(60)
    mask = np.zeros((60, 60), bool)
    for block in order.reshape(5, 12):
        mask[np.ix_(block, block)] = True
    scores = rng.normal(size=(60, 60))
    posterior = pv.fit(pv.models.LinearMatching(scores, mask=mask))
    assert posterior.method == "exact"
    block = order[:12]
    alone = pv.fit(pv.models.LinearMatching(scores[np.ix_(block, block)]))
    np.testing.assert_allclose(posterior.marginals[np.ix_(block, block)], alone.marginals)


@pytest.mark.parametrize("n", [4, 9])
def test_an_unknown_scale_is_integrated_out(rng, n):
    centers = rng.normal(size=(n, 2))
    observations = centers + 0.3 * rng.normal(size=(n, 2))
    mask = None if n == 4 else np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 1
    model = pv.models.PointMatching(observations, centers, None, scale_prior=(0.5, 1.0), mask=mask)
    posterior = pv.fit(model)

    def log_joint(u):
        scores = stats.norm.logpdf(observations[:, None], centers[None], np.exp(u)).sum(-1)
        linear = pv.models.LinearMatching(scores, mask=mask)
        return pv.fit(linear).log_evidence + stats.norm.logpdf(u, np.log(0.5), 1.0)

    grid = np.linspace(-4, 2, 400)
    joint = np.exp([log_joint(u) for u in grid])
    total, first, second = (
        integrate.simpson(joint * np.exp(power * grid), x=grid) for power in range(3)
    )
    np.testing.assert_allclose(posterior.log_evidence, np.log(total), atol=1e-6)
    np.testing.assert_allclose(posterior.latents["scale"].mean, first / total, rtol=1e-6)
    sd = np.sqrt(second / total - (first / total) ** 2)
    np.testing.assert_allclose(posterior.latents["scale"].sd, sd, rtol=1e-5)
    assert abs(posterior.latents["scale"].draws.mean() - first / total) < 5 * sd / np.sqrt(2000)


def test_labels_come_through():
    frame = pd.DataFrame(np.eye(2), index=["u", "v"], columns=["a", "b"])
    posterior = pv.fit(pv.models.LinearMatching(frame))
    assert posterior.labels == (("u", "v"), ("a", "b"))
    assert posterior.item_summaries()[0].best == "a"


def test_fit_many_returns_one_posterior_each(rng):
    models = [pv.models.LinearMatching(rng.normal(size=(n, n))) for n in (3, 4)]
    seen = []
    posteriors = pv.fit_many(models, progress=lambda *args: seen.append(args))
    assert [posterior.shape for posterior in posteriors] == [(3, 3), (4, 4)]
    assert seen[-1] == ("exact", 2, 2)
    assert pv.fit_many([]) == []


@dataclasses.dataclass
class Careless:
    """A user's own model that is no pytree, not hashable, and may be wrong."""

    known: object = None
    mask: object = None
    power: int = 1
    shape = (3, 3)
    num_sites = 1

    def log_density(self, X):
        return jnp.sum(X[..., 0], axis=-1) if self.power else X


def test_users_models_need_not_be_pytrees_but_right():
    assert pv.fit(Careless()).log_evidence == pytest.approx(1 + np.log(6))
    assert len(pv.fit(Careless(known=[0, -1, -1])).fingerprint) == 64
    for wrong, message in [
        (Careless(known=[0, 0, -1]), "known must use each column at most once"),
        (Careless(mask=np.ones((2, 3), bool)), r"mask must have shape \(3, 3\)"),
        (Careless(power=0), "log_density must return one number for each of 8 matchings"),
    ]:
        with pytest.raises(ValueError, match=message):
            pv.fit(wrong)


def test_same_shaped_data_compiles_once(rng):
    def model(scores, known):
        return Quadratic(scores, known)

    for _ in range(2):
        pv.fit(model(rng.normal(size=(4, 4)), np.array([0, -1, -1, -1])))
    before = density._evaluate._cache_size()
    pv.fit(model(rng.normal(size=(4, 4)), np.array([-1, -1, 3, -1])))
    assert density._evaluate._cache_size() == before


@jax.tree_util.register_pytree_node_class
class Quadratic:
    """A user's own model, registered as a pytree."""

    shape, num_sites = (4, 4), 1

    def __init__(self, scores, known):
        self.matrix, self.known = scores, known

    def log_density(self, X):
        return jnp.sum((X @ self.matrix) * X[..., ::-1, :], axis=(-2, -1))

    def tree_flatten(self):
        return (self.matrix, self.known), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: pv.fit(LINEAR, "roundin"),
            ValueError,
            "method must be .* did you mean 'rounding'",
        ),
        (lambda: pv.fit(LINEAR, 3), TypeError, "method must be a name, got 3"),
        (lambda: pv.fit(np.eye(3)), TypeError, "model must have shape, .* models.LinearMatching"),
        (lambda: pv.fit(LINEAR, n=3), TypeError, "n is for functions, got it with a LinearM"),
        (lambda: pv.fit(len), ValueError, "n must be given with a function"),
        (lambda: pv.fit(LINEAR, seed=1.5), TypeError, "seed must be an integer, got 1.5"),
        (lambda: pv.fit(LINEAR, seed=-1), ValueError, "seed must be between 0"),
        (
            lambda: pv.fit(LINEAR, "exact", maxsize=3),
            ValueError,
            "options of method 'exact' must be one of 'max_size', got|did you mean 'max_size'",
        ),
        (
            lambda: pv.fit(LINEAR, known=[0]),
            ValueError,
            "known must be given to the model, LinearMatching, got it among the options",
        ),
        (
            lambda: pv.fit(pv.models.LinearMatching(np.eye(3), mask=THIRD)),
            ValueError,
            "mask must allow an assignment of every row",
        ),
        (
            lambda: pv.fit(lambda perm: np.nan, n=3, input="perm", jax=False),
            ValueError,
            "the log density must be finite or -inf, got nan at",
        ),
        (
            lambda: pv.fit(lambda perm: -np.inf, n=3, input="perm", jax=False),
            ValueError,
            "the log density must be finite for some matching",
        ),
        (
            lambda: pv.fit(lambda perm: 0.0, "exact", n=12, input="perm", jax=False),
            ValueError,
            "enumeration takes at most 2,000,000 matchings",
        ),
        (
            lambda: pv.fit(pv.models.LinearMatching(np.zeros((30, 30))), "exact"),
            ValueError,
            "scores must split into blocks of at most max_size=24",
        ),
    ],
)
def test_mistakes_are_answered_in_one_sentence(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


LINEAR = pv.models.LinearMatching(np.eye(3))
THIRD = np.array([[1, 1, 1], [1, 0, 0], [1, 0, 0]], bool)


def test_the_api_loads_lazily():
    code = (
        "import sys, permvi; assert 'jax' not in sys.modules; "
        "assert set(permvi.__all__) <= set(dir(permvi)); "
        "[getattr(permvi, name) for name in permvi.__all__]; "
        "assert callable(permvi.fit)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_fit_many_chooses_for_each_model(monkeypatch, rng):
    def choose(prepared):
        return auto.Choice("exact" if prepared.problem.shape[0] < 6 else "bethe", {})

    monkeypatch.setattr(auto, "choose", choose)
    models = [pv.models.LinearMatching(rng.normal(size=(n, n))) for n in (5, 24, 4, 24)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        posteriors = pv.fit_many(models)
    assert [posterior.method for posterior in posteriors] == ["exact", "bethe", "exact", "bethe"]
    assert [posterior.shape[0] for posterior in posteriors] == [5, 24, 4, 24]
    for model, posterior in zip(models, posteriors, strict=True):
        assert posterior.fingerprint == pv.models.fingerprint(model)


def test_a_bare_class_is_not_a_model():
    with pytest.raises(TypeError, match="model must be an instance, got the class LinearMatching"):
        pv.fit(pv.models.LinearMatching)


def test_a_frame_of_scores_is_a_model():
    frame = pd.DataFrame(np.eye(3), index=list("xyz"), columns=list("ABC"))
    posterior = pv.fit(frame)
    assert posterior.labels == (("x", "y", "z"), ("A", "B", "C"))
    assert posterior["x", "A"] > posterior["x", "B"]


@pytest.mark.float32
def test_constants_beyond_float32_do_not_overflow_in_traces():
    """The ELBOs of such a model are computed without its constant, which is added afterwards."""
    scores = np.array([[1e300, 0.0], [0.0, 1e300]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", pv.FitWarning)
        found = pv.fit(pv.models.LinearMatching(scores), "rounding", num_steps=4, num_draws=10)
    assert np.isfinite(found.diagnostics.elbo_trace).all()
    np.testing.assert_allclose(found.diagnostics.elbo_trace, 2e300)


@pytest.mark.float32
def test_known_pairs_are_certain_to_the_last_bit():
    """Weights of draws need not add up to one exactly."""
    scores = np.array(
        [[252, 34, 0, 0], [0, 0, 0, 250], [0, 136, 0, 69], [0, 252, 252, 12]], np.uint8
    )
    alone = np.array([-np.inf, -np.inf, -0.7390006, -1.13432824])
    model = pv.models.LinearMatching(scores, known=[-1, 0, 3, -1], row_unmatched=alone)
    found = pv.fit(model, "stick_breaking_discrete", num_steps=100)
    assert found.marginals[1, 0] == found.marginals[2, 3] == 1.0
