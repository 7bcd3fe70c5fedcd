"""Inference of orders from rankings: exact sums, chains, worths, and the Kemeny order."""

from permvi.inference.rankings.consensus import Kemeny as Kemeny
from permvi.inference.rankings.consensus import kemeny as kemeny
