from collections.abc import Iterator
from pathlib import Path

import pytest
from damaged import write_small
from small_disks import mounted
from small_jobs import CARDINALITIES, small_document
from threads_as_cluster import client as client, cluster_here as cluster_here
from yaml import safe_dump

from distrain.schema import criteo_schema


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Small prepared data, a job on it, and nothing else; a test may damage it."""
    return write_small(tmp_path / "prepared")


@pytest.fixture
def job(prepared: Path) -> Path:
    """A spec of one rank in the calling process, on `prepared`."""
    document = small_document(prepared)
    document["data"] = {
        "train": str(prepared / "train" / "part-0.parquet"),
        "valid": str(prepared / "valid" / "part-0.parquet"),
    }
    document["resources"] = {"backend": "inline", "num_ranks": 1, "device": "cpu"}
    path = prepared.parent / "job.yaml"
    path.write_text(safe_dump(document))
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model, untrained."""
    from distrain.jobs.spec import MlpSpec
    from distrain.models import build_model
    from distrain.models.saved_model import save_model

    schema, spec = criteo_schema(CARDINALITIES), MlpSpec(embedding_dim=4, hidden=(8,))
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_model(folder, build_model(schema, spec, seed=0), spec, schema)
    return folder


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of 1 MiB."""
    with mounted(tmp_path / "tiny") as folder:
        yield folder


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem that takes no writes, not even from root."""
    with mounted(tmp_path / "read-only", "size=1m,ro") as folder:
        yield folder
