"""Tests run in float64; those marked ``float32`` run again with JAX's default configuration."""

import os

import jax
import numpy as np
import pytest

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
