import numpy as np
import pytest

from permvi.posterior import Diagnostics, diagnose, judge

ROWS = np.array([0.01, 0.02, 0.0, 0.01])


def rows(worst):
    values = ROWS.copy()
    values[2] = worst
    return values


@pytest.mark.parametrize(
    ("signals", "verdict", "reason"),
    [
        ({"exact": True}, "trust", "computed exactly"),
        ({"exact": True, "ess_per_draw": 0.0, "converged": False}, "trust", "computed exactly"),
        ({}, "check", "no independent fit was compared"),
        ({"ess_per_draw": 0.9}, "check", "no independent fit was compared"),
        ({"disagreement_by_row": ROWS}, "check", "no weights compare the draws with the model"),
        ({"disagreement_by_row": ROWS, "ess_per_draw": np.nan}, "check", "no weights compare"),
        ({"disagreement_by_row": ROWS, "ess_per_draw": 0.5}, "trust", "agree to within 0.02"),
        ({"disagreement_by_row": rows(0.03), "ess_per_draw": 0.1}, "trust", "agree to within 0.03"),
        ({"disagreement_by_row": rows(0.05), "ess_per_draw": 0.5}, "check", "disagree by 0.05"),
        ({"disagreement_by_row": rows(0.1), "ess_per_draw": 0.5}, "check", "disagree by 0.10"),
        ({"disagreement_by_row": rows(0.31), "ess_per_draw": 0.5}, "do not trust", "0.31 on row 2"),
        ({"disagreement_by_row": rows(np.nan), "ess_per_draw": 0.5}, "do not trust", "on row 2"),
        ({"disagreement_by_row": ROWS, "ess_per_draw": 0.09}, "check", "worth only 0.09"),
        ({"disagreement_by_row": ROWS, "ess_per_draw": 0.009}, "do not trust", "worth only 0.009"),
        ({"ess_per_draw": 0.001}, "do not trust", "worth only 0.001"),
        ({"bias_by_row": ROWS, "converged": False}, "trust", "to within 0.02"),
        ({"bias_by_row": rows(0.06), "ess_per_draw": 0.9}, "check", "by 0.06 on row 2"),
        ({"bias_by_row": 10 * ROWS + 0.01}, "do not trust", "by 0.21 on row 1"),
        ({"bias_by_row": rows(np.nan)}, "do not trust", "by 1.00 on row 2"),
        ({"missed_mass": 0.01, "ess_per_draw": 0.5}, "trust", "missed modes found 1 % of"),
        ({"missed_mass": 1e-145, "ess_per_draw": 0.5}, "trust", "found less than 0.0001 % of"),
        ({"missed_mass": 0.06, "ess_per_draw": 0.5}, "check", "a search found 6 % of"),
        ({"missed_mass": 0.21, "ess_per_draw": 0.5}, "do not trust", "the fit misses modes"),
        ({"missed_mass": 0.0, "sampling_error_by_row": ROWS}, "trust", "missed modes found 0 % of"),
        ({"missed_mass": 0.0, "sampling_error_by_row": 4 * ROWS}, "check", "about 4 % of an"),
        ({"missed_mass": 0.0, "sampling_error_by_row": 20 * ROWS}, "do not trust", "about 20 %"),
        ({"missed_mass": 0.0, "sampling_error_by_row": ROWS, "ess_per_draw": 0.004}, "check",
         "itself uncertain"),
        ({"missed_mass": 0.0, "sampling_error_by_row": ROWS, "ess_per_draw": 0.006}, "trust",
         "missed modes"),
        ({"missed_mass": 0.0, "sampling_error_by_row": rows(np.nan)}, "do not trust", "about "),
        ({"missed_mass": 0.0, "disagreement_by_row": rows(0.05), "ess_per_draw": 0.5}, "check",
         "disagree by 0.05"),
        ({"sampling_error_by_row": ROWS}, "check", "no independent fit was compared"),
        ({"disagreement_by_row": ROWS, "ess_per_draw": 0.5, "converged": False}, "check", "not c"),
        ({"disagreement_by_row": ROWS, "ess_per_draw": 0.5, "r_hat": 1.2}, "check", "R-hat 1.20"),
        ({"disagreement_by_row": ROWS, "ess_per_draw": 0.5, "r_hat": np.nan}, "trust", "agree"),
    ],
)  # fmt: skip
def test_verdict_and_its_first_reason(signals, verdict, reason):
    judgement = judge(**signals)
    assert judgement.verdict == verdict
    assert reason in judgement.reasons[0]


def test_reasons_name_row_label_site_and_remedy():
    by_row = np.zeros((2, 3))
    by_row[1, 2] = 0.31
    labels = ["a", "b", "AVAL"]
    reason = judge(disagreement_by_row=by_row, row_labels=labels).reasons[0]
    assert reason == (
        "two fits disagree by 0.31 on item 'AVAL' (row 2 of site 1): its marginals may be wrong; "
        "try method='mcmc' or more restarts"
    )
    advised = judge(disagreement_by_row=by_row[1], advice="add steps").reasons[0]
    assert advised.endswith("on row 2: its marginals may be wrong; add steps")


@pytest.mark.parametrize("k_hat", [-np.inf, 0.2, 0.9, np.inf, np.nan])
def test_k_hat_and_evidence_gap_decide_nothing(k_hat):
    for ess in (0.5, 0.05, 0.001):
        signals = {"ess_per_draw": ess, "disagreement_by_row": ROWS}
        plain = judge(**signals)
        remarked = judge(**signals, k_hat=k_hat, evidence_gap=5.0)
        assert remarked.verdict == plain.verdict
        assert remarked.reasons[: len(plain.reasons)] == plain.reasons
        assert any("k-hat" in reason for reason in remarked.reasons) == bool(k_hat > 0.7)
        assert any("5.0 nats" in reason for reason in remarked.reasons)


def test_diagnose_keeps_the_signals(rng):
    trace = rng.normal(size=5)
    found = diagnose(
        disagreement_by_row=ROWS, ess_per_draw=np.float32(0.5), elbo_trace=trace,
        converged=np.True_, vertex_distance=0.1, extras={"swaps": [1, 2]},
    )  # fmt: skip
    assert found.verdict == "trust"
    assert found.disagreement == ROWS.max()
    assert type(found.ess_per_draw) is float
    assert found.converged is True
    np.testing.assert_array_equal(found.elbo_trace, trace)
    assert not found.elbo_trace.flags.writeable
    np.testing.assert_array_equal(found.extras["swaps"], [1, 2])


def test_unknown_verdict_is_refused():
    with pytest.raises(ValueError, match="verdict must be one of 'trust', 'check'"):
        Diagnostics("maybe", ())
