"""Records beside rank 0: written in a thread, and no filesystem holds up the supervisor."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kept_runs import record_of, spec_of

from distrain.errors import OutputError
from distrain.jobs.assignment import Assignment, World
from distrain.jobs.job_view import AttemptStarted, entry_to_json
from distrain.jobs.run_paths import RunPaths
from distrain.runs.attempts import read_records
from distrain.runs.run_file import begin_run, find_run_file
from distrain.workers import attempt_records
from distrain.workers.attempt_records import AttemptRecords

LINES = [entry_to_json(one) for one in (AttemptStarted(1, 0, 2), record_of(10), record_of(20))]


def assigned(root: Path, job_id: str = "job") -> Assignment:
    return Assignment(job_id, 1, World(), spec_of().model_dump(mode="json"), str(root))


def test_lines_that_come_after_the_rank_has_ended_are_written(tmp_path: Path) -> None:
    async def story() -> None:
        records = AttemptRecords(assigned(tmp_path), lambda *_: None)
        await records.open()
        records.write(LINES[:2])
        closing = asyncio.create_task(records.close())
        await asyncio.sleep(0)
        records.write(LINES[2:])
        records.end()
        await closing

    asyncio.run(story())
    assert [one.step for one in read_records(RunPaths(tmp_path))] == [10, 20]
    assert find_run_file(RunPaths(tmp_path)) is not None


def test_a_coordinator_that_is_gone_is_waited_for_a_while(tmp_path: Path) -> None:
    async def story() -> None:
        records = AttemptRecords(assigned(tmp_path), lambda *_: None)
        await records.open()
        records.write(LINES)
        await records.close(timeout_s=0.01)

    asyncio.run(story())
    assert len(read_records(RunPaths(tmp_path))) == 2


def test_the_folder_of_another_job_is_refused(tmp_path: Path) -> None:
    begin_run(RunPaths(tmp_path), spec_of(), "other")

    async def story() -> None:
        records = AttemptRecords(assigned(tmp_path), lambda *_: None)
        with pytest.raises(OutputError):
            await records.open()
        await records.close(0.0)

    asyncio.run(story())
    assert not RunPaths(tmp_path).records.exists()


def test_any_error_of_opening_reaches_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> None:
        raise LookupError("no such folder")

    monkeypatch.setattr(attempt_records, "begin_attempt", fail)

    async def story() -> None:
        records = AttemptRecords(assigned(tmp_path), lambda *_: None)
        with pytest.raises(LookupError):
            await records.open()
        await records.close(0.0)

    asyncio.run(story())


def test_trouble_is_told_once_and_then_that_the_attempt_has_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    class Full:
        def append(self, _: Any) -> str:
            if told:
                raise OutputError("the disk is full")
            return "the disk is full"

        def close(self) -> None:
            raise OutputError("the disk is full")

    monkeypatch.setattr(attempt_records, "begin_attempt", lambda _: Full())

    async def story() -> None:
        records = AttemptRecords(assigned(tmp_path), lambda _, ends: told.append(ends))
        await records.open()
        for number in (1, 2):
            records.write(LINES)
            while len(told) < number:
                await asyncio.sleep(0.005)
        records.end()
        await records.close()

    asyncio.run(story())
    assert told == [False, True]
