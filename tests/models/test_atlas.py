"""Atlases: their laws against SciPy's, EM against closed forms, and matchings by enumeration."""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.io import savemat
from scipy.stats import multivariate_normal, multivariate_t, norm

import permvi as pv
from permvi.models import Animal, Atlas, AtlasMatching, read_animals
from permvi.models.atlas import estimate, widths
from permvi.models.atlas.animals import cells_by_label
from permvi.models.atlas.relations import log_ratios

LABELS = ("A", "B", "C")
MEANS = np.array([[0.0, 0.0], [2.0, 0.5], [-1.0, 3.0]])
COVARIANCES = np.array(
    [[[1.0, 0.3], [0.3, 0.5]], [[0.4, 0.0], [0.0, 0.9]], [[0.7, -0.2], [-0.2, 0.6]]]
)


def atlas_of(**changes):
    given = {"labels": LABELS, "features": ("x", "red"), "p_present": [0.9, 0.6, 0.3]}
    return Atlas.from_moments(MEANS, COVARIANCES, **{**given, **changes})


def animals(num=14, m=6, d=3, seed=0, missing=0.15, spread=0.25):
    rng = np.random.default_rng(seed)
    cells = 2 * rng.normal(size=(m, d)) + spread * rng.normal(size=(num, m, d))
    cells[rng.random((num, m)) < missing] = np.nan
    return cells


@pytest.mark.parametrize("df", [3.0, 12.0])
def test_log_t_is_that_of_scipy(df):
    x = np.random.default_rng(0).normal(size=(4, 2))
    roots = estimate.inverse_roots(COVARIANCES)
    found = estimate.log_t(x[:, None] - MEANS, roots, np.full(3, df))
    laws = [multivariate_t(mu, C, df) for mu, C in zip(MEANS, COVARIANCES, strict=True)]
    np.testing.assert_allclose(found, np.stack([law.logpdf(x) for law in laws], 1), rtol=1e-12)
    normal = estimate.log_t(x[:, None] - MEANS, roots, np.full(3, np.inf))
    laws = [multivariate_normal(mu, C) for mu, C in zip(MEANS, COVARIANCES, strict=True)]
    np.testing.assert_allclose(normal, np.stack([law.logpdf(x) for law in laws], 1), rtol=1e-12)


def test_missing_features_are_integrated_out():
    atlas = atlas_of(df=5.0, mistakes=0.1)
    grid = np.linspace(-400, 400, 160_001)
    whole = np.column_stack([np.full(len(grid), 0.7), grid])
    summed = trapezoid(np.exp(atlas.log_densities(whole)), grid, axis=0)
    found = atlas.log_densities(np.array([[0.7, np.nan], [0.1, 0.2]]))
    # Tails beyond the grid hold (400 / sd)^-5 of the mass.
    np.testing.assert_allclose(np.exp(found[0]), summed, rtol=1e-6)
    alone = trapezoid(np.exp(atlas.log_background(whole)), grid)
    np.testing.assert_allclose(np.exp(atlas.log_background(np.array([[0.7, np.nan]]))), alone)
    assert (atlas.log_densities(np.full((1, 2), np.nan)) == 0).all()


def test_em_without_tails_or_mistakes_is_the_shrunk_covariance():
    cells = animals()
    moments = estimate.expectation_maximisation(cells, estimate.Shape(4.0, 1e9, 1e-12))
    seen = np.isfinite(cells).all(-1)
    scatter = np.stack([(s.sum() - 1) * np.cov(cells[s, j].T) for j, s in enumerate(seen.T)])
    pooled = scatter.sum(0) / (seen.sum(0) - 1).sum()
    expected = (scatter + 4 * pooled) / (seen.sum(0) - 1 + 4)[:, None, None]
    np.testing.assert_allclose(moments.means, np.nanmean(cells, 0), rtol=1e-6)
    np.testing.assert_allclose(moments.covariances, expected, rtol=1e-5, atol=1e-7)


