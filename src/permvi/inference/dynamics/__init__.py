"""Shared dynamics: permutations of several subjects that share a sparse linear system.

A subject's recording enters through its statistics. With the permutations that name the neurons,
they give the log evidence of a sparse ridge regression in closed form, the weights integrated out.
`run_collapsed` searches this evidence from several starts and samples around the optima.
`run_softassign` approximates it by a mean field, for many problems of one shape at a time.
`run_gibbs` and `alternate` are the classical baselines (Linderman et al. 2018, section 5), which
update permutations and weights in turn.
"""

from permvi.inference.dynamics.joint import AlternateResult as AlternateResult
from permvi.inference.dynamics.joint import GibbsResult as GibbsResult
from permvi.inference.dynamics.joint import alternate as alternate
from permvi.inference.dynamics.joint import run_gibbs as run_gibbs
from permvi.inference.dynamics.joint_state import JointState as JointState
from permvi.inference.dynamics.regression import Scales as Scales
from permvi.inference.dynamics.regression import SharedRegression as SharedRegression
from permvi.inference.dynamics.run import CollapsedOptions as CollapsedOptions
from permvi.inference.dynamics.run import CollapsedResult as CollapsedResult
from permvi.inference.dynamics.run import run_collapsed as run_collapsed
from permvi.inference.dynamics.softassign import SoftassignOptions as SoftassignOptions
from permvi.inference.dynamics.softassign import SoftassignResult as SoftassignResult
from permvi.inference.dynamics.softassign import run_softassign as run_softassign
