"""A supervisor waits for the coordinator's last entries only while its scheduler is connected."""

import asyncio
from types import SimpleNamespace

import pytest

from distrain.jobs.assignment import Assignment, World
from distrain.workers import supervisor
from distrain.workers.attempt_records import END_S
from distrain.workers.supervisor import SupervisorPlugin, supervise

RANK = Assignment("a", 1, World(), {}, "/runs/a")


@pytest.mark.parametrize(
    ("comm", "waits_s"),
    [
        (SimpleNamespace(closed=lambda: False), END_S),
        (SimpleNamespace(closed=lambda: True), 0.0),
        (None, 0.0),
    ],
)
def test_a_worker_without_scheduler_ends_without_waiting(
    monkeypatch: pytest.MonkeyPatch, comm: object, waits_s: float
) -> None:
    waited: list[float] = []

    class Records:
        def __init__(self, *_: object) -> None: ...

        async def open(self) -> None: ...

        async def close(self, timeout_s: float) -> None:
            waited.append(timeout_s)

    class Process:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def run(self) -> int:
            raise asyncio.CancelledError  # as when Dask closes the worker

    plugin = SimpleNamespace(running={}, records={}, stopped_early=[])
    worker = SimpleNamespace(
        address="tcp://127.0.0.1:1",
        plugins={SupervisorPlugin.name: plugin},
        batched_send=lambda message: None,
        batched_stream=SimpleNamespace(comm=comm),
    )
    monkeypatch.setattr(supervisor, "get_worker", lambda: worker)
    monkeypatch.setattr(supervisor, "AttemptRecords", Records)
    monkeypatch.setattr(supervisor, "RankProcess", Process)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(supervise(RANK.dumps()))
    assert waited == [waits_s]
