"""Where a gang's store listens, and with which certificate the coordinator talks to its cluster."""

import socket
import ssl

import psutil
import pytest
from distributed import Security

from distrain.scheduler.gangs import client_security
from distrain.scheduler.rendezvous import make_store

LOOPBACK = "127.0.0.1"
ELSEWHERE = "192.0.2.7"
"""Reserved for documentation: no machine has it."""


def listening() -> set[tuple[str, int]]:
    connections = psutil.Process().net_connections("inet")
    return {(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}


def test_a_store_listens_at_its_host_alone() -> None:
    before = listening()
    store = make_store(LOOPBACK)
    assert listening() - before == {(LOOPBACK, store.port)}
    store.set("key", "value")
    assert store.get("key") == b"value"
    del store
    assert listening() == before


def test_where_the_host_is_another_machine_s_the_store_listens_as_the_scheduler_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = {}

    def store(host: str, port: int, *, master_listen_fd: int, **_: object) -> None:
        with socket.socket(fileno=master_listen_fd) as listener:
            made[host] = (listener.getsockname(), port)

    monkeypatch.setattr("torch.distributed.TCPStore", store)
    make_store(ELSEWHERE, LOOPBACK)
    (at, port) = made[ELSEWHERE]
    assert at == (LOOPBACK, port)
    with pytest.raises(OSError, match=r"not known|failure in name"):
        make_store("no.such.host.invalid", LOOPBACK)


def test_the_coordinator_s_client_shows_the_scheduler_s_certificate() -> None:
    theirs = Security(tls_ca_file="ca", tls_scheduler_cert="cert", tls_scheduler_key="key")
    ours = client_security(theirs)
    assert ours.get_tls_config_for_role("client")["cert"] == "cert"
    assert ours.get_tls_config_for_role("client")["key"] == "key"
    assert ours.require_encryption
    assert ours.tls_min_version == ssl.TLSVersion.TLSv1_2
    assert theirs.tls_client_cert is None
    with_own = Security(tls_ca_file="ca", tls_client_cert="mine", tls_client_key="my key")
    assert client_security(with_own).tls_client_cert == "mine"
    assert not client_security(Security()).require_encryption
