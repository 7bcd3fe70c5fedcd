"""The toy study in its own process: python -m tests.experiments.toy_run FOLDER WORKERS."""

import sys
from pathlib import Path

from permvi.experiments.runner import run_study
from tests.experiments.toy_study import STUDY

if __name__ == "__main__":
    run_study(
        STUDY,
        Path(sys.argv[1]),
        size="paper",
        seed=3,
        progress=lambda *_: None,
        workers=int(sys.argv[2]),
    )
