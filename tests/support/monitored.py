"""A real scheduler with the monitor in this process, and jobs that are told, not run."""

import asyncio
import functools
import inspect
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import numpy as np
from distributed import Scheduler, Worker
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from distrain.jobs.assignment import Slot
from distrain.jobs.events import (
    Event,
    Heartbeat,
    RankStarted,
    StepsDone,
    TrainingStarted,
    to_json,
)
from distrain.jobs.spec import parse_spec
from distrain.metrics import BinaryMetrics
from distrain.scheduler.http.coordinator_api import EXTENSION, CoordinatorApi
from distrain.scheduler.lifecycle.lifecycle import Lifecycle
from distrain.scheduler.lifecycle.messages import Stimulus, Submit, WorkersChanged
from distrain.scheduler.plugin import PLUGIN_NAME, CoordinatorPlugin


class Site:
    """The scheduler, as its visitors see it."""

    def __init__(self, scheduler: Scheduler):
        self.scheduler = scheduler
        self.coordinator: CoordinatorPlugin = scheduler.plugins[PLUGIN_NAME]
        self.api: CoordinatorApi = scheduler.extensions[EXTENSION]
        self.monitor = self.api.monitor
        self.url = f"http://127.0.0.1:{scheduler.http_server.port}"

    async def get(self, path: str, **options: Any) -> HTTPResponse:
        """An answer, whatever its status."""
        client = AsyncHTTPClient()
        return await client.fetch(
            self.url + path, raise_error=False, follow_redirects=False, **options
        )

    async def json(self, path: str, status: int = 200) -> Any:
        """A document."""
        answer = await self.get(path)
        assert answer.code == status, answer.body
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        return json.loads(answer.body, parse_constant=_no_constant)

    def submit(self, job_id: str, num_ranks: int = 2, **spec: Any) -> None:
        """Put a job where the coordinator would have it once it runs; no process is started."""
        self.queue(job_id, num_ranks, **spec)
        lifecycle: Lifecycle = self.coordinator.lifecycle
        slots = {Slot(f"host-{r}", f"tcp://{job_id}-{r}:1", f"w{r}") for r in range(num_ranks)}
        self._handle(WorkersChanged(lifecycle.slots | frozenset(slots)))
        self.coordinator.collectors[job_id].begin_attempt(1, num_ranks)
        for rank in range(num_ranks):
            self.tell(job_id, RankStarted(rank, 1000 + rank, f"host-{rank}", "cpu"))
        for rank in range(num_ranks):
            self.tell(job_id, TrainingStarted(rank, 100, 10_000, 10_000, 7, "arrow: it is a test"))

    def queue(self, job_id: str, num_ranks: int = 2, **spec: Any) -> None:
        """Submit a job for which there are no workers."""
        parsed = parse_spec(
            {
                "name": "test",
                "data": {"train": "nowhere"},
                "model": {"kind": "mlp"},
                "train": {"lanes": num_ranks, "global_batch_size": 100 * num_ranks},
                "resources": {"num_ranks": num_ranks},
                "restart": {"max_rank_failures": 0, "max_worker_losses": 0},
                **spec,
            }
        )
        self.coordinator.follow(job_id)
        self._handle(Submit(job_id, parsed, f"runs/{job_id}", parsed.queue.priority))

    def _handle(self, stimulus: Stimulus) -> None:
        """Have the lifecycle handle a stimulus, and launch nothing."""
        told = self.coordinator.lifecycle.handle(stimulus, time.monotonic())
        self.coordinator.keep_history(stimulus, told)

    def tell(self, job_id: str, event: Event, attempt: int = 1) -> None:
        """What a rank reports, as it comes over the wire."""
        self.coordinator.rank_reported(job_id, attempt, json.loads(json.dumps(to_json(event))))

    def step(self, job_id: str, step: int, num_ranks: int = 2, own_s: float = 0.5) -> None:
        """All ranks have come to a step, ten after the last; rank r works (r + 1) x `own_s`."""
        for rank in range(num_ranks):
            self.tell(job_id, steps_done(rank, step, own_s * (rank + 1), own_s * num_ranks))
            self.tell(job_id, Heartbeat(rank, step, step, "forward_backward"))


def steps_done(rank: int, step: int, own_s: float = 0.5, wall_s: float = 1.0) -> StepsDone:
    """Ten steps of a rank with 1,000 rows; a quarter of its own time it waited for data."""
    seconds = {
        "data_wait": own_s / 4,
        "forward_backward": 3 * own_s / 4,
        "exchange": wall_s - own_s,
    }
    return StepsDone(
        rank, 0, step, step * wall_s / 10, seconds, metrics_state(), 0.1, loader={"rows": 1000},
        memory={"host_bytes": 2**28},
    )  # fmt: skip


def metrics_state(rows: int = 100) -> dict[str, Any]:
    """A metrics state as it travels."""
    rng = np.random.default_rng(7)
    metrics = BinaryMetrics()
    metrics.update(rng.normal(size=rows).astype(np.float32), rng.integers(0, 2, rows))
    return metrics.to_json()


World = Callable[[], AbstractAsyncContextManager[Any]]


def beside(world: World) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of an async function whose first argument is what the world yields.

    All further arguments are fixtures, which are set up before the world.
    """

    def decorated(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(story)
        def test(**fixtures: Any) -> None:
            async def run() -> None:
                async with world() as found:
                    await story(found, **fixtures)

            asyncio.run(run())

        _, *others = inspect.signature(story).parameters.values()
        test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return test

    return decorated


@asynccontextmanager
async def new_site(*, dashboard: bool = False) -> AsyncIterator[Site]:
    """A scheduler that was started with the preload."""
    async with with_preload(dashboard=dashboard) as scheduler:
        yield await started(Site(scheduler))


SomeSite = TypeVar("SomeSite", bound=Site)


async def started(site: SomeSite) -> SomeSite:
    """A site whose coordinator has started: the end of its start takes the real workers."""
    while not hasattr(site.coordinator, "_ticker"):
        await asyncio.sleep(0.01)
    return site


@asynccontextmanager
async def with_workers(scheduler: Scheduler, num_workers: int) -> AsyncIterator[None]:
    """Workers of one thread each, in this loop."""
    workers = [Worker(scheduler.address, nthreads=1) for _ in range(num_workers)]
    await asyncio.gather(*workers)
    try:
        yield
    finally:
        await asyncio.gather(*(worker.close() for worker in workers))


def with_preload(**options: Any) -> Scheduler:
    """A scheduler that was started with the preload."""
    words = {"dashboard": False, "dashboard_address": "127.0.0.1:0", **options}
    return Scheduler(port=0, host="127.0.0.1", preload=["distrain.preload"], **words)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")
