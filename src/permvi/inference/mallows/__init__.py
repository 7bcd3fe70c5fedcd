"""Mallows models fitted to rankings and to densities, and drawn from."""

from permvi.inference.mallows.rankings import MallowsFit as MallowsFit
from permvi.inference.mallows.rankings import fit_rankings as fit_rankings
from permvi.inference.mallows.target import TargetFit as TargetFit
from permvi.inference.mallows.target import draw_by_swaps as draw_by_swaps
from permvi.inference.mallows.target import draw_exactly as draw_exactly
from permvi.inference.mallows.target import fit_theta as fit_theta
