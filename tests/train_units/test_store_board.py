"""The notice board in torch's store."""

import threading
import time
from datetime import timedelta

import pytest
from torch.distributed import PrefixStore, TCPStore

from distrain.train.assignment import Rendezvous
from distrain.train.board import LocalDecidingBoard, StoreBoard
from distrain.train.whereabouts import PEERS, wait_of


@pytest.fixture(scope="module")
def server():
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20))


@pytest.fixture(params=["store", "local"])
def boards(request, server):
    if request.param == "local":
        board = LocalDecidingBoard()
        return [board] * 3
    meeting = Rendezvous("127.0.0.1", server.port, f"job/{time.monotonic_ns()}")
    return [StoreBoard.join(meeting, 20.0) for _ in range(3)]


def test_a_text_is_read_by_all_and_replaced(boards):
    boards[0].post("a/0", "first")
    assert [board.read("a/0", 0.0) for board in boards] == ["first"] * 3
    boards[0].post("a/0", "second \N{CHECK MARK}")
    assert boards[2].read("a/0", 0.0) == "second \N{CHECK MARK}"
    assert boards[1].check("a/0")
    assert not boards[1].check("a/1")


def test_who_waits_for_a_text_gets_it_and_holds_up_nobody(boards):
    got = []
    reader = threading.Thread(target=lambda: got.append(boards[0].read("late", 20.0)))
    reader.start()
    # The same client answers others meanwhile.
    boards[0].post("other", "x")
    assert boards[0].read("other", 0.0) == "x"
    boards[1].post("late", "here")
    reader.join(20.0)
    assert got == ["here"]


def test_who_waits_for_a_text_is_seen_to_wait_for_its_peers(server):
    meeting = Rendezvous("127.0.0.1", server.port, f"job/{time.monotonic_ns()}")
    reading, posting = (StoreBoard.join(meeting, 20.0) for _ in range(2))
    reader = threading.Thread(target=reading.read, args=("late", 20.0))
    reader.start()
    deadline_s = time.monotonic() + 20.0
    while wait_of(reader.ident) != PEERS:
        assert time.monotonic() < deadline_s
    posting.post("late", "here")
    reader.join(20.0)
    assert wait_of(reader.ident) == ""


def test_nobody_waits_longer_than_they_say(boards):
    with pytest.raises(TimeoutError, match="nothing was posted as never"):
        boards[0].read("never", 0.05)


def test_the_first_of_several_texts_wins_for_all(boards):
    won = [None] * 3
    threads = [
        threading.Thread(target=lambda n=n: won.__setitem__(n, boards[n].decide("which", str(n))))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert len(set(won)) == 1
    assert won[0] in ("0", "1", "2")
    assert boards[0].decide("which", "late") == won[0]
    assert boards[1].read("which", 0.0) == won[0]


def test_texts_are_taken_down_by_prefix(boards):
    boards[0].post("gate/1/0", "x")
    boards[0].post("gate/2/0", "y")
    boards[0].clear("gate/1")
    assert not boards[1].check("gate/1/0")
    assert boards[1].check("gate/2/0")


def test_boards_of_two_attempts_do_not_mix(server):
    stores = [PrefixStore(f"job/{attempt}", server) for attempt in (1, 2)]
    first, second = (StoreBoard(store) for store in stores)
    first.post("key", "first")
    assert not second.check("key")
