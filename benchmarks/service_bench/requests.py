"""Submits and lists over HTTP, timed by the client."""

import itertools
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from sqlalchemy import insert

from benchmarks.service_bench.server import SPEC, Served
from distrain.jobs.run_paths import new_job_id
from distrain.service.store import tables

_CONNECTIONS = 8
_WARM_UP_S = 1.0
_ROWS = 2000


def submits(at: Served, seconds: float) -> dict[str, float]:
    """Return submitted jobs per second, over connections that each wait for the last answer.

    The first second does not count: the server then prepares each SQL statement for the first time.
    """
    body = json.dumps({"spec": SPEC, "project": "ads"})

    def submit(client: HTTPConnection, number: int, me: int) -> None:
        path = f"/v1/jobs/{new_job_id(f'clicks-{me}')}"
        status, answer, _ = _ask(client, "PUT", path, at.headers(), body)
        assert status == 201, answer

    return _from_connections(at, submit, seconds)


def _ask(
    client: HTTPConnection, method: str, path: str, headers: dict[str, str], body: str | None = None
) -> tuple[int, bytes, float]:
    """Return status, body and time of a response, over a connection that stays open."""
    began_s = time.perf_counter()
    more = {} if body is None else {"Content-Type": "application/json"}
    client.request(method, path, body, headers | more)
    answer = client.getresponse()
    content = answer.read()
    return answer.status, content, time.perf_counter() - began_s


def _from_connections(
    at: Served, request: Callable[[HTTPConnection, int, int], None], seconds: float
) -> dict[str, float]:
    times: list[tuple[float, float]] = []  # end and duration of each request
    errors: list[BaseException] = []
    counts_s = time.perf_counter() + _WARM_UP_S
    ends_s = counts_s + seconds

    def work(me: int) -> None:
        try:
            with closing(at.connection()) as client:
                number = 0
                while (began_s := time.perf_counter()) < ends_s:
                    request(client, number, me)
                    ended_s = time.perf_counter()
                    times.append((ended_s, ended_s - began_s))
                    number += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    time.sleep(_WARM_UP_S)
    before_s, own_s = at.cpu_s(), time.process_time()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    took_s = [took_s for ended_s, took_s in times if ended_s >= counts_s]
    lasted_s = max(ended_s for ended_s, _ in times) - counts_s
    return {
        "per_s": len(took_s) / lasted_s,
        "p99_s": _p99(took_s),
        "p50_s": float(np.median(took_s)),
        "server_cpu_s": (at.cpu_s() - before_s) / len(took_s),
        "client_cores": (time.process_time() - own_s) / lasted_s,
    }


def fill(at: Served, num_jobs: int) -> None:
    """Insert finished jobs directly into the database."""
    now_s = at.store.now_s()
    for first in range(0, num_jobs, _ROWS):
        rows = [_row(n, now_s, at.settings.run_root("gpu")) for n in range(first, first + _ROWS)]
        with at.store.db.write() as connection:
            connection.execute(insert(tables.jobs), rows)


def _row(number: int, now_s: float, run_root: Path) -> dict[str, Any]:
    job_id = f"clicks-20260301-{number:08}"
    return {
        "id": job_id,
        "project": "ads",
        "owner": "alice" if number % 4 == 0 else f"user-{number % 50}",
        "name": "clicks",
        "cluster": "gpu",
        "priority": 0,
        "num_ranks": 8,
        "run_dir": str(run_root / "ads" / job_id),
        "tags": {"team": "ads"},
        "intent": "run",
        "phase": "final",
        "state": "failed" if number % 10 == 0 else "succeeded",
        "attempt": 1,
        "progress": {"step": 1000, "num_steps": 1000, "loss": 0.45, "auc": 0.79},
        "created_at_s": now_s - number,
        "started_at_s": now_s - number,
        "finished_at_s": now_s - number,
        "observed_at_s": now_s - number,
    }


def lists(at: Served, seconds: float) -> dict[str, float]:
    """Return the response times and the size of the largest page of a submitter's job list.

    Requests page after page from the newest to the oldest job, with several filters in turns.
    """
    filters: list[dict[str, str]] = [
        {},
        {"state": "failed"},
        {"owner": "alice"},
        {"project": "ads"},
    ]
    took_s: list[float] = []
    most_bytes = 0
    cursors: list[str | None] = [None] * len(filters)
    with closing(at.connection()) as client:
        for page in itertools.count():
            if page == len(filters):  # the first page of each kind was a warm-up
                took_s, before_s, ends_s = [], at.cpu_s(), time.perf_counter() + seconds
            if page > len(filters) and time.perf_counter() >= ends_s:
                break
            turn = page % len(filters)
            query = filters[turn] | ({"cursor": cursors[turn]} if cursors[turn] else {})
            path = f"/v1/jobs?{urlencode(query)}"
            status, content, page_s = _ask(client, "GET", path, at.headers())
            assert status == 200, content
            took_s.append(page_s)
            most_bytes = max(most_bytes, len(content))
            cursors[turn] = json.loads(content)["next_cursor"]
    return {
        "p99_s": _p99(took_s),
        "p50_s": float(np.median(took_s)),
        "page_bytes": most_bytes,
        "server_cpu_s": (at.cpu_s() - before_s) / len(took_s),
    }


def _p99(values: list[float]) -> float:
    return float(np.percentile(values, 99))
