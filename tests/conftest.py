"""Tests run in float64; those marked ``float32`` run again with JAX's default configuration."""

import os

import jax
import numpy as np
import pytest

if "JAX_ENABLE_X64" not in os.environ:
    jax.config.update("jax_enable_x64", True)


@pytest.fixture
def rng():
    """A NumPy generator with a fixed seed: every statistical test is reproducible."""
    return np.random.default_rng(20180409)
