"""Models: log densities over the permutations that match items with labels.

They load on first use, because some of them need JAX and others do not.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from permvi.models.atlas import Animal as Animal
    from permvi.models.atlas import Atlas as Atlas
    from permvi.models.atlas import AtlasMatching as AtlasMatching
    from permvi.models.atlas import Relations as Relations
    from permvi.models.atlas import align_animals as align_animals
    from permvi.models.atlas import read_animals as read_animals
    from permvi.models.callables import CallableModel as CallableModel
    from permvi.models.dynamics import SharedDynamics as SharedDynamics
    from permvi.models.graphs import GraphMatching as GraphMatching
    from permvi.models.linear import LinearMatching as LinearMatching
    from permvi.models.points import PointMatching as PointMatching
    from permvi.models.protocol import Model as Model
    from permvi.models.protocol import fingerprint as fingerprint
    from permvi.models.rankings import Rankings as Rankings
    from permvi.models.sparse import SparseMatching as SparseMatching
    from permvi.models.tracks import LinkedPoint as LinkedPoint
    from permvi.models.tracks import LinkedTrack as LinkedTrack
    from permvi.models.tracks import LinkedTracks as LinkedTracks
    from permvi.models.tracks import Tracks as Tracks

_HOMES = {
    "Animal": "atlas",
    "Atlas": "atlas",
    "AtlasMatching": "atlas",
    "CallableModel": "callables",
    "GraphMatching": "graphs",
    "LinearMatching": "linear",
    "LinkedPoint": "tracks",
    "LinkedTrack": "tracks",
    "LinkedTracks": "tracks",
    "Model": "protocol",
    "PointMatching": "points",
    "Rankings": "rankings",
    "Relations": "atlas",
    "SharedDynamics": "dynamics",
    "SparseMatching": "sparse",
    "Tracks": "tracks",
    "align_animals": "atlas",
    "fingerprint": "protocol",
    "read_animals": "atlas",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"permvi.models.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'permvi.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
