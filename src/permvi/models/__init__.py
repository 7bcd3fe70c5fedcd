"""Models: what is known about who matches whom, as a log density over permutations."""

from permvi.models.callables import CallableModel as CallableModel
from permvi.models.fingerprint import fingerprint as fingerprint
from permvi.models.graphs import GraphMatching as GraphMatching
from permvi.models.linear import LinearMatching as LinearMatching
from permvi.models.points import PointMatching as PointMatching
from permvi.models.protocol import Model as Model

__all__ = [
    "CallableModel",
    "GraphMatching",
    "LinearMatching",
    "Model",
    "PointMatching",
    "fingerprint",
]
