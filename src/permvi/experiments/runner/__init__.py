"""Run studies so that no finished work is ever lost.

A study is a list of independent tasks. The rows of a task are saved as soon as it is done, so a
run that was killed resumes where it stopped. Tasks run in this process, on a local Dask cluster or
on a given one, and the results do not depend on where.
"""

from permvi.experiments.runner.run import run_study as run_study
from permvi.experiments.runner.study import Finished as Finished
from permvi.experiments.runner.study import Row as Row
from permvi.experiments.runner.study import Study as Study
from permvi.experiments.runner.study import Task as Task
