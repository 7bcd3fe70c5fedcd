"""NumPyro distributions over permutations and their relaxations.

Importing this package registers the `birkhoff` constraint with NumPyro, so that its inference
algorithms handle doubly-stochastic sites like any other constrained ones.
"""

from permvi.distributions.constraints import birkhoff as birkhoff
from permvi.distributions.transforms import (
    BirkhoffStickBreakingTransform as BirkhoffStickBreakingTransform,
)
