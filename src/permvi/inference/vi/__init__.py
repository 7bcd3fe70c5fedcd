"""Variational inference with relaxed permutations, on NumPyro's SVI and optax."""

from permvi.inference.vi.calibration import Calibration as Calibration
from permvi.inference.vi.calibration import calibrate as calibrate
from permvi.inference.vi.options import VIOptions as VIOptions
from permvi.inference.vi.run import LatentDraws as LatentDraws
from permvi.inference.vi.run import VIResult as VIResult
from permvi.inference.vi.run import run_vi as run_vi
from permvi.inference.vi.run import run_vi_batch as run_vi_batch
