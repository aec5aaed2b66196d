"""Sinks that work, raise, hang and lag: none of them is ever waited for."""

import threading

import pytest

from distrain.jobs.job_view import Record
from distrain.runs.sinks.feed import Feeds


class Kept:
    """A sink that keeps everything in memory."""

    def __init__(self):
        self.facts, self.entries, self.state = None, [], None

    def open(self, facts):
        self.facts = facts

    def write(self, entries):
        assert entries  # never called for nothing
        self.entries += [entry for entry, _ in entries]

    def close(self, state):
        self.state = state


def fed(facts, sinks, entries, state="succeeded", **options):
    """What was said while some entries were put, one by one."""
    said = []
    with Feeds(sinks, facts, said.append, **options) as feeds:
        for entry in entries:
            feeds.put([entry])
        feeds.ends(state)
    return said


def test_every_entry_reaches_every_sink_in_order_and_once(facts, entries):
    one, other = Kept(), Kept()
    assert fed(facts, {"one": one, "other": other}, entries) == []
    for sink in (one, other):
        assert sink.facts == facts
        assert sink.entries == [*entries]
        assert sink.state == "succeeded"


def test_a_run_that_breaks_off_has_failed(facts, entries):
    def stopped():
        with Feeds({"sink": sink}, facts, print) as feeds:
            feeds.put(entries)
            raise KeyboardInterrupt

    sink = Kept()
    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert (sink.state, len(sink.entries)) == ("failed", len(entries))


def test_a_sink_that_cannot_be_opened_is_told_of_and_tried_again(facts, entries):
    class Late(Kept):
        tries = 0

        def open(self, facts):
            self.tries += 1
            if self.tries == 1:
                raise ConnectionError("nobody at 10.0.0.9:5000\nmore words")
            opened.set()

    opened = threading.Event()
    sink, said = Late(), []
    with Feeds({"late": sink}, facts, said.append) as feeds:
        feeds.put(entries[:1])
        assert opened.wait(120)
        feeds.put(entries[1:])
        feeds.ends("succeeded")
    assert sink.entries[-1] == entries[-1]
    assert sink.state == "succeeded"
    assert 1 <= len(said) <= 2
    assert "late" in said[0]
    assert "ConnectionError: nobody at 10.0.0.9:5000" in said[0]
    assert "more words" not in said[0]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), MemoryError()])
def test_whatever_a_sink_raises_its_loss_is_counted_and_others_get_all(facts, entries, error):
    class Broken(Kept):
        def write(self, entries):
            raise error

    broken, sound = Broken(), Kept()
    said = fed(facts, {"broken": broken, "sound": sound}, entries)
    assert len(sound.entries) == len(entries)
    assert f"broken: {len(entries)}" in said[-1]
    assert type(error).__name__ in said[-1]
    assert len(said) <= 2  # once while it runs, once at the end
    assert broken.state == "succeeded"


def test_the_entries_of_a_call_that_failed_are_passed_once_more(facts, make_record):
    class Failing(Kept):
        """Each call with the record of step 1 fails, and the first call with that of step 4."""

        alone = 0

        def write(self, entries):
            steps = [entry.step for entry, _ in entries]
            began.release()
            assert goes_on.acquire(timeout=120)
            self.alone += steps == [4]
            if 1 in steps or (steps == [4] and self.alone == 1):
                raise ConnectionError
            super().write(entries)

    began, goes_on = threading.Semaphore(0), threading.Semaphore(0)
    sink, said = Failing(), []
    with Feeds({"failing": sink}, facts, said.append) as feeds:
        for step in range(1, 5):
            feeds.put([make_record(step)])
            assert began.acquire(timeout=120)
            goes_on.release()
        goes_on.release()
        feeds.ends("succeeded")
    assert [entry.step for entry in sink.entries] == [2, 3, 4]
    assert "failing: 1 entries were lost" in said[-1]


def test_a_sink_that_hangs_is_not_waited_for(facts, make_record):
    class Hanging(Kept):
        def write(self, entries):
            began.set()
            release.wait()

    began, release = threading.Event(), threading.Event()
    said = []
    try:
        with Feeds(
            {"hanging": Hanging()}, facts, said.append, capacity=8, last_entries_s=1.0
        ) as feeds:
            feeds.put([make_record(1)])
            assert began.wait(120)
            for step in range(2, 1002):
                feeds.put([make_record(step)])
            assert len(said) == 1  # while it hangs, and once
        assert len(said) == 2
        assert "1001" in said[1]
    finally:
        release.set()


def test_a_sink_that_lags_gets_what_fits_its_queue(facts, make_record):
    class Slow(Kept):
        def write(self, entries):
            super().write(entries)
            began.set()
            release.wait()

    began, release = threading.Event(), threading.Event()
    sink, said = Slow(), []
    with Feeds({"slow": sink}, facts, said.append, capacity=8) as feeds:
        feeds.put([make_record(0)])
        assert began.wait(120)
        for step in range(1, 21):
            feeds.put([make_record(step)])
        release.set()
        feeds.ends("failed")
    kept = [entry.step for entry in sink.entries if isinstance(entry, Record)]
    assert kept == [0, 1, *range(14, 21)], "the first that waits, and the newest"
    assert "slow: 12" in said[-1]


def test_what_waited_for_a_sink_is_written_at_once(facts, make_record):
    class Blocked(Kept):
        writes = 0

        def write(self, entries):
            super().write(entries)
            self.writes += 1
            began.set()
            assert release.wait(120)

    began, release = threading.Event(), threading.Event()
    sink, said = Blocked(), []
    with Feeds({"blocked": sink}, facts, said.append) as feeds:
        feeds.put([make_record(0)])
        assert began.wait(120)
        for step in range(1, 41):
            feeds.put([make_record(step)])
        release.set()
        feeds.ends("succeeded")
    assert said == []
    assert [entry.step for entry in sink.entries] == [*range(41)]
    assert sink.writes == 2
