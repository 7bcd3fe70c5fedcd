"""Runs studies so that no finished work is ever lost.

A study is a list of independent tasks. The rows of a task are saved the moment it is done, so that
a run which was killed goes on where it stopped; tasks run in this process, on a local Dask cluster
or on a given one, and what comes out does not depend on where.
"""

from permvi.experiments.runner.run import run_study as run_study
from permvi.experiments.runner.study import Finished as Finished
from permvi.experiments.runner.study import Row as Row
from permvi.experiments.runner.study import Study as Study
from permvi.experiments.runner.study import Task as Task
