"""What waits to be written keeps its order and its limit."""

import asyncio
import threading

import pytest

from distrain.storage.background import BackgroundWriter, LossyQueue, in_thread


def test_the_oldest_that_waits_makes_room_and_the_rest_keeps_its_order() -> None:
    writer, gate, began = BackgroundWriter("test"), threading.Event(), threading.Event()
    taken: list[tuple[int, str]] = []

    def take(left_out_bytes: int, item: str) -> None:
        began.set()
        assert gate.wait(20)
        taken.append((left_out_bytes, item))

    inbox = LossyQueue[str](writer, 10, take)
    inbox.put("being written", 9)
    assert began.wait(20)
    for item, size_bytes in (("a", 4), ("b", 4), ("c", 4), ("d", 3), ("very large", 99)):
        inbox.put(item, size_bytes)
    inbox.put("e", 5)
    assert inbox.left_out_items == 4
    gate.set()
    assert asyncio.run(writer.done(20))
    inbox.put("f", 1)
    assert asyncio.run(writer.done(20))
    writer.close()
    assert taken == [(0, "being written"), (0, "a"), (110, "e"), (0, "f")]


def test_an_item_may_take_the_room_of_several() -> None:
    writer, gate, taken = BackgroundWriter("test"), threading.Event(), list[int]()
    writer.do(gate.wait)  # type: ignore[arg-type]
    inbox = LossyQueue[int](writer, 3, lambda _, item: taken.append(item))
    for size in (1, 1, 1, 3):
        inbox.put(size, size)
    gate.set()
    assert asyncio.run(writer.done(20))
    inbox.put(2, 2)
    assert asyncio.run(writer.done(20))
    writer.close()
    assert (taken, inbox.left_out_items) == ([1, 3, 2], 2)


def test_one_that_never_runs_empty_leaves_turns_to_others() -> None:
    """A rank that prints without end, and its reports: one thread writes both."""
    writer, enough = BackgroundWriter("test"), threading.Event()
    taken: list[int] = []

    def take(_: int, item: int) -> None:
        taken.append(item)
        if item < 100_000 and not enough.is_set():
            endless.put(item + 1, 1)

    endless = LossyQueue[int](writer, 10, take)
    endless.put(0, 1)
    other = LossyQueue[str](writer, 10, lambda *_: enough.set())
    other.put("report", 1)
    assert asyncio.run(writer.done(20))
    assert asyncio.run(writer.done(20))
    writer.close()
    assert enough.is_set()
    assert taken[-1] < 100_000
    assert taken == list(range(len(taken)))


def test_a_look_at_a_filesystem_that_hangs_is_given_up() -> None:
    gate = threading.Event()

    def look() -> str:
        assert gate.wait(20)
        return "seen"

    with pytest.raises(TimeoutError):
        asyncio.run(in_thread(look, 0.01))
    gate.set()
    assert asyncio.run(in_thread(look, 20)) == "seen"
