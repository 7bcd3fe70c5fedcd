"""The methods by name. The module of a method is loaded when it is first needed."""

import importlib
import inspect
from collections.abc import Iterable
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

from permvi._checks import one_of
from permvi._tables import html_table, text_table

if TYPE_CHECKING:
    from permvi.inference.method import Method, MethodInfo

AUTO = "auto"

# The module in `permvi.inference` whose METHODS describe a method.
_MODULES = {
    "exact": "exact.method",
    "stick_breaking": "vi.method",
    "rounding": "vi.method",
    "sequential": "discrete.method",
    "stick_breaking_discrete": "discrete.method",
    "mcmc": "mcmc.method",
    "linear": "linear.method",
    "quadratic": "quadratic.method",
    "gibbs": "gibbs.method",
    "map": "map.method",
    "sinkhorn": "scaling.method",
    "bethe": "scaling.method",
    "gumbel_sinkhorn": "gumbel_sinkhorn",
    "naive": "naive.method",
    "mallows": "mallows.method",
    "vmf": "vmf.method",
    "fourier": "fourier.method",
    "plackett_luce": "plackett_luce.method",
    "importance": "importance.method",
    "perturb_and_map": "perturb_and_map",
    "convex": "convex.method",
    "collapsed": "dynamics.methods",
}
# Former names of methods, which ``fit`` still takes.
_FORMER = {"sparse": "linear"}
# The names that ``fit`` takes.
NAMES = (AUTO, *_MODULES, *_FORMER)
# Models with one of these hooks have engines of their own for some of the methods.
_MODULES_OF_MODELS = {
    "shared_regression": "dynamics.methods",
    "ballots": "rankings.method",
    "frames": "alignment.method",
    "relation_tables": "alignment.related",
}
# Methods for one kind of model, and the hook that it has.
_NEEDED_HOOKS = {"collapsed": "shared_regression", "gibbs": "latents"}


class MethodTable(list["MethodInfo"]):
    """A list of methods that prints as a table."""

    def __repr__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        header = [field.name for field in fields(self[0])]
        return header, [[_cell(value) for value in astuple(info)] for info in self]


def _cell(value: str | bool) -> str:  # noqa: FBT001 (a cell holds what its column holds)
    return value if isinstance(value, str) else "yes" if value else "no"


def methods() -> MethodTable:
    """Return a table of the methods that ``fit`` takes by name, beside "auto"."""
    return MethodTable(method(name).info for name in _MODULES)


def names_for(model: Any = None) -> list[str]:
    """Return the methods for a model, or the general ones: all but those for another kind."""
    return [
        name
        for name in _MODULES
        if name not in _NEEDED_HOOKS or bool(getattr(model, _NEEDED_HOOKS[name], None))
    ]


def method(name: str, model: Any = None) -> "Method":
    """Load the method of this name, or its variant for a kind of model."""
    name = _FORMER.get(name, name)
    for hook, module in _MODULES_OF_MODELS.items():
        if getattr(model, hook, None) is not None and name in (variants := _load(module)):
            return variants[name]
    return _load(_MODULES[name])[name]


def check_options(chosen: "Method", given: Iterable[str], model: Any) -> None:
    """Raise for options that a method does not have, and say where they belong."""
    for option in given:
        if option not in chosen.options and option in inspect.signature(type(model)).parameters:
            raise ValueError(
                f"{option} must be given to the model, {type(model).__name__}, got it among the "
                f"options of method {chosen.info.name!r}."
            )
        one_of(f"options of method {chosen.info.name!r}", option, chosen.options)


def _load(module: str) -> "dict[str, Method]":
    found: dict[str, Method] = importlib.import_module(f"permvi.inference.{module}").METHODS
    return found
