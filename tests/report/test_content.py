"""The numbers in a report against the posterior's own summaries."""

import numpy as np
import pytest

from permvi.posterior import Posterior
from permvi.posterior.items import UNMATCHED
from permvi.report import content, words
from tests.posterior import cases as problems


@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_tables_say_what_the_item_summaries_say(name, rng):
    problem = problems.PROBLEMS[name](rng)
    shape = problem["scores"].shape
    labels = [f"row {i}" for i in range(shape[-2])], [f"col {j}" for j in range(shape[-1])]
    posterior = problems.make("exact", problem, rng, labels=labels)
    found = content.tables(posterior, posterior.mode, 0.95)
    names = [*labels[1], UNMATCHED]
    items = iter(posterior.item_summaries(0.95))
    for site in found["sites"]:
        for row in range(shape[-2]):
            item = next(items)
            begin, end = site["starts"][row : row + 2]
            states = [names[state] for state in site["states"][begin:end]]
            probs = np.array(site["millionths"][begin:end]) / 1e6
            assert states[0] == item.best
            assert probs[0] == pytest.approx(item.probability, abs=5e-7)
            assert tuple(states[: site["sizes"][row]]) == item.credible_set
            assert (np.diff(probs) <= 0).all()
            alone = probs[states.index(UNMATCHED)] if UNMATCHED in states else 0.0
            assert alone == pytest.approx(item.p_unmatched, abs=1e-4)
        assert sorted(site["order"]) == list(range(shape[-2]))
    assert next(items, None) is None
    assert found["rows_may_be_alone"] == (posterior.p_unmatched_rows.max() > 1e-6)
    assert found["cols_may_be_alone"] == (posterior.p_unmatched_cols.max() > 1e-6)


def test_what_is_left_out_is_small_and_stated(monkeypatch):
    shares = np.array([0.6, 0.3, 0.09995, 5e-5])
    perms = np.array([np.roll(np.arange(4), k) for k in range(4)])
    posterior = Posterior.from_draws(perms, np.log(shares), shape=(4, 4))
    found = content.tables(posterior, posterior.mode, 0.95)
    assert found["left_out"] == pytest.approx(5e-5)
    assert found["sites"][0]["starts"] == [0, 3, 6, 9, 12]
    monkeypatch.setattr(content, "_MAX_ENTRIES", 8)
    monkeypatch.setattr(content, "_LEAST_PER_ROW", 2)
    found = content.tables(posterior, posterior.mode, 0.95)
    assert found["left_out"] == pytest.approx(0.09995)
    assert found["sites"][0]["millionths"] == [600_000, 300_000] * 4


def test_confusable_items_are_neighbours(rng):
    n = 40
    hidden, labels = rng.permutation(n), rng.permutation(n)
    # Pairs (0, 1), (2, 3), ... of the hidden order compete for two labels.
    rows = np.repeat(hidden, 2)
    cols = labels.reshape(-1, 2)[np.repeat(np.arange(n) // 2, 1)].ravel()
    found = content.grouped(rows, cols, np.full(2 * n, 0.5), (n, n))
    assert sorted(found) == list(range(n))
    block = np.empty(n, dtype=int)
    block[hidden] = np.arange(n) // 2
    assert np.count_nonzero(np.diff(block[found])) == n // 2 - 1
    # Blocks come in the order of their first items.
    firsts = [found[block[found] == b].min() for b in dict.fromkeys(block[found])]
    assert firsts == sorted(firsts)


def test_unconfused_items_stay_in_order():
    rows = np.arange(5)
    found = content.grouped(rows, np.array([3, 1, 4, 0, 2]), np.ones(5), (5, 6))
    assert found.tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("probability", "text"),
    [
        (0, "0%"),
        (4e-7, "0%"),
        (6e-7, "< 0.1%"),
        (0.00049, "< 0.1%"),
        (0.0006, "0.1%"),
        (64 / 73, "87.7%"),
        (0.9994, "99.9%"),
        (0.9995, "> 99.9%"),
        (0.999999, "> 99.9%"),
        (1, "100%"),
    ],
)
def test_percentages_never_round_to_certainty(probability, text):
    assert words.percent(probability) == text


def test_sentences_and_counts():
    assert words.sentence("computed exactly") == "Computed exactly."
    assert words.count(1, "item") == "1 item"
    assert words.count(5000, "label") == "5,000 labels"
    assert words.number(-0.00123456) == "−0.00123"
    assert words.number(1e-114) == "about 0"
    assert words.number(0.0) == "0"
    assert words.number(1474.2) == "1,470"
    assert words.number(-98765432.1) == "\N{MINUS SIGN}98,800,000"
    assert words.number(1.5e30) == "1.5e+30"
