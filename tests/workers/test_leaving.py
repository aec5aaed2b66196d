"""A nanny that closes asks its worker for its ranks' end, and is held up by nothing that fails."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

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
