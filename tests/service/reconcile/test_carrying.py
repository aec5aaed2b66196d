"""Effects of passes on rows and run folders."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kept_runs import records_of
from served_jobs import SPEC
from service_jobs import a_job

from distrain.jobs.api_answers import Job as SeenJob
from distrain.jobs.assignment import Assignment, World
from distrain.jobs.job_view import AttemptStarted, entry_to_json
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.runs.finish_run import begin_attempt
from distrain.runs.run_file import read_summary
from distrain.service.decisions.cluster_state import ClusterNow
from distrain.service.decisions.job_actions import Write, reconcile, refused
from distrain.service.reconcile.cluster_world import ClusterWorld
from distrain.service.reconcile.run_folders import RunFolders
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store.store import migrate, open_store
from distrain.service.values import Change, Job, Phase, Quota


def test_a_job_that_no_scheduler_has_is_summed_up_from_its_records(tmp_path: Path) -> None:
    ours = {"run_dir": str(tmp_path / "job"), "phase": Phase.HANDED_OVER, "attempt": 1}
    job = a_job(cluster="main", **ours)
    profile = ClusterProfile(kind="address", url="http://127.0.0.1:8787", run_root=tmp_path)
    folders = RunFolders(Settings(data_dir=tmp_path, clusters={"main": profile}), "s-1")
    nobody: Any = SimpleNamespace()
    world = ClusterWorld("main", nobody, folders)
    spec = parse_spec(SPEC)
    assert folders.prepare(job, spec) == 0
    document = spec.model_dump(mode="json")
    file = begin_attempt(Assignment(job.id, 1, World(), document, job.run_dir))
    entries = [AttemptStarted(1, 0, 2), *records_of(20)]
    file.append([entry_to_json(entry) for entry in entries])
    file.close()
    assert folders.prepare(job, spec) == 1, "a new submission takes a later number"
    world.finish(job, refused(job, "CoordinatorLost", "it went away", 9.0))
    summary = read_summary(RunPaths(Path(job.run_dir))) or {}
    assert (summary["state"], summary["reason"], summary["steps"]) == (
        "failed", "CoordinatorLost", 20
    )  # fmt: skip
    gone = replace(job, run_dir=str(tmp_path / "gone"))
    world.finish(gone, refused(gone, "CoordinatorLost", "it went away", 9.0))
    run = Path(job.run_dir)
    (tmp_path / "link").symlink_to(run)
    (tmp_path / "parent").symlink_to(run.parent)
    linked = [tmp_path / "link", tmp_path / "parent" / run.name]
    for foreign in (
        *(replace(job, run_dir=str(one)) for one in linked), replace(job, id="other")
    ):  # fmt: skip
        world.finish(foreign, refused(foreign, "CoordinatorLost", "not its run", 9.0))
    assert read_summary(RunPaths(Path(job.run_dir))) == summary


def test_columns_that_the_rules_give_are_told_as_what_they_are(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    migrate(settings)
    nobody: Any = SimpleNamespace()
    with open_store(settings) as store:
        store.put_project("ads", Quota())
        for name in "ab":
            run_dir = str(tmp_path / name)
            new = Job(name, "ads", "alice", name, "main", 0, 1, run_dir)
            store.submit(new, SPEC)
        world = ClusterWorld("main", store, nobody)
        there = {"phase": Phase.HANDED_OVER, "epoch": "boot", "attempt": 1}
        world.commit([Change(job, there) for job in world.alive()])

        def see(step: int) -> list[tuple[str, Any]]:
            """How a pass tells of what it sees, by the kinds and bodies of its events."""
            store.publish()
            before = store.last_seq()
            changes = []
            for job in world.alive():
                seen = SeenJob(
                    id=job.id,
                    state="running",
                    attempt=1,
                    service=store.service_id,
                    first_attempt=job.first_attempt,
                    priority=job.priority,
                    step=step,
                )
                cluster = ClusterNow("main", "boot")
                taken = reconcile(job, seen, cluster, 100.0 * step)
                changes += [Change(job, one.columns) for one in taken if isinstance(one, Write)]
            assert world.commit(changes) == set()
            store.publish()
            return [(one.kind, one.body.get("progress")) for one in store.events_after(before, 9)]

        assert see(1) == 2 * [("job.state", None)]
        assert see(2) == 2 * [("job.progress", {"step": 2})]
        assert see(2) == []
        assert [(job.state, job.progress) for job in store.alive("main")] == 2 * [
            ("running", {"step": 2})
        ]
