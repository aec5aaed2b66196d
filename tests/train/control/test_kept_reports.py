"""A rank waits until its supervisor has kept what it reported."""

import json
import threading

import pytest

from distrain.jobs.events import Event, ReportsAwaited
from distrain.train.control.control import Commands, KeptReports
from distrain.train.control.gate import StepGate


def test_a_rank_waits_for_the_answer_to_its_own_question() -> None:
    asked: list[Event] = []
    told = threading.Event()

    def report(event: Event) -> None:
        asked.append(event)
        told.set()

    kept = KeptReports(3, report)
    with pytest.raises(OSError, match="has not kept the reports"):
        kept.wait(within_s=0.0)
    told.clear()
    waiting = threading.Thread(target=kept.wait)
    waiting.start()
    assert told.wait(20)
    commands = Commands(StepGate(None, 3, 4), None, kept)  # type: ignore[arg-type]
    commands.take(json.dumps({"op": "kept", "number": 1}))  # it comes too late
    assert waiting.is_alive()
    commands.take(json.dumps({"op": "kept", "number": 2}))
    waiting.join(20)
    assert not waiting.is_alive()
    assert asked == [ReportsAwaited(3, 1), ReportsAwaited(3, 2)]
