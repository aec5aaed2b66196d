"""Stores of ranks: in one process, and in torch's store."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import TCPStore
from waiting import until

from distrain.jobs.assignment import Rendezvous
from distrain.train.checkpoint import RankStore
from distrain.train.control.control import join_store
from distrain.train.timing.phases import PEERS, wait_of


@pytest.fixture(scope="module")
def server():
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20))


@pytest.fixture(params=["store", "local"])
def boards(request, server):
    if request.param == "local":
        board = RankStore()
        return [board] * 3
    meeting = Rendezvous("127.0.0.1", server.port, f"job/{time.monotonic_ns()}")
    return [join_store(meeting, 20.0) for _ in range(3)]


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
    reading, posting = (join_store(meeting, 20.0) for _ in range(2))
    reader = threading.Thread(target=reading.read, args=("late", 20.0))
    reader.start()
    until(lambda: wait_of(reader.ident) == PEERS)
    posting.post("late", "here")
    reader.join(20.0)
    assert wait_of(reader.ident) == ""


def test_a_wait_that_is_given_up_ends(boards):
    given_up = threading.Event()
    errors = []

    def read():
        try:
            boards[0].read("never", 600.0, given_up)
        except TimeoutError as error:
            errors.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    given_up.set()
    reader.join(20.0)
    assert len(errors) == 1
    with pytest.raises(TimeoutError, match="nothing was posted as never"):
        boards[1].read("never", 0.03, threading.Event())
    boards[1].post("never", "after all")
    assert boards[2].read("never", 20.0, threading.Event()) == "after all"


def test_who_adds_the_last_of_n_texts_finds_all_of_them(boards):
    counts, found = [], []

    def add(number):
        count = boards[number % 3].add("list", f'{number}\n"\N{CHECK MARK}')
        counts.append(count)
        if count == 12:
            found.extend(boards[number % 3].take("list"))

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(add, range(12)))
    assert sorted(counts) == list(range(1, 13))
    assert sorted(found) == sorted(f'{number}\n"\N{CHECK MARK}' for number in range(12))
    assert boards[0].take("list") == []
    assert boards[1].add("list", "anew") == 1


def test_the_first_of_several_texts_wins_for_all(boards):
    with ThreadPoolExecutor(3) as threads:
        won = list(threads.map(lambda n: boards[n].decide("which", str(n)), range(3)))
    assert len(set(won)) == 1
    assert won[0] in ("0", "1", "2")
    assert boards[0].decide("which", "late") == won[0]
    assert boards[1].read("which", 0.0) == won[0]


def test_texts_are_taken_down_by_prefix(boards):
    boards[0].post("agreement/1/0", "x")
    boards[0].post("agreement/2/0", "y")
    boards[0].clear("agreement/1")
    assert not boards[1].check("agreement/1/0")
    assert boards[1].check("agreement/2/0")
