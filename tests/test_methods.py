"""One contract over all methods, and the table that describes them.

Every case has four items left to match, so that a method compiles few shapes.
"""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from permvi.inference import auto, registry
from permvi.inference.method import Context, fold_key, silent, split_batch, split_key, split_keys
from permvi.inference.verdict import coverage
from permvi.inference.vi import method as relaxed
from permvi.inference.vi import objective
from permvi.problem.prepare import prepare

INFOS = [info for info in pv.methods() if info.name in registry.names_for()]
NAMES = [info.name for info in INFOS]
QUICK = {"num_steps": 100, "num_draws": 400, "num_restarts": 2}
OPTIONS = {"rounding": QUICK, "stick_breaking": QUICK}

CENTERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.2, 1.1]])
NOISE = np.array([[0.1, 0.3], [-0.2, 0.1], [0.4, -0.2], [0.0, 0.2]])
TRUTH = np.array([2, 0, 3, 1])
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]], bool)
KNOWN = np.array([-1, 4, -1, -1, -1])


def points(**constraints):
    observations = CENTERS[TRUTH] + NOISE
    labels = (["a", "b", "c", "d"], ["w", "x", "y", "z"])
    return pv.models.PointMatching(observations, CENTERS, 0.4, labels=labels, **constraints)


def with_known_pair():
    """Row 1 is column 4; without it the problem is that of ``points``."""
    centers = np.concatenate([CENTERS, [[3.0, 3.0]]])
    observations = np.insert(CENTERS[TRUTH] + NOISE, 1, [[2.9, 3.0]], axis=0)
    return pv.models.PointMatching(observations, centers, 0.4, known=KNOWN)


