"""The methods of inference: what each needs, gives, can do and costs."""

import importlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from types import ModuleType

from permvi._choices import one_of
from permvi._tables import html_table, text_table


@dataclass(frozen=True)
class MethodInfo:
    """What there is to know about a method.

    Attributes:
        name: What to call it in ``fit(model, method=...)``.
        needs: What it asks of a model.
        gives: What it returns.
        masks: Whether it honours masks; if not, it refuses them. Known pairs work with all methods.
        partial: Whether items and labels may stay unmatched, beyond a surplus.
        cost: How its cost grows.
        reference: Where it comes from.
    """

    name: str
    needs: str
    gives: str
    masks: bool
    partial: bool
    cost: str
    reference: str


class MethodTable(list[MethodInfo]):
    """A list of methods that prints as a table."""

    def __repr__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        header = [field.name for field in fields(MethodInfo)]
        return header, [[_cell(value) for value in astuple(info)] for info in self]


def _cell(value: str | bool) -> str:  # noqa: FBT001 (a cell holds what its column holds)
    return value if isinstance(value, str) else "yes" if value else "no"


# Name -> what it is and the module in permvi._methods that runs it.
_METHODS = {
    info.name: (info, module)
    for info, module in (
        (
            MethodInfo(
                name="exact",
                needs="linear scores (blocks up to 22 items), or any density up to 9 items",
                gives="everything, exactly",
                masks=True,
                partial=True,
                cost="O(2^n n) per block, or n! evaluations",
                reference="Ryser 1963; Bellman 1962",
            ),
            "exact",
        ),
        (
            MethodInfo(
                name="stick_breaking",
                needs="a JAX density of relaxed matrices",
                gives="draws, a bound on the evidence",
                masks=False,
                partial=False,
                cost="O(n^2) per step and sample",
                reference="Linderman et al. 2018, section 3.1",
            ),
            "relaxed",
        ),
        (
            MethodInfo(
                name="rounding",
                needs="a JAX density of relaxed matrices",
                gives="draws, a bound on the evidence",
                masks=True,
                partial=True,
                cost="O(n^3) per step and sample",
                reference="Linderman et al. 2018, section 3.2",
            ),
            "relaxed",
        ),
        (
            MethodInfo(
                name="sequential",
                needs="any density on permutations",
                gives="everything, with exact probabilities of its own and an evidence estimate",
                masks=True,
                partial=True,
                cost="O(n^3) per draw; 10,000 evaluations, or 40,000 if not linear",
                reference="Williams 1992; Kool et al. 2019, 2020",
            ),
            "discrete",
        ),
        (
            MethodInfo(
                name="stick_breaking_discrete",
                needs="any density on permutations",
                gives="everything, with exact probabilities of its own and an evidence estimate",
                masks=True,
                partial=True,
                cost="O(n^2) per draw; 10,000 evaluations, or 40,000 if not linear",
                reference="Linderman et al. 2018, at temperature zero",
            ),
            "discrete",
        ),
        (
            MethodInfo(
                name="mcmc",
                needs="any density on permutations",
                gives="draws, a bound on the evidence",
                masks=True,
                partial=True,
                cost="one evaluation, or one difference, per step",
                reference="Diaconis 2009; Geyer 1991",
            ),
            "mcmc",
        ),
        (
            MethodInfo(
                name="sparse",
                needs="linear scores, best with few allowed pairs per item",
                gives="marginals and draws, exact in small blocks; exact or a bound on evidence",
                masks=True,
                partial=True,
                cost="O(candidates) per step; 10,000 steps per item",
                reference="Sandvik and Moessner 2006; Bayati and Nair 2006",
            ),
            "sparse",
        ),
        (
            MethodInfo(
                name="map",
                needs="any density on permutations; best if linear or quadratic",
                gives="the most probable matching",
                masks=True,
                partial=True,
                cost="O(n^3) per step and restart",
                reference="Kuhn 1955; Vogelstein et al. 2015; Taillard 1991",
            ),
            "map",
        ),
        (
            MethodInfo(
                name="sinkhorn",
                needs="linear scores",
                gives="approximate marginals and a bound on the evidence",
                masks=True,
                partial=True,
                cost="O(n^2) per step",
                reference="Sinkhorn 1964; Linial et al. 2000",
            ),
            "scaling",
        ),
        (
            MethodInfo(
                name="bethe",
                needs="linear scores",
                gives="approximate marginals and a bound on the evidence",
                masks=True,
                partial=True,
                cost="O(n^2) per step",
                reference="Chertkov et al. 2008; Vontobel 2013",
            ),
            "scaling",
        ),
        (
            MethodInfo(
                name="gumbel_sinkhorn",
                needs="a JAX density of relaxed matrices",
                gives="draws, a bound on the evidence",
                masks=True,
                partial=True,
                cost="O(n^2) per step and sample",
                reference="Mena et al. 2018",
            ),
            "gumbel_sinkhorn",
        ),
        (
            MethodInfo(
                name="naive",
                needs="a JAX density of relaxed matrices, or linear scores",
                gives="marginals of independent rows",
                masks=True,
                partial=True,
                cost="O(n^2) per step and sample",
                reference="Linderman et al. 2018, section 5",
            ),
            "naive",
        ),
        (
            MethodInfo(
                name="mallows",
                needs="any density on permutations",
                gives="draws and exact probabilities of a Mallows model around the best matching",
                masks=False,
                partial=False,
                cost="O(n^2) per draw, or a chain",
                reference="Mallows 1957; Diaconis 1988",
            ),
            "mallows",
        ),
        (
            MethodInfo(
                name="vmf",
                needs="any density on permutations",
                gives="draws of a von Mises-Fisher distribution, rounded; a bound on the evidence",
                masks=False,
                partial=False,
                cost="O(n^3) per draw; no evaluations if linear",
                reference="Plis et al. 2011",
            ),
            "vmf",
        ),
        (
            MethodInfo(
                name="fourier",
                needs="linear scores",
                gives="band-limited marginals and a bound on the evidence; exact up to 6 items",
                masks=False,
                partial=False,
                cost="O(n^5) at order 1, O(n^8) at order 2",
                reference="Kondor et al. 2007; Huang et al. 2009",
            ),
            "fourier",
        ),
        (
            MethodInfo(
                name="plackett_luce",
                needs="any density on permutations that is positive everywhere",
                gives="draws and exact probabilities of a Plackett-Luce model",
                masks=False,
                partial=False,
                cost="O(n log n) per draw; 25,600 evaluations",
                reference="Luce 1959; Plackett 1975",
            ),
            "plackett_luce",
        ),
        (
            MethodInfo(
                name="importance",
                needs="any density on permutations; best if linear",
                gives="weighted draws, an unbiased evidence estimate and its standard error",
                masks=True,
                partial=True,
                cost="O(n^3) and one evaluation per particle",
                reference="Harrison and Miller 2013; Del Moral et al. 2006",
            ),
            "importance",
        ),
        (
            MethodInfo(
                name="perturb_and_map",
                needs="linear scores",
                gives="draws, a bound on the evidence",
                masks=True,
                partial=False,
                cost="O(n^3) per draw",
                reference="Papandreou and Yuille 2011; Li et al. 2013",
            ),
            "perturb_and_map",
        ),
        (
            MethodInfo(
                name="convex",
                needs="linear scores or a quadratic form",
                gives="a matching, and a bound on the log density of all others",
                masks=True,
                partial=False,
                cost="O(n^3) per step",
                reference="Lim and Wright 2014",
            ),
            "convex",
        ),
        (
            MethodInfo(
                name="collapsed",
                needs="recordings of shared dynamics (models.SharedDynamics)",
                gives="draws with the weights integrated out, a bound on the evidence",
                masks=True,
                partial=False,
                cost="O(n^3) per step of a search; O(degree^3) per move of a chain",
                reference="Linderman et al. 2018, section 5; Vogelstein et al. 2015",
            ),
            "collapsed",
        ),
    )
}
AUTO = "auto"
# Methods that know one kind of model, which are no choice for any other.
_OF_ONE_MODEL = ("collapsed",)


def methods() -> MethodTable:
    """The methods that ``fit`` knows by name, beside "auto" and those for one kind of model.

    These are "collapsed", for `permvi.models.SharedDynamics`.
    """
    return MethodTable(info for name, (info, _) in _METHODS.items() if name not in _OF_ONE_MODEL)


def names() -> list[str]:
    """The names that ``fit`` takes, "auto" included."""
    return [AUTO, *_METHODS]


def check_method(name: str) -> str:
    """``name`` if there is such a method, else a ``ValueError`` that suggests the nearest one."""
    if not isinstance(name, str):
        raise TypeError(f"method must be a name, got {name!r:.60}.")
    return one_of("method", name, names())


def engine(name: str) -> ModuleType:
    """The module that runs a method, loaded now."""
    return importlib.import_module(f"permvi._methods.{_METHODS[name][1]}")


def check_options(name: str, given: Iterable[str]) -> None:
    """Refuse options that a method does not have, with the nearest suggestion."""
    known = engine(name).OPTIONS
    for option in given:
        one_of(f"options of method {name!r}", option, known)
