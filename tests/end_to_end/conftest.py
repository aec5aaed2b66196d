from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client
from small_jobs import small_document
from yaml import safe_dump

from distrain.workers.local import local_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Client]:
    """Two worker processes, as many as jobs here have ranks."""
    with local_cluster(2, 1, "cpu", ":0") as client:
        yield client


@pytest.fixture
def job_file(prepared: Path, tmp_path: Path) -> Path:
    """The file of a small job on them."""
    path = tmp_path / "job.yaml"
    path.write_text(safe_dump(small_document(prepared)))
    return path
