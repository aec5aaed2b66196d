"""Submits and lists over HTTP, timed by who waits for them."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from sqlalchemy import insert

from benchmarks.service_bench.server import SPEC, Served
from distrain.service.store import tables

_CONNECTIONS = 8
_ROWS = 2000


def submits(at: Served, seconds: float) -> dict[str, float]:
    """Jobs taken per second, from as many connections as wait for each other's answers."""
    body = {"spec": SPEC, "project": "ads"}

    def submit(client: httpx2.Client, number: int, me: int) -> None:
        key = at.headers(**{"Idempotency-Key": f"key-{me}-{number}"})
        answer = client.post(f"{at.url}/v1/jobs", json=body, headers=key)
        assert answer.status_code == 201, answer.text

    times = _from_connections(submit, seconds)
    return {"per_s": len(times) / seconds, "p99_s": _p99(times), "p50_s": float(np.median(times))}


def _from_connections(
    request: Callable[[httpx2.Client, int, int], None], seconds: float
) -> list[float]:
    took_s: list[float] = []
    errors: list[BaseException] = []
    ends_s = time.perf_counter() + seconds

    def work(me: int) -> None:
        try:
            with httpx2.Client(timeout=30.0) as client:
                number = 0
                while (began_s := time.perf_counter()) < ends_s:
                    request(client, number, me)
                    took_s.append(time.perf_counter() - began_s)
                    number += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return took_s


def fill(at: Served, num_jobs: int) -> None:
    """Put jobs that have ended into the database, past the API."""
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
    """Pages of a submitter's list, one after another down to the oldest, with filters in turns."""
    filters: list[dict[str, str]] = [
        {},
        {"state": "failed"},
        {"owner": "alice"},
        {"project": "ads"},
    ]
    took_s, most_bytes, pages = [], 0, 0
    ends_s = time.perf_counter() + seconds
    with httpx2.Client(timeout=30.0) as client:
        cursors: list[str | None] = [None] * len(filters)
        while (began_s := time.perf_counter()) < ends_s:
            turn = pages % len(filters)
            query = filters[turn] | ({"cursor": cursors[turn]} if cursors[turn] else {})
            answer = client.get(f"{at.url}/v1/jobs", params=query, headers=at.headers())
            took_s.append(time.perf_counter() - began_s)
            assert answer.status_code == 200, answer.text
            most_bytes = max(most_bytes, len(answer.content))
            cursors[turn] = answer.json()["next_cursor"]
            pages += 1
    return {"p99_s": _p99(took_s), "p50_s": float(np.median(took_s)), "page_bytes": most_bytes}


def _p99(values: list[float]) -> float:
    return float(np.percentile(values, 99))
