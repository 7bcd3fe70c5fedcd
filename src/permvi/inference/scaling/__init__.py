"""Approximate permanents: Sinkhorn scaling and belief propagation, with bounds on the evidence."""

from permvi.inference.scaling.belief import BeliefResult as BeliefResult
from permvi.inference.scaling.belief import propagate_beliefs as propagate_beliefs
from permvi.inference.scaling.square import SquareProblem as SquareProblem
from permvi.inference.scaling.square import log_bethe as log_bethe
from permvi.inference.scaling.square import log_capacity as log_capacity
from permvi.inference.scaling.square import log_permanent_floor as log_permanent_floor
from permvi.inference.scaling.square import square_problem as square_problem
