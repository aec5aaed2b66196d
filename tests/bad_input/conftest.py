import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from damaged import write_small
from small_jobs import CARDINALITIES, small_document
from yaml import safe_dump

import distrain.cluster
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
    from distrain.models import build_model, save_model
    from distrain.spec import MlpSpec

    schema, spec = criteo_schema(CARDINALITIES), MlpSpec(embedding_dim=4, hidden=(8,))
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_model(folder, build_model(schema, spec, seed=0), spec, schema)
    return folder


@pytest.fixture(scope="module")  # an idle one takes a fifteenth of a core
def client() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    with LocalCluster(dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def cluster_here(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands get a cluster in this process, at once."""

    @contextmanager
    def open_cluster(*_: Any) -> Iterator[Any]:
        yield client

    monkeypatch.setattr(distrain.cluster, "open_cluster", open_cluster)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem of 1 MiB."""
    with _mounted(tmp_path / "tiny", "size=1m") as folder:
        yield folder


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """A real filesystem that takes no writes, not even from root."""
    with _mounted(tmp_path / "read-only", "size=1m,ro") as folder:
        yield folder


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if done.returncode:
        pytest.skip(f"may not mount a filesystem here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        # Lazily: a failed test's traceback may still hold a file open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
