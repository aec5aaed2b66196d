"""A database that comes back from a copy, and a disk that is full: what becomes of jobs."""

import itertools
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest
from service_processes import serving
from small_disks import mounted
from told_scheduler import ToldScheduler
from waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SPEC = {
    "data": {"train": "/data/train"},
    "model": {"kind": "mlp"},
    "resources": {"num_ranks": 4},
}


def config_in(folder, url, run_root):
    file = folder / "serve.yaml"
    file.write_text(f"clusters: {{scheduler: {{url: '{url}', run_root: '{run_root}'}}}}\n")
    return ["--config", str(file)]


def distrain(*words):
    done = subprocess.run(
        [sys.executable, "-m", "distrain", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done


def submit(client, job_id):
    answer = client.put(f"/v1/jobs/{job_id}", json={"spec": SPEC})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def state(client, job_id):
    answer = client.get(f"/v1/jobs/{job_id}")
    return answer.json()["state"] if answer.status_code == 200 else None


def leave_traces(run_dir, attempt=1):
    """Files in the run folder after a rank's first output."""
    logs = run_dir / "logs" / f"attempt-{attempt}"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "rank-0.log").write_text("it begins\n")


def test_a_restored_database_takes_up_the_jobs_that_went_on_without_it(tmp_path):
    with ExitStack() as stack:
        scheduler = stack.enter_context(ToldScheduler(num_workers=4))
        words = config_in(tmp_path, scheduler.url, tmp_path / "runs")
        data = tmp_path / "data"
        copy = tmp_path / "copy.db"
        with serving(data, *words) as serve, serve.client() as client:
            token = serve.told["token"]
            first, second, third, fourth = (submit(client, f"job-{n}") for n in range(4))
            until(lambda: scheduler.is_running(first))
            distrain("serve", "backup", copy, *words, "--data-dir", data)
            # All of this the copy does not know: four jobs go on, and one comes.
            for job, follower in ((first, second), (second, third)):
                scheduler.end(job)
                until(lambda follower=follower: scheduler.is_running(follower))
            leave_traces(tmp_path / "runs" / "default" / third)
            late = submit(client, "late")
            until(lambda: scheduler.state(fourth))
        shutil.rmtree(data)
        data.mkdir(mode=0o700)
        shutil.copy(copy, data / "service.db")
        with serving(data, *words) as serve, serve.client(token) as client:
            until(lambda: state(client, third) == "running")
            until(lambda: state(client, first) == state(client, second) == "succeeded")
            assert client.get(f"/v1/jobs/{late}").status_code == 404
            scheduler.end(third)
            until(lambda: state(client, third) == "succeeded")
            until(lambda: scheduler.is_running(fourth))
            scheduler.end(fourth)
            until(lambda: state(client, fourth) == "succeeded")
            until(lambda: scheduler.state(late) in (None, "cancelled"))
        assert scheduler.started == {(job, 1): 1 for job in (first, second, third, fourth)}


@contextmanager
def filled(folder):
    """No space on a folder's filesystem, in the block."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size_bytes in (2**16, 2**10, 1):  # to the last byte
            while True:
                try:
                    file.write(b"x" * size_bytes)
                except OSError:
                    break
        os.fsync(file.fileno())
    try:
        yield
    finally:
        ballast.unlink()


def test_a_full_disk_refuses_submits_and_what_runs_is_recorded_when_it_has_room(tmp_path):
    with ExitStack() as stack:
        data = stack.enter_context(mounted(tmp_path / "data", "size=24m,mode=700"))
        runs = stack.enter_context(mounted(tmp_path / "runs", "size=4m,mode=700"))
        scheduler = stack.enter_context(ToldScheduler())
        words = config_in(tmp_path, scheduler.url, runs)
        serve = stack.enter_context(serving(data, *words))
        client = stack.enter_context(serve.client())
        ran = submit(client, "ran")
        until(lambda: state(client, ran) == "running")
        with filled(data):
            new = (f"/v1/jobs/later-{number}" for number in itertools.count())

            def refusal():
                answer = client.put(next(new), json={"spec": SPEC})
                return answer if answer.is_error else None

            refused = until(refusal)
            assert refused.status_code == 503
            assert refused.json()["code"] == "unavailable"
            assert refused.headers["Retry-After"]
            assert state(client, ran) in ("running", "unknown")
            scheduler.end(ran)
        until(lambda: state(client, ran) == "succeeded")
        until(lambda: client.get("/readyz").status_code == 200)
        assert (runs / "default" / ran / "summary.json").exists()
        with filled(runs):
            waits = submit(client, "waits")
            place = f"/v1/jobs/{waits}"
            until(lambda: "space" in client.get(place).json()["why_pending"])
            assert state(client, waits) == "queued"  # its folder is made before its hand-over
        until(lambda: state(client, waits) == "running")
        scheduler.end(waits)
        until(lambda: state(client, waits) == "succeeded")
        assert scheduler.started == {(ran, 1): 1, (waits, 1): 1}
