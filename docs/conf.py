"""Sphinx's settings. The build needs no network: `make docs`."""

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import distrain  # noqa: E402

project = "distrain"
author = "The distrain authors"
project_copyright = "The distrain authors, Apache-2.0"
version = release = distrain.__version__
language = "en-GB"

extensions = ["llms_text", "myst_parser", "site_search"]
myst_enable_extensions = ["colon_fence", "deflist", "substitution"]
myst_substitutions = {"release": release}
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext", "_templates"]
nitpicky = True

html_theme = "furo"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_additional_pages = {"search": "search.html"}
html_title = f"distrain {release}"
html_show_sourcelink = False
html_use_index = False
html_copy_source = False

# Pages beside the README that are included here, under the names they have here.
_INCLUDED = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "development.md",
}


def _link_here(app: Any, path: Path, docname: str, content: list[str]) -> None:
    """Turn links between the included pages, which are right in the repository, into ours."""
    for there, here in _INCLUDED.items():
        content[0] = content[0].replace(f"]({there}", f"]({here}")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("include-read", _link_here)