def test_em_reaches_a_stationary_point_of_the_likelihood():
    cells = animals(missing=0.0)
    shape = estimate.Shape(1e-9, 6.0, 0.02)
    m = estimate.expectation_maximisation(cells, shape)

    def likelihood(means):
        right = estimate.log_t(
            cells - means, estimate.inverse_roots(m.covariances), np.full(6, 6.0)
        )
        wrong = estimate.log_background(cells, m.center, m.spread)
        return np.logaddexp(np.log(0.98) + right, np.log(0.02) + wrong).sum()

    for j, k in ((0, 0), (3, 2)):
        step = np.zeros_like(m.means)
        step[j, k] = 1e-4
        slope = (likelihood(m.means + step) - likelihood(m.means - step)) / 2e-4
        curvature = (
            likelihood(m.means + step) - 2 * likelihood(m.means) + likelihood(m.means - step)
        ) / 1e-8
        # The mean is off by far less than its standard error.
        assert abs(slope) < 0.05 * np.sqrt(-curvature)


def test_mislabelled_cells_hardly_move_an_atlas():
    cells = animals(num=20, missing=0.0, spread=0.1)
    wrong = cells.copy()
    wrong[:3, [0, 1]] = wrong[:3, [1, 0]]
    found = Atlas.fit(wrong)
    right = cells[3:, :2].mean(0)
    assert np.abs(wrong.mean(0)[:2] - right).max() > 0.1
    # Robust weights differ from equal ones by less than four standard errors of the mean.
    np.testing.assert_allclose(found.means[:2], right, atol=4 * 0.1 / np.sqrt(17) / 2)


def test_widths_of_a_scattered_animal():
    rng = np.random.default_rng(5)
    cells = 6 * rng.normal(size=(40, 2)) + 0.2 * rng.normal(size=(20, 40, 2))
    atlas = Atlas.fit(cells, num_positions=1)
    new = atlas.means + np.array([2.0, 1.0]) * 0.2 * rng.normal(size=(40, 2))
    found = widths.infer_widths(atlas, new)
    # 40 residuals and a prior worth 30: between one and the truth, with a standard error of 0.15.
    pulled = np.sqrt((30 + 40 * np.array([4.0, 1.0])) / 70)
    np.testing.assert_allclose(found, pulled, atol=0.45)
    assert found[0] > 1.2 * found[1]
    same = widths.infer_widths(atlas_of(), MEANS)
    assert (same == 1).all()


def test_cells_of_labels_that_no_animal_has_shown_are_expected():
    cells = animals(num=5, m=8, missing=0.0)
    cells[:4, 0] = cells[1:, 3] = np.nan
    cells[:3, 5] = np.nan
    # Two labels are seen in one animal each; half a cell is added to what five animals have.
    assert Atlas.fit(cells).background == pytest.approx((2 + 0.5) / 5)


def enumerated(cells, atlas, background):
    """Posterior of matchings by their definition, with SciPy's densities."""
    n, m = len(cells), len(MEANS)
    laws = [multivariate_t(mu, C, 5.0) for mu, C in zip(MEANS, COVARIANCES, strict=True)]
    wide = multivariate_normal(atlas.center, atlas.spread)
    eps, p = atlas.mistakes, atlas.p_present
    table, alone, total = np.zeros((n, m)), np.zeros(n), 0.0
    for perm in itertools.product(range(-1, m), repeat=n):
        used = [j for j in perm if j >= 0]
        if len(set(used)) < len(used):
            continue
        weight = np.prod([p[j] if j in used else 1 - p[j] for j in range(m)])
        for i, j in enumerate(perm):
            g = wide.pdf(cells[i])
            weight *= background * g if j < 0 else (1 - eps) * laws[j].pdf(cells[i]) + eps * g
        total += weight
        for i, j in enumerate(perm):
            if j < 0:
                alone[i] += weight
            else:
                table[i, j] += weight
    return table / total, alone / total


def test_matchings_by_enumeration():
    atlas = atlas_of(df=5.0, mistakes=0.05, background=0.7)
    cells = np.array([[0.3, 0.1], [1.2, 0.4], [0.8, 2.0]])
    posterior = pv.fit(AtlasMatching(cells, atlas))
    table, alone = enumerated(cells, atlas, 0.7)
    np.testing.assert_allclose(posterior.marginals, table, atol=1e-9)
    np.testing.assert_allclose(posterior.p_unmatched_rows, alone, atol=1e-9)
    assert posterior.labels[1] == LABELS


def test_known_pairs_and_prior_scores():
    atlas = atlas_of()
    cells = MEANS[[1, 0]]
    # The cell lies where B is expected.
    model = AtlasMatching(cells, atlas, known={0: "C"}, labels=(("u", "v"), None))
    with pytest.warns(pv.FitWarning, match="does not fit the atlas"):
        posterior = pv.fit(model)
    assert posterior.marginals[0, 2] == 1.0
    pulled = np.zeros((2, 3))
    pulled[1, 2] = 60.0
    with pytest.warns(pv.FitWarning, match="does not fit the atlas"):
        posterior = pv.fit(AtlasMatching(cells, atlas, prior_scores=pulled))
    assert posterior.marginals[1, 2] > 0.99


