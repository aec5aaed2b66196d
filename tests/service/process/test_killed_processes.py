"""Processes and the database die at random moments: no job is lost, none runs twice."""

import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import psycopg
import pytest
from fake_scheduler import FakeScheduler
from real_postgres import Postgres, why_absent
from service_processes import serving, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOBS = int(os.environ.get("DISTRAIN_TEST_JOBS", "80"))
KILLS = int(os.environ.get("DISTRAIN_TEST_KILLS", "8"))
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


def submit(url, token, key):
    """Submit as a client does that does not give up: the same key until there is an answer."""
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
    end_s = time.monotonic() + 400
    while time.monotonic() < end_s:
        try:
            answer = httpx2.post(f"{url}/v1/jobs", headers=headers, json={"spec": SPEC}, timeout=90)
        except httpx2.HTTPError:
            continue
        if answer.status_code in (200, 201):
            return answer.json()["id"]
        assert answer.status_code in (409, 429, 503), answer.text
        time.sleep(0.2)
    raise AssertionError(f"{key} was not taken")


def ended(serve, count):
    """Whether so many jobs have succeeded, page by page."""
    seen, cursor = {}, None
    with serve.client() as client:
        while True:
            answer = client.get(
                "/v1/jobs", params={"limit": 200, **({"cursor": cursor} if cursor else {})}
            )
            if answer.status_code != 200:
                return None
            told = answer.json()
            seen |= {job["id"]: job["state"] for job in told["jobs"]}
            cursor = told["next_cursor"]
            if not cursor:
                break
    return seen if sum(state == "succeeded" for state in seen.values()) == count else None


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


def kill_at_random(serve, moments, database, pace):
    """SIGKILL a process of the service, or the database, again and again."""
    while pace.kills < KILLS:
        time.sleep(moments.uniform(0.1, 2.0))  # the moment of the kill, not a wait
        victim = moments.choice(["api-0", "reconciler", *(["database"] if database else [])])
        if victim == "database":
            database.kill()
            database.start()
        else:
            try:
                os.kill(serve.children()[victim], signal.SIGKILL)
            except ProcessLookupError:
                continue
        pace.killed()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.release)])
def test_retried_submits_are_jobs_that_start_once(kind, tmp_path):
    if kind == "postgresql" and why_absent():
        pytest.skip(why_absent())
    with ExitStack() as stack:
        database = stack.enter_context(Postgres()) if kind == "postgresql" else None
        environment = {}
        if database:
            environment["DISTRAIN_SERVE_DATABASE_URL"] = database.url()
        fake = stack.enter_context(FakeScheduler(num_workers=32, job_s=0.05))
        words = ["--config", str(config_in(tmp_path, fake.url))]
        serve = stack.enter_context(serving(tmp_path / "data", *words, environment=environment))
        url, token = serve.told["url"], serve.told["token"]
        keys = [f"key-{number}" for number in range(JOBS)]
        pace = Pace()

        def in_turn(number, key):
            pace.wait_for_turn(number)
            return submit(url, token, key)

        with ThreadPoolExecutor(8) as threads:
            submits = [threads.submit(in_turn, *pair) for pair in enumerate(keys)]
            # In this thread: a database that another thread starts ends with that thread.
            kill_at_random(serve, random.Random(11), database, pace)
            ids = [submitted.result() for submitted in submits]
        assert len(set(ids)) == JOBS
        # The same keys once more, in peace: the same jobs.
        assert [submit(url, token, key) for key in keys[:20]] == ids[:20]
        states = until(lambda: ended(serve, JOBS), 240)
        assert set(states) == set(ids)
        assert set(fake.started) == {(job, 1) for job in ids}
        assert set(fake.started.values()) == {1}


@pytest.mark.skipif(why_absent() is not None, reason=str(why_absent()))
def test_a_server_that_hangs_loses_its_cluster_and_does_no_harm_when_it_comes_back(tmp_path):
    with ExitStack() as stack:
        database = stack.enter_context(Postgres())
        environment = {"DISTRAIN_SERVE_DATABASE_URL": database.url()}
        fake = stack.enter_context(FakeScheduler(num_workers=4, job_s=0.2))
        terms = "leases: {ttl_s: 4, renew_s: 1, margin_s: 0.5}\n"
        terms += f"secrets_file: {tmp_path / 'service.key'}\n"  # both are one service
        config = str(config_in(tmp_path, fake.url, terms))
        one, two = (
            stack.enter_context(
                serving(tmp_path / name, "--config", config, environment=environment)
            )
            for name in ("one", "two")
        )

        def lease():
            with psycopg.connect(database.url()) as connection:
                found = connection.execute(
                    "SELECT owner, generation FROM leases WHERE name = 'cluster:fake'"
                ).fetchone()
            return found

        token = one.told.get("token") or two.told["token"]
        ids = [submit(one.told["url"], token, f"before-{number}") for number in range(5)]
        owner, generation = until(lease)
        reconcilers = [serve.children()["reconciler"] for serve in (one, two)]
        [hung] = [pid for pid in reconcilers if str(pid) in owner.replace(":", "-").split("-")]
        os.kill(hung, signal.SIGSTOP)
        try:
            ids += [submit(two.told["url"], token, f"meanwhile-{number}") for number in range(5)]
            began_s = time.monotonic()
            until(lambda: lease()[1] > generation and lease()[0] != owner)
            print(f"taken over after {time.monotonic() - began_s:.1f} s")
            two.told["token"] = token
            until(lambda: ended(two, 10))
        finally:
            os.kill(hung, signal.SIGCONT)
        ids += [submit(one.told["url"], token, f"after-{number}") for number in range(5)]
        until(lambda: ended(two, 15))
        assert fake.started == {(job, 1): 1 for job in ids}
