"""The ports that the stores of attempts take."""

import socket
from collections.abc import Iterator

import pytest

from distrain.errors import ClusterError
from distrain.scheduler.gangs import Gangs
from distrain.scheduler.rendezvous import PORTS, Stores, make_store, rendezvous_ports

LOOPBACK = "127.0.0.1"


@pytest.fixture
def free_range() -> Iterator[range]:
    """Three ports in a row that nobody listens on now."""
    for first in range(21_000, 29_000, 7):
        probes = [socket.socket() for _ in range(3)]
        try:
            for offset, probe in enumerate(probes):
                probe.bind((LOOPBACK, first + offset))
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
        yield range(first, first + 3)
        return
    raise AssertionError("no three ports in a row are free")


def test_stores_take_the_ports_of_the_range_in_turn(free_range: range) -> None:
    stores = Stores({PORTS: f"{free_range[0]}-{free_range[-1]}"})
    first = stores.open(LOOPBACK)
    second = stores.open(LOOPBACK)
    assert (first.port, second.port) == (free_range[0], free_range[1])
    first.set("key", "value")
    assert first.get("key") == b"value"
    del first
    third = stores.open(LOOPBACK)
    assert third.port == free_range[-1]  # not the port that has just been left
    again = stores.open(LOOPBACK)
    assert again.port == free_range[0]


def test_a_range_whose_ports_are_all_taken_is_named(free_range: range) -> None:
    stores = Stores({PORTS: f"{free_range[0]}-{free_range[-1]}"})
    held = [stores.open(LOOPBACK) for _ in range(3)]
    with pytest.raises(ClusterError):
        stores.open(LOOPBACK)
    port = held.pop().port
    assert stores.open(LOOPBACK).port == port


def test_what_is_no_range_is_refused_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("29400", "29499-29400", "80-90", "29400-70000", "a-b", "1-2-3"):
        monkeypatch.setenv(PORTS, text)
        with pytest.raises(ClusterError, match=PORTS):
            Gangs(None, "test")  # type: ignore[arg-type]  # as the coordinator starts
    assert rendezvous_ports({PORTS: " "}) == range(1), "any free port"


def test_a_store_listens_at_an_ipv6_address() -> None:
    try:
        store = make_store("::1")
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with socket.create_connection(("::1", store.port), timeout=60) as connection:
        assert connection.getpeername()[0] == "::1"
