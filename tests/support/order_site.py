"""A real scheduler with the preload, and a service that talks to it over HTTP as services do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from monitored import Site, started, with_preload, with_workers

from distrain.jobs.spec import parse_spec
from distrain.scheduler.lifecycle.messages import Tick
from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.workers.secrets import TOKEN_VARIABLE

SPEC = parse_spec(
    {"name": "clicks", "data": {"train": "/nowhere"}, "model": {"kind": "mlp"}}
).model_dump(mode="json")


class OrderSite(Site):
    """The scheduler, and clients of it that run beside its loop."""

    @property
    def epoch(self) -> str:
        return str(self.coordinator.epoch)

    def client(self, service: str = "here", token: str | None = None) -> SchedulerClient:
        public_url = "https://jobs.example"
        return SchedulerClient(self.url, token, service=service, public_url=public_url)

    async def ask(self, call: Callable[..., Any], *words: Any, **named: Any) -> Any:
        """Call something that waits for an answer of this loop."""
        return await asyncio.to_thread(lambda: call(*words, **named))

    async def put(self, client: SchedulerClient, job_id: str, **more: Any) -> Any:
        """Put a job as services do."""
        words = {"first_attempt": 1, "epoch": self.epoch, "priority": 0} | more
        spec = words.pop("spec", SPEC)
        return await self.ask(client.put, job_id, spec, f"/runs/{job_id}", **words)

    def tick(self) -> None:
        """Time passes."""
        self.coordinator.handle_stimulus(Tick())


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has no token."""
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@asynccontextmanager
async def new_order_site(*, num_workers: int = 0) -> AsyncIterator[OrderSite]:
    """A scheduler that was started with the preload, and workers of it."""
    async with with_preload() as scheduler, with_workers(scheduler, num_workers):
        yield await started(OrderSite(scheduler))
