"""The worm study (section 5, Figures 3 and 4 of the paper), and beyond it.

Worms share linear dynamics on the connectome of C. elegans; which recorded neuron is which has to
be inferred from their activity, their positions and a few that are known:

* Figure 3: the connectome, weights, positions and simulated activity;
* Figure 4: convergence, accuracy against the number of candidates and of known neurons, variance
  of the variational posterior, and its samples;
* beyond: no positions, short recordings, few or no known neurons, neurons that were not recorded,
  wrong edges, dynamics that are not linear; and whether confidence keeps its promises.
"""

from permvi.experiments.celegans.plan import run_task as run_task
from permvi.experiments.celegans.plan import tasks as tasks
from permvi.experiments.celegans.summary import finish as finish
from permvi.experiments.runner import Study as Study

STUDY = Study("celegans", tasks, run_task, finish)
