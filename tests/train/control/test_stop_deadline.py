"""A rank that was asked to stop leaves in order if it can, and in time if it cannot."""

import threading
import time

import pytest

from distrain.checkpoint import RankStore
from distrain.events import RankStopped
from distrain.train.control import stop_deadline as stop_deadline_module
from distrain.train.control.control import Commands
from distrain.train.control.gate import StepGate
from distrain.train.control.stop_deadline import StopDeadline, time_to_leave_s
from distrain.train.timing.phases import RankActivity

LONG_S = 20.0


class Rank:
    """What is told, and whether the process would have ended."""

    def __init__(self):
        self.told = []
        self.left = threading.Event()
        self.activity = RankActivity()
        self.activity.step = 7
        self.stop_deadline = StopDeadline(1, self.activity, self.told.append, self.left.set)
        board = RankStore()
        self.gate = StepGate(board, 1, 2, self.stop_deadline.stop_agreed)
        self.commands = Commands(self.gate, self.stop_deadline)


@pytest.fixture
def rank(monkeypatch):
    monkeypatch.setattr(stop_deadline_module, "MAIN_THREAD_S", 0.01)
    return Rank()


def test_who_hangs_leaves_before_the_grace_is_over(rank):
    rank.commands.take('{"op": "stop", "number": 1, "grace_s": 1.0}')  # and nobody asks the gate
    assert rank.stop_deadline._deadline_s <= time.monotonic() + time_to_leave_s(1.0)
    assert time_to_leave_s(1.0) < 1.0
    assert rank.left.wait(LONG_S)
    assert rank.told == [RankStopped(1, 7, saved=False)]


def test_who_stopped_in_order_is_not_told_of_twice(rank):
    rank.stop_deadline.leave_within(0.05)
    rank.stop_deadline.stopped(8, saved=True)
    assert not rank.left.wait(0.15)
    assert rank.told == [RankStopped(1, 8, saved=True)]


def test_who_has_finished_ignores_a_stop(rank):
    rank.stop_deadline.finished()
    rank.commands.take('{"op": "stop", "number": 1, "grace_s": 0.05}')
    assert not rank.left.wait(0.15)
    assert rank.told == []


@pytest.mark.parametrize("agreed", [None, 0])
def test_a_stop_with_nothing_to_save_does_not_wait_for_the_training(rank, agreed):
    rank.stop_deadline.leave_within(LONG_S)
    rank.stop_deadline.stop_agreed(agreed)
    assert rank.left.wait(LONG_S / 2)


@pytest.mark.parametrize("agrees_first", [True, False])
def test_a_training_that_arrives_at_the_first_place_gets_its_time(rank, agrees_first, monkeypatch):
    monkeypatch.setattr(stop_deadline_module, "MAIN_THREAD_S", 0.1)
    rank.stop_deadline.leave_within(LONG_S)
    calls = [lambda: rank.stop_deadline.stop_agreed(0), rank.stop_deadline.arrived]
    for call in calls if agrees_first else reversed(calls):
        call()
    assert not rank.left.wait(0.2)
    rank.stop_deadline.stopped(0, saved=True)
    assert rank.told == [RankStopped(1, 0, saved=True)]


def test_an_agreed_stop_leaves_the_training_its_time(rank):
    rank.stop_deadline.leave_within(LONG_S)
    rank.stop_deadline.stop_agreed(5)
    assert not rank.left.wait(0.1)
    rank.stop_deadline.finished()


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
    assert rank.gate.asked
    assert "did not understand the command 'not json" in caplog.text
    assert "does not know the command 'dance'" in caplog.text
