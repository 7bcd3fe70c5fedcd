"""Time ``import permvi`` against ``import jax``, each in fresh interpreters."""

import platform
import subprocess
import sys
from typing import Any

import numpy as np

WANTED = {"import permvi vs import jax": 1 / 1.2}
_STATEMENTS = {
    "import permvi": "import permvi",
    # The names of permvi are lazy; this is what a first use loads.
    "import permvi.transforms": "import permvi.transforms",
    "import jax": "import jax",
}


def rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """Time the import statements alone, without the start of the interpreter (medians)."""
    seconds: dict[str, list[float]] = {name: [] for name in _STATEMENTS}
    for _ in range(1 if quick else 7):
        for name, statement in _STATEMENTS.items():
            seconds[name].append(_time_in_fresh_interpreter(statement))
    median = {name: float(np.median(times)) for name, times in seconds.items()}
    return [
        {
            "name": f"{name} vs import jax",
            "value": median[name],
            "unit": "s",
            "reference": median["import jax"],
            "ratio": median["import jax"] / median[name],
            "device": f"cpu ({platform.machine()})",
        }
        for name in ("import permvi", "import permvi.transforms")
    ]


def _time_in_fresh_interpreter(statement: str) -> float:
    code = (
        f"import time; start = time.perf_counter()\n{statement}\nprint(time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)
