"""The recorder of a service: many jobs, in threads of their own, whatever filesystems do."""

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from served_jobs import SPEC, attempt_entries, job_in, record, settings_in, view_of
from waiting import until

from distrain.errors import OutputError, Unavailable
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.states import JobState
from distrain.jobs.view import AttemptStarted
from distrain.runs.places import LeasedFolder
from distrain.runs.run_file import read_records, read_run_and_spec, read_summary
from distrain.runs.served import ServedRun
from distrain.runs.writer import append
from distrain.service.recorder import recorder as recorder_module
from distrain.service.recorder.recorder import Recorder
from distrain.service.settings import Settings


@pytest.fixture
def config(tmp_path: Path) -> Settings:
    return settings_in(tmp_path, ("main", "other"))


@contextmanager
def recording(
    settings: Settings, generation: int | None = 1, draw: Callable[[str], None] = lambda _: None
) -> Iterator[Recorder]:
    recorder = Recorder(settings, lambda _: generation, "s-1")
    recorder._pictures.draw = draw  # type: ignore[method-assign]
    try:
        yield recorder
    finally:
        recorder.close()


def test_what_no_process_finished_is_finished_later(config: Settings) -> None:
    """The row says that a job has ended, and the process that was to write it was killed."""
    begun, absent, never = (job_in(config, name) for name in ("begun", "absent", "never"))
    lost = [AttemptStarted(1, 0, 2), record(1, 5)]
    with recording(config) as recorder:
        recorder.begin(begun, SPEC, 1)
        recorder.take(begun, view_of(lost))
        recorder.begin(never, SPEC, 1)
        until(lambda: not recorder.waits(begun.id))
    begun, absent = replace(begun, attempt=1), replace(absent, attempt=1)
    never = replace(never, first_attempt=2)  # its submission's number is used up
    end = view_of((), JobState.FAILED, attempt=1, reason="RankDied")
    cancelled = view_of((), JobState.CANCELLED, attempt=0, reason="Cancelled")
    with recording(config, 2) as recorder:
        recorder.finish_late([(begun, end), (absent, end), (never, cancelled)])
        until(RunPaths(Path(never.run_dir)).summary.exists)
    told = read_summary(RunPaths(Path(begun.run_dir))) or {}
    assert (told["state"], told["reason"], told["attempts"]) == ("failed", "RankDied", 1)
    assert [one.step for one in read_records(RunPaths(Path(begun.run_dir)))] == [5]
    assert (read_summary(RunPaths(Path(never.run_dir))) or {})["state"] == "cancelled"
    assert not Path(absent.run_dir).exists()
    written = RunPaths(Path(begun.run_dir)).summary.stat().st_mtime_ns
    with recording(config, 3) as recorder:
        recorder.finish_late([(begun, end), (never, cancelled)])
    assert RunPaths(Path(begun.run_dir)).summary.stat().st_mtime_ns == written


def test_every_run_that_ended_has_a_report_once_a_recorder_works_again(config: Settings) -> None:
    """Reports wait in a process that may be killed; one of a run that was resumed is too old."""
    drawn, undrawn, resumed = jobs = [job_in(config, n) for n in ("drawn", "undrawn", "resumed")]
    end = view_of((), JobState.SUCCEEDED, attempt=1)
    queued: list[str] = []
    with recording(config) as killed:
        for job in jobs:
            killed.begin(job, SPEC, 1)
            until(lambda job=job: killed.finish(job, end))  # type: ignore[misc]
    for job, age_s in ((drawn, 0), (resumed, 1)):
        report = RunPaths(Path(job.run_dir)).report
        report.write_text("drawn")
        then_ns = RunPaths(Path(job.run_dir)).summary.stat().st_mtime_ns - age_s * 10**9
        os.utime(report, ns=(then_ns, then_ns))
    with recording(config, 2, queued.append) as recorder:
        recorder.finish_late([(replace(job, attempt=1), end) for job in jobs])
        until(lambda: resumed.run_dir in queued)
    assert queued == [undrawn.run_dir, resumed.run_dir]


