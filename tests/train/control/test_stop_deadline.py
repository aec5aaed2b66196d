"""A rank that was asked to stop leaves in order if it can, and in time if it cannot."""

import math
import threading
import time

import pytest

from distrain.jobs.events import RankStopped
from distrain.train.checkpoint import RankStore
from distrain.train.control import stop_deadline as stop_deadline_module
from distrain.train.control.control import Commands
from distrain.train.control.step_agreement import StepAgreement
from distrain.train.control.stop_deadline import StopDeadline, time_to_leave_s
from distrain.train.timing.phases import RankActivity

LONG_S = 120.0


class Rank:
    """What is told, and whether the process would have ended."""

    def __init__(self):
        self.told = []
        self.left = threading.Event()
        self.activity = RankActivity()
        self.activity.step = 7
        self.stop_deadline = StopDeadline(1, self.activity, self.told.append, self.left.set)
        board = RankStore()
        self.agreement = StepAgreement(board, 1, 2, self.stop_deadline.stop_agreed)
        self.commands = Commands(self.agreement, self.stop_deadline)


@pytest.fixture
def rank():
    return Rank()


def test_who_hangs_leaves_before_the_grace_is_over(rank):
    rank.commands.take(
        '{"op": "stop", "number": 1, "grace_s": 1.0}'
    )  # and the agreement is not called
    assert rank.stop_deadline._deadline_s <= time.monotonic() + time_to_leave_s(1.0)
    assert time_to_leave_s(1.0) < 1.0
    assert rank.left.wait(LONG_S)
    assert rank.told == [RankStopped(1, 7, saved=False)]


@pytest.mark.parametrize("agreed", [None, 0])
def test_a_stop_with_nothing_to_save_does_not_wait_for_the_training(rank, agreed):
    rank.stop_deadline.leave_within(1e6)
    rank.stop_deadline.stop_agreed(agreed)
    assert rank.left.wait(LONG_S)


IN_ORDER = {
    "stopped": lambda deadline: deadline.stopped(8, saved=True),
    "finished": lambda deadline: deadline.finished(),
}


@pytest.mark.parametrize("end", IN_ORDER)
@pytest.mark.parametrize("agreed", [(0, "arrived"), ("arrived", 0), (5,), ()])
def test_a_training_that_leaves_in_order_gets_its_time(rank, monkeypatch, agreed, end):
    """At its first place, where it arrives before or after the ranks agree, or at a later one."""
    monkeypatch.setattr(stop_deadline_module, "MAIN_THREAD_S", LONG_S)
    deadline = rank.stop_deadline
    rank.commands.take('{"op": "stop", "number": 1, "grace_s": 1e6}')
    for what in agreed:
        deadline.arrived() if what == "arrived" else deadline.stop_agreed(what)
    assert deadline._early_s == math.inf
    IN_ORDER[end](deadline)
    deadline._thread.join(LONG_S)
    assert not deadline._thread.is_alive()
    assert not rank.left.is_set()
    assert rank.told == ([RankStopped(1, 8, saved=True)] if end == "stopped" else [])


def test_commands_come_line_by_line_until_the_end(rank, caplog):
    ended = threading.Event()
    lines = [
        '{"op": "checkpoint", "number": 3}\n',
        "not json\n",
        '{"op": "dance", "number": 4}\n',
        '{"op": "stop"}\n',
    ]
    rank.commands.listen(lines, ended.set)
    assert ended.wait(LONG_S)
    assert rank.agreement.is_requested
    assert "did not understand the command 'not json" in caplog.text
    assert "does not know the command 'dance'" in caplog.text
