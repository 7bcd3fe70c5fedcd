"""Linear matching problems of any size: exact where possible, Markov chains elsewhere."""

from permvi.inference.linear.solve import LinearOptions as LinearOptions
from permvi.inference.linear.solve import LinearResult as LinearResult
from permvi.inference.linear.solve import solve_linear as solve_linear
from permvi.problem.candidates import Candidates

__all__ = ["Candidates", "LinearOptions", "LinearResult", "solve_linear"]