def test_the_check_compares_with_animals_that_were_held_out():
    cells = animals(num=20, m=12)
    atlas = Atlas.fit(cells[1:])
    fine, far = (
        cells[0][np.isfinite(cells[0]).all(1)],
        3 * np.random.default_rng(1).normal(size=(9, 3)),
    )
    model = AtlasMatching(fine, atlas)
    posterior = pv.fit(model)
    assert posterior.diagnostics.verdict == "trust"
    assert posterior.check(model).verdict == "fits"
    model = AtlasMatching(far, atlas)
    with pytest.warns(pv.FitWarning, match="does not fit the atlas"):
        posterior = pv.fit(model)
    assert posterior.diagnostics.verdict == "check"
    assert posterior.check(model).verdict == "does not fit"
    # An atlas that was given has its own laws to compare with.
    given = AtlasMatching(MEANS + 30.0, atlas_of(mistakes=1e-6, background=1e-9))
    with pytest.warns(pv.FitWarning, match="animals drawn from it"):
        posterior = pv.fit(given)
    assert posterior.check(given).verdict == "does not fit"


def test_held_out_animals_are_rarely_called_misfits():
    cells = animals(num=32, m=8, seed=3)
    atlas = Atlas.fit(cells[:20])
    models = [AtlasMatching(one[np.isfinite(one).all(1)], atlas) for one in cells[20:]]
    # One in forty is; three of twelve would be a chance of one in 300.
    assert sum(pv.fit(model).check(model).verdict == "fits" for model in models) >= 10


def test_an_atlas_survives_its_file(tmp_path):
    atlas = Atlas.fit(animals(), labels="abcdef")
    loaded = Atlas.load(atlas.save(tmp_path / "atlas.npz"))
    assert loaded.labels == tuple("abcdef")
    assert loaded.settings == atlas.settings
    x = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(loaded.log_densities(x), atlas.log_densities(x))
    (tmp_path / "other.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="expected an atlas of permvi"):
        Atlas.load(tmp_path / "other.npz")


def test_animals_from_files(tmp_path):
    table = np.random.default_rng(0).normal(size=(2, 3, 4))
    table[1, :, 2] = np.nan
    names = np.array(["ALA", "AVG"], dtype=object)[None]
    savemat(tmp_path / "worms.mat", {"M": table, "N": names})
    found = read_animals(tmp_path / "worms.mat")
    assert [len(one) for one in found] == [2, 2, 1, 2]
    assert found[2].names == ("ALA",)
    np.testing.assert_array_equal(found[0].cells, table[:, :, 0])
    text = "worm,marker,x_px,name,red\nw1,7,1.5,ALA,3\nw1,8,2.5,,\nw2,7,0.5,AVG,4\n"
    (tmp_path / "cells.csv").write_text(text)
    first, second = read_animals(tmp_path / "cells.csv")
    assert (first.animal, first.ids, first.names) == ("w1", ("7", "8"), ("ALA", None))
    assert first.features == ("x_px", "red")
    assert np.isnan(first.cells[1, 1])
    assert second.names == ("AVG",)
    assert Atlas.fit(animals()).num_positions == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cell,name\n1,A\n", "expected columns of features"),
        ("cell,x\n", "expected a row for each cell"),
        ("cell,name,x\n1,A,1\n2,A,2\n", "'A' twice"),
        ("cell,name,x\n1,A,one\n", "expected a number"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, words):
    (tmp_path / "cells.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_animals(tmp_path / "cells.csv")


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="at least two"):
        Atlas.fit(animals(num=1))
    constant = animals()
    constant[..., 1] = np.where(np.isnan(constant[..., 1]), np.nan, 2.0)
    with pytest.raises(ValueError, match="a constant 'y'"):
        Atlas.fit(constant)
    with pytest.raises(ValueError, match="positive definite"):
        Atlas.from_moments(MEANS, -COVARIANCES)
    with pytest.raises(ValueError, match="features must be among"):
        AtlasMatching(Animal(np.zeros((2, 1)), (None, None), ("x",)), atlas_of())
    with pytest.raises(ValueError, match="align must be"):
        AtlasMatching(np.zeros((5, 2)), atlas_of(), align="rigid")
    with pytest.raises(ValueError, match="background must be None with align"):
        AtlasMatching(np.zeros((5, 2)), atlas_of(), align="affine", background=1.0)


@pytest.mark.slow
def test_a_wrong_frame_is_not_trusted_without_training_animals():
    rng = np.random.default_rng(5)
    means = rng.normal(size=(30, 3)) * [20, 8, 8]
    atlas = Atlas.from_moments(means, np.eye(3), features=("x", "y", "z"), p_present=0.9)
    verdicts = {"right": [], "wrong": []}
    for _ in range(10):
        cells = atlas._draw(rng)
        for name, given in (("right", cells), ("wrong", cells * [-1, 1, 1] + [4, 4, 0])):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pv.FitWarning)
                verdicts[name].append(pv.fit(AtlasMatching(given, atlas)).diagnostics.verdict)
    assert "trust" not in verdicts["wrong"]
    # Each is doubted by chance with probability .01.
    assert verdicts["right"].count("trust") >= 9


