"""The worm study: section 5, Figures 3 and 4 of the paper, and harder settings.

Worms share linear dynamics on the connectome of C. elegans. The identities of the recorded neurons
are inferred from their activity, their positions and a few known neurons:

* Figure 3: the connectome, weights, positions and simulated activity.
* Figure 4: convergence, accuracy by the number of candidates and of known neurons, variance and
  samples of the variational posterior.
* Beyond the paper: no positions, short recordings, few or no known neurons, unrecorded neurons,
  wrong edges, nonlinear dynamics, and the calibration of confidence.
"""

from permvi.experiments.celegans.plan import run_task as run_task
from permvi.experiments.celegans.plan import tasks as tasks
from permvi.experiments.celegans.summary import finish as finish
from permvi.experiments.runner import Study as Study

STUDY = Study("celegans", tasks, run_task, finish)
