"""A folder for tests that write often, and do not ask what survives a loss of power."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pytest's own, which lies in memory where it can: syncing a file costs nothing."""
    return tmp_path_factory.mktemp("memory")
