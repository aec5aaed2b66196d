"""Draws runs: curves, the report page, comparisons."""

from distrain.report.comparison import (
    Comparison as Comparison,
    compare as compare,
    write_comparison as write_comparison,
)
from distrain.report.figures import (
    draw_curves as draw_curves,
    image_of as image_of,
    new_figure as new_figure,
)
from distrain.report.markup import (
    page as page,
    section as section,
    svg_image as svg_image,
    table as table,
    verbatim as verbatim,
)
from distrain.report.run_page import write_curves as write_curves, write_report as write_report
