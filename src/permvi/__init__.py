"""Bayesian inference over permutations.

The public names below load on first use, so that ``import permvi`` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from permvi._version import __version__ as __version__

if TYPE_CHECKING:
    from permvi import assignment as assignment
    from permvi import distributions as distributions
    from permvi import permutations as permutations
    from permvi import transforms as transforms

_SUBMODULES = ("assignment", "distributions", "permutations", "transforms")

__all__ = ["__version__", *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"permvi.{name}")
    raise AttributeError(f"module 'permvi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
