"""Run folders as commands and supervisors leave them, without training."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from distrain.jobs.assignment import Assignment, World
from distrain.jobs.events import PHASES
from distrain.jobs.job_view import Checkpoints, JobView, Record, Restart, entry_to_json
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.runs.attempt_file import AttemptFile, StatusLines
from distrain.runs.attempts import read_records
from distrain.runs.finish_run import begin_attempt, finish_run
from distrain.runs.open_run import OpenRun, open_run, reopen_run
from distrain.runs.run_file import read_run_and_spec
from distrain.runs.summary import Summary

LOST = Restart(1, "RankDied", "rank 1 was killed by <SIGKILL>\nits last output: none", 60, 12.0)
RELIABILITY = {"predicted": [0.1, 0.3, 0.6], "observed": [0.12, 0.28, 0.7], "rows": [400, 400, 200]}


def spec_of(**train):
    return parse_spec(
        {"data": {"train": "day_0", "valid": "day_1"}, "model": {"kind": "mlp"}, "name": "clicks",
         "train": train, "resources": {"num_ranks": 2}}
    )  # fmt: skip


def record_of(step, split="train"):
    train = split == "train"
    seconds = {**dict.fromkeys(PHASES, 0.0), "data_wait": 1.0, "forward_backward": 3.0}
    seconds["checkpoint"] = 0.5 if step % 40 == 0 else 0.0
    return Record(
        split, 0, step, 1000, 100 * step, step / 2, 250.0 if train else None, 0.7 - step / 1000,
        0.9, 0.6 + step / 1000, 1e-3, (20.0, 30.0) if train else (), seconds if train else None,
        0.1 if train else None, reliability=None if train else RELIABILITY,
    )  # fmt: skip


def records_of(steps=100):
    train = [record_of(step) for step in range(10, steps + 1, 10)]
    return [*train, record_of(steps, "valid")]


def view_of(state=JobState.SUCCEEDED, records=(), **fields):
    return JobView("clicks-1", "clicks", state, 2, 2, progress=tuple(records), **fields)


def finished_view(records):
    rank = {"data_wait": 10.0, "forward_backward": 30.0, "evaluate": 2.0}
    return view_of(
        records=records,
        restarts=(LOST,),
        checkpoints=Checkpoints(3, 100, "runs/a/checkpoints/step-100"),
        parameters=12,
        reader="arrow: ordinary parquet",
        rank_seconds=(rank, rank),
        rank_stall_pct=(20.0, 30.0),
        rank_peak_memory=({"host_bytes": 2**30, "device_bytes": 0},) * 2,
        rank_places=(
            {"host": "alpha", "device": "cuda:0", "hardware": "GPU X"},
            {"host": "beta", "device": "cuda:1", "hardware": "GPU Y"},
        ),
    )


class KeptRun(AbstractContextManager["KeptRun"]):
    """Writes a run folder from views as the supervisors beside rank 0 do, attempt by attempt.

    `first_attempt` is that of the submission.
    """

    def __init__(self, folder: OpenRun, first_attempt: int = 1):
        self.paths, self._first = folder.paths, first_attempt
        self._held = ExitStack()
        self._held.enter_context(folder)
        self._attempt = 0
        self._file: AttemptFile | None = None
        self._status = StatusLines()

    def __exit__(self, *_: object) -> None:
        self._close()
        self._held.close()

    @property
    def records(self) -> list[Record]:
        return read_records(self.paths)

    def add(self, view: JobView) -> None:
        """Record what is new in a view."""
        if view.attempt != self._attempt:
            self._begin(view.attempt)
        lines = [*self._status.new(view), *map(entry_to_json, view.progress)]
        assert self._file is not None
        if trouble := self._file.append(lines):
            raise AssertionError(trouble)

    def finish(self, view: JobView) -> Summary:
        """Record the last view of a job, and write its summary."""
        if view.progress or self._file is not None:
            self.add(view)
        self._close()
        return finish_run(self.paths, view, self._first)

    def _begin(self, attempt: int) -> None:
        self._close()
        run, spec = read_run_and_spec(self.paths.root)
        document, root = spec.model_dump(mode="json"), os.fspath(self.paths.root)
        given = (run.job_id, attempt, World(), document, root)
        self._attempt, self._status = attempt, StatusLines()
        self._file = begin_attempt(Assignment(*given, first_attempt=self._first))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


def new_run(root, spec=None, job_id="clicks-1"):
    """The writer of a new run."""
    return KeptRun(open_run(root, spec or spec_of(), job_id))


def resumed_run(root, first_attempt, spec=None):
    """The writer of a run's next submission."""
    return KeptRun(reopen_run(root, spec or spec_of()), first_attempt)


def keep_run(root, view, spec=None, job_id="clicks-1"):
    """Write the run folder of a job that ended; of one that still runs, without its end."""
    with new_run(root, spec, job_id) as run:
        if view.state.is_final:
            run.finish(replace(view, job_id=job_id))
        else:
            run.add(view)
    return root


def write_records(
    paths: RunPaths, records: Sequence[Mapping[str, Any]], attempt: int = 1, begin: int = 0
) -> None:
    """Write an attempt's file, or add to it: `records` are JSON values."""
    file = paths.attempt_records(attempt)
    file.parent.mkdir(parents=True, exist_ok=True)
    first = {"entry": "resumed", "attempt": attempt, "step": begin, "num_ranks": 1}
    lines = [*(() if file.exists() else (first,)), *records]
    with file.open("a") as out:
        out.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def all_lines(run_dir: Path) -> list[str]:
    """The lines of all attempts' files, in order."""
    paths = RunPaths(run_dir)
    files = [paths.attempt_records(number) for number in paths.attempts()]
    return [line for file in files if file.exists() for line in file.read_text().splitlines()]
