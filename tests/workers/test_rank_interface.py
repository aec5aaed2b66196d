"""Which interface ranks use, and what a worker says of one that it does not have."""

from types import SimpleNamespace

import psutil
import pytest

from distrain.errors import ClusterError
from distrain.jobs.spec import parse_spec
from distrain.workers.network_interface import (
    choose_interface,
    interface_of,
    ip_addresses,
    speaks_ipv6,
)
from distrain.workers.rank_process import _environment

SPEC = parse_spec({"data": {"train": "nowhere"}, "model": {"kind": "mlp"}})


@pytest.fixture
def two_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(family: int, text: str) -> SimpleNamespace:
        return SimpleNamespace(family=family, address=text)

    found = {
        "lo": [address(2, "127.0.0.1"), address(10, "::1")],
        "eth1": [address(2, "10.0.0.6"), address(10, "fd00::6"), address(10, "fe80::1%eth1")],
        "eth2": [address(2, "10.1.0.6")],
        "ib0": [address(10, "fe80::2%ib0"), address(17, "02:fc:00:00:00:01")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)


def test_ranks_take_the_interface_of_the_worker_s_address(two_interfaces: None) -> None:
    for address in ("10.0.0.6", "fd00::6", "fd00:0:0::0006", "fe80::1"):
        assert choose_interface(address, {}) == "eth1"
    assert interface_of("::1") == "lo"
    assert choose_interface("10.0.0.7", {}) is None
    assert choose_interface("node-2", {}) is None


def test_the_environment_names_another(two_interfaces: None) -> None:
    assert choose_interface("127.0.0.1", {"DISTRAIN_INTERFACE": "eth1"}) == "eth1"
    assert choose_interface("10.0.0.6", {"DISTRAIN_INTERFACE": ""}) == "eth1"
    assert choose_interface("10.0.0.6", {"GLOO_SOCKET_IFNAME": "eth1, eth2"}) == "eth1"
    assert ip_addresses()["eth1"] == ["10.0.0.6", "fd00::6"]


def test_ipv6_is_asked_for_only_where_the_interface_has_it(two_interfaces: None) -> None:
    assert speaks_ipv6("eth1", "fd00::6")
    assert speaks_ipv6("eth1", "fe80::1")
    assert speaks_ipv6(None, "fd00::7")
    assert not speaks_ipv6("eth1", "10.0.0.6")
    assert not speaks_ipv6("eth2", "fd00::6")  # named by the environment


@pytest.mark.parametrize("variable", ["DISTRAIN_INTERFACE", "GLOO_SOCKET_IFNAME"])
@pytest.mark.parametrize("name", ["eth9", "ib0"])
def test_one_that_cannot_serve_is_refused_before_ranks_wait_for_each_other(
    two_interfaces: None, variable: str, name: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        choose_interface("10.0.0.6", {variable: name})
    assert all(word in caught.value.message for word in (variable, name))
    listed = "lo (127.0.0.1, ::1), eth1 (10.0.0.6, fd00::6), eth2 (10.1.0.6), ib0 (no address)"
    assert caught.value.where["interfaces"] == listed
    assert caught.value.where["host"]
    assert variable in (caught.value.hint or "")


def test_it_reaches_gloo_and_nccl_unless_the_user_named_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    socket = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY")
    for name in (*socket, "NCCL_LAUNCH_ORDER_IMPLICIT", "CUDA_MODULE_LOADING"):
        monkeypatch.delenv(name, raising=False)
    env = _environment(SPEC, "eth1", ipv6=False)
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("eth1", "=eth1")
    assert "NCCL_SOCKET_FAMILY" not in env
    assert env["NCCL_LAUNCH_ORDER_IMPLICIT"] == "1", "kernels of communicators have one order"
    assert "CUDA_MODULE_LOADING" not in env, "all modules at once would take seconds and memory"
    assert _environment(SPEC, "eth1", ipv6=True)["NCCL_SOCKET_FAMILY"] == "AF_INET6"
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib")
    monkeypatch.setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0")
    env = _environment(SPEC, "eth1", ipv6=False)
    assert env["NCCL_LAUNCH_ORDER_IMPLICIT"] == "0"
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("eth1", "ib")