def test_drawn_animals_follow_the_atlas():
    atlas = atlas_of(mistakes=0.2, background=2.0)
    rng = np.random.default_rng(0)
    drawn = [atlas._draw(rng) for _ in range(4_000)]
    sizes = np.array([len(cells) for cells in drawn])
    variance = (atlas.p_present * (1 - atlas.p_present)).sum() + 2.0
    assert abs(sizes.mean() - atlas.p_present.sum() - 2.0) < 4 * np.sqrt(variance / len(sizes))
    cells = np.concatenate(drawn)
    total = atlas.p_present.sum() + 2.0
    away = atlas.p_present.sum() * atlas.mistakes + 2.0
    expected = (0.8 * atlas.p_present @ atlas.means + away * atlas.center) / total
    assert (abs(cells.mean(axis=0) - expected) < 4 * cells.std(axis=0) / np.sqrt(len(cells))).all()


def related(rng, num, m=6, apart=2.0):
    """Animals (num, m, 3) whose labels move with their predecessors, and the places."""
    moves = rng.normal(size=(num, m, 3))
    for j in range(1, m):
        moves[:, j] = 0.8 * moves[:, j - 1] + 0.6 * moves[:, j]
    return np.random.default_rng(7).normal(size=(m, 3)) * apart + 0.5 * moves


def test_ratios_of_related_cells_are_those_of_joint_densities(rng):
    first, second = rng.normal(size=(2, 5, 3))
    rho = np.array([0.5, -0.8, 0.0])
    first[4, 1] = np.nan
    found = log_ratios(first, second, rho)
    for a, b, value in zip(first, second, found, strict=True):
        total = 0.0
        for x, y, r in zip(a, b, rho, strict=True):
            if np.isfinite(x):
                joint = multivariate_normal([0, 0], [[1, r], [r, 1]]).logpdf([x, y])
                total += joint - norm.logpdf(x) - norm.logpdf(y)
        np.testing.assert_allclose(value, total, atol=1e-10)


def test_relations_are_learnt_where_there_are_some(rng):
    cells = related(rng, 60)
    atlas = Atlas.fit(cells)
    found = pv.models.Relations.fit(cells, atlas)
    assert {tuple(sorted(pair)) for pair in found.pairs.tolist()} == {(j, j + 1) for j in range(5)}
    # 60 animals and a prior of 20 with none: .8 becomes .6; their standard error is .08.
    assert np.abs(found.correlations - 0.6).max() < 0.25
    assert found.gain > 0.5
    alone = np.random.default_rng(7).normal(size=(6, 3)) + 0.5 * rng.normal(size=(60, 6, 3))
    none = pv.models.Relations.fit(alone, Atlas.fit(alone))
    assert none.gain < 0.02


