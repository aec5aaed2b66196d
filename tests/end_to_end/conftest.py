from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client
from small_jobs import write_prepared

from distrain.workers.local import local_cluster


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small prepared data; tests only read it."""
    return write_prepared(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Client]:
    """Four worker processes."""
    with local_cluster(4, 1, "cpu", ":0") as client:
        yield client
