"""A small table, and a check that no test leaves a thread behind."""

import gc
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop_tables import loader_threads, write_rows

# Run by test_fastai.py, where fastai can be found.
collect_ignore = [] if importlib.util.find_spec("fastai") else ["fastai_cases.py"]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    if loader_threads():
        gc.collect()
    assert loader_threads() == []


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of `interop_tables.ALL`."""
    return write_rows(tmp_path_factory.mktemp("interop") / "rows.parquet")
