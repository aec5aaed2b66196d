"""Jobs of a service whose processes die at random: each succeeds once, as if none had died."""

import os
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from dask_world import RANK, TrainCommand, what_counts
from real_postgres import Postgres, why_absent
from service_processes import Part, end_cluster, service_parts
from small_jobs import small_document
from waiting import until
from yaml import safe_dump

from distrain.client import Client, Retries
from distrain.train.audit.audit import audit_run
from distrain.workers.cluster_file import read_started

pytestmark = [pytest.mark.release, pytest.mark.timeout(3600)]

JOBS, KILLS, WORKERS = 40, 24, 2
REPORT_STEPS = 25
WEIGHTS = Path("model") / "weights.safetensors"
SLOW_RETURN = """
import os, sys, time

if "spawn_main" in " ".join(sys.orig_argv) and os.path.exists(os.environ["SLOW_FILE"]):
    time.sleep(30)
"""
"""Worker processes that start late, as on a busy machine, once the file exists."""


def document(prepared: Path) -> dict[str, Any]:
    """A job of seconds on two ranks, which saves often, with tables that are spread."""
    spec = small_document(prepared)
    spec["train"] |= {
        "max_steps": 300,
        "epochs": 10,
        "log_every_steps": REPORT_STEPS,
        "audit": True,
    }
    return spec | {
        "embeddings": {"placement": "row_wise"},
        "checkpoint": {"every_steps": 50, "every_s": 1.0, "keep": 2},
        "evaluate": {"every_steps": 150},
        "restart": {"max_rank_failures": 100, "max_worker_losses": 100, "backoff_s": 0.1},
    }


class Victims:
    """The processes of a service and of its cluster, by kind."""

    def __init__(self, parts: dict[str, Part], database: Postgres | None, folder: Path):
        self._parts, self._database, self._folder = parts, database, folder
        self.kill: dict[str, Callable[[random.Random], object]] = {
            "rank": lambda rng: self._kill_one(rng, RANK),
            "worker": lambda rng: self._kill_one(rng, "spawn_main"),
            "cluster": lambda rng: self._kill_cluster(),
            "service": self._kill_service,
        }

    def _kill_service(self, rng: random.Random) -> None:
        if self._database is not None and rng.random() < 1 / 3:
            self._database.kill()
            self._database.start()
            return
        part = self._parts[rng.choice(sorted(self._parts))]
        part.kill()
        part.ready()

    def _kill_cluster(self) -> None:
        started = read_started(self._folder)
        if started is not None:
            with suppress(ProcessLookupError):
                os.killpg(started.process.pid, signal.SIGKILL)

    def _kill_one(self, rng: random.Random, words: str) -> None:
        started = read_started(self._folder)
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(started.process.pid).children(recursive=True) if started else []
            found = [process for process in family if words in " ".join(process.cmdline())]
            if found:
                rng.choice(found).kill()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_processes_change_no_job(prepared: Path, tmp_path: Path, kind: str) -> None:
    if kind == "postgresql" and why_absent():
        pytest.skip(str(why_absent()))
    spec, peace = document(prepared), tmp_path / "peace"
    (tmp_path / "job.yaml").write_text(safe_dump(spec))
    alone = TrainCommand(tmp_path / "job.yaml", "--run-dir", peace, log=tmp_path / "peace.log")
    assert alone.wait(1200) == 0, (tmp_path / "peace.log").read_text()[-3000:]
    runs, rng, slow = tmp_path / "runs", random.Random(kind), tmp_path / "slow"
    (tmp_path / "sitecustomize.py").write_text(SLOW_RETURN)
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(path), "SLOW_FILE": str(slow)}
    config = tmp_path / "serve.yaml"
    local = {"kind": "local", "num_workers": WORKERS, "device": "cpu", "run_root": str(runs)}
    config.write_text(safe_dump({"clusters": {"local": local}}))
    folder = tmp_path / "data" / "clusters" / "local"
    ids = [f"killed-{number}" for number in range(JOBS)]
    retries = Retries(for_s=600.0)
    with ExitStack() as stack:
        stack.callback(end_cluster, folder)
        database = stack.enter_context(Postgres()) if kind == "postgresql" else None
        parts, url, token = stack.enter_context(
            service_parts(tmp_path, config, database, environment)
        )
        client = stack.enter_context(Client(url, token, retries=retries))
        threads = stack.enter_context(ThreadPoolExecutor(4))

        def submit(job_id: str) -> str:
            """Submit with the same id until there is an answer."""
            with Client(url, token, retries=retries) as own:
                return own.submit(spec, job_id=job_id).id

        submits = [threads.submit(submit, job_id) for job_id in ids[:-KILLS]]
        victims = Victims(parts, database, folder)
        for number, job_id in enumerate(ids[-KILLS:]):
            wait_for_steps(client, rng.choice([0, 1, 2, 12]))
            slow.touch()
            kinds = ["cluster"] if number % 8 == 7 else ["rank", "worker", "service"]
            submits.append(threads.submit(submit, job_id))  # some are under way at each kill
            victims.kill[rng.choice(kinds)](rng)
        assert [submitted.result() for submitted in submits] == ids
        ended = until(lambda: all_ended(client), lambda: told(client), within_s=1800)
    assert [(job.id, job.state) for job in ended] == [(job_id, "succeeded") for job_id in ids]
    calm = what_counts(peace)
    lost = 0
    for job_id in ids:
        run = runs / "default" / job_id
        assert (run / WEIGHTS).read_bytes() == (peace / WEIGHTS).read_bytes(), job_id
        counted = what_counts(run)
        assert set(counted) <= set(calm), "a record that the undisturbed run does not have"
        assert len(counted) == len(set(counted)), "a record twice"
        assert audit_run(run).proved, job_id
        lost += len(calm) - len(counted)
    assert lost <= KILLS * WORKERS, "a kill costs one report interval of the jobs that it hits"


def wait_for_steps(client: Client, reports: int) -> None:
    """Wait until the running jobs have taken steps of so many reports together."""

    def steps() -> int:
        return sum(job.step or 0 for job in client.jobs(page_jobs=200))

    goal = steps() + reports * REPORT_STEPS
    until(lambda: steps() >= goal, lambda: told(client), within_s=900)


def all_ended(client: Client) -> Any:
    jobs = sorted(client.jobs(page_jobs=200), key=lambda job: int(job.id.partition("-")[2]))
    return all(job.is_final for job in jobs) and jobs


def told(client: Client) -> str:
    return "\n".join(f"{job.id} {job.state} {job.why_pending}" for job in client.jobs())
