"""Shared dynamics: permutations of several subjects that share a sparse linear system.

The statistics of a subject's recording and the permutation that names its neurons give the log
evidence of a sparse ridge regression in closed form, with the weights integrated out.
`run_collapsed` searches it from several starts and samples around what the searches found;
`run_softassign` approximates it by a mean field, for many problems of one shape at a time.
`run_gibbs` and `alternate` are the classical baselines (Linderman et al. 2018, section 5), which
treat permutations and weights in turn: given the permutations the weights are a sparse ridge
regression, and given the weights each subject's permutation is a quadratic assignment problem.
"""

from permvi.inference.dynamics.alternation import AlternateResult as AlternateResult
from permvi.inference.dynamics.alternation import alternate as alternate
from permvi.inference.dynamics.gibbs import GibbsResult as GibbsResult
from permvi.inference.dynamics.gibbs import run_gibbs as run_gibbs
from permvi.inference.dynamics.joint_state import JointState as JointState
from permvi.inference.dynamics.regression import CollapsedOptions as CollapsedOptions
from permvi.inference.dynamics.regression import CollapsedResult as CollapsedResult
from permvi.inference.dynamics.regression import Scales as Scales
from permvi.inference.dynamics.regression import SharedRegression as SharedRegression
from permvi.inference.dynamics.run import run_collapsed as run_collapsed
from permvi.inference.dynamics.softassign import SoftassignOptions as SoftassignOptions
from permvi.inference.dynamics.softassign import SoftassignResult as SoftassignResult
from permvi.inference.dynamics.softassign import run_softassign as run_softassign
