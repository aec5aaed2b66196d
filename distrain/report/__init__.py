"""Draws runs: curves, the report page, comparisons."""

from distrain.report.comparison import Comparison, compare, write_comparison
from distrain.report.figures import draw_curves, image_of, new_figure
from distrain.report.markup import page, section, svg_image, table, verbatim
from distrain.report.run_page import write_curves, write_report

__all__ = [
    "Comparison",
    "compare",
    "draw_curves",
    "image_of",
    "new_figure",
    "page",
    "section",
    "svg_image",
    "table",
    "verbatim",
    "write_comparison",
    "write_curves",
    "write_report",
]
