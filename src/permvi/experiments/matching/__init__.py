"""The matching study (section 4, Table 1 and Figure 2 of the paper), and beyond it.

Centres are drawn from a standard normal in the plane, observed once each with noise, and shuffled.
The posterior over matchings is known exactly, so every method can be held against it:

* Table 1: six points, Hellinger distance between whole distributions, two hundred problems for
  each noise;
* Figure 2: examples, probability of the ten likeliest matchings, densities of the distances;
* beyond: 10 to 18 points against the subset dynamic programme, error against cost, and what the
  order of rows and columns does to stick-breaking.
"""

from permvi.experiments.matching.plan import run_task as run_task
from permvi.experiments.matching.plan import tasks as tasks
from permvi.experiments.matching.summary import finish as finish
from permvi.experiments.runner import Study as Study

STUDY = Study("matching", tasks, run_task, finish)
