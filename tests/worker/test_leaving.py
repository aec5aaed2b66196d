"""A nanny that closes asks its worker for its ranks' end, and is held up by nothing that fails."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from distrain.worker import leaving


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


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("ConnectionPool is closed"),
        OSError("gone"),
        TimeoutError(),
        AttributeError("no such call"),
        ValueError("unknown operation"),
        None,
    ],
)
def test_no_error_of_a_worker_that_leaves_keeps_its_nanny_from_closing(
    error: Exception | None,
) -> None:
    nanny = Nanny(error=error)
    asyncio.run(leaving.NannyLeavePlugin().teardown(nanny))
    assert nanny.asked


def test_a_worker_that_has_no_address_yet_is_not_asked() -> None:
    nanny = Nanny(worker_address=None)
    asyncio.run(leaving.NannyLeavePlugin().teardown(nanny))
    assert not nanny.asked
