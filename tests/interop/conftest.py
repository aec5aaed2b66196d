"""A small table, and a check that no module leaves the thread of a loader behind."""

import importlib.util
from pathlib import Path

import pytest
from interop_tables import write_rows
from left_behind import nothing_left_behind as nothing_left_behind
from small_jobs import write_prepared

# Run by test_fastai.py, where fastai can be found.
collect_ignore = [] if importlib.util.find_spec("fastai") else ["fastai_cases.py"]


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of `interop_tables.ALL`."""
    return write_rows(tmp_path_factory.mktemp("interop") / "rows.parquet")


@pytest.fixture
def in_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a prepared table where the page's examples look for it."""
    write_prepared(tmp_path / "criteo")
    monkeypatch.chdir(tmp_path)
    return tmp_path
