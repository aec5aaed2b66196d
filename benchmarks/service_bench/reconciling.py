"""A reconciler process over simulated schedulers: the time of its passes, its share of a core."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import numpy as np
import psutil

from benchmarks.service_bench.server import ROOT, SPEC, served, settings_for
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store.store import Store, migrate, open_store
from distrain.service.values import Job, Quota

TAKE_OVER_LIMIT_S = 60.0
_LOOK_S = 0.02
_SETTLE_S = 8.0
"""Seconds to wait until the passes that handed jobs over have ended."""
_TOLD_EVERY_S = 6.0
_SCHEDULER = """
import sys, time
from benchmarks.service_bench.simulated_scheduler import FakeScheduler
with FakeScheduler(num_workers=int(sys.argv[1])) as scheduler:
    print(scheduler.url, flush=True)
    while True:
        time.sleep(1.0)
        scheduler.report()
"""
_RECONCILER = """
import json, sys
from pathlib import Path
from distrain.service.process.entry import reconciler_alone
from distrain.service.settings import Settings
settings = Settings.model_validate(json.loads(Path(sys.argv[1]).read_text()))
reconciler_alone(settings, lambda: None)
"""


@contextmanager
def _process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def reconciler(settings_file: Path) -> Iterator[int]:
    """Run a service's reconciler process; yield its process id."""
    with _process(_RECONCILER, str(settings_file)) as process:
        yield process.pid


@contextmanager
def schedulers(count: int, num_workers: int) -> Iterator[list[str]]:
    """Run simulated schedulers, whose running jobs report every second; yield their URLs."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(_process(_SCHEDULER, str(num_workers))) for _ in range(count)
        ]
        urls = []
        for process in started:
            assert process.stdout is not None
            urls.append(process.stdout.readline().strip())
        yield urls


def reconcile(folder: Path, num_jobs: int, num_clusters: int, seconds: float) -> dict[str, float]:
    """Measure a reconciler with running jobs on all clusters; then kill it and measure recovery."""
    with schedulers(num_clusters, num_jobs) as urls:
        settings = _settings(folder, urls)
        migrate(settings)
        given = folder / "settings.json"
        given.write_text(settings.model_dump_json())
        with open_store(settings, single=False) as store:
            _submit(store, settings, num_jobs)
            with reconciler(given) as first:
                began_s = time.perf_counter()
                _until(lambda: _running(store, settings) == num_jobs, 60.0 + num_jobs)
                started_s = time.perf_counter() - began_s
                time.sleep(_SETTLE_S)
                figures = _observe(store, first, seconds)
            figures |= {"jobs": num_jobs, "clusters": num_clusters, "all_running_s": started_s}
            return figures | {"take_over_s": _take_over(store, settings, given)}


def _settings(folder: Path, urls: list[str]) -> Settings:
    clusters = {
        f"c-{n}": ClusterProfile(url=url, run_root=folder / "runs") for n, url in enumerate(urls)
    }
    return settings_for(folder, None).model_copy(update={"clusters": clusters})


def _submit(store: Store, settings: Settings, num_jobs: int) -> None:
    store.put_project("ads", Quota(max_queued_per_user=None))
    names = list(settings.clusters)
    for number in range(num_jobs):
        cluster, job_id = names[number % len(names)], f"clicks-{number:05}"
        run_dir = settings.run_root(cluster) / "ads" / job_id
        new = Job(job_id, "ads", "alice", "clicks", cluster, 0, 1, str(run_dir))
        store.submit(new, SPEC)


def _running(store: Store, settings: Settings) -> int:
    alive = [job for name in settings.clusters for job in store.alive(name)]
    return sum(job.state == "running" for job in alive)


def _observe(store: Store, pid: int, seconds: float) -> dict[str, float]:
    """Return a process's share of a core, its memory, and the time of its passes.

    The reconciler stores the longest pass of every few seconds for each cluster; the percentile is
    over those.
    """
    process = psutil.Process(pid)
    before = process.cpu_times()
    since_s = store.now_s() + _TOLD_EVERY_S  # earlier rows also cover passes before the measurement
    passes: dict[tuple[str, float | None], float] = {}
    peak_bytes, ends_s = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        time.sleep(1.0)
        peak_bytes = max(peak_bytes, process.memory_info().rss)
        for row in store.clusters():
            if (row.observed_at_s or 0.0) > since_s:
                passes[row.name, row.observed_at_s] = float(row.state["pass_s"])
    after = process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return {
        "pass_p99_s": float(np.percentile([*passes.values()], 99)),
        "core_pct": 100 * cpu_s / seconds,
        "rss_mib": peak_bytes / 2**20,
    }


def _take_over(store: Store, settings: Settings, given: Path) -> float:
    """Return the seconds from a reconciler's kill until another one has observed every cluster."""
    killed_s, now_s = time.perf_counter(), store.now_s()
    with reconciler(given):

        def all_heard() -> bool:
            rows = {row.name: row for row in store.clusters()}
            return all((rows[name].observed_at_s or 0) > now_s for name in settings.clusters)

        _until(all_heard, TAKE_OVER_LIMIT_S)
        return time.perf_counter() - killed_s


def to_coordinator(folder: Path, count: int) -> dict[str, float]:
    """Measure the time from a submit over HTTP until the scheduler has the job."""
    took_s = []
    with (
        schedulers(1, count) as urls,
        served(folder, cluster_url=urls[0]) as at,
        reconciler(folder / "settings.json"),
        httpx2.Client(timeout=30.0) as client,
    ):
        _until(lambda: any(row.observed_at_s for row in at.store.clusters()), 60.0)
        for number in range(count):
            began_s = time.perf_counter()
            job_id = f"clicks-{number}"
            answer = client.put(
                f"{at.url}/v1/jobs/{job_id}",
                json={"spec": SPEC, "project": "ads"},
                headers=at.headers(),
            )
            assert answer.status_code == 201, answer.text
            _until(lambda job_id=job_id: job_id in _jobs_of(client, urls[0]), 60.0)
            took_s.append(time.perf_counter() - began_s)
    return {"p50_s": float(np.median(took_s)), "worst_s": max(took_s)}


def _jobs_of(client: httpx2.Client, url: str) -> set[str]:
    answer = client.get(f"{url}/distrain/v1/changes", params={"since": 0, "epoch": ""})
    return {job["id"] for job in answer.json()["jobs"]}


def _until(condition: Callable[..., bool], within_s: float) -> None:
    ends_s = time.perf_counter() + within_s
    while not condition():
        if time.perf_counter() > ends_s:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(_LOOK_S)
