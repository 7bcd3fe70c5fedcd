"""Settings of fits with exact discrete families."""

import dataclasses
from typing import Literal, NamedTuple, get_args

from permvi._checks import one_of, positive_number, whole
from permvi.inference.discrete.training import Training

Correction = Literal["auto", "swor", "ht", "snis", "none"]
Components = Literal["auto", "plain", "lookahead"]
WarmStart = Literal["auto", "none", "rounding"]

# Log-density evaluations of a fit that starts at a linear approximation, and of a mixture.
_UNIMODAL_BUDGET = 10_000
_MIXTURE_BUDGET = 40_000
_NUM_COMPONENTS = 32
# The share of the evaluations that training takes; weighted draws take the others. A family that
# starts at Sinkhorn marginals covers the posterior well, so with many rows more draws help more.
_TRAINING_SHARE = 0.64
_LITTLE_TRAINING_SHARE = 0.16
_MIXTURE_TRAINING_SHARE = 0.45
_FEW_ROWS = 8
_SEARCH_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class DiscreteOptions:
    """How to fit. None stands for a default that depends on the density.

    Attributes:
        family: "lookahead" or "plain" conditionals (method "sequential" only); "auto" takes
            look-ahead where a linear function explains the density, else plain ones.
        num_components: Components of the mixture; by default one where a linear function explains
            the density, else 32.
        warm_start: "auto" starts at the Sinkhorn marginals of a linear approximation if one fits,
            "rounding" at the marginals of a relaxed fit, "none" near the uniform law.
        num_steps: Training steps.
        num_samples: Draws per step.
        learning_rate: The learning rate of Adam.
        correction: How draws are weighted: "swor" (distinct draws without replacement, one
            component only), "ht" (the distinct ones of independent draws), "snis" (importance
            weights) or "none"; "auto" is "swor" for one component and "ht" for more.
        num_draws: Draws after training.
        search_evaluations: Evaluations of a search for modes that the family misses.
        max_evaluations: The most log densities to evaluate in a fit.
        num_fits: Independent fits, whose disagreement is reported; the one that states the smallest
            error is returned.
    """

    family: Components = "auto"
    num_components: int | None = None
    warm_start: WarmStart = "auto"
    num_steps: int | None = None
    num_samples: int | None = None
    learning_rate: float | None = None
    correction: Correction = "auto"
    num_draws: int | None = None
    search_evaluations: int | None = None
    max_evaluations: int | None = None
    num_fits: int = 1

    def __post_init__(self) -> None:
        one_of("family", self.family, get_args(Components))
        one_of("warm_start", self.warm_start, get_args(WarmStart))
        one_of("correction", self.correction, get_args(Correction))
        least = {"num_steps": 0, "num_samples": 2, "search_evaluations": 0}
        for name in ("num_components", "num_draws", "max_evaluations", "num_fits", *least):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least.get(name, 1))
        if self.learning_rate is not None:
            positive_number("learning_rate", self.learning_rate)
        if self.correction == "swor" and (self.num_components or 1) > 1:
            raise ValueError(
                "correction must be 'ht', 'snis' or 'none' for more than one component, got 'swor'."
            )


class Recipe(NamedTuple):
    """Options without defaults left to fill in; ``kind`` names the conditionals."""

    kind: str
    num_components: int
    training: Training
    correction: str
    num_draws: int
    search_evaluations: int
    max_evaluations: int


def resolve(options: DiscreteOptions, kind: str | None, num_rows: int, *, linear: bool) -> Recipe:
    """Fill in the defaults for ``num_rows`` items, in all sites together.

    ``kind`` names the conditionals if the method fixes them; ``linear`` says whether a linear
    function explains the density.
    """
    K = options.num_components or (1 if linear else _NUM_COMPONENTS)
    unimodal = linear and K == 1
    if kind is None:
        automatic = "lookahead" if linear else "plain"
        kind = automatic if options.family == "auto" else options.family
    budget = options.max_evaluations or (_UNIMODAL_BUDGET if linear else _MIXTURE_BUDGET)
    num_samples = options.num_samples or (16 if unimodal else 32)
    if unimodal:
        share = _TRAINING_SHARE if num_rows <= _FEW_ROWS else _LITTLE_TRAINING_SHARE
    else:
        share = _MIXTURE_TRAINING_SHARE
    steps = int(share * budget) // num_samples
    training = Training(
        num_steps=steps if options.num_steps is None else options.num_steps,
        num_samples=num_samples,
        learning_rate=options.learning_rate or (0.05 if linear else 0.1),
        inclusive_from=1.0 if unimodal else 0.5,
        tempered_until=0.0 if linear else 0.6,
    )
    correction = options.correction
    if correction == "auto":
        correction = "swor" if K == 1 else "ht"
    num_draws = options.num_draws or (2 * budget if correction == "ht" else budget)
    search = options.search_evaluations
    search = int(_SEARCH_SHARE * budget) if search is None else search
    return Recipe(kind, K, training, correction, num_draws, search, budget)
