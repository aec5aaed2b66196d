"""Entries that nobody saw in time, made again: for the records, and for whoever follows the run."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given, settings, strategies as st

from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.view import AttemptStarted, Entry, JobView, Notice, Record
from distrain.runs import recorder as recorder_module
from distrain.runs.history import Followed, History
from distrain.runs.recorder import open_run, reopen_run
from distrain.runs.sinks.base import RunFacts
from distrain.runs.sinks.feed import Feeds

SPEC = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}, "name": "clicks"})
EVERY = 5


def record(attempt: int, step: int, split: str = "train", reports: int = 1) -> Record:
    figures = (step, 10, 10 * step, 1.0 * step, 5.0, 0.1 * attempt, 0.9, 0.7, 1e-4)
    return Record(split, 0, *figures, attempt=attempt, reports=reports)


def attempt_entries(attempt: int, begin: int, end: int) -> list[Entry]:
    """What an attempt tells that goes on from `begin` and is lost after `end`."""
    entries: list[Entry] = [AttemptStarted(attempt, begin, 2)]
    for step in range(EVERY * (begin // EVERY) + EVERY, end + 1, EVERY):
        entries.append(record(attempt, step))
        if step % (2 * EVERY) == 0:
            entries.append(record(attempt, step, "valid"))
    return entries


@st.composite
def stories(draw: st.DrawFn) -> list[list[Entry]]:
    """Attempts, each of which goes on from a step that an earlier one came to."""
    attempts, furthest = [], 0
    for attempt in range(1, draw(st.integers(1, 4)) + 1):
        begin = draw(st.integers(0, furthest)) if attempt > 1 else 0
        end = begin + draw(st.integers(0, 40))
        attempts.append(attempt_entries(attempt, begin, end))
        furthest = end
    return attempts


def whole(story: list[list[Entry]]) -> list[Record]:
    """The records of somebody who saw all of it."""
    history = History()
    for entries in story:
        history.add(entries)
    return history.records


def cut(data: st.DataObject, entries: list[Entry]) -> Iterator[tuple[int, list[Entry]]]:
    """What a viewer is shown of a list: how many entries it missed, and some that follow."""
    place = 0
    while place < len(entries):
        missed = data.draw(st.integers(0, len(entries) - place), "missed")
        shown = data.draw(st.integers(0, len(entries) - place - missed), "shown")
        if not missed + shown:
            shown = 1
        yield missed, entries[place + missed : place + missed + shown]
        place += missed + shown


@given(stories(), st.data())
@settings(deadline=None, max_examples=25)
def test_a_viewer_that_missed_entries_ends_with_what_counts(
    story: list[list[Entry]], data: st.DataObject
) -> None:
    told = [entry for entries in story for entry in entries]
    history, followed, passed = History(), Followed(), list[Entry]()
    seen = 0
    for missed, shown in cut(data, told):
        seen += missed + len(shown)
        if missed:
            # The disk may hold more than the scheduler has shown yet.
            kept = told[: data.draw(st.integers(seen, len(told)), "kept")]
            again: list[Entry] = []
            history.complete(followed.made_again(kept, again))
            passed += again
        history.add(shown)
        passed += followed.new(shown)
    assert history.records == whole(story)
    assert [entry for entry in passed if isinstance(entry, Record)] == [
        entry for entry in told if isinstance(entry, Record)
    ]
    assert [e for e in passed if isinstance(e, AttemptStarted)] == [entries[0] for entries in story]


@given(stories(), st.data())
@settings(deadline=None, max_examples=25)
def test_a_resumed_run_has_what_was_told_and_never_recorded(
    story: list[list[Entry]], data: st.DataObject
) -> None:
    told = [entry for entries in story for entry in entries]
    recorded = History()
    recorded.add(told[: data.draw(st.integers(0, len(told)))])
    resumed = History(recorded.records)  # as metrics.jsonl has them: without the attempts' starts
    resumed.complete(told)
    assert resumed.records == whole(story)


def test_a_finer_record_stays_where_a_coarser_one_is_made_again() -> None:
    history = History([record(1, 5), record(1, 10)])
    coarse = record(1, 10, reports=2), record(1, 20, reports=2)
    history.complete([AttemptStarted(1, 0, 2), *coarse])
    assert history.records == [record(1, 5), record(1, 10), coarse[1]]


def test_what_an_attempt_took_again_stays_taken_back_if_its_reports_are_gone() -> None:
    """Only its records are known; where it began is not told."""
    again = [record(2, 15), record(2, 20), record(2, 20, "valid")]
    history = History([record(1, 5), *again])
    history.complete([AttemptStarted(1, 0, 2), *(record(1, step) for step in range(5, 40, 5))])
    assert history.records == [record(1, 5), record(1, 10), *again]


def test_a_record_that_an_attempt_reports_again_is_passed_on_once() -> None:
    """The step of a checkpoint may be reported again by the attempt that goes on from it."""
    begun, again = AttemptStarted(1, 0, 2), AttemptStarted(2, 10, 2, "RankDied")
    story = [begun, record(1, 10), record(1, 15), again, record(2, 10), record(2, 15)]
    followed = Followed()
    assert [e for entry in story for e in followed.new([entry])] == [*story[:4], story[5]]


def view(*progress: Entry, missed: int = 0) -> JobView:
    return JobView("clicks-1", "clicks", JobState.RUNNING, 1, 2, progress=progress, missed=missed)


def test_sinks_get_what_was_missed_in_order_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = attempt_entries(1, 0, 1_500), attempt_entries(2, 1_000, 2_000)
    second.insert(3, Notice("the disk is full"))
    told = [*first, *second]
    kept = list(told)
    monkeypatch.setattr(recorder_module, "replay_reports", lambda _: iter(kept))
    sink, said, entries = Mock(), list[str](), list[Entry]()
    sink.write = lambda stamped: entries.extend(one.entry for one in stamped)
    facts = RunFacts("clicks-1", "clicks", tmp_path, {}, {})
    with (
        Feeds({"kept": sink}, facts, said.append) as feeds,
        open_run(tmp_path / "run", SPEC, "clicks-1") as recorder,
    ):
        feeds.put(recorder.add(view(*told[:4])))
        feeds.put(recorder.add(view(*told[480:490], missed=476)))
        feeds.put(recorder.add(view(*told[490:])))
    assert said == []
    assert entries == told

    kept += attempt_entries(3, 2_000, 2_010)  # and nobody recorded them
    with reopen_run(tmp_path / "run", SPEC) as recorder:
        fresh = recorder.add(view(AttemptStarted(4, 2_010, 2), record(4, 2_015)))
    assert fresh == [
        *attempt_entries(3, 2_000, 2_010),
        AttemptStarted(4, 2_010, 2),
        record(4, 2_015),
    ]
