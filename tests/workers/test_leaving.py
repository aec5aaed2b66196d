"""A nanny that closes asks its worker for its ranks' end, and is held up by nothing that fails."""

import asyncio
import contextlib
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from distributed import LocalCluster
from distributed.core import Status

from distrain.workers import worker_shutdown as leaving


class Nanny(SimpleNamespace):
    status = Status.closing
    worker_address: str | None = "tcp://127.0.0.1:1"
    error: Exception | None = None
    asked = False

    def is_alive(self) -> bool:
        return True

    @contextlib.asynccontextmanager
    async def rpc(self, address: str) -> Any:
        self.asked = True
        if self.error is not None:
            raise self.error
        yield SimpleNamespace(**{leaving.LEAVE_RPC: self.leave})

    async def leave(self, why: str) -> float:
        return 0.0


def test_a_nanny_closes_whatever_its_worker_answers() -> None:
    for error in (
        RuntimeError("ConnectionPool is closed"),
        OSError("gone"),
        TimeoutError(),
        AttributeError("no such call"),
        ValueError("unknown operation"),
        None,
    ):
        nanny = Nanny(error=error)
        asyncio.run(leaving.NannyLeavePlugin().teardown(nanny))
        assert nanny.asked, error
    nanny = Nanny(worker_address=None)  # it has no address yet
    asyncio.run(leaving.NannyLeavePlugin().teardown(nanny))
    assert not nanny.asked


@pytest.mark.slow
def test_ranks_are_stopped_before_the_end_of_a_workers_lifetime(monkeypatch) -> None:
    monkeypatch.setattr(leaving, "BEFORE_END_S", 0.0)
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: time.time() - 3600.0)

    async def why(lifetime_s: float | None, grace_s: float) -> str | None:
        told = asyncio.get_running_loop().create_future()
        worker = SimpleNamespace(lifetime=lifetime_s, nanny="tcp://127.0.0.1:1")
        notice = leaving.LifetimeNotice(worker, told.set_result, lambda: grace_s)
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(told, 1.0)
        notice.close()
        return None

    assert "lifetime" in str(asyncio.run(why(3700.0, 200.0)))
    assert "lifetime" in str(asyncio.run(why(3600.0, 0.0)))
    assert asyncio.run(why(3700.0, 20.0)) is None
    assert asyncio.run(why(7300.0, 7000.0)) is None  # at most half of the lifetime before
    assert asyncio.run(why(None, 20.0)) is None


def test_a_worker_in_an_older_process_has_its_whole_lifetime(monkeypatch) -> None:
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: time.time() - 3600.0)
    told: list[str] = []

    async def lives() -> bool:
        async with LocalCluster(
            n_workers=1,
            processes=False,
            asynchronous=True,
            dashboard_address="127.0.0.1:0",
            lifetime="1800s",
        ) as cluster:
            notice = leaving.LifetimeNotice(cluster.workers[0], told.append, lambda: 200.0)
            task = notice._task
            assert task is not None
            done, _ = await asyncio.wait([task], timeout=0.2)
            notice.close()
            return not done

    assert asyncio.run(lives())
    assert not told
