"""Approximate permanents by Sinkhorn scaling and belief propagation, with evidence bounds."""

from permvi.inference.scaling.permanent import BeliefResult as BeliefResult
from permvi.inference.scaling.permanent import SquareProblem as SquareProblem
from permvi.inference.scaling.permanent import log_bethe as log_bethe
from permvi.inference.scaling.permanent import log_capacity as log_capacity
from permvi.inference.scaling.permanent import log_permanent_floor as log_permanent_floor
from permvi.inference.scaling.permanent import propagate_beliefs as propagate_beliefs
from permvi.inference.scaling.permanent import square_problem as square_problem
