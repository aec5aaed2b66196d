"""Host memory measured through Dask."""

import pytest
from distributed import Client, LocalCluster

from distrain.bench import Bench, judge, measure_host_memory


@pytest.mark.slow
def test_a_host_is_measured_once_however_many_workers_it_has() -> None:
    with (
        LocalCluster(
            n_workers=2, processes=False, threads_per_worker=1, dashboard_address=None,
            protocol="tcp", host="127.0.0.1",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        measures = measure_host_memory(client, 2**20, 3)
    assert {(m.name, m.place) for m in measures} == {
        ("host.copy", "node 127.0.0.1"),
        ("host.triad", "node 127.0.0.1"),
    }
    assert all(len(m.values) == 3 and m.size_bytes == 2**20 for m in measures)
    assert judge(Bench("quick", "cpu", measures=tuple(measures))).passed