def test_a_run_that_cannot_be_read_is_looked_at_until_it_can(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_RETRY_S", (0.01,))
    job = replace(job_in(config), attempt=1)
    paths = RunPaths(Path(job.run_dir))
    with recording(config) as recorder:
        recorder.begin(job, SPEC, 1)
    troubles = [OSError(errno.EIO, "the disk is away")] * 2

    def has_begun(_: ServedRun) -> bool:
        if troubles:
            raise troubles.pop()
        return True

    monkeypatch.setattr(ServedRun, "has_begun", has_begun)
    with recording(config, 2) as recorder:
        recorder.finish_late([(job, view_of((), JobState.FAILED, attempt=1))])
        until(paths.summary.exists)


def test_a_job_from_its_beginning_to_its_end(config: Settings) -> None:
    job = job_in(config)
    paths = RunPaths(Path(job.run_dir))
    end = view_of([record(1, 45)], JobState.SUCCEEDED, num_checkpoints=3)
    with recording(config) as recorder:
        recorder.begin(job, SPEC, 1)
        recorder.begin(job, SPEC, 1)
        recorder.take(job, view_of(attempt_entries(1, 0, 40)))
        recorder.finish(job, end)
        until(lambda: recorder.finish(job, end))
        assert recorder.attempts(job) == 1
        until(lambda: not recorder.waits(job.id))
        recorder.release(job.id)
        until(lambda: recorder.finish(job, end))  # as after a restart
    run, spec = read_run_and_spec(paths.root)
    assert (run.job_id, spec.name) == (job.id, "clicks")
    assert [r.step for r in read_records(paths) if r.split == "train"][-1] == 45
    assert (read_summary(paths) or {})["checkpoints"]["count"] == 3


def test_nothing_is_written_without_a_lease_and_all_of_it_afterwards(config: Settings) -> None:
    job = job_in(config)
    held: list[int | None] = [1]
    recorder = Recorder(config, lambda _: held[0], "s-1")
    try:
        recorder.begin(job, SPEC, 1)
        held[0] = None
        recorder.take(job, view_of(attempt_entries(1, 0, 20)))
        recorder.take(job, view_of([record(1, 25)]))
        until(lambda: recorder._runs[job.id].failures > 0)
        assert not RunPaths(Path(job.run_dir)).metrics.exists()
        held[0] = 2
        until(lambda: not recorder.waits(job.id))
    finally:
        recorder.close()
    assert read_records(RunPaths(Path(job.run_dir)))[-1].step == 25


def test_a_cluster_that_was_left_is_recorded_anew(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_RETRY_S", (0.0,))
    job, other = job_in(config), job_in(config, "clicks-2", "other")
    held: list[int | None] = [1]
    recorder = Recorder(config, lambda _: held[0], "s-1")
    try:
        for one in (job, other):
            recorder.begin(one, SPEC, 1)
        held[0] = None
        for one in (job, other):
            recorder.take(one, view_of(attempt_entries(1, 0, 20)))
        recorder.leave("main")
        assert [*recorder._runs] == [other.id]
        held[0] = 3
        until(lambda: not recorder.waits(other.id))
        assert not RunPaths(Path(job.run_dir)).metrics.exists()
        # Another process has had the cluster, and the job has ended there.
        end = view_of([record(1, 25)], JobState.SUCCEEDED)
        recorder.finish_late([(job, end)])
        until(RunPaths(Path(job.run_dir)).summary.exists)
    finally:
        recorder.close()
    assert read_records(RunPaths(Path(job.run_dir)))[-1].step == 25
    assert read_records(RunPaths(Path(other.run_dir)))[-1].step == 20


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "reports"])
def test_a_fifo_in_a_run_directory_holds_up_no_thread(config: Settings, name: str) -> None:
    """Jobs run as users of the machine, and may put there whatever they like."""
    job, other = job_in(config), job_in(config, "clicks-2")
    with recording(config) as recorder:
        for one in (job, other):
            recorder.begin(one, SPEC, 1)
            recorder.take(one, view_of(attempt_entries(1, 0, 20), job_id=one.id))
        until(lambda: not (recorder.waits(job.id) or recorder.waits(other.id)))
        paths = RunPaths(Path(job.run_dir))
        fifo = paths.reports(0, 1) if name == "reports" else paths.root / name
        fifo.parent.mkdir(parents=True, exist_ok=True)
        fifo.unlink(missing_ok=True)
        os.mkfifo(fifo)
        recorder.take(job, view_of([record(1, 25)], missed=1))
        recorder.take(other, view_of([record(1, 25)], job_id=other.id))
        until(lambda: not recorder.waits(other.id))
        until(lambda: not recorder._pool("main")._begun_s)  # no thread hangs
        if name in ("run.json", "metrics.jsonl"):
            until(lambda: "FIFO" in (recorder.problem(job.id) or ""))
        fifo.unlink()
    assert read_records(RunPaths(Path(other.run_dir)))[-1].step == 25


