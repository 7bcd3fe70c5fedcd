"""Models: log densities over the permutations that match items with labels."""

from permvi.models.callables import CallableModel as CallableModel
from permvi.models.dynamics import SharedDynamics as SharedDynamics
from permvi.models.graphs import GraphMatching as GraphMatching
from permvi.models.linear import LinearMatching as LinearMatching
from permvi.models.points import PointMatching
from permvi.models.protocol import Model, fingerprint
from permvi.models.sparse import SparseMatching as SparseMatching

__all__ = [
    "CallableModel",
    "GraphMatching",
    "LinearMatching",
    "Model",
    "PointMatching",
    "SharedDynamics",
    "SparseMatching",
    "fingerprint",
]
