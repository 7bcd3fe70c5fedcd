"""The answer to a name that is not on the list."""

import difflib
from collections.abc import Collection


def one_of(argument: str, value: str, choices: Collection[str]) -> str:
    """``value`` if it is a choice, else a ``ValueError`` that suggests the nearest one."""
    if value in choices:
        return value
    listed = [repr(choice) for choice in choices]
    expected = " or ".join(listed) if len(listed) < 3 else f"one of {', '.join(listed)}"
    close = difflib.get_close_matches(value, choices, n=1)
    close = close or [choice for choice in choices if value and choice.startswith(value)]
    end = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"{argument} must be {expected}, got {value!r}{end}")
