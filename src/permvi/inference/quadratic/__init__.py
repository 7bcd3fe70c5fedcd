"""Quadratic matching problems: their modes, and tempered chains that weigh them."""

from permvi.inference.quadratic.sample import QuadraticOptions as QuadraticOptions
from permvi.inference.quadratic.sample import sample as sample
