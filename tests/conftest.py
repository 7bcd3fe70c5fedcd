"""Tests run in float64; those marked ``float32`` run again with JAX's default configuration."""

import os
from pathlib import Path

# Before JAX is imported, and for processes that tests start: what one module or worker has compiled
# need not be compiled again by the next.
_COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

if "JAX_ENABLE_X64" not in os.environ:
    jax.config.update("jax_enable_x64", True)


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_code():
    """Thousands of compiled functions in one process exhaust its memory maps."""
    yield
    jax.clear_caches()


@pytest.fixture
def rng():
    """A NumPy generator with a fixed seed: every statistical test is reproducible."""
    return np.random.default_rng(20180409)
