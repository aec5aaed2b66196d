"""The documentation, built once, and its sources."""

import html.parser
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class _Text(html.parser.HTMLParser):
    """What a reader sees of a page."""

    def __init__(self):
        super().__init__()
        self.pieces = []

    def handle_starttag(self, tag, attrs):
        if tag in {"p", "td", "th", "pre", "li", "h1", "h2", "h3", "title"}:
            self.pieces.append("\n")

    def handle_data(self, data):
        self.pieces.append(data)


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder of the built pages, as JSON.

    The build takes seconds, but would take more with a theme around each page (`make check`).
    """
    out = tmp_path_factory.mktemp("docs") / "json"
    options = ["--fail-on-warning", "--quiet", "-b", "json", "-d", str(out.parent / "trees")]
    options += ["-D", "html_theme=basic"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def pages(built):
    """Each page's text by its name, such as `spec`."""
    found = {}
    for file in built.rglob("*.fjson"):
        text = _Text()
        text.feed(json.loads(file.read_text(encoding="utf-8")).get("body", ""))
        found[file.relative_to(built).with_suffix("").as_posix()] = "".join(text.pieces)
    return found


@pytest.fixture(scope="session")
def sources():
    """The text of every Markdown file by its path from the root."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    kept = [file for file in files if "_build" not in file.parts]
    return {file.relative_to(ROOT): file.read_text(encoding="utf-8") for file in kept}


def pytest_collection_modifyitems(items):
    """Mark slow what needs the built pages; `make check` builds them too."""
    here = Path(__file__).parent
    for item in items:  # of the whole session
        if item.path.parent == here and "built" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
