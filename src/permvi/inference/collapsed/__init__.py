"""Permutations of several subjects that share a linear system, its weights integrated out.

The statistics of a subject's recording and the permutation that names its neurons give the log
evidence of a sparse ridge regression in closed form. It is searched by Frank-Wolfe steps on edge by
edge evidence, swaps and relabellings, from several starts, and sampled around what these found; or,
for many problems of one shape at a time, approximated by a mean field.
"""

from permvi.inference.collapsed.options import CollapsedOptions as CollapsedOptions
from permvi.inference.collapsed.problem import SharedRegression as SharedRegression
from permvi.inference.collapsed.result import CollapsedResult as CollapsedResult
from permvi.inference.collapsed.run import run_collapsed as run_collapsed
from permvi.inference.collapsed.scales import Scales as Scales
from permvi.inference.collapsed.softassign import SoftassignOptions as SoftassignOptions
from permvi.inference.collapsed.softassign import SoftassignResult as SoftassignResult
from permvi.inference.collapsed.softassign import run_softassign as run_softassign
