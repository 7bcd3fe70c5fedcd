"""The studies of the paper and our own. Each turns a size and a seed into rows and figures."""

from permvi.experiments.registry import names as names
from permvi.experiments.registry import run as run
from permvi.experiments.results import Result as Result
