"""Settings of the worm study: how worms are simulated, and the methods that identify them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from permvi.experiments import _worms

TOLERANCES = (0.0075, 0.01, 0.02, 0.04, 0.05)
"""Tolerances of the paper's Figure 4b, in body lengths."""

KNOWN = (25, 55, 83, 110)
"""Numbers of known neurons in the paper's Figure 4c."""

NO_POSITIONS = 1.0
"""The tolerance that stands for no positions at all."""

VARIANTS = ("unobserved", "wrong_edges", "nonlinear")
"""Simulations that violate the model: a fifth of the neurons of each worm are not recorded, a tenth
of the connectome's edges are wrong, or the dynamics are nonlinear."""


class Setting(NamedTuple):
    """What is simulated, and what inference is told."""

    tolerance: float  # largest distance of a candidate from a neuron's position, in body lengths
    worms: int
    known: int = 25  # number of known neurons in each worm
    T: int = 1000  # number of recorded time steps
    variant: str = ""  # one of `VARIANTS`, or ""

    def public(self) -> dict[str, Any]:
        """Return the fields for ``summary.json``, with a variant only where there is one."""
        fields = self._asdict()
        return {name: value for name, value in fields.items() if value != ""}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Setting":
        """Read a setting from a row, or from the result of `public`."""
        return cls(**{name: fields[name] for name in cls._fields if name in fields})

    def __str__(self) -> str:
        worms = "one worm" if self.worms == 1 else f"{self.worms} worms"
        text = f"tolerance {self.tolerance:g}, {worms}, {self.known} known, T={self.T}"
        return f"{text}, {self.variant.replace('_', ' ')}" if self.variant else text


def describe(setting: Setting) -> str:
    """Describe a setting beyond the paper."""
    if setting.variant:
        return setting.variant.replace("_", " ")
    if setting.tolerance >= NO_POSITIONS:
        return f"no positions, {setting.known} known"
    return f"T = {setting.T}"


class Grid(NamedTuple):
    """All settings of a size."""

    network: str  # name of the graph, see `permvi.experiments.celegans.problems.network`
    candidates: tuple[Setting, ...]  # settings of Figure 4b, for all methods
    known: tuple[Setting, ...]  # settings of Figure 4c, for all methods
    further: tuple[Setting, ...]  # settings beyond the paper, for "collapsed"
    hard: tuple[Setting, ...]  # settings where "collapsed" is expected to fail
    repetitions: int  # simulations for each setting
    more_repetitions: int  # simulations for the quick method "collapsed", except in hard settings
    convergence: Setting  # the setting of Figures 4a, 4d and 4e


def _hard(
    worms: tuple[int, ...], times: tuple[int, ...], known: tuple[int, ...], usual: Setting
) -> Iterator[Setting]:
    for count in worms:
        base = usual._replace(worms=count)
        yield from (base._replace(T=T) for T in times)
        yield from (base._replace(tolerance=NO_POSITIONS, known=number) for number in known)
        yield from (base._replace(variant=variant) for variant in VARIANTS)


_SMOKE = Setting(0.1, 1, known=5, T=500)
GRIDS = {
    # A single shape, so that methods that JAX compiles compile once.
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

OURS = "collapsed"
"""The method that is also run beyond the paper's settings."""


class Method(NamedTuple):
    """A method of the study and its budget."""

    name: str  # name of the method in `permvi.fit`
    options: Mapping[str, Any]
    budget: str  # the option that determines how long it runs
    checkpoints: tuple[int, ...]  # values of that option, for the figures of convergence
    compiled: bool = False  # whether the first fit takes longer because JAX compiles it


_VI_CHECKPOINTS = (5, 20, 50, 100, 200, 400)

# Quick ones first, so that an interrupted run has most of them.
METHODS: dict[str, dict[str, Method]] = {
    "paper": {
        "collapsed": Method("collapsed", {}, "num_restarts", (1, 2, 4)),
        "map": Method("map", _worms.MAP, "max_iter", (1, 2, 5, 20)),
        "mcmc": Method("mcmc", _worms.MCMC, "num_steps", (20, 100, 400)),
        "naive": Method("naive", {}, "num_steps", (20, 100, 200), compiled=True),
        "rounding_temperature_1": Method(
            "rounding", _worms.ROUNDING_ONE, "num_steps", _VI_CHECKPOINTS, compiled=True
        ),
        "rounding": Method(
            "rounding", _worms.ROUNDING, "num_steps", _VI_CHECKPOINTS, compiled=True
        ),
    }
}

# The smoke size only checks that everything runs. With chunks of one length rounding compiles once.
_QUICK_VI = {"num_steps": 100, "chunk_size": 20}
_QUICK: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "collapsed": ({"num_restarts": 2}, (1, 2)),
    "map": ({"num_restarts": 2}, (1, 5)),
    "naive": ({"num_steps": 100, "num_draws": 100}, (100,)),
    "mcmc": ({"num_steps": 60}, (20, 60)),
    "rounding_temperature_1": (_QUICK_VI, (20, 100)),
    "rounding": (_QUICK_VI, (20, 100)),
}
METHODS["smoke"] = {
    name: method._replace(
        options={**method.options, **_QUICK[name][0]}, checkpoints=_QUICK[name][1]
    )
    for name, method in METHODS["paper"].items()
}
