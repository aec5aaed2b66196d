"""Sphinx: search by Pagefind (https://pagefind.app), which indexes the built pages."""

import re
import subprocess
import sys
from typing import Any

_LAST = re.compile("decisions/|(architecture|changelog|contributors|development|log)$")
"""Pages for contributors, and on old versions: found after those for users."""


_SECTION = re.compile(r'<section id="([^"]+)">\n((?:<span id="[^"]*"></span>)*)<(h[2-6])>')


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", _without_search_of_sphinx)
    app.connect("html-page-context", _mark_body)
    app.connect("build-finished", _index)


def _without_search_of_sphinx(app: Any) -> None:
    app.builder.search = False


def _mark_body(app: Any, pagename: str, template: str, context: Any, doctree: Any) -> None:
    """Mark what is searched, with anchors in the headings, so that results link to sections."""
    if doctree is not None:
        weight = 0.1 if _LAST.match(pagename) else 1
        body = _SECTION.sub(r'<section>\n\2<\3 id="\1">', context["body"])
        context["body"] = f'<div data-pagefind-body data-pagefind-weight="{weight}">{body}</div>'


def _index(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        command = [sys.executable, "-m", "pagefind", "--site", str(app.outdir)]
        subprocess.run([*command, "--exclude-selectors", ".headerlink", "--quiet"], check=True)
