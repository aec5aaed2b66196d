"""A cluster of threads in this process, for modules whose tests need one."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest


@pytest.fixture(scope="module")  # an idle one takes a fifteenth of a core
def client() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    with LocalCluster(dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def cluster_here(client: Any) -> Iterator[None]:
    """Commands and predictions get that cluster in place of a new one."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("workers.open_cluster", "predict.raw_rows"):
            patch.setattr(f"distrain.{module}.open_cluster", lambda *_: nullcontext(client))
        yield
