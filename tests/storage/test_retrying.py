"""Trying again: when, how often, for how long, and what is said of it."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from distrain.errors import Unavailable
from distrain.storage import retrying
from distrain.storage.retrying import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    is_retrying,
    pause_s,
    stop_retrying_when,
    with_retries,
)

WHERE = {"file": "s3://b/a.parquet", "row group": 7}


class Clock:
    """Time that passes where somebody sleeps, and nowhere else."""

    def __init__(self):
        self.now_s = 1000.0
        self.slept_s = 0.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds
        self.slept_s += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(retrying, "time", clock)
    return clock


RESET = ConnectionResetError("reset by peer")


def failing(times, error=RESET):
    """Fails so often, then gives the number of calls."""
    told = SimpleNamespace(calls=0)

    def read():
        told.calls += 1
        if told.calls <= times:
            raise error
        return told.calls

    read.told = told  # type: ignore[attr-defined]
    return read


def test_it_is_read_again_until_it_goes_well(clock, caplog):
    assert with_retries(failing(3), WHERE, 300) == 4
    pauses = [pause_s(number, repr(WHERE)) for number in range(3)]
    assert clock.slept_s == pytest.approx(sum(pauses))
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "waiting for storage: reset by peer (file s3://b/a.parquet, row group 7); "
        f"try {number} failed, the next in {pause:.1f} s"
        for number, pause in enumerate(pauses, 1)
    ]


@pytest.mark.parametrize("budget_s", [1.0, 60.0, 300.0])
def test_the_last_try_is_made_when_the_time_is_over(clock, budget_s, wording):
    caught = wording.refused(Unavailable, lambda: with_retries(failing(10**9), WHERE, budget_s))
    assert clock.slept_s == pytest.approx(budget_s)
    assert caught.where == WHERE
    assert isinstance(caught.__cause__, ConnectionResetError)


def test_what_does_not_pass_is_told_at_once(clock):
    missing = FileNotFoundError("a.parquet")
    read = failing(9, missing)
    with pytest.raises(FileNotFoundError) as caught:
        with_retries(read, WHERE, 300)
    assert caught.value is missing
    assert read.told.calls == 1
    assert not clock.slept_s


def test_a_thread_that_is_to_stop_waits_no_longer(clock):
    read = failing(10**9)

    def work():
        stop_retrying_when(lambda: clock.slept_s > 0)
        with pytest.raises(Unavailable):
            with_retries(read, WHERE, 300)
        return True

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result(60)
    assert (clock.slept_s <= 0.25, read.told.calls) == (True, 2)


def test_who_waits_says_so_as_long_as_it_may(clock):
    seen = []

    def read():
        seen.append(is_retrying())
        if len(seen) == 3:
            clock.now_s += 300 + 61  # it is stuck in a call
            seen.append(is_retrying())
            return
        raise TimeoutError

    with_retries(read, WHERE, 300)
    assert seen == [False, True, True, False]
    assert not is_retrying()


def test_pauses_grow_and_are_spread_by_a_fixed_rule():
    pauses = [pause_s(number, "a") for number in range(40)]
    assert pauses == [pause_s(number, "a") for number in range(40)]
    for number, pause in enumerate(pauses):
        whole_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number)
        assert whole_s / 2 <= pause < whole_s
    thirds = {pause_s(3, f"row group {number}") for number in range(100)}
    assert len(thirds) == 100
    assert max(thirds) - min(thirds) > 1.5  # of 2 to 4 s
