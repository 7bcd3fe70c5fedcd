"""Sequential importance sampling of matchings, with or without resampling."""

from permvi.inference.importance.method import ImportanceOptions as ImportanceOptions
from permvi.inference.importance.method import ImportanceResult as ImportanceResult
from permvi.inference.importance.method import run_importance as run_importance
from permvi.inference.importance.population import Weighted as Weighted
from permvi.inference.importance.population import combine as combine
