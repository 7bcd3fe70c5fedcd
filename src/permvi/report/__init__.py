"""A posterior as one HTML file to look at, to print and to pass on.

The file is complete in itself and loads nothing from anywhere. What is fixed (verdict, matchings,
diagnostics, settings) is HTML that Python writes; the heatmap and the table of items are drawn by
the scripts in ``assets`` from numbers that the file carries as JSON.
"""

from permvi.report.page import render, write

__all__ = ["render", "write"]
