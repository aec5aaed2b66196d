import threading

import torch

from distrain.batch import Batch
from distrain.loader.channel import Channel, End, Failure


def batch() -> Batch:
    return Batch(torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 0), None, ("c",), ())


def test_items_come_in_order() -> None:
    channel = Channel(2)
    error = ValueError("x")
    items = [batch(), batch(), Failure(error)]
    for item in items:
        channel.put(item)
    assert [channel.get() for _ in items] == items


def test_the_producer_sleeps_until_there_is_room() -> None:
    channel = Channel(1)
    assert channel.wait_for_room()
    channel.put(batch())
    went_on = threading.Event()
    rooms: list[bool] = []

    def produce() -> None:
        rooms.append(channel.wait_for_room())
        went_on.set()

    thread = threading.Thread(target=produce)
    thread.start()
    assert not rooms
    channel.get()
    assert went_on.wait(60)
    thread.join()
    assert rooms == [True]


def test_closing_wakes_both_sides() -> None:
    full, empty = Channel(1), Channel(1)
    full.put(batch())
    rooms: list[bool] = []
    items: list[object] = []
    threads = [
        threading.Thread(target=lambda: rooms.append(full.wait_for_room())),
        threading.Thread(target=lambda: items.append(empty.get())),
    ]
    for thread in threads:
        thread.start()
    full.close()
    empty.close()
    for thread in threads:
        thread.join(60)
    assert rooms == [False]
    assert items == [End()]
    full.put(batch())
    assert full.get() == End()
