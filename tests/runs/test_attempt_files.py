"""An attempt's file: one writer, whole lines, and nothing lost while a disk is full."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest
from kept_runs import all_lines, new_run, record_of, view_of
from waiting import until

from distrain.errors import OutputError
from distrain.jobs.job_view import AttemptStarted, entry_to_json
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.states import JobState
from distrain.runs import attempt_file
from distrain.runs.attempt_file import AttemptFile
from distrain.runs.attempts import read_records
from distrain.runs.run_data import read_run_data

WRITER = """
import sys
from pathlib import Path
from distrain.jobs.run_paths import RunPaths
from distrain.runs.attempt_file import AttemptFile
file = AttemptFile(RunPaths(Path(sys.argv[1])), 1)
line = {"entry": "notice", "text": "x" * 5000}
while True:
    file.append([line] * 50)
"""


def test_a_killed_writer_leaves_whole_lines_and_one_that_was_cut_off_at_most(
    tmp_path: Path,
) -> None:
    file = RunPaths(tmp_path).attempt_records(1)
    with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path]) as writer:
        until(lambda: file.exists() and file.stat().st_size > 2**22, "lines")
        os.kill(writer.pid, signal.SIGKILL)
    assert read_records(RunPaths(tmp_path)) == []
    assert all(line.endswith("}") for line in all_lines(tmp_path)[:-1])


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    record = replace(record_of(10), loader={"rows": 3}, usage={"host_bytes": [5]})
    with new_run(tmp_path) as run:
        run.add(view_of(JobState.RUNNING, [record]))
    [read] = read_records(RunPaths(tmp_path))
    assert repr((read.loader, read.usage)) == "({'rows': 3}, {'host_bytes': [5]})"


def test_an_attempt_has_one_writer_and_readers_see_that_it_writes(tmp_path: Path) -> None:
    with new_run(tmp_path) as run:
        run.add(view_of(JobState.RUNNING, [AttemptStarted(2, 0, 2), record_of(10)]))
        with pytest.raises(OutputError):
            AttemptFile(run.paths, 2)
        run._held.close()  # the command is gone
        assert read_run_data(tmp_path).state == "running"
    assert read_run_data(tmp_path).state == "broken off"
    assert [one.step for one in read_records(run.paths)] == [10]


def test_what_a_full_disk_did_not_take_comes_with_the_next_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = attempt_file._write
    is_full = [True]

    def half_full(file: BinaryIO, data: bytes) -> None:
        write(file, data[: 20 if is_full[0] else None])
        if is_full[0]:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(attempt_file, "_write", half_full)
    file = AttemptFile(RunPaths(tmp_path), 1)
    lines = [entry_to_json(record_of(step)) for step in (10, 20, 30)]
    assert file.append(lines[:1]), "the first failure is said"
    assert not file.append(lines[1:2]), "and then it is tried again"
    is_full[0] = False
    assert not file.append(lines[2:])
    assert [one.step for one in read_records(RunPaths(tmp_path))] == [10, 20, 30]
    is_full[0] = True
    monkeypatch.setattr(attempt_file, "FULL_DISK_S", 0.0)
    assert file.append(lines[:1])
    with pytest.raises(OutputError):
        file.append(lines[:1])
    with pytest.raises(OutputError):
        file.close()
