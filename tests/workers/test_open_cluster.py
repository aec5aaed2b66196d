"""Which cluster serves a request for workers."""

import importlib.util
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil
import pytest

from distrain.errors import ClusterError, DataError
from distrain.workers import local, open_cluster as opening
from distrain.workers.local import device_of_workers
from distrain.workers.open_cluster import ClusterRequest, check_cluster, connect, open_cluster


def test_a_cluster_that_does_not_close_in_time_hides_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def closes_late(_: str) -> Iterator[str]:
        try:
            yield "client"
        finally:
            raise TimeoutError

    monkeypatch.setattr(opening, "connect", closes_late)
    with pytest.raises(DataError), open_cluster(ClusterRequest("tcp://there:1")):
        raise DataError("a bad row")
    with open_cluster(ClusterRequest("tcp://there:1")) as client:
        assert client == "client"


def test_a_server_of_another_protocol_is_told_to_be_no_scheduler() -> None:
    def answer(taken: socket.socket) -> None:
        connection, _ = taken.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError), connect(address):
            pass


def test_a_client_or_a_cluster_is_used_as_it_is_and_stays() -> None:
    with open_cluster(ClusterRequest(in_process=True, num_workers=1)) as client:
        with open_cluster(ClusterRequest(client)) as same:
            assert same is client
        with open_cluster(ClusterRequest(client.cluster)) as other:
            assert other is not client
            assert other.scheduler.address == client.scheduler.address
        assert client.submit(int, "7").result() == 7
    with pytest.raises(ClusterError), open_cluster(ClusterRequest(client)):
        pass


def test_workers_that_must_have_a_gpu_are_checked_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distrain.workers.local.count_gpus", lambda: 1)
    check_cluster(ClusterRequest(num_workers=1, device="cuda"))
    check_cluster(ClusterRequest(num_workers=2, device="auto"))
    check_cluster(ClusterRequest("tcp://there:1", 2, device="cuda"))  # its scheduler knows
    with pytest.raises(ClusterError):
        check_cluster(ClusterRequest(num_workers=2, device="cuda"))


@pytest.mark.parametrize(
    ("gpus", "has_dask_cuda", "device"),
    [(2, True, "cuda"), (1, True, "cpu"), (2, False, "cpu"), (0, True, "cpu")],
)
def test_workers_have_a_gpu_each_or_none(gpus, has_dask_cuda, device, monkeypatch):
    monkeypatch.setattr(local, "count_gpus", lambda: gpus)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if has_dask_cuda else None)
    assert device_of_workers(2) == device


def test_threads_of_this_process_do_the_work_and_listen_on_loopback_alone() -> None:
    before = _listening()
    with open_cluster(ClusterRequest(num_workers=3, in_process=True)) as client:
        assert list(client.nthreads().values()) == [3]
        assert client.submit(os.getpid).result() == os.getpid()
        opened = _listening() - before
        assert {address.ip for address in opened} <= {"127.0.0.1"}
        for address in opened:
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"http://127.0.0.1:{address.port}/metrics", timeout=30)
            assert caught.value.code == 404
            caught.value.close()
    assert _listening() <= before


def _listening() -> set[Any]:
    found = psutil.Process().net_connections()
    return {one.laddr for one in found if one.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize("scheme", ["", "tcp://"])
def test_an_http_server_is_told_from_a_scheduler_without_hanging(
    scheme: str, monkeypatch: pytest.MonkeyPatch, wording: Any
) -> None:
    monkeypatch.setattr(opening, "SPEAKS_FIRST_S", 0.05)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"{scheme}127.0.0.1:{server.server_port}"
        with pytest.raises(ClusterError) as caught, connect(address, timeout_s=30.0):
            pass
        server.shutdown()
    assert caught.value.where["scheduler"] == address
    wording(caught.value, port=str(server.server_port))


def test_a_server_that_says_nothing_is_given_up(wording: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterError) as caught, connect(address, timeout_s=0.2):
            pass
    wording(caught.value, port=address.rpartition(":")[2])
