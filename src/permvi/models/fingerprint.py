"""A short text that tells the data of one model from another's."""

import hashlib
from typing import Any

import jax
import numpy as np

from permvi.models.protocol import optional

_NAMES = ("labels",)


def fingerprint(model: Any) -> str:
    """Hexadecimal SHA-256 of a model's class, arrays and settings, but not of its labels.

    A model that has a ``fingerprint`` of its own keeps it. Functions count by their names.
    """
    own = optional(model, "fingerprint")
    if own is not None:
        return str(own() if callable(own) else own)
    digest = hashlib.sha256(type(model).__qualname__.encode())
    state = vars(model) if hasattr(model, "__dict__") else {"leaves": jax.tree.leaves(model)}
    for name, value in sorted(state.items()):
        if name not in _NAMES:
            digest.update(f"|{name}=".encode())
            _add(digest, value)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    leaves = jax.tree_util.tree_leaves(value, is_leaf=lambda leaf: leaf is None)
    for leaf in leaves:
        if isinstance(leaf, np.ndarray | np.generic | jax.Array):
            array = np.asarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
        elif callable(leaf):
            name = getattr(leaf, "__qualname__", type(leaf).__qualname__)
            digest.update(f"{getattr(leaf, '__module__', '')}.{name}".encode())
        else:
            digest.update(repr(leaf).encode())
