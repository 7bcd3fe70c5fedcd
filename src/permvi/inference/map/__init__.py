"""The most probable matching: assignment, Frank-Wolfe and local search."""

from permvi.inference.map.local_search import local_search as local_search
from permvi.inference.map.quadratic import Quadratic as Quadratic
from permvi.inference.map.result import MapOptions as MapOptions
from permvi.inference.map.result import MapResult as MapResult
from permvi.inference.map.search import solve_quadratic as solve_quadratic
from permvi.inference.map.solve import solve_density as solve_density
from permvi.inference.map.solve import solve_linear as solve_linear
from permvi.inference.map.solve import solve_linear_partial as solve_linear_partial
