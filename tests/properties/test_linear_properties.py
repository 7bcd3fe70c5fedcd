"""Every method keeps its word on every linear matching problem, or says in a sentence why not."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import permvi as pv
from tests.properties.checks import COMPILED, HOST, PRECISE, check, fitted, rounding
from tests.properties.conftest import UNSHRUNK
from tests.properties.problems import Case, cases, solve


def fit_case(case, method, seed=0, **options):
    return fitted(lambda: pv.models.LinearMatching(**case.arguments), method, seed, **options)


def error_of(case):
    """About what float64 does to the log weights of a case."""
    return rounding(
        *(part for name, part in case.arguments.items() if name not in ("mask", "known"))
    )


def compare(case, got, want):
    """Compare exact marginals, to what float64 leaves of differences between large numbers."""
    if error_of(case) < PRECISE:
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-8 + 10 * error_of(case))


def check_case(case, posterior):
    """Check all that holds for every posterior of this problem, and return the right answer."""
    answer = solve(case)
    mask = np.isfinite(np.asarray(case.scores, float))
    mask = mask if case.mask is None else mask & case.mask
    check(posterior, [answer], [mask], [case.known], error_of(case))
    return answer


@pytest.mark.parametrize("method", HOST)
@given(case=cases(), seed=st.integers(0, 2**32 - 1))
# Known pairs that leave nothing open, once without a matching for the rest.
@example(Case(np.zeros((2, 1)), None, np.array([0, -1]), np.array([0.5, -np.inf])), 0)
@example(Case(np.array([[0.18859533164008996], [0.0]]), None, np.array([0, -1])), 0)
def test_methods_on_the_host_keep_their_word(method, case, seed):
    posterior = fit_case(case, method, seed)
    if posterior is None:
        assert method != "exact" or solve(case) is None
        return
    answer = check_case(case, posterior)
    if posterior.log_evidence_kind == "exact" and error_of(case) < PRECISE:
        digits = 1e-9 + error_of(case)
        assert posterior.log_evidence == pytest.approx(answer.log_evidence, abs=digits)
    if method == "exact":
        compare(case, posterior.marginals, answer.marginals)


@pytest.mark.compiles
@pytest.mark.parametrize("method", COMPILED)
@settings(phases=UNSHRUNK)
@given(data=st.data())
def test_compiled_methods_keep_their_word(method, data):
    # Few shapes, so that few programmes are compiled.
    case = data.draw(cases(shapes=((4, 4), (3, 4), (4, 3))))
    posterior = fit_case(case, method, data.draw(st.integers(0, 9)), **COMPILED[method])
    if posterior is not None:
        check_case(case, posterior)


@given(case=cases(), data=st.data())
def test_the_order_of_rows_and_columns_does_not_matter(case, data):
    before = fit_case(case, "exact")
    n, m = np.shape(case.scores)
    rows = np.array(data.draw(st.permutations(range(n))))
    cols = np.array(data.draw(st.permutations(range(m))))
    place = np.append(np.argsort(cols), -1)
    moved = Case(
        case.scores[rows][:, cols],
        None if case.mask is None else case.mask[rows][:, cols],
        None if case.known is None else place[case.known[rows]],
        case.row_unmatched if np.ndim(case.row_unmatched) == 0 else case.row_unmatched[rows],
        case.col_unmatched if np.ndim(case.col_unmatched) == 0 else case.col_unmatched[cols],
    )
    after = fit_case(moved, "exact")
    assert (after is None) == (before is None)
    if before is not None:
        compare(case, after.marginals, before.marginals[rows][:, cols])
        assert after.log_evidence == pytest.approx(before.log_evidence, rel=1e-9, abs=1e-9)


@given(case=cases())
@example(Case(np.zeros((2, 1)), col_unmatched=-np.inf))
def test_items_and_labels_may_change_places(case):
    before = fit_case(case, "exact")
    n, m = np.shape(case.scores)
    known = None
    if case.known is not None:
        known = np.full(m, -1)
        found = np.flatnonzero(case.known >= 0)
        known[case.known[found]] = found
    rows, cols = case.row_unmatched, case.col_unmatched
    if rows is not None and cols is None:
        # The rule is not symmetric: weights of rows let columns stay unused, at no cost.
        cols = 0.0
    elif rows is None and cols is not None:
        rows = 0.0 if n > m else -np.inf
    other = Case(case.scores.T, None if case.mask is None else case.mask.T, known, cols, rows)
    after = fit_case(other, "exact")
    assert (after is None) == (before is None)
    if before is not None:
        compare(case, after.marginals.T, before.marginals)
        assert after.log_evidence == pytest.approx(before.log_evidence, rel=1e-9, abs=1e-9)


@given(first=cases(shapes=((2, 2), (3, 3))), second=cases(shapes=((2, 2), (3, 3))))
def test_blocks_are_solved_by_themselves(first, second):
    # Without weights of staying unmatched, which would let the blocks share their surplus.
    parts = [case._replace(row_unmatched=None, col_unmatched=None) for case in (first, second)]
    n, total = len(first.scores), len(first.scores) + len(second.scores)
    scores, mask = np.zeros((total, total)), np.zeros((total, total), bool)
    known = np.full(total, -1)
    for part, case in zip((slice(0, n), slice(n, total)), parts, strict=True):
        scores[part, part] = case.scores
        mask[part, part] = True if case.mask is None else case.mask
        if case.known is not None:
            known[part] = np.where(case.known >= 0, case.known + part.start, -1)
    alone = [fit_case(case, "exact") for case in parts]
    together = fit_case(Case(scores, mask, known), "exact")
    assert (together is None) == (None in alone)
    if together is not None:
        whole, got = Case(scores), together.marginals
        compare(whole, got[:n, :n], alone[0].marginals)
        compare(whole, got[n:, n:], alone[1].marginals)
        want = alone[0].log_evidence + alone[1].log_evidence
        assert together.log_evidence == pytest.approx(want, rel=1e-9, abs=1e-8)


BAD = [
    "text", None, [], [[]], [1.0, 2.0], [[1.0, np.nan]], [[np.inf]], [["a"]], [[1j]], [[True]],
    np.zeros((2, 0)), np.zeros((1, 1, 1, 1)), [[1.0], [1.0, 2.0]], object(), [[None]], 3.0,
    [[10**400]], np.array([["2020-01-01"]], "datetime64[D]"), np.zeros((2, 2), "V8"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("name", [*Case._fields, "labels", "prior_scores"])
def test_nonsense_is_refused_in_a_sentence(name, bad):
    arguments = {"scores": np.eye(2), name: bad}
    message = None
    try:
        model = pv.models.LinearMatching(**arguments)
    except (ValueError, TypeError) as error:
        message = str(error)
    if message is not None:
        assert "\n" not in message
        assert len(message) < 300
    else:
        # A few of them are fine as what they are.
        assert np.isfinite(pv.fit(model, "exact").log_evidence)
