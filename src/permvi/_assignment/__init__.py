"""The solvers behind ``permvi.assignment``: NumPy and compiled loops on the host, JAX on devices.

All of them minimise a cost, work in floating point, and break ties by one rule: an entry is *tight*
if its reduced cost is zero to within ``TIE_ULPS`` roundings of its two potentials, the optimal
assignments are the matchings of tight entries, and the lexicographically smallest one is returned.
"""

TIE_ULPS = 16

# The status of a problem.
SOLVED, NOT_FINITE, INFEASIBLE = 0, 1, 2

# In float64 a sum of costs may overflow above this size, so such problems are scaled down.
HUGE, SHRINK = 2.0**900, 2.0**-100
