"""The sources of the documentation."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def sources():
    """The text of every Markdown file by its path from the root."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    kept = [file for file in files if "_build" not in file.parts]
    return {file.relative_to(ROOT): file.read_text(encoding="utf-8") for file in kept}
