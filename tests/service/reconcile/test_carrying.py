"""What passes do to rows and run directories."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from served_jobs import SPEC, attempt_entries, job_in, record, settings_in, view_of
from waiting import until

from distrain.jobs.run_paths import RunPaths
from distrain.jobs.status import JobStatus
from distrain.jobs.view import AttemptStarted
from distrain.runs import served
from distrain.runs.run_file import read_records
from distrain.service.decide.cluster_state import ClusterNow
from distrain.service.decide.rules import Take, reconcile, refused
from distrain.service.decide.world import Change
from distrain.service.reconcile.cluster_world import ClusterWorld
from distrain.service.recorder.recorder import Recorder
from distrain.service.store.store import migrate, open_store
from distrain.service.values import NewJob, Phase, Quota


def test_what_was_lost_with_a_scheduler_is_taken_from_the_reports_that_ranks_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_in(tmp_path)
    job = replace(job_in(settings), phase=Phase.HANDED_OVER, attempt=1)
    kept = [AttemptStarted(1, 0, 2), *(record(1, step) for step in (5, 10, 15, 20))]
    monkeypatch.setattr(served, "replay_reports", lambda _: iter(kept))
    recorder = Recorder(settings, lambda _: 1, "s-1")
    nobody: Any = SimpleNamespace()
    world = ClusterWorld("main", nobody, recorder)
    try:
        recorder.begin(job, SPEC, 1)
        recorder.take(job, view_of(attempt_entries(1, 0, 10)))
        columns = refused(job, "CoordinatorLost", "it went away", 9.0)
        until(lambda: world.finish(job, columns, None))
    finally:
        recorder.close()
    records = read_records(RunPaths(Path(job.run_dir)))
    assert [one.step for one in records if one.split == "train"] == [5, 10, 15, 20]


def test_columns_that_the_rules_give_are_told_as_what_they_are(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    migrate(settings)
    nobody: Any = SimpleNamespace()
    with open_store(settings) as store:
        store.put_project("ads", Quota())
        for name in "ab":
            run_dir = str(tmp_path / name)
            new = NewJob(name, "ads", "alice", name, "main", 0, 1, run_dir, dict(SPEC))
            store.submit(new)
        world = ClusterWorld("main", store, nobody)
        there = {"phase": Phase.HANDED_OVER, "epoch": "boot", "attempt": 1}
        world.commit([Change(job, there) for job in world.alive()])

        def see(step: int) -> list[tuple[str, Any]]:
            """How a pass tells of what it sees, by the kinds and bodies of its events."""
            store.publish()
            before = store.last_seq()
            changes = []
            for job in world.alive():
                seen = JobStatus(
                    job.id,
                    state="running",
                    attempt=1,
                    service=store.service_id,
                    first_attempt=job.first_attempt,
                    priority=job.priority,
                    step=step,
                )
                cluster = ClusterNow("main", "boot")
                taken = reconcile(job, seen, cluster, 100.0 * step)
                changes += [Change(job, one.columns) for one in taken if isinstance(one, Take)]
            assert world.commit(changes) == set()
            store.publish()
            return [(one.kind, one.body.get("progress")) for one in store.events_after(before, 9)]

        assert see(1) == 2 * [("job.state", None)]
        assert see(2) == 2 * [("job.progress", {"step": 2})]
        assert see(2) == []
        assert [(job.state, job.progress) for job in store.alive("main")] == 2 * [
            ("running", {"step": 2})
        ]
