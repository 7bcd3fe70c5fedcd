"""Record linkage at scale: millions of candidate pairs made consistent with each other."""

from permvi.linkage.linking import Linkage as Linkage
from permvi.linkage.linking import match_pairs as match_pairs

__all__ = ["Linkage", "match_pairs"]
