"""A cluster that cannot start on this machine is one line with a hint."""

from pathlib import Path
from unittest.mock import Mock

import dask
import distributed  # before its settings are changed, or they would go with the change
import pytest
from wording import Wording

from distrain.errors import ClusterError
from distrain.version import build
from distrain.workers import local
from distrain.workers.local import check_builds, local_cluster
from distrain.workers.open_cluster import ClusterRequest, check_cluster, open_cluster


def refused(request: ClusterRequest) -> ClusterError:
    with pytest.raises(ClusterError) as caught, open_cluster(request):
        pass
    assert caught.value.exit_code == 69
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("in_process", [False, True])
def test_a_preload_that_is_not_there_is_named(in_process: bool) -> None:
    role = "worker" if in_process else "scheduler"
    with dask.config.set({f"distributed.{role}.preload": ["no_such_preload"]}):
        error = refused(ClusterRequest(num_workers=1, in_process=in_process))
    assert error.message.endswith("No module named 'no_such_preload'")
    assert "preload" in (error.hint or "")


def test_a_user_without_a_home_is_told_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> None:
        try:
            raise RuntimeError("Could not determine home directory.")
        except RuntimeError as error:
            raise RuntimeError(f"Cluster failed to start: {error}") from error

    monkeypatch.setattr(distributed, "LocalCluster", fails)
    error = refused(ClusterRequest(num_workers=1))
    assert error.message.endswith(": Could not determine home directory.")
    assert "HOME" in (error.hint or "")


def test_what_the_caller_does_with_a_cluster_is_not_told_as_one_that_did_not_start() -> None:
    with (
        pytest.raises(RuntimeError),
        open_cluster(ClusterRequest(num_workers=1, in_process=True)),
    ):
        raise RuntimeError("mine")


def test_a_machine_that_can_hold_no_cluster_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wording: Wording
) -> None:
    monkeypatch.setattr(
        distributed, "LocalCluster", Mock(side_effect=AssertionError("it was started"))
    )
    for place in (tmp_path / "missing", Path("/proc")):
        monkeypatch.setattr(local, "SHARED_MEMORY", str(place))
        with pytest.raises(ClusterError):
            check_cluster(ClusterRequest(num_workers=1))
        with pytest.raises(ClusterError), local_cluster(1, 1, "cpu", ":0"):
            pass
    monkeypatch.undo()

    for error in (OSError(101, "Network is unreachable"), TimeoutError("timed out")):
        monkeypatch.setattr("socket.create_connection", Mock(side_effect=error))
        wording.refused(ClusterError, lambda: check_cluster(ClusterRequest(num_workers=1)))


def test_workers_of_changed_source_are_an_error_and_not_waited_for() -> None:
    builds = {"tcp://127.0.0.1:1": build(), "tcp://127.0.0.1:2": "another"}
    with pytest.raises(ClusterError):
        check_builds(Mock(run=lambda function: builds))
    check_builds(Mock(run=lambda function: {"tcp://127.0.0.1:1": function()}))
