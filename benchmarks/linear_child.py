"""One fit in a fresh process, for `benchmarks.linear`; it imports nothing that the fit does not.

``USAGE SAVED match FILE ...`` runs the command line, ``USAGE SAVED fit FAMILY N SEED METHOD SEED``
runs `pv.fit`. CPU seconds and peak memory are written to USAGE when the answer is there, and only
then the posterior is written to SAVED. The first seed is the problem's, the second the fit's.
"""

import json
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any


def match(arguments: list[str]) -> Any:
    """Run ``permvi match`` and return the posterior behind the printed table."""
    from permvi import cli
    from permvi._cli import results

    fit, found = results.fit, []

    def kept(*args: Any, **options: Any) -> Any:
        found.append(fit(*args, **options))
        return found[-1]

    results.fit = kept
    sys.argv = ["permvi", "match", *arguments]
    try:
        cli.main()
    except SystemExit as ending:
        if ending.code:
            raise
    finally:
        results.fit = fit
    return found[-1]


def fit(arguments: list[str]) -> Any:
    """Fit a problem of a family."""
    import permvi as pv
    from benchmarks.linear_problems import FAMILIES

    family, n, problem_seed, method, seed = arguments
    warnings.simplefilter("ignore", pv.FitWarning)
    problem = FAMILIES[family](int(n), int(problem_seed))
    return pv.fit(problem.model(), method, seed=int(seed))


def main() -> None:
    """Run the command line."""
    usage, saved, what, *arguments = sys.argv[1:]
    posterior = {"match": match, "fit": fit}[what](arguments)
    times = os.times()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 2**20  # type: ignore[index]
    Path(usage).write_text(json.dumps([times.user + times.system, peak]), encoding="utf-8")
    if saved:
        posterior.save(saved)


if __name__ == "__main__":
    main()
