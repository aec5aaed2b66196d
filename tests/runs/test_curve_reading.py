"""What is new of a run's records since a cursor is what all of them are, however they are read."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from kept_runs import new_run, record_of, records_of, view_of
from pydantic_core import to_json

from distrain.jobs.job_view import AttemptStarted, Record
from distrain.jobs.states import JobState
from distrain.runs.attempts import read_records
from distrain.runs.curve_reading import read_new_records
from distrain.runs.run_folder import RunFolder

BEGINS = st.lists(st.integers(0, 8), min_size=1, max_size=4)


class Reader:
    """Reads as a page does: what it had is replaced on a restart."""

    def __init__(self, root: Path, limit_bytes: int):
        self._root, self._limit = root, limit_bytes
        self._cursor: str | None = None
        self.steps: list[tuple[object, object]] = []

    def read(self) -> None:
        more = True
        while more:
            with RunFolder(self._root) as folder:
                new = read_new_records(folder, self._cursor, self._limit)
            kept = [] if new.restart else self.steps
            self.steps = [*kept, *((one["split"], one["step"]) for one in new.records)]
            self._cursor, more = new.cursor, new.more
            assert not new.damaged


def of(attempt: int, step: int, split: str = "train") -> Record:
    return replace(record_of(step, split), attempt=attempt)


@pytest.mark.slow
@given(begins=BEGINS, limit_bytes=st.sampled_from([100, 3000, 10**6]), late=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_reader_has_what_counts_after_each_attempt(begins, limit_bytes, late, tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    reader = Reader(root, limit_bytes)
    with new_run(root) as run:
        for attempt, begin in enumerate([0, *begins], 1):
            first = [AttemptStarted(attempt, 10 * begin, 2)]
            # What the attempt before had not written, perhaps, comes again.
            again = run.records[-3:] if late and attempt > 1 else []
            steps = [of(attempt, 10 * step) for step in range(begin + 1, begin + 5)]
            valid = of(attempt, steps[-1].step, "valid")
            for progress in ([*again, *first], steps[:2], [*steps[2:], valid]):
                view = view_of(JobState.RUNNING, progress)
                run.add(replace(view, attempt=attempt))
                reader.read()
                assert reader.steps == [(one.split, one.step) for one in read_records(run.paths)]


def test_records_of_an_earlier_version_come_first(tmp_path):
    with new_run(tmp_path) as run:
        first, *rest = records_of(40)
        lines = [record_of(step) for step in (1, 2, 30)]
        run.paths.metrics.write_bytes(b"".join(to_json(one.to_json()) + b"\n" for one in lines))
        run.add(view_of(JobState.RUNNING, [AttemptStarted(2, 2, 2), first, *rest]))
        reader = Reader(tmp_path, 10**6)
        reader.read()
        assert reader.steps[:3] == [("train", 1), ("train", 2), ("train", 10)]
        assert reader.steps == [(one.split, one.step) for one in read_records(run.paths)]


def test_a_line_that_is_cut_off_is_read_when_it_is_whole(tmp_path):
    reader = Reader(tmp_path, 10**6)
    with new_run(tmp_path) as run:
        run.add(view_of(JobState.RUNNING, [AttemptStarted(2, 0, 2), record_of(10), record_of(20)]))
        file = run.paths.attempt_records(2)
        whole = file.read_bytes()
        file.write_bytes(whole[:-20])
        reader.read()
        assert reader.steps == [("train", 10)]
        assert [one.step for one in read_records(run.paths)] == [10]
        with file.open("ab") as torn:
            torn.write(whole[-20:])
        reader.read()
        assert reader.steps == [("train", 10), ("train", 20)]
