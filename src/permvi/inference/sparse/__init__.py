"""Sparse linear matching problems with thousands of items."""

from permvi.inference.sparse.problem import SparseProblem
from permvi.inference.sparse.solve import SparseOptions as SparseOptions
from permvi.inference.sparse.solve import SparseResult as SparseResult
from permvi.inference.sparse.solve import solve_sparse as solve_sparse

__all__ = ["SparseOptions", "SparseProblem", "SparseResult", "solve_sparse"]
