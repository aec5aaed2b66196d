import threading

from distrain.loader.channel import Channel, End, Failure, Ready


def batch() -> Ready:
    return Ready(object())


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
