"""Plots: what they draw, small and large, without touching pyplot."""

import io
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure

import permvi as pv
from permvi import plots
from permvi.posterior import Posterior, diagnose


def posterior(rng, n, num=50, **fields):
    draws = np.stack([rng.permutation(n) for _ in range(3)])[rng.integers(3, size=num)]
    return Posterior.from_draws(draws, shape=(n, n), **fields)


def rendered(ax):
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png")
    return buffer.getvalue()


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def test_small_marginals_show_numbers_and_labels(rng):
    labels = (list("abcdef"), [f"label {k}" for k in range(6)])
    shown = posterior(rng, 6, labels=labels)
    ax = plots.marginals(shown)
    assert rendered(ax)
    assert ticks(ax.yaxis) == list("abcdef")
    assert ticks(ax.xaxis)[0] == "label 0"
    assert len(ax.texts) == np.count_nonzero(shown.marginals >= 0.005)


def test_large_marginals_show_few_ticks_and_no_numbers(rng):
    ax = plots.marginals(posterior(rng, 100))
    assert rendered(ax)
    assert len(ax.texts) == 0
    assert 5 < len(ticks(ax.yaxis)) <= 25
    # Rounding makes no unmatched items.
    assert ax.images[0].get_array().shape == (100, 100)


def test_unmatched_items_get_a_row_and_a_column():
    draws = np.array([[0, 1, -1], [1, -1, -1]])
    ax = plots.marginals(Posterior.from_draws(draws, shape=(3, 2)))
    assert ticks(ax.xaxis)[-1] == "unmatched"
    assert ticks(ax.yaxis)[-1] == "unmatched"
    assert rendered(ax)


def test_sites_are_shown_one_at_a_time(rng):
    draws = np.stack([[rng.permutation(3) for _ in range(2)] for _ in range(5)])
    both = Posterior.from_draws(draws, shape=(3, 3))
    image = plots.marginals(both, site=1).images[0].get_array()
    np.testing.assert_array_equal(image, both.marginals[1])
    with pytest.raises(ValueError, match="site must be between 0 and 1, got 2"):
        plots.marginals(both, site=2)


def test_they_draw_where_they_are_told(rng):
    axes = Figure().subplots(1, 2)
    assert plots.marginals(posterior(rng, 4), ax=axes[0]) is axes[0]
    assert plots.top_matchings(posterior(rng, 4), ax=axes[1]) is axes[1]
    assert posterior(rng, 4).plot().images


def test_the_trace_marks_the_best_restart(rng):
    trace = np.cumsum(rng.normal(size=(3, 200)), axis=1)
    trace[1, -20:] += 1000
    ax = plots.elbo_trace(posterior(rng, 4, diagnostics=diagnose(elbo_trace=trace)))
    assert len(ax.lines) == 3
    assert ax.lines[-1].get_ydata()[-1] > 900
    assert rendered(ax)


def test_without_a_trace_it_says_so(rng):
    with pytest.raises(ValueError, match="posterior must come from a method with an ELBO"):
        plots.elbo_trace(posterior(rng, 4, method="exact"))


@pytest.mark.parametrize("n", [6, 100])
def test_top_matchings_name_differences(rng, n):
    shown = posterior(rng, n)
    ax = plots.top_matchings(shown, k=2)
    assert [bar.get_width() for bar in ax.patches] == [m.probability for m in shown.top(2)]
    assert "→" in ticks(ax.yaxis)[1]
    assert rendered(ax)


@pytest.mark.parametrize("n", [6, 100])
def test_points_are_joined_as_opaquely_as_they_are_probable(rng, n):
    shown = posterior(rng, n)
    ax = plots.point_matching(shown, rng.normal(size=(n, 2)), rng.normal(size=(n, 2)))
    lines = ax.collections[0]
    p = shown.marginals[shown.marginals > 0.01]
    np.testing.assert_allclose(np.sort(lines.get_alpha()), np.sort(p))
    assert rendered(ax)


def test_points_have_to_be_in_the_plane(rng):
    with pytest.raises(ValueError, match=r"centers must have shape \(4, 2\), got shape \(4, 3\)"):
        plots.point_matching(posterior(rng, 4), np.zeros((4, 2)), np.zeros((4, 3)))


def test_names_with_dollar_signs_are_no_formulas(rng):
    names = ["a $5_{ and $6", "$b$", "c"]
    shown, points = posterior(rng, 3, labels=(names, names)), rng.normal(size=(3, 2))
    order = pv.rank([names, names[::-1]])
    for ax in (
        plots.marginals(shown),
        plots.top_matchings(shown),
        plots.point_matching(shown, points, points),
        plots.ranking(order.table()),
        plots.before(order),
    ):
        assert rendered(ax)
        texts = [text.get_text() for text in (*ax.get_yticklabels(), *ax.texts)]
        assert not any(is_math_text(text) for text in texts)


def test_pyplot_stays_out_of_it():
    code = "import permvi, sys; permvi.plots; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
