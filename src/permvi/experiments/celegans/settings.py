"""The settings that worms are simulated in: the paper's, and harder ones."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

TOLERANCES = (0.0075, 0.01, 0.02, 0.04, 0.05)
"""Of the paper's Figure 4b, in body lengths."""

KNOWN = (25, 55, 83, 110)
"""Of the paper's Figure 4c."""

NO_POSITIONS = 1.0
"""The tolerance that stands for no positions at all."""

VARIANTS = ("unobserved", "wrong_edges", "nonlinear")
"""Worlds that the model does not quite know: a fifth of the neurons of each worm not recorded, a
tenth of the connectome's edges wrong, dynamics not quite linear."""


class Setting(NamedTuple):
    """What is simulated, and what inference gets to know.

    Attributes:
        tolerance: How far from a neuron's place its candidates are, in body lengths.
        worms: How many.
        known: How many neurons are known in each.
        T: Recorded time steps.
        variant: One of `VARIANTS`, or "".
    """

    tolerance: float
    worms: int
    known: int = 25
    T: int = 1000
    variant: str = ""

    def public(self) -> dict[str, Any]:
        """As ``summary.json`` has it: with a variant only where there is one."""
        fields = self._asdict()
        return {name: value for name, value in fields.items() if value != ""}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Setting":
        """From a row, or from what `public` gives."""
        return cls(**{name: fields[name] for name in cls._fields if name in fields})

    def __str__(self) -> str:
        worms = "one worm" if self.worms == 1 else f"{self.worms} worms"
        text = f"tolerance {self.tolerance:g}, {worms}, {self.known} known, T={self.T}"
        return f"{text}, {self.variant.replace('_', ' ')}" if self.variant else text


class Grid(NamedTuple):
    """All settings of a size.

    Attributes:
        network: The graph, see `permvi.experiments.celegans.network`.
        candidates: Figure 4b, for all methods.
        known: Figure 4c, likewise.
        further: Beyond the paper, for "collapsed".
        hard: Where it should get into trouble.
        repetitions: Simulations for each setting.
        more_repetitions: For the quick method "collapsed", but in hard settings.
        convergence: The setting of Figures 4a, 4d and 4e.
    """

    network: str
    candidates: tuple[Setting, ...]
    known: tuple[Setting, ...]
    further: tuple[Setting, ...]
    hard: tuple[Setting, ...]
    repetitions: int
    more_repetitions: int
    convergence: Setting


def _hard(
    worms: tuple[int, ...],
    times: tuple[int, ...],
    known: tuple[int, ...],
    usual: Setting,
) -> Iterator[Setting]:
    for count in worms:
        base = usual._replace(worms=count)
        yield from (base._replace(T=T) for T in times)
        yield from (base._replace(tolerance=NO_POSITIONS, known=number) for number in known)
        yield from (base._replace(variant=variant) for variant in VARIANTS)


_SMOKE = Setting(0.1, 1, known=5, T=500)
GRIDS = {
    # One problem for the methods that have to be compiled.
    "smoke": Grid(
        network="stand_in",
        candidates=(_SMOKE,),
        known=(_SMOKE,),
        further=(
            _SMOKE._replace(worms=2),
            _SMOKE._replace(worms=2, tolerance=NO_POSITIONS, known=15),
        ),
        hard=tuple(_hard((1,), (60,), (0,), _SMOKE)),
        repetitions=1,
        more_repetitions=2,
        convergence=_SMOKE,
    ),
    "paper": Grid(
        network="connectome",
        candidates=tuple(
            Setting(tolerance, worms) for worms in (1, 4, 5) for tolerance in TOLERANCES
        ),
        known=tuple(
            Setting(tolerance, 4, known=known) for tolerance in (0.05, 0.1) for known in KNOWN
        ),
        further=tuple(
            setting
            for worms in (1, 5)
            for setting in (Setting(NO_POSITIONS, worms), Setting(0.05, worms, T=400))
        ),
        hard=tuple(_hard((1, 5), (200, 100), (10, 0), Setting(0.05, 1))),
        repetitions=5,
        more_repetitions=10,
        convergence=Setting(0.02, 5),
    ),
}
