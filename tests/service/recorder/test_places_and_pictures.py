"""What becomes of run directories after their jobs' ends: pictures, and their removal."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from served_jobs import SPEC, attempt_entries, job_in, settings_in, view_of
from waiting import until

from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.runs.places import LeasedFolder
from distrain.runs.run_file import ServiceMark
from distrain.runs.served import ServedRun
from distrain.service.recorder.pictures import Pictures
from distrain.service.recorder.places import remove_old_runs
from distrain.service.recorder.recorder import Recorder
from distrain.service.settings import ClusterProfile

MARK = ServiceMark("s-1", 1)
DAY_S = 86_400.0


def run_in(folder: Path, job_id: str, *, ends: bool = True, age_days: float = 0.0) -> Path:
    """A run directory as the service leaves it."""
    job = job_in(settings_in(folder), job_id)
    root = Path(job.run_dir)
    served = ServedRun(LeasedFolder(root, job_id))
    served.begin(parse_spec(SPEC), MARK)
    served.add(view_of(attempt_entries(1, 0, 40), job_id=job_id), MARK)
    if ends:
        served.finish(view_of((), JobState.SUCCEEDED, job_id=job_id), MARK)
        then_s = time.time() - age_days * DAY_S
        os.utime(served.paths.summary, (then_s, then_s))
    return root


def test_only_old_runs_that_ended_are_removed(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    old = run_in(tmp_path, "old-1", age_days=100)
    kept = [
        run_in(tmp_path, "new-1", age_days=80),
        run_in(tmp_path, "runs-1", ends=False),
        run_in(tmp_path, "queued-1", age_days=100),
    ]
    elsewhere = run_in(tmp_path / "elsewhere", "old-2", age_days=100)
    (old.parent / "link-1").symlink_to(elsewhere)
    (settings.run_root("main") / "linked").symlink_to(elsewhere.parent)
    (old / "model").symlink_to(elsewhere)  # as its job made it
    foreign = old.parent / "foreign"
    foreign.mkdir()
    now_s = time.time()
    assert not list(remove_old_runs(settings, "s-2", now_s, lambda _: True))  # another service
    may_go = "queued-1".__ne__
    assert list(remove_old_runs(settings, "s-1", now_s, may_go)) == [old]
    assert not old.exists()
    for root in (*kept, elsewhere, foreign):
        assert root.is_dir()
    assert RunPaths(elsewhere).summary.is_file()
    assert not [path for path in old.parent.iterdir() if path.name.startswith(".")]


def test_retention_of_zero_days_keeps_all(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    forever = settings.model_copy(
        update={"retention": settings.retention.model_copy(update={"run_dirs_days": 0})}
    )
    old = run_in(tmp_path, "old-1", age_days=1000)
    assert list(remove_old_runs(forever, "s-1", time.time(), lambda _: True)) == []
    assert old.is_dir()


@pytest.mark.slow
def test_pictures_are_drawn_by_another_process_when_the_job_is_final(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    job = job_in(settings)
    recorder = Recorder(settings, lambda _: 1, "s-1")
    try:
        recorder.begin(job, SPEC, 1)
        recorder.take(job, view_of(attempt_entries(1, 0, 40)))
        until(lambda: recorder.finish(job, view_of((), JobState.SUCCEEDED)))
        paths = RunPaths(Path(job.run_dir))
        assert paths.summary.exists()
        until(lambda: paths.report.exists() and paths.curves.exists())
    finally:
        recorder.close()


def test_the_service_loads_no_pictures_and_no_frameworks() -> None:
    code = "import distrain.service.recorder, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "torch", "dask", "pandas", "pyarrow"} & set(done.stdout.split())


@pytest.mark.slow
def test_drawing_that_takes_too_long_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine that is busy enough draws a real run before this process is asked again.
    monkeypatch.setattr("distrain.service.recorder.pictures._NICE", ("sh", "-c", "sleep 600"))
    root = run_in(tmp_path, "clicks-1")
    pictures = Pictures(limit_s=0.01)
    pictures.draw(str(root))
    until(lambda: "was ended" in caplog.text)
    pictures.close()
    assert not RunPaths(root).report.exists()


def test_a_run_root_at_a_url_is_refused() -> None:
    url = "http://127.0.0.1:8787"
    for root in ("gs://bucket/runs", Path("s3://bucket/runs"), "s3:///", "s3://KEY:SECRET@b/runs"):
        with pytest.raises(ValueError, match="run_root"):
            ClusterProfile(url=url, run_root=root)
    with pytest.raises(ValueError, match="shared filesystem"):
        ClusterProfile(kind="slurm", run_root="s3://bucket/runs")
    assert ClusterProfile(url=url, run_root="s3://bucket/runs").run_root == "s3://bucket/runs"
