"""Models: log densities over the permutations that match items with labels."""

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

__all__ = [
    "CallableModel",
    "GraphMatching",
    "LinearMatching",
    "LinkedPoint",
    "LinkedTrack",
    "LinkedTracks",
    "Model",
    "PointMatching",
    "Rankings",
    "SharedDynamics",
    "SparseMatching",
    "Tracks",
    "fingerprint",
]
