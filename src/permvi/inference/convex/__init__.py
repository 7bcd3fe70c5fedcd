"""Convex relaxations of permutation problems: bounds, and matchings by rounding."""

from permvi.inference.convex.matrices import MatrixMaximum as MatrixMaximum
from permvi.inference.convex.matrices import gilmore_lawler as gilmore_lawler
from permvi.inference.convex.matrices import maximise_quadratic as maximise_quadratic
from permvi.inference.convex.method import Relaxed as Relaxed
from permvi.inference.convex.method import relax_quadratic as relax_quadratic
from permvi.inference.convex.vectors import Inequalities as Inequalities
from permvi.inference.convex.vectors import Permutahedron as Permutahedron
from permvi.inference.convex.vectors import VectorForm as VectorForm
from permvi.inference.convex.vectors import VectorMinimum as VectorMinimum
from permvi.inference.convex.vectors import batcher as batcher
from permvi.inference.convex.vectors import minimise_linear as minimise_linear
from permvi.inference.convex.vectors import minimise_quadratic as minimise_quadratic
from permvi.inference.convex.vectors import vector_form as vector_form
