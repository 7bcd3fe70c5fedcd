"""Problems as engines see them: known pairs taken out, one rule for unmatched items."""

from permvi.problem.problem import Problem as Problem
