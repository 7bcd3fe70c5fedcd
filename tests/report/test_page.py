"""The report as text: what it says, what it escapes, how it is written."""

import dataclasses
import json
import re
from datetime import UTC, datetime

import numpy as np
import pytest

from permvi import report
from permvi.posterior import ExactLaw, Posterior
from permvi.posterior.diagnostics import diagnose
from permvi.posterior.marginal_law import MarginalsLaw
from permvi.report import page
from tests.report import cases


def data_of(text):
    """What the page's script would read."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


def section(text, heading):
    """The text of a section, without tags."""
    (found,) = re.findall(rf"<section[^>]*><h2>{heading}</h2>(.*?)</section>", text, re.S)
    return re.sub(r"<[^>]+>", " ", found)


def test_json_in_a_script_survives_and_holds_no_markup():
    value = {"labels": list(cases.NASTY), "number": 0.25}
    text = page.script_json(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")
    with pytest.raises(ValueError, match="JSON"):
        page.script_json(float("nan"))


def test_no_label_reaches_the_page_as_markup(rng):
    text = report.render(cases.nasty(rng), title=cases.NASTY[1])
    for name in cases.NASTY:
        if "<" in name:
            assert name not in text
    # The data, and the page's own script.
    assert len(re.findall("<script", text)) == len(re.findall("</script", text)) == 2
    assert data_of(text)["rows"] == list(cases.NASTY)


def test_the_page_asks_for_nothing_from_anywhere(rng):
    text = report.render(cases.partial(rng))
    assert "default-src 'none'" in text
    assert not re.findall(r"https?://|@import|url\(|<link rel=.stylesheet|src=", text)


def test_the_same_posterior_gives_the_same_text(tmp_path, rng):
    posterior = cases.partial(rng)
    assert report.render(posterior) == report.render(posterior)
    posterior.save(tmp_path / "fit.nc")
    assert report.render(Posterior.load(tmp_path / "fit.nc")) == report.render(posterior)


def test_a_report_is_written_whole_or_not_at_all(tmp_path, rng, monkeypatch):
    path = tmp_path / "fit.html"
    posterior = cases.sites(rng)
    assert posterior.report(path, title="First") == path
    before = path.read_text(encoding="utf-8")
    # But for the time in its head.
    assert re.sub(r"<span>\d+ \w+ \d{4}, \d\d:\d\d</span>", "", before) == report.render(
        posterior, title="First"
    )

    def fail(self, target):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        posterior.report(path)
    assert path.read_text(encoding="utf-8") == before
    assert list(tmp_path.iterdir()) == [path]


def test_bad_paths_are_refused_before_anything_is_computed(tmp_path):
    with pytest.raises(ValueError, match=r"path must be a file, got the folder"):
        report.write(None, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"path must lie in an existing folder"):
        report.write(None, tmp_path / "no" / "fit.html")


def test_the_headline_counts_what_the_marginals_say(rng):
    posterior = cases.crowd(rng, 30)
    text = report.render(posterior)
    best = posterior.marginals.max(axis=1)
    right = 30 - posterior.expected_loss().expected_loss
    certain = np.count_nonzero(best >= 0.95)
    assert 0 < certain < 30
    assert "<h1>30 items matched with 30 labels</h1>" in text
    # The verdict of draws that nobody has judged is "check".
    assert "If these probabilities were right, the best choice of labels would have" in text
    assert f"<strong>{right:.1f} of 30 items</strong> right on average" in text
    trusted = dataclasses.replace(posterior, diagnostics=diagnose(exact=True))
    text = report.render(trusted)
    assert f"The best choice of labels has <strong>{right:.1f} of 30 items</strong>" in text
    assert f"{certain} items of 30 have a label with at least 95% probability." in text
    bands = re.findall(r'"swatch band-\d"></span>([\d,]+) ', text)
    assert sum(map(int, bands)) == 30


def test_diagnostics_costs_latents_and_settings_are_told(rng):
    text = report.render(cases.partial(rng))
    trust = section(text, r"Can this be trusted\?")
    for words in ("Do not trust.", "−12.5 ± 0.02, a lower bound", "12,345 log densities", "1.5 s"):
        assert words in trust
    for words in (
        "Effective sample size per draw",
        "R-hat",
        "Converged",
        "k-hat",
        "Missed",
        "Disagreement",
    ):
        assert words in trust
    assert "<polyline" in text
    unknowns = " ".join(section(text, "Other latent variables").split())
    assert unknowns.endswith("scale 0.25 0.5 W (20 × 20 numbers) 0 to 0 1 to 1")
    settings = section(text, "Settings and versions")
    for words in ("mcmc", "ab" * 32, "permvi", "numpy", "Python"):
        assert words in settings


def test_every_reason_of_the_verdict_is_at_the_top(rng):
    posterior = cases.partial(rng)
    top = report.render(posterior).split("<noscript>")[0]
    assert 'class="badge">Do not trust<' in top
    assert len(re.findall("<li>", top.split('id="verdict"')[1].split("</div>")[0])) == len(
        posterior.diagnostics.reasons
    )


def test_matchings_are_shown_by_what_differs():
    scores = np.log([[9.0, 8.0], [8.0, 1.0]])
    posterior = Posterior.from_exact(ExactLaw(scores), labels=(["u", "v"], ["A", "B"]))
    words = " ".join(section(report.render(posterior), "Most probable matchings").split())
    assert "These 2 hold 100% of the probability. Their probabilities are exact." in words
    assert "87.7% The most probable matching" in words
    assert "12.3% u is A v is B" in words
    assert "The most probable matching in full u is B v is A" in words


def test_matchings_that_a_method_cannot_rank_are_not_ranked(rng):
    marginals = np.full((3, 3), 1 / 3)
    posterior = Posterior(law=MarginalsLaw(marginals), marginals=marginals, mode=[0, 1, 2])
    words = section(report.render(posterior), "Most probable matchings")
    assert "gives probabilities of pairs only" in words
    assert "%" not in words
    draws = np.array([rng.permutation(12) for _ in range(50)])
    posterior = Posterior.from_draws(draws, shape=(12, 12))
    assert "No matching was drawn twice" in report.render(posterior)
    posterior = Posterior.from_draws(draws[:1], shape=(12, 12))
    assert "This method gives one matching." in report.render(posterior)


def test_differences_name_the_permutation_where_there_are_several(rng):
    words = " ".join(section(report.render(cases.sites(rng)), "Most probable matchings").split())
    assert re.search(r"\d \(permutation [012]\) is \d", words)


def test_the_level_of_credible_sets_is_the_callers(rng):
    posterior = cases.nasty(rng)
    sizes = data_of(report.render(posterior, level=0.5))["sites"][0]["sizes"]
    assert sizes == [len(chosen) for chosen in posterior.credible_sets(0.5)]
    for wrong in (0, "pairs"):
        with pytest.raises(ValueError, match="level must be in"):
            report.render(posterior, level=wrong)


def test_the_head_tells_where_the_numbers_come_from(rng):
    given = {"input": "data/<b>.csv", "command": "permvi match 'data/<b>.csv'"}
    posterior = dataclasses.replace(cases.crowd(rng, 6), settings=given)
    when = datetime(2026, 3, 5, 14, 7, tzinfo=UTC)
    text = report.render(posterior, written=when)
    (head,) = re.findall(r'<p class="source">(.*?)</p>', text)
    shown = [re.sub(r"<[^>]+>", "", part) for part in re.findall(r"<span>(.*?)</span>", head)]
    assert shown == [
        "&lt;b&gt;.csv",
        "5 March 2026, 14:07",
        "method mcmc",
        "permvi match &#x27;data/&lt;b&gt;.csv&#x27;",
    ]
