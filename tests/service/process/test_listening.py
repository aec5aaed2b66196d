"""The API's socket, and a service whose reconciler fails."""

import resource
import socket
import stat
from unittest.mock import Mock

import pytest

from distrain.errors import ClusterError, OutputError
from distrain.service.process import entry
from distrain.service.process.entry import bind, serve, url_of
from distrain.service.reconcile.reconciler import Reconciler
from distrain.service.settings import Listen, Settings


def test_a_free_port_and_one_that_is_taken():
    with bind(Listen(port=0)) as bound:
        port = bound.getsockname()[1]
        assert url_of(Listen(port=0), bound) == f"http://127.0.0.1:{port}"
        with pytest.raises(ClusterError, match=str(port)):
            bind(Listen(port=port))
    with pytest.raises(ClusterError):
        bind(Listen(host="host.invalid", insecure=True))


def test_a_unix_socket_replaces_one_that_nobody_holds(tmp_path):
    listen = Listen(unix_socket=tmp_path / "s")
    with bind(listen) as bound:
        assert url_of(listen, bound) == f"unix:{tmp_path / 's'}"
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660
        with pytest.raises(ClusterError):
            bind(listen)
    with bind(listen) as bound, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
    with pytest.raises(OutputError):
        bind(Listen(unix_socket=tmp_path / "no" / "s"))


@pytest.fixture
def few_files():
    """A soft limit of open files below the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(soft, hard - 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_reconciler_that_fails_ends_the_whole_service(tmp_path, monkeypatch, few_files):
    monkeypatch.setattr(Reconciler, "run", Mock(side_effect=RuntimeError("no reconciler today")))
    monkeypatch.setattr(entry, "set_up_logs", lambda name: None)
    settings = Settings(data_dir=tmp_path / "data", clusters={}, listen=Listen(port=0))
    with pytest.raises(RuntimeError, match="no reconciler today"):
        serve(settings, lambda serving: None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard  # streams need many open files
