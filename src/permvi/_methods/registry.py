"""The methods of inference: what each needs, gives, can do and costs."""

import importlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from html import escape
from types import ModuleType

from permvi._choices import one_of


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
        header, rows = self._cells()
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (header, ["-" * width for width in widths], *rows)
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        header, rows = self._cells()
        lines = [
            "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
            for tag, row in [("th", header), *(("td", row) for row in rows)]
        ]
        return f"<table>{''.join(lines)}</table>"

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
                partial=False,
                cost="O(n^3) per step and sample",
                reference="Linderman et al. 2018, section 3.2",
            ),
            "relaxed",
        ),
    )
}
AUTO = "auto"


def methods() -> MethodTable:
    """The methods that ``fit`` knows by name, beside "auto"."""
    return MethodTable(info for info, _ in _METHODS.values())


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
