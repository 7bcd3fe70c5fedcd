"""Methods side by side."""

import dataclasses

import numpy as np
import pytest

import permvi as pv
from permvi._tables import html_table, markdown_table, text_table

SCORES = np.array([[2.0, 1.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.5], [0, 0, 1, 1]])


@pytest.fixture(scope="module")
def comparison():
    model = pv.models.LinearMatching(SCORES)
    names = ["exact", "sinkhorn", "map", "mallows"]
    return pv.compare(model, names, options={"mallows": {"theta": 1.0}})


def test_errors_are_against_the_exact_answer(comparison):
    by_name = {row.method: row for row in comparison}
    exact = pv.fit(pv.models.LinearMatching(SCORES), "exact")
    assert by_name["exact"].tv_mean == by_name["exact"].log_evidence_error == 0
    assert by_name["exact"].hellinger < 1e-6
    found = comparison.posteriors["map"]
    by_row = 0.5 * np.abs(found.marginals - exact.marginals).sum(axis=1)
    assert by_name["map"].tv_mean == pytest.approx(by_row.mean())
    assert by_name["map"].tv_max == pytest.approx(by_row.max())
    # A point mass on x has overlap sqrt(p(x)) with p.
    overlap = np.exp(0.5 * exact.log_prob(found.mode))
    assert by_name["map"].hellinger == pytest.approx(np.sqrt(1 - overlap))
    gap = found.log_evidence - exact.log_evidence
    assert by_name["map"].log_evidence_error == pytest.approx(gap)
    assert by_name["map"].verdict == found.diagnostics.verdict == "do not trust"
    assert by_name["mallows"].evaluations == comparison.posteriors["mallows"].num_evaluations


def test_hellinger_of_a_law_with_probabilities(comparison):
    perms = np.asarray(pv.permutations.enumerate_permutations(4))
    exact, mallows = comparison.exact, comparison.posteriors["mallows"]
    expected = pv.metrics.hellinger(np.exp(exact.log_prob(perms)), np.exp(mallows.log_prob(perms)))
    row = next(row for row in comparison if row.method == "mallows")
    assert row.hellinger == pytest.approx(float(expected))


def test_the_table_prints(comparison):
    lines = repr(comparison).splitlines()
    assert lines[0].split()[:3] == ["method", "tv_mean", "tv_max"]
    assert "refused" not in lines[0]
    assert len(lines) == 2 + 4
    assert comparison.to_markdown().count("\n") == 5
    assert "<td>sinkhorn</td>" in comparison._repr_html_()
    frame = comparison.to_frame()
    assert list(frame["method"]) == ["exact", "sinkhorn", "map", "mallows"]
    assert list(frame.columns) == [field.name for field in dataclasses.fields(comparison[0])]


def test_what_a_method_refuses_is_a_row():
    model = pv.models.LinearMatching(SCORES, mask=~np.eye(4, dtype=bool)[::-1])
    table = pv.compare(model, ["mallows", "sinkhorn"])
    assert "no mask for method 'mallows'" in table[0].refused
    assert table[0].tv_mean is None
    assert not table[1].refused
    assert "refused" in repr(table).splitlines()[0]


def test_without_an_exact_answer_there_are_no_errors():
    rng = np.random.default_rng(0)
    table = pv.compare(pv.models.LinearMatching(rng.normal(size=(30, 30))), ["sinkhorn"])
    assert table.exact is None
    assert table[0].tv_mean is table[0].hellinger is table[0].log_evidence_error is None
    assert table[0].verdict == "check"


def test_functions_are_models_too():
    table = pv.compare(lambda X: (X * SCORES).sum(), ["exact"], n=4)
    assert table[0].verdict == "trust"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"methods": ["exat"]}, ValueError, "did you mean 'exact'"),
        ({"methods": "exact"}, TypeError, "methods must be a list of names, got 'exact'"),
        ({"options": {"exat": {}}}, ValueError, "did you mean 'exact'"),
    ],
)
def test_mistakes(arguments, error, message):
    with pytest.raises(error, match=message):
        pv.compare(pv.models.LinearMatching(SCORES), **arguments)


def test_mistaken_options_are_not_taken_for_a_refusal():
    with pytest.raises(ValueError, match="options of method 'sinkhorn'"):
        pv.compare(
            pv.models.LinearMatching(SCORES), ["sinkhorn"], options={"sinkhorn": {"step": 1}}
        )


def test_cells_stay_text():
    header, rows = ["a|b", "c"], [["<b>", "|"]]
    assert "&lt;b&gt;" in html_table(header, rows)
    assert markdown_table(header, rows).splitlines()[0] == "| a\\|b | c |"
    assert text_table(header, rows).splitlines()[1] == "---  -"
