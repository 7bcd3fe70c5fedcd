"""From a model to what an engine sees: known pairs taken out, unmatched items, evaluation."""

from permvi.problem.problem import Problem as Problem
