"""Permutations and weights of shared dynamics, one given the other: the classical baselines.

A Gibbs sampler and an alternating search in the manner of Linderman et al. (2018), section 5:
given the permutations the weights are a sparse ridge regression, and given the weights each
subject's permutation is a quadratic assignment problem, in which swaps cost little.
"""

from permvi.inference.dynamics.alternation import AlternateResult as AlternateResult
from permvi.inference.dynamics.alternation import alternate as alternate
from permvi.inference.dynamics.gibbs import GibbsResult as GibbsResult
from permvi.inference.dynamics.gibbs import run_gibbs as run_gibbs
from permvi.inference.dynamics.state import JointState as JointState
