"""Logs over HTTP: the end of a large log, its bytes, and many clients that follow a rank."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import numpy as np

from benchmarks.service_bench.lags import lags
from benchmarks.service_bench.server import SPEC, Served
from distrain.client import Client
from distrain.jobs.run_paths import RunPaths
from distrain.service.values import Change, Job, Phase

_BLOCK_LINES = 100_000
_LINE_EVERY_S = 1.0
_POLL_S = 0.6  # of `distrain.client.logs` while bytes come


def running_job(at: Served, job_id: str) -> tuple[Job, Path]:
    """Return a running job, and the log file of its rank 0."""
    run_dir = at.settings.run_root("gpu") / "ads" / job_id
    new = Job(job_id, "ads", "alice", "clicks", "gpu", 0, 1, str(run_dir))
    job, _ = at.store.submit(new, SPEC)
    columns = {"phase": Phase.HANDED_OVER, "state": "running", "attempt": 1}
    columns["observed_at_s"] = at.store.now_s()
    assert not at.store.record("gpu", [Change(job, columns)])
    log = RunPaths(run_dir).log(0, 1)
    log.parent.mkdir(parents=True)
    return job, log


def large_log(at: Served, size_bytes: int, tails: int) -> dict[str, float]:
    """Return the time of the last 100 lines, and the rate of reading in responses of 4 MiB."""
    job, log = running_job(at, "large-1")
    lines = (b"%09d step loss=0.45 auc=0.79 rows/s=123456\n" % n for n in range(_BLOCK_LINES))
    block = b"".join(lines)
    with log.open("wb") as file:
        for _ in range(1 + size_bytes // len(block)):
            file.write(block)
    with Client(at.url, at.token) as client:
        took_s = []
        for _ in range(tails):
            began_s = time.perf_counter()
            assert b"".join(client.logs(job.id, tail=100)).count(b"\n") >= 100
            took_s.append(time.perf_counter() - began_s)
        read_bytes, began_s = 0, time.perf_counter()
        for piece in client.logs(job.id):
            read_bytes += len(piece)
            if read_bytes >= min(size_bytes, 2**28):
                break
        seconds = time.perf_counter() - began_s
    size = log.stat().st_size
    log.unlink()
    tail_s = float(np.percentile(took_s, 99))
    return {"log_bytes": size, "tail_p99_s": tail_s, "mb_per_s": read_bytes / seconds / 1e6}


def followers(at: Served, count: int, seconds: float) -> dict[str, float]:
    """Return the delay with which a rank's lines reach each of many clients."""
    job, log = running_job(at, "followed-1")
    url = f"{at.url}/v1/jobs/{job.id}/artifacts/logs/attempt-1/rank-0.log"

    async def follow(client: httpx2.AsyncClient) -> AsyncIterator[float]:
        offset, rest = 0, ""
        while True:  # as `distrain.client` does while bytes come
            headers = at.headers(Range=f"bytes={offset}-")
            answer = await client.get(url, headers=headers)
            if answer.status_code == 206:
                offset += len(answer.content)
                *lines, rest = (rest + answer.text).split("\n")
                for line in lines:
                    yield float(line)
            await asyncio.sleep(_POLL_S)

    with log.open("a") as file:

        def print_line() -> None:
            file.write(f"{time.time()}\n")
            file.flush()

        return asyncio.run(lags(follow, print_line, _LINE_EVERY_S, count, seconds))
