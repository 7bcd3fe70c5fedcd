"""Settings, schedules and calibration of variational inference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from vi_cases import matching_batch

from permvi.inference.vi import VIOptions, calibrate
from permvi.inference.vi.optimisers import SCHEDULES


@pytest.mark.float32
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_end_where_they_should(name):
    schedule = SCHEDULES[name]
    fractions = jnp.linspace(0, 1, 11)
    values = np.asarray(schedule(fractions, 2.0, 0.5))
    assert values[-1] == pytest.approx(0.5)
    assert values[0] == pytest.approx(0.5 if name == "constant" else 2.0)
    assert (np.diff(values) <= 0).all()
    # Halfway: the geometric mean of the ends, or the arithmetic one.
    middle = {"constant": 0.5, "exponential": 1.0, "cosine": 1.25}[name]
    assert values[5] == pytest.approx(middle)


def test_paper_settings():
    rounding, sticks = VIOptions.paper("rounding"), VIOptions.paper("stick_breaking")
    assert rounding.learning_rate == sticks.learning_rate == 0.1
    assert rounding.scale_bounds == (0.1, 0.5)
    assert sticks.scale_bounds == (1e-4, 1.0)


@pytest.mark.parametrize(("steps", "size", "chunks"), [(800, 100, (8, 100)), (250, 100, (3, 84))])
def test_chunks_are_all_alike(steps, size, chunks):
    options = VIOptions.paper("rounding").replace(num_steps=steps, chunk_size=size)
    assert options.chunks == chunks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a positive number, got 0.0"),
        ({"prior_width": -1.0}, "prior_width must be a positive number, got -1.0"),
        ({"learning_rate": "fast"}, "learning_rate must be a positive number, got 'fast'"),
        ({"anneal_fraction": 1.5}, r"anneal_fraction must be in \(0, 1\], got 1.5"),
        ({"num_steps": 0}, "num_steps must be an integer of at least 1, got 0"),
        ({"num_draws": 2.5}, "num_draws must be an integer, got 2.5"),
        ({"patience": 0}, "patience must be an integer of at least 1, got 0"),
        ({"start_spread": -0.1}, "start_spread must be at least 0, got -0.1"),
        ({"scale_bounds": (0.5, 0.1)}, "scale_bounds must be a pair of numbers with 0 < lower"),
        ({"temperature_schedule": "cosin"}, "temperature_schedule .*did you mean 'cosine'"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        VIOptions.calibrated("rounding").replace(**changes)


def test_rounding_has_no_temperature_above_one():
    options = VIOptions.calibrated("stick_breaking").replace(temperature=1.5)
    options.check_family("stick_breaking")
    with pytest.raises(ValueError, match=r"temperature must be in \(0, 1\], got 1.5"):
        options.check_family("rounding")


class TestCalibration:
    """One compilation: all settings have the same shapes."""

    @pytest.fixture(scope="class")
    @staticmethod
    def pilots():
        return matching_batch(4, 0.4, seed=7, n=4)

    base = VIOptions.calibrated("rounding").replace(
        num_restarts=1, num_samples=2, num_steps=200, num_draws=400
    )

    def test_chooses_by_exact_marginals(self, pilots):
        problems, exact = pilots
        seen = []
        # The last one forgets the data: its noise drowns every mean.
        tried = [
            self.base,
            self.base.replace(prior_width=0.6),
            self.base.replace(scale_bounds=(20.0, 30.0), prior_width=30.0),
        ]
        chosen = calibrate(
            "rounding",
            problems,
            jax.random.key(0),
            exact,
            candidates=tried,
            on_progress=lambda *progress: seen.append(progress[:2]),
        )
        assert chosen.options in tried[:2]
        assert chosen.trials[-1].options == tried[2]
        assert [trial.score for trial in chosen.trials] == sorted(t.score for t in chosen.trials)
        assert seen == [(1, 3), (2, 3), (3, 3)]
        assert str(chosen).startswith("rounding: chose temperature 1, prior width")
        assert "total variation per row" in str(chosen)
        assert "out of 3 settings" in str(chosen)

    def test_random_search_by_the_discrete_elbo(self, pilots):
        problems, _ = pilots
        chosen = calibrate(
            "rounding", problems, jax.random.key(0), base=self.base, num_candidates=4
        )
        assert len(chosen.trials) == 4
        assert self.base in [trial.options for trial in chosen.trials]
        assert all(np.isfinite(trial.score) for trial in chosen.trials)
        assert chosen.score_name == "minus discrete ELBO"

    def test_refusals(self, pilots):
        problems, exact = pilots
        with pytest.raises(ValueError, match="exact_marginals must have shape"):
            calibrate(
                "rounding",
                problems,
                jax.random.key(0),
                exact[:2],
                candidates=[self.base],
            )
        with pytest.raises(ValueError, match="candidates must hold at least one"):
            calibrate("rounding", problems, jax.random.key(0), exact, candidates=[])
