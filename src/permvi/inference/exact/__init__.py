"""Exact inference over (partial) matchings, always in float64 on the host."""

from permvi.inference.exact.murty import k_best as k_best
from permvi.inference.exact.solve import ExactResult, solve_exact
from permvi.inference.exact.solve import enumerate_log_density as enumerate_log_density

__all__ = ["ExactResult", "enumerate_log_density", "k_best", "solve_exact"]
