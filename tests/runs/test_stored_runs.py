"""Run directories of a service in an S3 bucket: a real server, real HTTP."""

import json
from pathlib import Path

import pytest
from object_stores import serving
from served_jobs import SPEC, attempt_entries, record, view_of

from distrain.errors import OutputError, Unavailable
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.view import AttemptStarted
from distrain.runs.curve_reading import read_new_records
from distrain.runs.places import LeasedFolder, NotOurs
from distrain.runs.run_data import read_run_data
from distrain.runs.run_file import ServiceMark, read_records, read_summary
from distrain.runs.run_folder import NotInRun
from distrain.runs.served import ServedRun
from distrain.runs.stored import copy as copy_module
from distrain.runs.stored.copy import StoredCopy
from distrain.runs.stored.folder import StoredFolder, fetch_run
from distrain.storage.objects import Objects, StoredObject

JOB_SPEC = parse_spec(SPEC)
FIRST, SECOND = ServiceMark("s-1", 1), ServiceMark("s-1", 2)
END = view_of((), JobState.SUCCEEDED, attempt=2, num_checkpoints=4)


@pytest.fixture(scope="module")
def server():
    with serving("stored-runs") as filesystem:
        yield filesystem


@pytest.fixture
def url(server, request):
    return f"s3://stored-runs/{request.node.name.replace('[', '-').strip(']')}"


def stored(url: str, copy: Path, mark: ServiceMark = FIRST, first_attempt: int = 1) -> ServedRun:
    run = ServedRun(StoredCopy(url, copy, "clicks-1"), first_attempt)
    run.begin(JOB_SPEC, mark)
    return run


def objects_of(run: ServedRun) -> Objects:
    assert isinstance(run.place, StoredCopy)
    return run.place.objects


def lines(url: str) -> bytes:
    return StoredFolder(url).read("metrics.jsonl")


def test_the_files_are_those_of_a_filesystem(url, tmp_path, monkeypatch):
    monkeypatch.setattr(copy_module, "TAIL_BYTES", 2000)
    told, place = attempt_entries(1, 0, 200), 0
    here = ServedRun(LeasedFolder(tmp_path / "here", "clicks-1"))
    there = stored(url, tmp_path / "copy")
    here.begin(JOB_SPEC, FIRST)
    while place < len(told):
        view = view_of(told[place : place + 20], num_checkpoints=place)
        place += 20
        here.add(view, FIRST)
        there.add(view, FIRST)
        assert lines(url) == RunPaths(tmp_path / "here").metrics.read_bytes()
    assert not there.is_finished()
    segments = StoredFolder(url).record().files["metrics.jsonl"].segments
    assert len(segments) > 2
    assert there.finish(END, FIRST) == here.finish(END, FIRST)
    assert there.is_finished()
    assert len(StoredFolder(url).record().files["metrics.jsonl"].segments) == 1
    assert len(list(Objects(url).find_all("records/"))) == 1
    fetched = RunPaths(fetch_run(url, tmp_path / "fetched"))
    for name in ("metrics", "summary", "spec"):
        mine, theirs = getattr(fetched, name), getattr(RunPaths(tmp_path / "here"), name)
        assert mine.read_bytes() == theirs.read_bytes()
    assert read_run_data(fetched.root).state == "succeeded"


def test_an_older_generation_changes_nothing_once_a_newer_one_has_begun(url, tmp_path, server):
    """Also where it was stopped between its look and its write."""
    first = stored(url, tmp_path / "a")
    first.add(view_of([AttemptStarted(1, 0, 2), record(1, 5)]), FIRST)
    put, woken = objects_of(first).replace, []

    def stopped(name: str, content: bytes, version: str) -> str:
        if not woken:
            woken.append(True)
            newer = ServedRun(StoredCopy(url, tmp_path / "b", "clicks-1"))
            newer.add(view_of([record(1, 10)]), SECOND)
            woken.append(Objects(url).read("record.json"))
        return put(name, content, version)

    objects_of(first).replace = stopped
    with pytest.raises(NotOurs):
        first.add(view_of([record(1, 7)]), FIRST)
    assert Objects(url).read("record.json") == woken[1]
    for _ in range(2):
        with pytest.raises(NotOurs):
            first.finish(END, FIRST)
        with pytest.raises(NotOurs):
            first.begin(JOB_SPEC, FIRST)
    assert Objects(url).read("record.json") == woken[1]
    assert [json.loads(line)["step"] for line in lines(url).splitlines()] == [5, 10]


