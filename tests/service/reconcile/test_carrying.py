"""What the effects of passes do to run directories."""

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from served_jobs import SPEC, attempt_entries, job_in, record, settings_in, view_of

from distrain.jobs.view import AttemptStarted
from distrain.run_paths import RunPaths
from distrain.runs import read_records, served
from distrain.service.decide import FinishRun, refused
from distrain.service.reconcile.carrying import Carrier
from distrain.service.recorder import Recorder
from distrain.service.values import Phase


def test_what_was_lost_with_a_scheduler_is_taken_from_the_reports_that_ranks_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_in(tmp_path)
    job = replace(job_in(settings), phase=Phase.HANDED_OVER, attempt=1)
    kept = [AttemptStarted(1, 0, 2), *(record(1, step) for step in (5, 10, 15, 20))]
    monkeypatch.setattr(served, "replay_reports", lambda _: iter(kept))
    recorder = Recorder(settings, lambda _: 1, "s-1")
    nobody: Any = SimpleNamespace()
    carrier = Carrier("main", nobody, nobody, recorder)
    try:
        recorder.begin(job, SPEC, 1)
        recorder.take(job, view_of(attempt_entries(1, 0, 10)))
        effect = FinishRun(job, refused(job, "CoordinatorLost", "it went away", 9.0), None)
        ends_s = time.monotonic() + 60
        while not carrier.do(effect):
            assert time.monotonic() < ends_s
            time.sleep(0.005)
    finally:
        recorder.close()
    records = read_records(RunPaths(Path(job.run_dir)))
    assert [one.step for one in records if one.split == "train"] == [5, 10, 15, 20]
