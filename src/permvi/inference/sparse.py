"""The former place of `permvi.inference.linear`, under its former names."""

from permvi.inference.linear import LinearOptions as SparseOptions
from permvi.inference.linear import LinearResult as SparseResult
from permvi.inference.linear import solve_linear as solve_sparse
from permvi.problem.candidates import Candidates as SparseProblem

__all__ = ["SparseOptions", "SparseProblem", "SparseResult", "solve_sparse"]
