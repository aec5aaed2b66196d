"""Sphinx's settings. The build needs no network: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import distrain  # noqa: E402

project = "distrain"
author = "The distrain authors"
project_copyright = "The distrain authors, Apache-2.0"
version = release = distrain.__version__
language = "en-GB"

extensions = ["myst_parser", "distrain_reference"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext"]
nitpicky = True

html_theme = "furo"
html_title = f"distrain {release}"
html_show_sourcelink = False
html_copy_source = False
