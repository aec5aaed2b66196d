"""Draws runs: curves, the report page, comparisons."""

from distrain.report.comparison import Comparison, compare, write_comparison
from distrain.report.figures import draw_curves
from distrain.report.run_page import write_curves, write_report

__all__ = [
    "Comparison",
    "compare",
    "draw_curves",
    "write_comparison",
    "write_curves",
    "write_report",
]
