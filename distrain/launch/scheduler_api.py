"""Calls a scheduler's HTTP API over the connection of a Dask client.

These calls need no address of the scheduler's HTTP server, no token, and no open port except the
scheduler's own. Permissions are not checked, because a Dask client can run any code in the
scheduler anyway.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import httpx2

from distrain.client.client import Client
from distrain.errors import ClusterError
from distrain.workers.worker_replacement import why_lost

if TYPE_CHECKING:
    from distributed import Client as DaskClient

ANSWER_S = 60.0
"""Seconds to wait for the scheduler's answer. It usually takes milliseconds, but longer if many
dashboard pages are opened while ranks use all cores. If the connection is lost, calls fail at
once."""

_PREFIX = "/distrain"
_OVER_COMM = "distrain_request"  # the name in `distrain.scheduler.http.attach`
_NOTHING = {"code": "not_found", "detail": "no job was submitted to this scheduler yet"}


def scheduler_api(client: "DaskClient") -> Client:
    """Return a client of the HTTP API of a Dask client's scheduler.

    Closing it leaves the Dask client open.
    """
    address = getattr(client.scheduler, "address", "?")
    return Client.of_scheduler(address, DaskTransport(client))


class DaskTransport(httpx2.BaseTransport):
    """Sends requests to a scheduler's routes; raises `ClusterError` if it does not answer."""

    def __init__(self, client: "DaskClient"):
        self._client = client

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = self._ask(
            method=request.method,
            path=request.url.path.removeprefix(_PREFIX),
            query=request.url.query.decode(),
            content=request.read(),
        )
        if answer is None:  # a scheduler without a coordinator
            is_list = request.url.path.endswith("/jobs")
            return httpx2.Response(200 if is_list else 404, json={} if is_list else _NOTHING)
        return httpx2.Response(answer["status"], text=answer["text"])

    def _ask(self, **words: Any) -> Any:
        client = self._client

        async def ask() -> Any:
            # The client could not reconnect. Its connection pool is closed before its
            # `scheduler` becomes None; a call in between would raise RuntimeError.
            if client.scheduler is None or client.status in ("closing", "closed"):
                raise OSError(why_lost(client) or "the connection is closed")
            return await asyncio.wait_for(getattr(client.scheduler, _OVER_COMM)(**words), ANSWER_S)

        try:
            return client.sync(ask)
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"the scheduler did not answer: {str(error) or f'timeout of {ANSWER_S:g} s'}",
                where={"scheduler": getattr(client.scheduler, "address", "?")},
                hint="Is it still running? Try `distrain doctor --scheduler ADDRESS`.",
            ) from error
