"""The benchmark of atlases: what it counts as lost, against sums by hand, and its made-up heads."""

import numpy as np
import pytest

import permvi as pv
from benchmarks import atlas_heads
from benchmarks.atlas_scores import losses


def rows_of(values):
    return [
        {"animal": animal, "draw": draw, "accuracy_mode": value}
        for (animal, draw), value in values.items()
    ]


def test_losses_are_averaged_over_the_draws_of_an_animal():
    aligned = rows_of({(0, 0): 0.8, (0, 1): 0.7, (1, 0): 0.9, (1, 1): 0.9})
    # Losses .1 and -.06, mean .02; .05 and .07, mean .06 with a standard error of .01.
    moved = rows_of({(0, 0): 0.7, (0, 1): 0.76, (1, 0): 0.85, (1, 1): 0.83})
    found = losses(moved, aligned)
    assert found["near_aligned"] == 0.25
    assert found["near_aligned_mean"] == 0.5
    assert found["lost"] == pytest.approx(0.04)
    assert found["lost_sd_of_animals"] == pytest.approx(0.04 / np.sqrt(2))
    assert found["surely_lost"] == 0.5
    assert "surely_lost" not in losses(moved[::2], aligned)


@pytest.mark.parametrize("variant", ["heads", "heads, a quarter in no atlas"])
def test_made_up_heads_have_the_cells_that_are_asked_for(variant):
    kind = atlas_heads.VARIANTS[variant]
    labels = atlas_heads._Labels(kind, np.random.default_rng(0))
    heads = [labels.animal(0.1) for _ in range(20)]
    named = [sum(name is not None for name in head.names) for head in heads]
    assert min(named) >= atlas_heads.FEWEST
    assert max(named) <= atlas_heads.MOST
    nameless = np.mean([len(head) - n for head, n in zip(heads, named, strict=True)])
    assert abs(nameless - kind.nameless) < 4 * np.sqrt(max(kind.nameless, 1e-9) / 20)


def test_a_given_name_is_judged_by_its_cell():
    """Three cells, two labels; only the second cell was given a name, the first label."""
    law = pv.posterior.ExactLaw(np.array([[3.0, 0], [2, 0], [0, 1]]), row_unmatched=0.0)
    posterior = pv.Posterior.from_exact(law)
    found = atlas_heads._by_label(posterior, np.array([-1, 0, -1]), ("trust", "fits", 0.0))
    assert found.truth.tolist() == [1]
    # The first cell takes the label, as `marginals` and `mode` say; the last answer is "absent".
    expected = [*posterior.marginals[:, 0], posterior.p_unmatched_cols[0]]
    assert found.marginals.tolist() == [expected]
    assert found.mode.tolist() == [0]
    assert found.marginals.sum() == pytest.approx(1.0)
