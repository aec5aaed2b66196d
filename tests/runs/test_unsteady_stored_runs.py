"""Run directories in an S3 bucket whose server fails, and whose writers are stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from object_stores import s3fs, serving
from served_jobs import SPEC, record, view_of
from unsteady_proxy import unsteady

from distrain.errors import Unavailable
from distrain.jobs.spec import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.view import AttemptStarted, Entry
from distrain.runs.run_file import ServiceMark
from distrain.runs.served import ServedRun
from distrain.runs.stored.copy import StoredCopy
from distrain.runs.stored.folder import StoredFolder
from distrain.storage.objects import Objects

ROOT = Path(__file__).parents[2]
FIRST, SECOND = ServiceMark("s-1", 1), ServiceMark("s-1", 2)


def steps(url: str) -> list[int]:
    lines = StoredFolder(url).read("metrics.jsonl").splitlines()
    return [json.loads(line)["step"] for line in lines]


def test_a_server_that_fails_costs_no_record(tmp_path: Path) -> None:
    """Requests are answered 503, or end in a reset before or amid the answer."""
    with serving("unsteady-runs"), unsteady(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        environment = {"AWS_ENDPOINT_URL": proxy.url, "AWS_MAX_ATTEMPTS": "1"}
        with mock.patch.dict(os.environ, environment):
            s3fs.S3FileSystem.clear_instance_cache()
            url = "s3://unsteady-runs/one"
            run = ServedRun(StoredCopy(url, tmp_path / "copy", "clicks-1"))
            run.begin(parse_spec(SPEC), FIRST)
            proxy.reset_every, proxy.burst, proxy.burst_every = 5, 2, 11
            expected = []
            for step in range(5, 105, 5):
                entries = [record(1, step)] if expected else [AttemptStarted(1, 0, 2), record(1, 5)]
                expected.append(step)
                until_taken(run, entries)
            assert min(proxy.done[fate] for fate in ("slow down", "reset", "cut")) > 0
            proxy.reset_every = proxy.burst_every = 0
            assert steps(url) == expected


def until_taken(run: ServedRun, entries: list[Entry]) -> None:
    for _ in range(100):
        try:
            run.add(view_of(entries), FIRST)
        except Unavailable:
            continue
        return
    raise AssertionError("the store took nothing")


CODE = """
import sys
from pathlib import Path
from distrain.errors import DistrainError
from distrain.runs.places import NotOurs
from distrain.runs.run_file import ServiceMark
from distrain.runs.served import ServedRun
from distrain.runs.stored.copy import StoredCopy
from distrain.jobs.view import AttemptStarted
from distrain.jobs.spec import parse_spec
from served_jobs import SPEC, record, view_of

url, copy = sys.argv[1:]
mark = ServiceMark("s-1", 1)
run = ServedRun(StoredCopy(url, Path(copy), "clicks-1"))
run.begin(parse_spec(SPEC), mark)
run.add(view_of([AttemptStarted(1, 0, 2), record(1, 1)]), mark)
print("begun", flush=True)
step = 1
try:
    while step < 1_000_000:
        step += 1
        run.add(view_of([record(1, step)]), mark)
except NotOurs as error:
    print(f"refused: {error.message}", flush=True)
"""


@pytest.mark.slow
def test_a_stopped_recorder_changes_nothing_when_it_wakes(tmp_path: Path) -> None:
    with serving("stopped-runs"):
        url = "s3://stopped-runs/one"
        old = subprocess.Popen(
            [sys.executable, "-c", CODE, url, str(tmp_path / "old")],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert old.stdout is not None
            assert old.stdout.readline() == "begun\n"
            deadline_s = time.monotonic() + 60
            while len(steps(url)) < 5:
                assert time.monotonic() < deadline_s
            old.send_signal(signal.SIGSTOP)
            new = ServedRun(StoredCopy(url, tmp_path / "new", "clicks-1"))
            new.add(view_of(()), SECOND)
            known = steps(url)
            assert known == list(range(1, len(known) + 1))
            new.add(view_of([record(1, known[-1] + 1)]), SECOND)
            new.finish(view_of((), JobState.FAILED, reason="RankDied"), SECOND)
            before = Objects(url).read("record.json")
            old.send_signal(signal.SIGCONT)
            assert old.communicate(timeout=120)[0].startswith("refused: a newer holder")
            assert Objects(url).read("record.json") == before
            assert steps(url) == [*known, known[-1] + 1]
        finally:
            old.kill()
            old.communicate()
