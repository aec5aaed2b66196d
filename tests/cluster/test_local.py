"""What a cluster of this machine is started with."""

import copy

import dask
import distributed
import pytest

from distrain.cluster import local_cluster


def test_scheduler_and_workers_are_told_to_do_little_by_the_clock(monkeypatch):
    found = {}

    class Started(BaseException):
        """Far enough."""

    def starts(**_):
        found.update(copy.deepcopy(dask.config.get("distributed")))
        raise Started

    monkeypatch.setattr(distributed, "LocalCluster", starts)
    before = dask.config.get("distributed.worker.profile.enabled")
    with pytest.raises(Started), local_cluster(2, 1, "cpu", ":0"):
        pass
    # Three timers, which took a tenth of a core together with two workers.
    assert found["worker"]["profile"]["enabled"] is False
    assert found["admin"]["system-monitor"]["interval"] == "2s"
    assert found["admin"]["tick"]["interval"] == "500ms"
    assert dask.config.get("distributed.worker.profile.enabled") == before
