"""Processes and the database die at random moments: no job is lost, none runs twice."""

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from real_postgres import Postgres, why_absent
from service_processes import service_parts
from told_scheduler import ToldScheduler
from waiting import until

from distrain.client import Client, Retries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOBS = int(os.environ.get("DISTRAIN_TEST_JOBS", "30"))
KILLS = int(os.environ.get("DISTRAIN_TEST_KILLS", "3"))
SPEC = {
    "data": {"train": "/data/train"},
    "model": {"kind": "mlp"},
    "resources": {"num_ranks": 1},
}
LIMITS = "limits: {submits_per_s: 1000, reads_per_s: 1000}\n"
PROJECTS = "projects: {default: {max_queued_per_user: null}}\n"


def config_in(folder, url, more=""):
    file = folder / "serve.yaml"
    file.write_text(f"clusters: {{fake: {{url: '{url}', run_root: '{folder}/runs'}}}}\n")
    with file.open("a") as text:
        text.write(LIMITS + PROJECTS + more)
    return file


def submit(url, token, job_id):
    """Submit with the same id until there is an answer."""
    with Client(url, token, retries=Retries(for_s=400.0)) as client:
        return client.submit(SPEC, job_id=job_id).id


def ended(url, token, count):
    """The states of all jobs, once so many have succeeded."""
    with Client(url, token, retries=Retries(for_s=400.0)) as client:
        seen = {job.id: job.state for job in client.jobs()}
    return seen if list(seen.values()).count("succeeded") == count else None


class Pace:
    """Spreads the submits over the kills, so that each kill finds some of them under way."""

    def __init__(self):
        self.kills, self._changed = 0, threading.Condition()

    def killed(self):
        with self._changed:
            self.kills += 1
            self._changed.notify_all()

    def wait_for_turn(self, number):
        with self._changed:
            self._changed.wait_for(lambda: number <= (self.kills + 1) * JOBS / KILLS, timeout=600)


def kill_at_random(parts, moments, database, pace):
    """SIGKILL a process of the service, or the database, again and again."""
    while pace.kills < KILLS:
        time.sleep(moments.uniform(0.1, 2.0))  # the moment of the kill, not a wait
        victim = moments.choice([*parts, *(["database"] if database else [])])
        if victim == "database":
            database.kill()
            database.start()
        else:
            parts[victim].kill()
        pace.killed()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.release)])
def test_retried_submits_are_jobs_that_start_once(kind, tmp_path):
    if kind == "postgresql" and why_absent():
        pytest.skip(why_absent())
    with ExitStack() as stack:
        database = stack.enter_context(Postgres()) if kind == "postgresql" else None
        scheduler = stack.enter_context(ToldScheduler(num_workers=32, job_s=0.05))
        config = config_in(tmp_path, scheduler.url)
        parts, url, token = stack.enter_context(service_parts(tmp_path, config, database))
        new = [f"killed-{number}" for number in range(JOBS)]
        pace = Pace()

        def in_turn(number, job_id):
            pace.wait_for_turn(number)
            return submit(url, token, job_id)

        with ThreadPoolExecutor(8) as threads:
            submits = [threads.submit(in_turn, *pair) for pair in enumerate(new)]
            # In this thread: a database that another thread starts ends with that thread.
            kill_at_random(parts, random.Random(11), database, pace)
            ids = [submitted.result() for submitted in submits]
        assert ids == new
        assert [submit(url, token, job_id) for job_id in new[:20]] == new[:20]  # in peace
        states = until(lambda: ended(url, token, JOBS), within_s=240)
        assert set(states) == set(ids)
        assert set(scheduler.started) == {(job, 1) for job in ids}
        assert set(scheduler.started.values()) == {1}
