"""Every method on five kinds of problems, next to the exact answer.

One broad mode, near ties, several modes far apart, an order of jobs, a mask: what a method does
well shows only beside what the others do. The page on choosing a method is written from it.
"""

from permvi.experiments.compare.plan import run_task as run_task
from permvi.experiments.compare.plan import tasks as tasks
from permvi.experiments.compare.summary import finish as finish
from permvi.experiments.runner import Study as Study

STUDY = Study("compare", tasks, run_task, finish)