def fit(model, name, seed=0, **options):
    """Without warnings: these fits are quick, not good."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, name, seed, **OPTIONS.get(name, {}), **options)


@pytest.fixture(scope="module")
def fitted():
    """The plain problem fitted with each method, once."""
    return {name: fit(points(), name) for name in NAMES}


def assert_sums_to_one(posterior):
    rows = posterior.marginals.sum(axis=-1) + posterior.p_unmatched_rows
    cols = posterior.marginals.sum(axis=-2) + posterior.p_unmatched_cols
    np.testing.assert_allclose(rows, 1, atol=1e-6)
    np.testing.assert_allclose(cols, 1, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_posterior_is_complete(fitted, name):
    posterior = fitted[name]
    assert_sums_to_one(posterior)
    assert posterior.method == name
    assert posterior.settings == {"requested": name, **OPTIONS.get(name, {})}
    assert posterior.seed == 0
    assert posterior.labels[0] == ("a", "b", "c", "d")
    assert posterior.seconds > 0
    assert posterior.fingerprint == pv.models.fingerprint(points())
    assert posterior.sample(5).shape == (5, 4)
    np.testing.assert_array_equal(posterior.mode, TRUTH)
    assert posterior.diagnostics.reasons


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_posterior(fitted, name):
    again = fit(points(), name)
    np.testing.assert_array_equal(again.marginals, fitted[name].marginals)
    np.testing.assert_array_equal(again.sample(50), fitted[name].sample(50))
    assert again.log_evidence == fitted[name].log_evidence


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_bounds(fitted, name):
    posterior = fitted[name]
    # An unbiased estimate is as often above the evidence as below it.
    slack = 1e-6 + 4 * (posterior.log_evidence_se or 0.0)
    assert posterior.log_evidence <= fitted["exact"].log_evidence + slack
    exact = posterior.log_evidence_kind == "exact"
    assert exact == (name in ("exact", "linear"))


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_posterior_is_the_same(fitted, name, tmp_path):
    posterior = fitted[name]
    posterior.save(tmp_path / "fit.nc")
    loaded = pv.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded.marginals, posterior.marginals)
    np.testing.assert_array_equal(loaded.sample(20, seed=3), posterior.sample(20, seed=3))
    assert loaded.diagnostics.verdict == posterior.diagnostics.verdict
    assert loaded.settings == posterior.settings


# These compile for seconds; masks and partial matchings together come below.
LONG = ("mcmc", "sequential", "stick_breaking_discrete", "rounding", "gumbel_sinkhorn")


@pytest.mark.parametrize(
    "info",
    [pytest.param(i, marks=[pytest.mark.slow] * (i.name in LONG), id=i.name) for i in INFOS],
)
def test_masks_are_honoured_or_refused(info):
    model = points(mask=MASK)
    if not info.masks:
        with pytest.raises(ValueError, match="mask") as caught:
            fit(model, info.name)
        assert "\n" not in str(caught.value)
        return
    posterior = fit(model, info.name)
    assert_sums_to_one(posterior)
    assert not posterior.marginals[~MASK].any()
    assert MASK[np.arange(4), posterior.sample(100)].all()


# Masks and unmatched weights of these are compared with exact answers in their own tests.
COMPARED = ("mcmc", "sequential", "stick_breaking_discrete")


@pytest.mark.parametrize(
    "info",
    [pytest.param(i, marks=[pytest.mark.slow] * (i.name in COMPARED), id=i.name) for i in INFOS],
)
def test_partial_matchings_are_honoured_or_refused(info):
    # Refused for one reason only; what honours both has to honour them together.
    mask = MASK if info.masks else None
    model = points(row_unmatched=-1.0, col_unmatched=-1.0, mask=mask)
    if info.partial:
        posterior = fit(model, info.name)
        assert_sums_to_one(posterior)
        assert not posterior.marginals[~MASK].any()
        draws = posterior.sample(100)
        assert (MASK[np.arange(4), draws] | (draws < 0)).all()
        some = posterior.p_unmatched_rows > 0
        # The best matching is but one, and rounding is sure of most rows.
        assert info.name == "map" or (some.any() if info.name == "rounding" else some.all())
    else:
        with pytest.raises(ValueError, match="partial") as caught:
            fit(model, info.name)
        assert "\n" not in str(caught.value)


# Known pairs are taken out before any method sees the problem.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in (*LONG, "stick_breaking"))) for n in NAMES],
)
def test_known_pairs_are_put_back(fitted, name):
    posterior = fit(with_known_pair(), name)
    assert_sums_to_one(posterior)
    np.testing.assert_array_equal(posterior.marginals[1], np.eye(5)[4])
    assert (posterior.sample(50)[:, 1] == 4).all()
    assert posterior.mode[1] == 4
    others = np.ix_([0, 2, 3, 4], [0, 1, 2, 3])
    error = np.abs(posterior.marginals[others] - fitted[name].marginals).max()
    assert error < (1e-9 if name == "exact" else 0.3)


def test_the_relaxed_methods_compile_once_for_a_shape(fitted):
    before = objective.advance_fits._cache_size()
    rng = np.random.default_rng(1)
    other = pv.models.PointMatching(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), 0.3)
    fit(other, "rounding")
    assert objective.advance_fits._cache_size() == before


def test_fit_many_fits_one_shape_together(fitted):
    rng = np.random.default_rng(2)
    models = [points(), pv.models.PointMatching(rng.normal(size=(4, 2)), CENTERS, 0.3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        posteriors = pv.fit_many(models, "rounding", **QUICK)
    assert posteriors[0].seconds == posteriors[1].seconds
    assert posteriors[0].labels[0] == ("a", "b", "c", "d")
    np.testing.assert_array_equal(posteriors[0].mode, TRUTH)


def test_doubts_are_warnings_in_the_name_of_the_caller(monkeypatch):
    doubtful = pv.Posterior.from_draws(TRUTH[None], shape=(4, 4))
    method = dataclasses.replace(
        relaxed.METHODS["rounding"],
        run=lambda prepared, context: doubtful,
        run_many=lambda batch, context: [doubtful] * len(batch),
    )
    monkeypatch.setitem(relaxed.METHODS, "rounding", method)
    with pytest.warns(pv.FitWarning, match="verdict 'check': no independent fit") as caught:
        pv.fit(points(), "rounding")
    assert caught[0].filename == __file__
    with pytest.warns(pv.FitWarning, match="2 of 2 fits have a verdict other than") as caught:
        pv.fit_many([points(), points()], "rounding")
    assert caught[0].filename == __file__


def test_unknown_options_get_a_suggestion():
    with pytest.raises(ValueError, match=r"options of method 'rounding' .* mean 'num_steps'"):
        pv.fit(points(), "rounding", num_step=3)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (pv.models.LinearMatching(np.zeros((30, 30))), "linear"),
        (pv.models.LinearMatching(np.zeros((24, 24))), "exact"),
        (
            pv.models.LinearMatching(np.zeros((70, 70)), row_unmatched=0.0, col_unmatched=0.0),
            "linear",
        ),
        (pv.models.LinearMatching(np.zeros((3, 30, 30))), "linear"),
        (pv.models.CallableModel(lambda perm: 0.0, 12, "perm", jax=False), "sequential"),
        (pv.models.CallableModel(lambda perm: 0.0, 80, "perm", jax=False), "mcmc"),
        (pv.models.PointMatching(np.zeros((40, 2)), np.zeros((40, 2)), None), "linear"),
        (pv.models.LinearMatching(np.zeros((12, 12))), "exact"),
    ],
)
def test_the_automatic_choice(model, name):
    assert auto.choose(prepare(model)).name == name


def test_the_table_of_methods():
    table = pv.methods()
    assert [info.name for info in table][:1] == ["exact"]
    lines = repr(table).splitlines()
    assert lines[0].split() == [
        "name", "needs", "gives", "masks", "partial", "cost", "reference",
    ]  # fmt: skip
    assert len(lines) == len(table) + 2
    assert "<td>exact</td>" in table._repr_html_()
    assert registry.NAMES[0] == "auto"
    for info in table:
        assert registry.method(info.name).info.name == info.name
        assert registry.method(info.name).options
    # A former name stands for the method.
    assert registry.method("sparse") is registry.method("linear")
    # The README says that this table lists all methods, those for one kind of model included.
    assert {info.name for info in table} | {"sparse"} == set(registry.NAMES[1:])
    assert "collapsed" in registry.NAMES
    assert "collapsed" not in registry.names_for(points())


def test_the_evidence_gap_is_what_neighbours_add(rng):
    model = pv.models.LinearMatching(rng.normal(size=(4, 4)))
    exact = pv.fit(model, "exact")
    collapsed = np.tile(exact.mode, (100, 1))
    found = coverage.examine(prepare(model).problem, collapsed)
    of_mode = exact.log_prob(exact.mode) + exact.log_evidence
    np.testing.assert_allclose(found.evidence_gap, found.log_evidence_bound - of_mode)
    assert found.evidence_gap > 0
    everything = coverage.examine(prepare(model).problem, pv.permutations.enumerate_permutations(4))
    np.testing.assert_allclose(everything.evidence_gap, 0, atol=1e-12)
    np.testing.assert_allclose(everything.log_evidence_bound, exact.log_evidence)


def test_a_collapsed_family_is_found_out():
    # Two matchings of equal density, of which the draws know one.
    scores = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 9.0]])
    prepared = prepare(pv.models.LinearMatching(scores))
    one = np.tile([0, 1, 2], (1000, 1))
    found = coverage.examine(prepared.problem, one)
    assert found.ess_per_draw < 0.01
    both = np.concatenate([one, np.tile([1, 0, 2], (1000, 1))])
    assert coverage.examine(prepared.problem, both).ess_per_draw > 0.9
    exact = pv.fit(pv.models.LinearMatching(scores)).log_evidence
    assert found.log_evidence_bound == pytest.approx(exact, abs=1e-3)


def test_a_search_that_knows_everything_is_closed(rng):
    problem = prepare(pv.models.LinearMatching(rng.normal(size=(5, 5)))).problem
    found = coverage.examine(problem, np.arange(5)[None])
    exact = pv.fit(pv.models.LinearMatching(np.asarray(problem.scores)), "exact")
    assert found.closed
    # At most two percent of the mass is on matchings whose neighbours were not looked at.
    np.testing.assert_allclose(found.log_evidence_bound, exact.log_evidence, atol=0.02)
    np.testing.assert_array_equal(found.mode, exact.mode)


def test_a_search_finds_modes_that_the_draws_have_not():
    """Two far modes, and draws of one of them only."""
    ends = np.stack([np.arange(8), np.arange(8)[::-1]])
    model = pv.models.CallableModel(
        lambda perm: jnp.max(-6.0 * (perm[None] != ends).sum(axis=-1)), 8, "perm"
    )
    found = coverage.examine(prepare(model).problem, np.tile(ends[0], (100, 1)))
    assert {tuple(perm) for perm in ends} <= {tuple(perm) for perm in found.perms}
    assert found.evidence_gap == pytest.approx(np.log(2), abs=1e-3)


def test_a_flat_posterior_is_not_closed():
    problem = prepare(pv.models.LinearMatching(np.zeros((12, 12)))).problem
    found = coverage.examine(problem, np.arange(12)[None])
    assert not found.closed


@pytest.mark.parametrize(
    "name",
    [
        "map", "sinkhorn", "bethe", "mallows", "naive", "vmf", "convex", "perturb_and_map",
        "importance", "plackett_luce",
    ],
)  # fmt: skip
def test_approximations_are_trusted_where_they_are_right(name):
    """One matching holds nearly all the mass: everything finds it, and says that this is all."""
    scores = 12.0 * np.eye(4)[TRUTH]
    posterior = pv.fit(pv.models.LinearMatching(scores), name)
    exact = pv.fit(pv.models.LinearMatching(scores), "exact")
    assert posterior.diagnostics.verdict == "trust"
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=0.01)
    flat = fit(pv.models.LinearMatching(scores / 20), name)
    exact = pv.fit(pv.models.LinearMatching(scores / 20), "exact")
    error = 0.5 * np.abs(flat.marginals - exact.marginals).sum(axis=1)
    np.testing.assert_allclose(flat.diagnostics.bias_by_row, error, atol=0.02)
    if name == "map":
        assert flat.diagnostics.verdict == "do not trust"


KEYS = [jax.random.key(seed) for seed in (0, 5, 2**32 - 1)]
KEYS += [jax.random.split(KEYS[1])[1], jax.random.key(5, impl="rbg")]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("partitionable", [True, False])
def test_keys_are_split_as_jax_does_it(key, partitionable):
    def same(found, wanted):
        data = [jax.random.key_data(part) for part in found]
        np.testing.assert_array_equal(data, jax.random.key_data(wanted))

    with jax.threefry_partitionable(partitionable):
        for num in (1, 2, 3, 8, 9):
            same(split_key(key, num), jax.random.split(key, num))
        same(split_batch(key, 3, 2), jax.random.split(key, (3, 2)))
        for shape in ((4,), (2, 3, 1), (0,)):
            same([split_keys(key, shape)], jax.random.split(key, shape)[None])
        for number in (0, 7, 2**31, 2**32 - 1):
            same([fold_key(key, number)], jax.random.fold_in(key, number)[None])
        # Inside a programme, too.
        same(jax.jit(split_key, static_argnums=1)(key, 3), jax.random.split(key, 3))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("seed", [0, 7, 2**31, 2**32 - 1])
def test_the_key_of_a_seed_is_that_of_jax(seed, impl):
    with jax.default_prng_impl(impl):
        found, wanted = Context("mcmc", seed, {}, silent).rng_key, jax.random.key(seed)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(wanted))


def test_advice_names_methods_that_take_the_problem(rng):
    """Exact sums over 30 items are refused, so nothing advises them."""
    model = pv.models.LinearMatching(3 * rng.normal(size=(30, 30)))
    with pytest.warns(pv.FitWarning, match="try method='linear' or 'sequential'"):
        pv.fit(model, "sinkhorn")
    with pytest.raises(ValueError, match=r"got a block of 30 by 30.*use method='linear'"):
        pv.fit(model, "exact")
    assert pv.fit(model, "linear").diagnostics.verdict == "trust"
