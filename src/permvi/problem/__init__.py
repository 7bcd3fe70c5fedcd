"""Problems as engines see them: known pairs taken out, one rule for unmatched items.

`Problem` loads on first use, since it needs JAX and the exact engine does not.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from permvi.problem.problem import Problem as Problem

__all__ = ["Problem"]


def __getattr__(name: str) -> Any:
    if name == "Problem":
        from permvi.problem.problem import Problem

        return Problem
    raise AttributeError(f"module 'permvi.problem' has no attribute {name!r}")
