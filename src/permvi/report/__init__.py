"""Reports: a posterior as one HTML file to view, print and share.

The file is self-contained and loads nothing. Python writes the fixed parts (verdict, matchings,
diagnostics, settings) as HTML; the scripts in ``assets`` draw the heatmap and the table of items
from numbers that the file contains as JSON.
"""

from permvi.report.page import render, write

__all__ = ["render", "write"]
