import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from distrain.loader.delivery.channel import Channel, End, Ready


def batch() -> Ready:
    return Ready(object())


def test_closing_wakes_all_on_both_sides() -> None:
    full, empty = Channel(1), Channel(1)
    assert full.wait_for_space()
    full.put(batch())
    spaces: list[bool] = []
    items: list[object] = []
    waits = [lambda: spaces.append(full.wait_for_space()), *[lambda: items.append(empty.get())] * 3]
    threads = [threading.Thread(target=wait, daemon=True) for wait in waits]
    for thread in threads:
        thread.start()
    full.close()
    empty.close()
    for thread in threads:
        thread.join(60)
    assert spaces == [False]
    assert items == [End()] * 3
    full.put(batch())
    assert full.get() == End()


class CloseAtLine:
    """Closes a channel in the thread that works with it, as a garbage collection there may do."""

    def __init__(self, channel: Channel, line: int):
        self.channel = channel
        self.lines_left = line

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "CloseAtLine":
        if event == "line":
            self.lines_left -= 1
            if self.lines_left == 0:
                sys.settrace(None)
                self.channel.close()
        return self


def wait_for_space(channel: Channel) -> object:
    channel.wait_for_space()
    channel.put(batch())
    return channel.wait_for_space()


@pytest.mark.parametrize("work", [wait_for_space, Channel.get])
def test_closing_wakes_the_thread_that_closes_at_any_line(work: Callable[[Channel], Any]) -> None:
    line = 0
    asleep = False
    while not asleep:
        line += 1
        channel = Channel(1)
        close = CloseAtLine(channel, line)

        def run(close: CloseAtLine = close, channel: Channel = channel) -> None:
            sys.settrace(close)
            work(channel)
            sys.settrace(None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(0.5)
        asleep = thread.is_alive() and close.lines_left > 0  # or on a busy machine, late
        thread.join(0 if asleep else 60)
        assert asleep or not thread.is_alive(), f"closed at line {line}, it sleeps for ever"
    channel.close()
    thread.join()
