"""Every method keeps its word on every model: points, graphs, functions, lists, several sites."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import permvi as pv
from tests.properties.checks import COMPILED, HOST, check, fitted, rounding
from tests.properties.conftest import EXAMPLES, UNSHRUNK
from tests.properties.problems import Case, cases, solve
from tests.properties.worlds import WORLDS

# Few shapes, so that few programmes are compiled.
SHAPES = ((3, 3), (4, 4), (3, 4), (4, 3))
# Those of densities that are JAX functions, which compile for seconds.
FEW = {"graphs": ((3, 3), (3, 4))}
# Fits in JAX take a hundred times as long as those on the host.
FEWER = settings(max_examples=max(1, EXAMPLES // 20), phases=UNSHRUNK)


def check_world(world, posterior):
    answers = world.answers()
    masks = [given.get("mask") for _, given in world.sites]
    knowns = [given.get("known") for _, given in world.sites]
    sizes = [values for values, _ in world.sites]
    check(posterior, answers, masks, knowns, rounding(*sizes))
    if world.labels is not None:
        assert [list(names) for names in posterior.labels] == world.labels


@pytest.mark.parametrize("kind", WORLDS)
@given(data=st.data())
def test_methods_on_the_host_keep_their_word(kind, data):
    world = data.draw(WORLDS[kind](FEW.get(kind, SHAPES)))
    method = data.draw(st.sampled_from(HOST))
    posterior = fitted(world.make, method, data.draw(st.integers(0, 2**32 - 1)))
    if posterior is not None:
        check_world(world, posterior)
    else:
        assert method != "exact" or None in world.answers()


@pytest.mark.compiles
@pytest.mark.parametrize("method", COMPILED)
@pytest.mark.parametrize("kind", WORLDS)
@FEWER
@given(data=st.data())
def test_compiled_methods_keep_their_word(kind, method, data):
    world = data.draw(WORLDS[kind](((3, 3),) if kind == "graphs" else ((4, 4), (3, 4))))
    posterior = fitted(world.make, method, data.draw(st.integers(0, 9)), **COMPILED[method])
    if posterior is not None:
        check_world(world, posterior)


def linear(case):
    return lambda: pv.models.LinearMatching(**case.arguments)


# Methods that draw nothing, and so answer alike to questions that are alike.
SURE = ("exact", "linear", "map", "sinkhorn", "bethe")


@given(data=st.data())
def test_constants_change_the_evidence_alone(data):
    case = data.draw(cases(shapes=SHAPES, plain=True))
    scores = np.asarray(case.scores, float)
    n, m = scores.shape
    if np.abs(scores[np.isfinite(scores)]).max(initial=0.0) > 1e5:
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    far = data.draw(st.sampled_from((1.0, 1e4, 1e8)))
    # A constant in a row that need not be matched would change the posterior.
    u, v = far * rng.normal(size=n) * (n <= m), far * rng.normal(size=m) * (n >= m)
    method = data.draw(st.sampled_from(SURE))
    moved = case._replace(scores=scores + u[:, None] + v)
    before, after = (fitted(linear(one), method) for one in (case, moved))
    assert (before is None) == (after is None)
    if before is None:
        return
    if method != "map":
        # Seven decimals are left of 1e8; iterations stop at tolerances of their own. Of several
        # best matchings "map" may find any.
        np.testing.assert_allclose(after.marginals, before.marginals, rtol=0, atol=2e-4)
    if before.log_evidence is not None:
        added = u.sum() + v.sum()
        assert after.log_evidence - added == pytest.approx(before.log_evidence, abs=1e-3)
    if method != "map":
        assert after.diagnostics.verdict == before.diagnostics.verdict


@given(data=st.data())
def test_the_order_of_rows_and_columns_does_not_matter_to_methods(data):
    case = data.draw(cases(shapes=SHAPES, plain=True))._replace(known=None)
    if rounding(case.scores) > 1e-9:
        return
    method = data.draw(st.sampled_from(SURE))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rows, cols = (rng.permutation(size) for size in np.shape(case.scores))
    moved = Case(np.asarray(case.scores)[rows][:, cols])
    before, after = (fitted(linear(one), method) for one in (case, moved))
    assert (before is None) == (after is None)
    if before is None:
        return
    if method == "map":
        # Of several best matchings any may be found.
        assert after.log_evidence == pytest.approx(before.log_evidence, abs=1e-6)
        return
    np.testing.assert_allclose(after.marginals, before.marginals[rows][:, cols], rtol=0, atol=2e-4)


@given(data=st.data())
def test_float64_changes_no_answer_of_the_host(data):
    case = data.draw(cases(shapes=SHAPES))
    method = data.draw(st.sampled_from(SURE))
    found = []
    for enabled in (False, True):
        with jax.enable_x64(enabled):
            found.append(fitted(linear(case), method))
    finite = np.asarray(case.scores, float)[np.isfinite(np.asarray(case.scores, float))]
    # Differences beyond this are refused in float32.
    if finite.max(initial=0.0) - finite.min(initial=0.0) < 1e30:
        assert (found[0] is None) == (found[1] is None)
    if None not in found and rounding(case.scores) < 1e-9:
        # Scaling is iterated in JAX's precision, the others compute in float64 anyway. Where the
        # best beliefs are a matching, a residual of eps leaves an error of its root.
        root = float(np.sqrt(np.finfo(np.float32).eps))
        digits = {"sinkhorn": 2e-4, "bethe": 4 * root}.get(method, 1e-6)
        np.testing.assert_allclose(found[0].marginals, found[1].marginals, rtol=0, atol=digits)


@given(case=cases(shapes=((2, 2), (2, 3), (3, 3))), data=st.data())
def test_a_table_and_its_copy_in_two_blocks_agree(case, data):
    # Two copies side by side, each of which must answer as the one does.
    if case.row_unmatched is not None or case.col_unmatched is not None:
        return
    scores = np.asarray(case.scores, float)
    n, m = scores.shape
    if n != m or solve(case) is None:
        return
    method = data.draw(st.sampled_from(SURE))
    inside = np.ones((n, m), bool) if case.mask is None else case.mask
    mask = np.zeros((2 * n, 2 * m), bool)
    mask[:n, :m] = mask[n:, m:] = inside
    twice = Case(np.tile(scores, (2, 2)), mask)
    one, both = fitted(linear(case._replace(known=None)), method), fitted(linear(twice), method)
    if one is None or rounding(scores) > 1e-9:
        return
    for part in (slice(0, n), slice(n, 2 * n)):
        if method == "map":
            continue
        got = both.marginals[part, part]
        np.testing.assert_allclose(got, one.marginals, rtol=0, atol=2e-4)
    # The bounds of scaling are not sums over blocks.
    if method not in ("sinkhorn", "bethe"):
        assert both.log_evidence == pytest.approx(2 * one.log_evidence, abs=2e-3)
