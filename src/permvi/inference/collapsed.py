"""Shared dynamics with the weights integrated out; see `permvi.inference.dynamics`."""

from permvi.inference.dynamics import CollapsedOptions as CollapsedOptions
from permvi.inference.dynamics import CollapsedResult as CollapsedResult
from permvi.inference.dynamics import Scales as Scales
from permvi.inference.dynamics import SharedRegression as SharedRegression
from permvi.inference.dynamics import SoftassignOptions as SoftassignOptions
from permvi.inference.dynamics import SoftassignResult as SoftassignResult
from permvi.inference.dynamics import run_collapsed as run_collapsed
from permvi.inference.dynamics import run_softassign as run_softassign
