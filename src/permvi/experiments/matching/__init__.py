"""The matching study: section 4, Table 1 and Figure 2 of the paper, and larger problems.

Centres are drawn from a standard normal in the plane, observed once each with noise, and shuffled.
The posterior over matchings is known exactly, so every method can be compared with it:

* Table 1: six points, Hellinger distance between whole distributions, 200 problems for each noise.
* Figure 2: examples, probabilities of the ten likeliest matchings, densities of the distances.
* Beyond the paper: 10 to 18 points against the subset dynamic programme, error against cost, and
  the effect of the order of rows and columns on stick-breaking.
"""

from permvi.experiments.matching.plan import run_task as run_task
from permvi.experiments.matching.plan import tasks as tasks
from permvi.experiments.matching.summary import finish as finish
from permvi.experiments.runner import Study as Study

STUDY = Study("matching", tasks, run_task, finish)
