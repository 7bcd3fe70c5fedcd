"""Naive variational inference: independent rows."""

from permvi.inference.naive.rows import NaiveOptions as NaiveOptions
from permvi.inference.naive.rows import concentration as concentration
from permvi.inference.naive.rows import dirichlet_divergence as dirichlet_divergence
from permvi.inference.naive.rows import draw_categorical_rows as draw_categorical_rows
from permvi.inference.naive.rows import draw_partial_rows as draw_partial_rows
from permvi.inference.naive.rows import fit_naive as fit_naive
from permvi.inference.naive.rows import nearest_matchings as nearest_matchings
