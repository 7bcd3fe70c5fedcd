"""Every method keeps its word on every linear matching problem, or says in a sentence why not."""

import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import permvi as pv
from tests.properties.problems import Case, cases, solve

HOST = ("auto", "exact", "linear", "map", "sinkhorn", "bethe", "convex")
COMPILED = {
    "sequential": {"num_steps": 100},
    "stick_breaking_discrete": {"num_steps": 100},
    "mcmc": {"num_steps": 2000},
    "importance": {},
    "perturb_and_map": {},
    "quadratic": {},
    "naive": {},
    "vmf": {},
    "fourier": {},
    "mallows": {},
    "plackett_luce": {},
    "rounding": {"num_steps": 60},
    "stick_breaking": {"num_steps": 60},
    "gumbel_sinkhorn": {},
}
# The word of a verdict: "trust" means that rows are closer to the truth than this.
TRUSTED = 0.1


def fitted(case, method, seed=0, **options):
    """Return the posterior, or None if the method refuses the problem in one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pv.FitWarning)
            return pv.fit(pv.models.LinearMatching(**case.arguments), method, seed, **options)
    except (ValueError, TypeError) as error:
        message = str(error)
        assert message.rstrip(".?")
        assert "\n" not in message
        return None


def check(case, posterior):
    """Check all that holds for every posterior of this problem, and return the right answer."""
    answer = solve(case)
    assert answer is not None, "an answer to a problem that has none"
    marginals, n, m = posterior.marginals, *posterior.shape
    if not isinstance(marginals, np.ndarray):
        marginals = marginals.toarray()
    parts = (marginals, posterior.p_unmatched_rows, posterior.p_unmatched_cols)
    for part in parts:
        assert np.isfinite(part).all()
        assert part.min(initial=0.0) >= 0
        assert part.max(initial=0.0) <= 1
    np.testing.assert_allclose(marginals.sum(1) + parts[1], np.ones(n), rtol=0, atol=1e-6)
    np.testing.assert_allclose(marginals.sum(0) + parts[2], np.ones(m), rtol=0, atol=1e-6)
    if case.mask is not None:
        assert (marginals[~case.mask] == 0).all()
    if case.known is not None:
        rows = np.flatnonzero(case.known >= 0)
        assert (marginals[rows, case.known[rows]] == 1).all()
    if posterior.log_evidence is not None:
        assert np.isfinite(posterior.log_evidence)
    if posterior.diagnostics.verdict == "trust":
        off = np.abs(marginals - answer.marginals).sum(1)
        off = (off + np.abs(parts[1] - answer.p_unmatched_rows)) / 2
        assert off.max() < TRUSTED
    return answer


@pytest.mark.parametrize("method", HOST)
@given(case=cases(), seed=st.integers(0, 2**32 - 1))
# Known pairs that leave nothing open, once without a matching for the rest.
@example(Case(np.zeros((2, 1)), None, np.array([0, -1]), np.array([0.5, -np.inf])), 0)
@example(Case(np.array([[0.18859533164008996], [0.0]]), None, np.array([0, -1])), 0)
def test_methods_on_the_host_keep_their_word(method, case, seed):
    posterior = fitted(case, method, seed)
    if posterior is None:
        assert method != "exact" or solve(case) is None
        return
    answer = check(case, posterior)
    if posterior.log_evidence_kind == "exact":
        size = 1 + np.abs(np.asarray(case.scores, float)).sum()
        assert posterior.log_evidence == pytest.approx(answer.log_evidence, abs=1e-12 * size + 1e-9)
    if method == "exact":
        # What float64 leaves of differences between large numbers.
        digits = 1e-8 + 1e-14 * np.abs(np.asarray(case.scores, float)).max()
        np.testing.assert_allclose(posterior.marginals, answer.marginals, rtol=0, atol=digits)


@pytest.mark.compiles
@pytest.mark.parametrize("method", COMPILED)
@given(data=st.data())
def test_compiled_methods_keep_their_word(method, data):
    # Few shapes, so that few programmes are compiled.
    case = data.draw(cases(shapes=((4, 4), (3, 4), (4, 3))))
    posterior = fitted(case, method, data.draw(st.integers(0, 9)), **COMPILED[method])
    if posterior is not None:
        check(case, posterior)


@given(case=cases(), data=st.data())
def test_the_order_of_rows_and_columns_does_not_matter(case, data):
    before = fitted(case, "exact")
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
    after = fitted(moved, "exact")
    assert (after is None) == (before is None)
    if before is not None:
        digits = 1e-8 + 1e-14 * np.abs(np.asarray(case.scores, float)).max()
        want = before.marginals[rows][:, cols]
        np.testing.assert_allclose(after.marginals, want, rtol=0, atol=digits)
        assert after.log_evidence == pytest.approx(before.log_evidence, rel=1e-9, abs=1e-9)


@given(case=cases())
@example(Case(np.zeros((2, 1)), col_unmatched=-np.inf))
def test_items_and_labels_may_change_places(case):
    before = fitted(case, "exact")
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
    after = fitted(other, "exact")
    assert (after is None) == (before is None)
    if before is not None:
        digits = 1e-8 + 1e-14 * np.abs(np.asarray(case.scores, float)).max()
        np.testing.assert_allclose(after.marginals.T, before.marginals, rtol=0, atol=digits)
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
    alone = [fitted(case, "exact") for case in parts]
    together = fitted(Case(scores, mask, known), "exact")
    assert (together is None) == (None in alone)
    if together is not None:
        digits = 1e-8 + 1e-14 * np.abs(scores).max()
        got = together.marginals
        np.testing.assert_allclose(got[:n, :n], alone[0].marginals, rtol=0, atol=digits)
        np.testing.assert_allclose(got[n:, n:], alone[1].marginals, rtol=0, atol=digits)
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
