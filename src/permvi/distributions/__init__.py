"""NumPyro distributions over permutations and their relaxations.

Importing this package registers the `birkhoff` constraint with NumPyro, so that its inference
algorithms handle doubly-stochastic sites like any other constrained site.
"""

from permvi.distributions.concrete import Concrete as Concrete
from permvi.distributions.mallows import Mallows as Mallows
from permvi.distributions.permutation import Permutation as Permutation
from permvi.distributions.plackett_luce import PlackettLuce as PlackettLuce
from permvi.distributions.rounding import ROUNDING_SCALE_BOUNDS as ROUNDING_SCALE_BOUNDS
from permvi.distributions.rounding import Rounding as Rounding
from permvi.distributions.simplex_rounding import SimplexRounding as SimplexRounding
from permvi.distributions.simplex_sticks import SimplexBeta as SimplexBeta
from permvi.distributions.simplex_sticks import SimplexKumaraswamy as SimplexKumaraswamy
from permvi.distributions.simplex_sticks import SimplexStickBreaking as SimplexStickBreaking
from permvi.distributions.stick_breaking import (
    STICK_BREAKING_SCALE_BOUNDS as STICK_BREAKING_SCALE_BOUNDS,
)
from permvi.distributions.stick_breaking import StickBreaking as StickBreaking
from permvi.distributions.transforms import (
    BirkhoffStickBreakingTransform as BirkhoffStickBreakingTransform,
)
from permvi.distributions.transforms import birkhoff as birkhoff
from permvi.distributions.vertex_prior import DEFAULT_WIDTH as DEFAULT_WIDTH
from permvi.distributions.vertex_prior import OneHotPrior as OneHotPrior
from permvi.distributions.vertex_prior import VertexPrior as VertexPrior

# In models, `VertexPrior` is the prior of a permutation-valued site.
PermutationPrior = VertexPrior
