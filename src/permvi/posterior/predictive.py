"""Does the model fit? A second verdict, which speaks of the model and not of the computation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from permvi._checks import one_of
from permvi.models.protocol import fingerprint

if TYPE_CHECKING:
    from permvi.posterior.posterior import Posterior

Fit = Literal["fits", "does not fit", "no check"]

# The probability that a model that is right is called a misfit, all tests together. Averages over
# draws can at most double it (Meng 1994); in practice they make it smaller. Most of 5 % are spent,
# since heavy tails of few residuals are hard to find.
LEVEL = 0.04
# Draws of the posterior: at most, and as many as keep the numbers they are compared with in memory.
_NUM_DRAWS = 400
_FEWEST_DRAWS = 8
_MAX_NUMBERS = 4_000_000
# p-values above this count as this one.
_NEUTRAL = 0.9
_FAR = "{name} is {distance:.2g} standard deviations away"


@dataclass(frozen=True)
class ModelCheck:
    """Whether a model fits its data, by tests that suit it.

    Attributes:
        verdict: "fits", "does not fit" or "no check".
        reasons: Why, in plain clauses; the worst deviation first.
        p_values: The p-value of each test by its name.
        outliers: Clauses on the items that deviate most, if any deviate too much.
    """

    verdict: Fit
    reasons: tuple[str, ...]
    p_values: dict[str, float]
    outliers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of("verdict", self.verdict, get_args(Fit))
        object.__setattr__(self, "reasons", tuple(self.reasons))
        object.__setattr__(self, "outliers", tuple(self.outliers))

    def __str__(self) -> str:
        if self.verdict == "no check":
            return self.reasons[0]
        return f"{self.verdict} ({'; '.join(self.reasons)})"


def check(posterior: "Posterior", model: Any, seed: int) -> ModelCheck:
    """Test a model against its data, given draws of its posterior."""
    if posterior.fingerprint is not None and posterior.fingerprint != fingerprint(model):
        raise ValueError("model must be the one that was fitted, got another one.")
    hook = getattr(model, "predictive_tests", None)
    if hook is None:
        return _none(f"no check for {_kind(model)}")
    if posterior.method == "map":
        return _none("no check, since a best matching alone has no spread to compare with")
    values = max(posterior.mode.size, int(getattr(model, "num_predicted", 0)))
    num = int(np.clip(_MAX_NUMBERS // values, _FEWEST_DRAWS, _NUM_DRAWS))
    found = hook(posterior.sample(num, seed), posterior.latents)
    if isinstance(found, str):
        return _none(f"no check, since {found}")
    names = tuple(
        _FAR.format(name=_name(posterior, one.site, one.row), distance=one.distance)
        for one in found.outliers
    )
    if not found.tests:
        return _none("no check, since nothing is left to compare")
    judged = judge(found.tests, names)
    if judged.verdict == "does not fit" and posterior.diagnostics.verdict == "do not trust":
        why = "no check, since these matchings cannot be trusted and do not fit the data"
        return ModelCheck("no check", (why,), judged.p_values, names)
    return judged


def judge(tests: Sequence[Any], outliers: tuple[str, ...] = ()) -> ModelCheck:
    """Return the verdict of tests with names, p-values and words, and clauses on outliers."""
    p_values = {test.name: test.p_value for test in tests}
    together = combined(list(p_values.values()))
    if together >= LEVEL:
        number = "1 test" if len(p_values) == 1 else f"{len(p_values)} tests"
        return ModelCheck("fits", (f"p = {together:.2g} in {number}",), p_values)
    ordered = sorted(tests, key=lambda test: test.p_value)
    # The first speaks against the model even where none would alone.
    against = [test for k, test in enumerate(ordered) if k == 0 or test.p_value < LEVEL]
    reasons = tuple(f"{test.words}, p = {test.p_value:.1g}" for test in against)
    return ModelCheck("does not fit", (*reasons, *outliers), p_values, outliers)


def combined(p_values: list[float]) -> float:
    r"""Return one p-value of several tests of the same data, which need not be independent.

    It is the tail probability of the mean of :math:`\tan((1/2 - p) \pi)`, Cauchy variables if the
    model is right, whose mean is nearly Cauchy whatever their dependence (Liu and Xie 2020). A few
    small p-values count for more than with Bonferroni's bound. Large ones are cut off, so that no
    test speaks up for the model.
    """
    clipped = np.clip(p_values, 1e-15, _NEUTRAL)
    mean = float(np.mean(np.tan((0.5 - clipped) * np.pi)))
    return float(0.5 - np.arctan(mean) / np.pi)


def _none(reason: str) -> ModelCheck:
    return ModelCheck("no check", (reason,), {})


def _kind(model: Any) -> str:
    # Models with lists of pairs would make a table of their scores first.
    if any(getattr(model, name, None) is not None for name in ("candidate_pairs", "scores")):
        return "a plain table of scores"
    return f"models of class {type(model).__name__}"


def _name(posterior: "Posterior", site: int, row: int) -> str:
    names = posterior.labels[0]
    name = f"item {row if names is None else repr(names[row])}"
    return name if posterior.num_sites == 1 else f"{name} of site {site}"
