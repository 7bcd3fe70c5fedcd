"""Advice that a command prints: as commands that exist, and not as calls of Python.

The library says what to try as arguments of `permvi.fit`, such as ``method='exact'``.
"""

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from permvi.inference import registry

if TYPE_CHECKING:
    from permvi.posterior import Posterior

# The largest block that method "exact" takes.
_MOST_EXACT = 24
_METHOD = re.compile(r"method='(\w+)'((?:,? or '\w+')*)")
# What more of can be asked for: the word, and the setting of it by order of preference.
_MORE = {
    "steps": ("num_steps",),
    "restarts": ("num_restarts",),
    "particles": ("num_particles",),
    "components": ("num_components",),
    "draws": ("num_draws",),
}
_SETTING = re.compile(r"(?:(?<=pass )|(?<=try )|(?<=, )|(?<=or ))((?:num|max)_[a-z_]+)=(\d+)")
_NAMED = re.compile(r"\(((?:num|max)_[a-z_]+)\)")
_WORDS = {
    "pv.methods()": "permvi methods",
    "list the pairs that matter in a models.SparseMatching": "list the pairs that matter in a file "
    "for --pairs",
    "a higher order": "--option order=2",
    "align= infers the frame": "--align similarity infers the frame",
    "model='mallows', groups=2": "--model mallows --groups 2",
    "groups=2": "--groups 2",
    "unranked='below'": "--others-below",
    "item_col": "--item-col",
    "label_col": "--label-col",
    "score_col": "--score-col",
    "give the format": "say how to read it with --format",
}


def in_commands(text: str, posterior: "Posterior | None" = None) -> str:
    """Return a text in which advice is given as options of commands.

    ``posterior`` is the one that the advice is about. Methods that cannot take a problem of its
    size, and the method that it came from, are not advised.
    """
    for python, command in _WORDS.items():
        text = text.replace(python, command)
    text = text.replace(" if it is affordable", "")
    text = _METHOD.sub(lambda found: _methods(found, posterior), text)
    text = _SETTING.sub(r"--option \1=\2", text)
    text = _NAMED.sub(r"(--option \1=NUMBER)", text)
    more = posterior is not None and re.search(r"\bmore \w+", text)
    known = _settings(posterior.method) if posterior is not None and more else ()
    for word, names in _MORE.items():
        name = next((name for name in names if name in known), None)
        if name is not None and f"--option {name}" not in text:
            text = re.sub(rf"\bmore {word}\b", f"more {word} (--option {name}=NUMBER)", text)
            text = re.sub(rf"\bor {word}\b", f"or {word} (--option {name}=NUMBER)", text)
    return text


def _methods(found: re.Match[str], posterior: "Posterior | None") -> str:
    names = [found[1], *re.findall(r"'(\w+)'", found[2])]
    if posterior is not None:
        large = max(posterior.shape) > _MOST_EXACT
        names = ["linear" if name == "exact" and large else name for name in names]
        names = [name for name in names if name != posterior.method] or ["auto"]
    return " or ".join(f"--method {name}" for name in dict.fromkeys(names))


def _settings(method: str) -> tuple[str, ...]:
    """Return the names of a method's settings."""
    if method not in registry.NAMES or method == registry.AUTO:
        return ()
    return registry.method(method).options


def translated(posterior: "Posterior") -> "Posterior":
    """Return a posterior whose reasons give advice as commands, for a page that shows them."""
    changed: dict[str, Any] = {}
    for name in ("diagnostics", "model_check"):
        if (part := getattr(posterior, name)) is not None:
            reasons = tuple(in_commands(reason, posterior) for reason in part.reasons)
            changed[name] = dataclasses.replace(part, reasons=reasons)
    return dataclasses.replace(posterior, **changed)
