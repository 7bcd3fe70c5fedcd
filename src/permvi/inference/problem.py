"""What an engine is given; see `permvi.problem`."""

from permvi.problem import Problem as Problem
