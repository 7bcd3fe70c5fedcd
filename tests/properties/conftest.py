"""Profiles of hypothesis: seconds for every run, or as long as ``make fuzz`` asks for.

``PERMVI_FUZZ`` is the number of examples of each property. Failures are then kept in ``.fuzz`` and
tried first the next time.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

EXAMPLES = int(os.environ.get("PERMVI_FUZZ", "0"))
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci", max_examples=12, deadline=None, derandomize=True, database=None,
    suppress_health_check=_SLOW, phases=[Phase.explicit, Phase.generate],
)  # fmt: skip
settings.register_profile(
    "fuzz", max_examples=max(EXAMPLES, 1), deadline=None, print_blob=True,
    database=DirectoryBasedExampleDatabase(Path(__file__).parents[2] / ".fuzz"),
    suppress_health_check=_SLOW,
)  # fmt: skip
settings.load_profile("fuzz" if EXAMPLES else "ci")
# For fits that compile for seconds: making a failure smaller would take hours.
UNSHRUNK = [Phase.explicit, Phase.reuse, Phase.generate]


def pytest_sessionfinish(session):
    """Hand the number of fits on to the process that prints it."""
    from tests.properties.checks import tried

    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["fits"] = tried["fits"]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Add up what the workers have tried."""
    from tests.properties.checks import tried

    tried["fits"] += getattr(node, "workeroutput", {}).get("fits", 0)


def pytest_terminal_summary(terminalreporter):
    """Say how many problems were tried."""
    from tests.properties.checks import tried

    if EXAMPLES:
        terminalreporter.write_line(f"{tried['fits']:,} generated problems were tried.")


def pytest_collection_modifyitems(items):
    """Fits in JAX compile for seconds; they are for ``make fuzz``."""
    for item in items:
        if item.get_closest_marker("compiles") and not EXAMPLES:
            item.add_marker(pytest.mark.slow)
