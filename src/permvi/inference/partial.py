"""Partial matchings; see `permvi.problem.unmatched`."""

from permvi.problem.unmatched import best_matchings as best_matchings
from permvi.problem.unmatched import complete as complete
from permvi.problem.unmatched import feasible as feasible
from permvi.problem.unmatched import grounded as grounded
from permvi.problem.unmatched import is_partial as is_partial
from permvi.problem.unmatched import random_matchings as random_matchings
from permvi.problem.unmatched import tables_by_site as tables_by_site
