"""The Python in the pages runs, each page from top to bottom."""

import re
from pathlib import Path

import pytest
from small_jobs import write_prepared

from distrain.loader import Loader

PAGES = (
    "README.md",
    "docs/quickstart.md",
    "docs/loader.md",
    "docs/compare.md",
    "docs/data.md",
    "docs/embeddings.md",
    "docs/checkpoints.md",
    "docs/models/custom.md",
)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folders that the pages' commands have made before their Python runs."""
    root = tmp_path_factory.mktemp("examples")
    write_prepared(root / "criteo")
    (root / "clicks").symlink_to("criteo")
    rows = [f"user-{n % 50},{n * 7 % 30},{int(n % 3 > 0)}" for n in range(1_000)]
    (root / "clicks.csv").write_text("\n".join(["user,price,clicked", *rows, ""]))
    return root


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page, sources, folder, monkeypatch):
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```python\n(.*?)^```", sources[Path(page)], re.M | re.S)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    for loader in [value for value in names.values() if isinstance(value, Loader)]:
        loader.close()