def test_matchings_with_relations_are_those_of_enumeration(rng):
    """The exact method sums over all matchings; each density is a sum over pairs and relations."""
    cells = related(rng, 40, apart=0.7)
    atlas = Atlas.fit(cells)
    relations = pv.models.Relations.fit(cells, atlas)
    animal = related(rng, 1, apart=0.7)[0][:5]
    animal[1, 2] = np.nan
    model = AtlasMatching(animal, atlas, relations=relations)
    # Relations take the place of deformations.
    plain = AtlasMatching(animal, dataclasses.replace(atlas, deformation=None))
    tables = relations.tables(animal, atlas, plain.widths)
    perms, values = [], []
    for perm in itertools.product(range(-1, 6), repeat=5):
        labels = [j for j in perm if j >= 0]
        if len(set(labels)) < len(labels):
            continue
        value = sum(
            plain.row_unmatched[i] if j < 0 else plain.scores[i, j] for i, j in enumerate(perm)
        )
        for table, (a, b) in zip(tables, relations.pairs, strict=True):
            if a in perm and b in perm:
                value += table[perm.index(a), perm.index(b)]
        perms.append(perm)
        values.append(value)
    some = np.array(perms)[::97]
    dense = np.where(some[..., None] == np.arange(6), 1.0, 0.0)
    np.testing.assert_allclose(model.log_density_of(some), model.log_density(dense), rtol=1e-5)
    weights = np.exp(np.array(values) - np.logaddexp.reduce(values))
    truth = np.einsum("s,sij->ij", weights, np.array(perms)[..., None] == np.arange(6))
    np.testing.assert_allclose(pv.fit(model, "exact").marginals, truth, atol=1e-5)
    assert np.abs(pv.fit(plain).marginals - truth).max() > 0.05
    found = pv.fit(model, "linear", num_draws=20_000)
    assert found.diagnostics.verdict == "trust"
    fixed = AtlasMatching(animal, atlas, relations=relations, known=np.array([-1, 1, -1, -1, -1]))
    given = np.array(perms)[:, 1] == 1
    shares = weights[given] / weights[given].sum()
    rest = np.einsum("s,sij->ij", shares, np.array(perms)[given][..., None] == np.arange(6))
    np.testing.assert_allclose(pv.fit(fixed, "linear").marginals, rest, atol=0.06)
    # With 20,000 draws, of which a third or more count, standard errors are at most .006.
    np.testing.assert_allclose(found.marginals, truth, atol=0.025)


def test_relations_need_animals_and_no_frame(rng):
    cells = related(rng, 8)
    atlas = Atlas.fit(cells)
    with pytest.raises(ValueError, match="at least 5"):
        pv.models.Relations.fit(cells[:4], atlas)
    relations = pv.models.Relations(np.array([[0, 1]]), np.full((1, 3), 0.5), 0.1)
    with pytest.raises(ValueError, match="relations must be None with align"):
        AtlasMatching(cells[0], atlas, align="similarity", relations=relations)
    known = Atlas.from_moments(cells[0], np.eye(3))
    with pytest.raises(ValueError, match="atlas must be learnt, with coordinates"):
        pv.models.Relations.fit(cells, known)


@pytest.mark.parametrize("align", ["similarity", "affine"])
def test_animals_are_brought_into_one_frame_by_their_labels(rng, align):
    """Without noise they coincide; with it, what remains is the noise."""
    shape = rng.normal(size=(30, 4)) * [3, 1, 1, 2]
    for noise in (0.0, 0.05):
        animals, plain = [], []
        for k in range(5):
            turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
            linear = np.zeros((4, 4))
            linear[:3, :3] = turn * np.linalg.det(turn) * rng.uniform(0.7, 1.4)
            if align == "affine":
                linear[:3, :3] += 0.1 * rng.normal(size=(3, 3))
            linear[3, 3] = rng.uniform(0.5, 2)
            seen = np.flatnonzero((rng.random(30) > 0.2) | (k == 0))
            cells = shape[seen] + noise * rng.normal(size=(len(seen), 4))
            cells = cells @ linear.T + rng.normal(size=4)
            plain.append(Animal(cells, tuple(f"N{j}" for j in seen), ("x", "y", "z", "red")))
        animals = pv.models.align_animals(plain, align)
        # The first animal has all labels, so the frame is near its own.
        assert np.abs(animals[0].cells - plain[0].cells).max() < 1e-6 + 6 * noise
        size = plain[0].cells[:, :3].std() / shape[:, :3].std()
        table = cells_by_label(animals, tuple(f"N{j}" for j in range(30)))
        apart = np.nanstd(table[..., :3], axis=0, ddof=1)
        assert (np.nanmean(apart**2) ** 0.5 < 1e-6) if noise == 0 else True
        # Each animal's map takes 7 or 12 of about 75 degrees of freedom.
        assert noise == 0 or 0.8 < np.nanmean(apart**2) ** 0.5 / (noise * size) < 1.15
    with pytest.raises(ValueError, match="share at least 5 labels"):
        pv.models.align_animals(
            [plain[0], Animal(cells[:3], ("N1", "N2", "N3"), plain[0].features)]
        )
