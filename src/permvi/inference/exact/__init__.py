"""Exact inference over (partial) matchings, on the host in float64 whatever JAX computes in."""

from permvi.inference.exact.enumeration import enumerate_log_density as enumerate_log_density
from permvi.inference.exact.murty import k_best as k_best
from permvi.inference.exact.result import ExactResult as ExactResult
from permvi.inference.exact.solve import solve_exact as solve_exact

__all__ = ["ExactResult", "enumerate_log_density", "k_best", "solve_exact"]
