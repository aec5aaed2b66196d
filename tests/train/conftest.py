"""What tests of training share."""

from pathlib import Path

import pytest
from small_jobs import write_prepared


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small prepared data; tests only read it."""
    return write_prepared(tmp_path_factory.mktemp("prepared"))
