"""Maps from unconstrained arrays to (or near) the Birkhoff polytope, with log-determinants."""

from permvi.transforms import simplex as simplex
from permvi.transforms import sticks as sticks
from permvi.transforms.rounding import in_rounding_support as in_rounding_support
from permvi.transforms.rounding import rounding as rounding
from permvi.transforms.rounding import rounding_inverse as rounding_inverse
from permvi.transforms.sinkhorn import SinkhornResult as SinkhornResult
from permvi.transforms.sinkhorn import log_sinkhorn as log_sinkhorn
from permvi.transforms.sinkhorn import marginal_error as marginal_error
from permvi.transforms.sinkhorn import sinkhorn as sinkhorn
from permvi.transforms.sinkhorn import sinkhorn_until as sinkhorn_until
from permvi.transforms.stick_breaking import birkhoff_from_sticks as birkhoff_from_sticks
from permvi.transforms.stick_breaking import stick_breaking as stick_breaking
from permvi.transforms.stick_breaking import stick_breaking_inverse as stick_breaking_inverse
from permvi.transforms.stick_breaking import sticks_from_birkhoff as sticks_from_birkhoff
from permvi.transforms.stick_breaking_limit import limit_log_prob as limit_log_prob
from permvi.transforms.stick_breaking_limit import limit_sticks as limit_sticks
