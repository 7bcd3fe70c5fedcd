"""The loop of all optimisers: chunks, progress, patience, interruptions and the best restart."""

import numpy as np
import pytest

from permvi.inference.optimise import equal_chunks, has_settled, host_scan, optimise


def rising(rates, noise=0.0):
    """An `advance` whose state counts steps and whose ELBOs (1, restarts, steps) are lines."""
    rng = np.random.default_rng(0)

    def advance(state, start, stop):
        assert state == start
        steps = np.arange(start, stop)
        elbos = np.asarray(rates)[:, None] * steps + noise * rng.normal(
            size=(len(rates), len(steps))
        )
        return stop, (elbos[None], steps)

    return advance


def test_chunks_cover_all_steps_and_the_trace_is_whole():
    seen = []
    fit = optimise(rising([1.0, 2.0]), 0, 25, 10, lambda *numbers: seen.append(numbers))
    assert fit.state == 25
    assert not fit.interrupted
    np.testing.assert_array_equal(
        fit.elbo_trace, np.array([[1.0], [2.0]]) * np.arange(25)[None, None]
    )
    np.testing.assert_array_equal(
        np.concatenate([steps for _, steps in fit.outputs]), np.arange(25)
    )
    # The best restart's mean ELBO of each chunk.
    assert seen == [(10, 25, 9.0), (20, 25, 29.0), (25, 25, 44.0)]
    assert fit.best.tolist() == [1]
    assert not fit.settled.any()


def test_progress_may_go_without_an_elbo():
    seen = []
    optimise(rising([1.0]), 0, 20, 10, lambda *numbers: seen.append(numbers), report_elbo=False)
    assert seen == [(10, 20), (20, 20)]


def test_restarts_that_became_nan_are_never_the_best():
    fit = optimise(rising([np.nan, -1.0, -2.0]), 0, 20, 10)
    assert fit.best.tolist() == [1]
    assert fit.final_elbo[0, 0] == -np.inf


@pytest.mark.parametrize(("moving_until", "expected"), [(0.0, 40), (100.0, 140)])
def test_patience_counts_quiet_chunks_once_nothing_moves(moving_until, expected):
    advance = rising([0.0, 0.0], noise=1.0)
    fit = optimise(advance, 0, 1000, 10, patience=3, moving_until=moving_until)
    assert fit.settled.all()
    assert expected <= fit.state < expected + 60
    assert optimise(rising([1.0, 0.0], 0.1), 0, 200, 10, patience=3).state == 200


@pytest.mark.parametrize("interruptible", [True, False])
def test_interruptions_keep_the_fit_so_far_where_that_is_wanted(interruptible):
    def on_progress(done, total, elbo):
        if done == 20:
            raise KeyboardInterrupt

    arguments = (rising([1.0]), 0, 50, 10, on_progress)
    if not interruptible:
        with pytest.raises(KeyboardInterrupt):
            optimise(*arguments)
        return
    fit = optimise(*arguments, interruptible=True)
    assert fit.interrupted
    assert fit.elbo_trace.shape == (1, 1, 20)


def test_settled_means_within_two_standard_errors(rng):
    flat = rng.normal(size=(200, 2, 50))
    assert has_settled(flat[:, 0], flat[:, 1]).mean() > 0.95
    assert not has_settled(flat[:, 0], flat[:, 1] + 1.0).any()
    assert has_settled(flat[:, 0], flat[:, 1] - 1.0).all()
    # Squares of these overflow.
    huge = 1e30 * flat.astype(np.float32)
    np.testing.assert_array_equal(
        has_settled(huge[:, 0], huge[:, 1]), has_settled(flat[:, 0], flat[:, 1])
    )


@pytest.mark.parametrize(("steps", "size", "chunks"), [(800, 100, (8, 100)), (250, 100, (3, 84))])
def test_equal_chunks(steps, size, chunks):
    assert equal_chunks(steps, size) == chunks


def test_scan_on_the_host():
    state, (sums, inputs) = host_scan(lambda s, x: (s + x, (s + x, x)), 0, [1, 2, 3])
    assert state == 6
    np.testing.assert_array_equal(sums, [1, 3, 6])
    np.testing.assert_array_equal(inputs, [1, 2, 3])
