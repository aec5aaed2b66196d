"""Folders for tests that write often, and do not ask what survives a loss of power."""

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def memory_folder():
    """A folder in memory where there is such a thing: syncing a file costs nothing there."""
    shared = "/dev/shm"
    where = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as name:
        yield Path(name)
