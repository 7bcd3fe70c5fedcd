"""Plackett-Luce models fitted to rankings and to densities."""

from permvi.inference.plackett_luce.rankings import RankingsFit as RankingsFit
from permvi.inference.plackett_luce.rankings import fit_rankings as fit_rankings
from permvi.inference.plackett_luce.target import TargetFit as TargetFit
from permvi.inference.plackett_luce.target import fit_target as fit_target