def test_a_write_whose_answer_was_lost_counts(url, tmp_path):
    run = stored(url, tmp_path / "a")
    put = objects_of(run).replace

    def twice(name: str, content: bytes, version: str) -> str:
        put(name, content, version)
        return put(name, content, version)  # the library's own second try

    objects_of(run).replace = twice
    run.add(view_of([AttemptStarted(1, 0, 2), record(1, 5)]), FIRST)
    run.add(view_of([record(1, 10)]), FIRST)
    assert [json.loads(line)["step"] for line in lines(url).splitlines()] == [5, 10]


def test_what_the_store_did_not_take_is_given_again(url, tmp_path):
    run = stored(url, tmp_path / "a")
    view = view_of([AttemptStarted(1, 0, 2), record(1, 5)])
    put = objects_of(run).replace

    def away(*_: object) -> str:
        raise TimeoutError("no answer")

    objects_of(run).replace = away
    with pytest.raises(Unavailable):
        run.add(view, FIRST)
    objects_of(run).replace = put
    run.add(view, FIRST)
    run.add(view, FIRST)
    assert [json.loads(line)["step"] for line in lines(url).splitlines()] == [5]


def test_the_ranks_reports_stay_until_the_end_is_recorded(url, tmp_path):
    run = stored(url, tmp_path / "a")
    run.add(view_of([AttemptStarted(1, 0, 2), record(1, 5)]), FIRST)
    Objects(url).put("logs/attempt-1/rank-0.reports", b"damaged")
    put = objects_of(run).replace

    def away(*_: object) -> str:
        raise PermissionError("no longer allowed")

    objects_of(run).replace = away
    with pytest.raises(OutputError):
        run.finish(END, FIRST)
    assert Objects(url).read("logs/attempt-1/rank-0.reports")[0] == b"damaged"
    objects_of(run).replace = put
    run.finish(END, FIRST)
    assert not list(Objects(url).find_all("logs/"))


def test_readers_see_recorded_files_and_objects_as_one_folder(url, tmp_path):
    run = stored(url, tmp_path / "a")
    run.add(view_of([AttemptStarted(1, 0, 2), record(1, 5)]), FIRST)
    Objects(url).put("logs/attempt-1/rank-0.log", b"printed")
    Objects(url).put("model/weights", b"0123456789")
    with StoredFolder(url) as folder:
        names = [file.name for file in folder.files()]
        recorded = ["metrics.jsonl", "model/weights", "progress.json", "run.json", "spec.yaml"]
        assert names == ["logs/attempt-1/rank-0.log", *recorded]
        assert [file.name for file in folder.files(after="model")] == recorded[1:]
        assert [file.name for file in folder.files(below="model")] == ["model/weights"]
        assert folder.open("model/weights").pread(4, 8) == b"89"
        assert folder.attempts() == (1,)
        for name in ("record.json", "absent", "../other", "records/x"):
            with pytest.raises(NotInRun):
                folder.open(name)
        with pytest.raises(NotInRun):
            list(folder.files(below="absent"))
        found = read_new_records(folder.open("metrics.jsonl"), None, 2**20)
        run.add(view_of([record(1, 10)]), FIRST)
        more = read_new_records(folder.open("metrics.jsonl"), found.cursor, 2**20)
        assert ([one["step"] for one in more.records], more.restart) == ([10], False)
        run.add(view_of([AttemptStarted(2, 5, 2), record(2, 7)], attempt=2), FIRST)
        anew = read_new_records(folder.open("metrics.jsonl"), more.cursor, 2**20)
        assert ([one["step"] for one in anew.records], anew.restart) == ([5, 7], True)


def test_a_run_is_resumed_by_another_submission(url, tmp_path, monkeypatch):
    run = stored(url, tmp_path / "a")
    run.add(view_of([AttemptStarted(1, 0, 2), record(1, 5)], num_checkpoints=1), FIRST)
    run.finish(view_of((), JobState.CANCELLED, attempt=1, reason="Cancelled"), FIRST)
    Objects(url).put("report.html", b"drawn")
    assert run.is_drawn()
    again = stored(url, tmp_path / "b", SECOND, first_attempt=2)
    assert not again.is_finished()
    again.add(view_of([AttemptStarted(2, 5, 2), record(2, 10)], attempt=2), SECOND)
    again.finish(END, SECOND)
    times_s = {"report.html": 1.0}
    monkeypatch.setattr(
        Objects, "find", lambda _, name: StoredObject(name, 5, times_s.get(name, 2.0), "1")
    )
    assert not again.is_drawn()
    fetched = RunPaths(fetch_run(url, tmp_path / "fetched"))
    assert [one.step for one in read_records(fetched)] == [5, 10]
    summary = read_summary(fetched)
    assert summary is not None
    assert [one["reason"] for one in summary["restarts"]] == ["Cancelled"]
