"""Events over HTTP: many clients follow one job, while another process publishes its changes."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import httpx2

from benchmarks.service_bench.lags import lags
from benchmarks.service_bench.reconciling import reconciler
from benchmarks.service_bench.server import SPEC, Served
from distrain.service.values import Job

_EVERY_S = 0.5
_AT = re.compile(r'^data: .*"at":"([^"]+)"')


def event_followers(at: Served, folder: Path, count: int, seconds: float) -> dict[str, float]:
    """Return the delay with which events of a waiting job reach each of many clients.

    This process changes the job in the store. A reconciler process publishes the change as an
    event, as in a service. The delay counts from the event's own time, that of the change.
    """
    run_dir = at.settings.run_root("gpu") / "ads" / "watched-1"
    new = Job("watched-1", "ads", "alice", "clicks", "gpu", 0, 1, str(run_dir))
    job, _ = at.store.submit(new, SPEC)
    numbers = itertools.count(1)

    def change() -> None:
        at.store.change(job.id, priority=next(numbers))

    async def follow(client: httpx2.AsyncClient) -> AsyncIterator[float]:
        url, rest = f"{at.url}/v1/jobs/{job.id}/events", ""
        async with client.stream("GET", url, headers=at.headers()) as answer:
            assert answer.status_code == 200, await answer.aread()
            async for chunk in answer.aiter_raw():
                *lines, rest = (rest + chunk.decode()).split("\n")
                for line in lines:
                    found = _AT.search(line)  # the snapshot at the beginning has no time
                    if found is not None:
                        yield datetime.fromisoformat(found[1]).timestamp()

    with reconciler(folder / "settings.json"):
        return asyncio.run(lags(follow, change, _EVERY_S, count, seconds))