def test_what_waited_while_another_finished_the_run_does_not_open_it_again(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_RETRY_S", (0.05,))
    job = job_in(config)
    paths = RunPaths(Path(job.run_dir))
    end = view_of([record(1, 45)], JobState.SUCCEEDED)
    held: list[int | None] = [None]
    first = Recorder(config, lambda _: held[0], "s-1")
    first.begin(job, SPEC, 1)
    first.take(job, view_of(attempt_entries(1, 0, 40)))  # waits: the lease is lost just now
    with recording(config, 2) as second:
        second.take(job, view_of(attempt_entries(1, 0, 40)))
        until(lambda: second.finish(job, end))
    assert not paths.progress.exists()
    held[0] = 3
    until(lambda: not first.waits(job.id))
    first.close()
    assert not paths.progress.exists()
    assert read_summary(paths) is not None


def test_an_older_generation_that_wakes_up_writes_nothing_and_says_so(config: Settings) -> None:
    job = job_in(config)
    root = Path(job.run_dir)
    with recording(config, 1) as old, recording(config, 2) as new:
        old.begin(job, SPEC, 1)
        new.take(job, view_of(attempt_entries(1, 0, 20)))
        until(lambda: not new.waits(job.id))
        before = {path.name: path.read_bytes() for path in root.iterdir()}
        old.take(job, view_of([record(1, 25)]))
        until(lambda: old.problem(job.id) is not None)
        assert "a newer holder of the lease" in (old.problem(job.id) or "")
        assert {path.name: path.read_bytes() for path in root.iterdir()} == before


def test_a_full_disk_delays_one_job_alone(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, good = job_in(config, "full-1"), job_in(config, "good-1")
    is_full = threading.Event()
    is_full.set()

    def unless_full(file: Any, data: bytes) -> None:
        if is_full.is_set() and "full-1" in os.readlink(f"/proc/self/fd/{file.fileno()}"):
            raise OSError(errno.ENOSPC, "no space")
        append(file, data)

    monkeypatch.setattr("distrain.runs.writer.append", unless_full)
    monkeypatch.setattr(recorder_module, "_RETRY_S", (0.01,))
    with recording(config) as recorder:
        for job in (full, good):
            recorder.begin(job, SPEC, 1)
            recorder.take(job, view_of(attempt_entries(1, 0, 20), job_id=job.id))
            until(lambda job=job: not recorder.waits(job.id))
            for step in (25, 30, 35):
                recorder.take(job, view_of([record(1, step)], job_id=job.id))
        until(lambda: not recorder.waits(good.id))
        until(lambda: "disk is full" in (recorder.problem(full.id) or ""))
        assert read_records(RunPaths(Path(full.run_dir)))[-1].step == 20
        is_full.clear()
        until(lambda: not recorder.waits(full.id))
        assert recorder.problem(full.id) is None
    first, second = (RunPaths(Path(job.run_dir)).metrics.read_bytes() for job in (full, good))
    assert first == second


def test_a_limit_of_the_filesystem_leaves_whole_lines(tmp_path: Path) -> None:
    """In a process of its own: the limit is on every file that it writes."""
    code = f"""
import resource, signal, sys
from pathlib import Path
from distrain.errors import OutputError
from distrain.runs.places import LeasedFolder
from distrain.runs.served import ServedRun
from distrain.runs.run_file import ServiceMark
from distrain.jobs.spec import parse_spec
from served_jobs import SPEC, attempt_entries, record, view_of
mark = ServiceMark("s-1", 1)
run = ServedRun(LeasedFolder(Path({str(tmp_path / "run")!r}), "clicks-1"))
run.begin(parse_spec(SPEC), mark)
run.add(view_of(attempt_entries(1, 0, 20)), mark)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = run.paths.metrics.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200, -1))
before = run.paths.metrics.read_bytes()
try:
    run.add(view_of([record(1, 25), record(1, 30)]), mark)
except OutputError as error:
    assert run.paths.metrics.read_bytes() == before, "half a line"
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    run.add(view_of([record(1, 25), record(1, 30)]), mark)
    print("mended", run.paths.metrics.read_bytes().count(b"\\n"))
"""
    support = str(Path(__file__).parents[2] / "support")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": support},
    )
    assert done.stdout == "mended 8\n"


def test_a_hung_directory_holds_up_nobody_else(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, near, far = (
        job_in(config, "hung-1"),
        job_in(config, "near-1"),
        job_in(config, "far-1", "other"),
    )
    answers = threading.Event()

    attempts = LeasedFolder.attempts

    def hang(place: LeasedFolder) -> tuple[int, ...]:
        if place.paths.root.name == "hung-1":
            answers.wait(60)
        return attempts(place)

    monkeypatch.setattr(LeasedFolder, "attempts", hang)
    with recording(config) as recorder:
        for job in (hung, near, far):
            recorder.begin(job, SPEC, 1)
        with pytest.raises(Unavailable, match="hung-1"):
            recorder.attempts(hung, within_s=0.0)
        for job in (near, far):
            recorder.take(job, view_of(attempt_entries(1, 0, 20), job_id=job.id))
            until(lambda job=job: not recorder.waits(job.id))
            assert recorder.attempts(job) == 1
        answers.set()
        assert recorder.attempts(hung) == 0


def test_what_waits_is_bounded_and_what_was_left_out_is_made_again(config: Settings) -> None:
    job = job_in(config)
    held: list[int | None] = [None]
    recorder = Recorder(config, lambda _: held[0], "s-1")
    try:
        recorder.begin(job, SPEC, 1)
        recorder.take(job, view_of([AttemptStarted(1, 0, 2)]))
        for step in range(5, 50_000, 5):
            recorder.take(job, view_of([record(1, step)]))
        waiting = recorder._runs[job.id].waiting.take()
        assert waiting is not None
        assert len(waiting.progress) <= 2000
        assert waiting.missed > 7000
    finally:
        recorder.close()


@pytest.mark.parametrize("made", ["file", "link", "foreign"])
def test_a_directory_that_cannot_be_used_is_named(config: Settings, made: str) -> None:
    job = job_in(config)
    root = Path(job.run_dir)
    root.parent.mkdir(parents=True)
    if made == "file":
        root.write_text("")
    elif made == "link":
        (root.parent / "elsewhere").mkdir()
        root.symlink_to("elsewhere")
    else:
        root.mkdir()
        RunPaths(root).spec.write_text("name: other")
    with recording(config) as recorder, pytest.raises(OutputError) as caught:
        recorder.begin(job, SPEC, 1)
    assert str(root) in str(caught.value)


def test_folders_have_the_permissions_of_the_run_root(config: Settings) -> None:
    job = job_in(config)
    run_root = config.run_root("main")
    run_root.mkdir()
    run_root.chmod(0o2770)
    umask = os.umask(0o077)
    try:
        with recording(config) as recorder:
            recorder.begin(job, SPEC, 1)
    finally:
        os.umask(umask)
    for folder in (Path(job.run_dir), Path(job.run_dir).parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o2770


def test_views_of_many_jobs_are_collected_and_the_last_one_is_written_at_once(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.service.recorder.run_state.WRITES_PER_S", 1e-3)
    monkeypatch.setattr("distrain.service.recorder.run_state.MOST_PAUSE_S", 600.0)
    job = job_in(config)
    with recording(config) as recorder:
        recorder.begin(job, SPEC, 1)
        assert recorder.collects_s == 600.0
        recorder.take(job, view_of([AttemptStarted(1, 0, 2), record(1, 5)]))
        until(lambda: not recorder.waits(job.id))
        recorder.take(job, view_of([record(1, 10)]))
        assert recorder.waits(job.id)
        assert [one.step for one in read_records(RunPaths(Path(job.run_dir)))] == [5]
        end = view_of([record(1, 15)], JobState.SUCCEEDED)
        recorder.finish(job, end)
        until(lambda: not recorder.waits(job.id))
        assert recorder.finish(job, end)
    assert [one.step for one in read_records(RunPaths(Path(job.run_dir)))] == [5, 10, 15]


def test_a_resumed_job_goes_on_in_its_directory(config: Settings) -> None:
    job, again = job_in(config), job_in(config, first_attempt=2)
    failed = view_of((), JobState.FAILED, reason="RankDied", num_checkpoints=1)
    ended = view_of(
        [AttemptStarted(2, 10, 2), record(2, 15)], JobState.SUCCEEDED, attempt=2, num_checkpoints=1
    )
    with recording(config) as recorder:
        recorder.begin(job, SPEC, 1)
        recorder.take(job, view_of(attempt_entries(1, 0, 20)))
        recorder.finish(job, failed)  # and it is resumed before this is written
        recorder.begin(again, SPEC, 1)
        until(lambda: recorder.finish(again, ended))
    summary = read_summary(RunPaths(Path(job.run_dir))) or {}
    assert [end["reason"] for end in summary["restarts"]] == ["RankDied"]
    assert (summary["attempts"], summary["checkpoints"]["count"]) == (2, 2)
    steps = [r.step for r in read_records(RunPaths(Path(job.run_dir))) if r.split == "train"]
    assert steps == [5, 10, 15]


def test_many_jobs_need_few_descriptors_and_little_memory(config: Settings) -> None:
    """Fewer descriptors than there are jobs: no file stays open."""
    jobs = [job_in(config, f"clicks-{n}") for n in range(60)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    now, before_bytes = len(os.listdir("/proc/self/fd")), psutil.Process().memory_info().rss
    with recording(config) as recorder:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (now + 40, limits[1]))
            for job in jobs:
                recorder.begin(job, SPEC, 1, within_s=60)
                recorder.take(job, view_of(attempt_entries(1, 0, 400), job_id=job.id))
            until(lambda: not any(recorder.waits(job.id) for job in jobs))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert [recorder.problem(job.id) for job in jobs] == [None] * len(jobs)
        assert len(os.listdir("/proc/self/fd")) <= now + 2
        assert psutil.Process().memory_info().rss - before_bytes < 100 * 2**20
