"""Mallows models: fits to rankings and to densities, and draws."""

from permvi.inference.mallows.fit import MallowsFit as MallowsFit
from permvi.inference.mallows.fit import TargetFit as TargetFit
from permvi.inference.mallows.fit import draw_by_swaps as draw_by_swaps
from permvi.inference.mallows.fit import draw_exactly as draw_exactly
from permvi.inference.mallows.fit import fit_rankings as fit_rankings
from permvi.inference.mallows.fit import fit_theta as fit_theta
