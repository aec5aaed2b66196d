"""Passes a cluster's Dask dashboard on; the scheduler's token reaches no browser."""

import asyncio
import ssl
from contextlib import suppress
from urllib.parse import quote, urlsplit

import httpx2
import websockets
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

CONNECT_S, READ_S = 2.0, 30.0
_PASSED_ON = frozenset({"accept", "accept-language", "if-none-match", "if-modified-since", "range"})
"""Headers of a browser that a scheduler gets; its cookies and tokens are this service's."""
_PASSED_BACK = frozenset(
    {"content-type", "content-length", "content-range", "etag", "last-modified", "location"}
)


_SANDBOX = {
    # No origin of its own: its scripts have no part in the session of whoever looks at it.
    "Content-Security-Policy": "sandbox allow-scripts; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_MESSAGE_BYTES = 64 * 2**20


class DashboardProxy:
    def __init__(self, url: str, token: str | None = None, verify: ssl.SSLContext | None = None):
        self._url = url.rstrip("/")
        self._token = token
        self._tls = verify
        self._client = httpx2.AsyncClient(
            # Nothing stays open for whoever ends this process to close.
            limits=httpx2.Limits(max_keepalive_connections=0),
            timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
            verify=verify or True,
            trust_env=False,  # the token goes to the scheduler alone, through no proxy
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, request: Request, path: str) -> Response:
        headers = {k: v for k, v in request.headers.items() if k in _PASSED_ON} | self._access()
        headers["Accept-Encoding"] = "identity"  # lengths and ranges stay true
        query = f"?{request.url.query}" if request.url.query else ""
        try:
            url = f"{self._url}/{quote(path)}{query}"
            asked = self._client.build_request("GET", url, headers=headers)
            answer = await self._client.send(asked, stream=True)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            return _refusal(f"The scheduler does not answer: {error}")
        kept = {k: v for k, v in answer.headers.items() if k.lower() in _PASSED_BACK}
        if "location" in kept and _leads_away(kept["location"]):
            await answer.aclose()
            return _refusal("The scheduler points to another server.")
        return StreamingResponse(
            answer.aiter_raw(),
            answer.status_code,
            kept | _SANDBOX,
            background=BackgroundTask(answer.aclose),
        )

    async def connect(self, browser: WebSocket, path: str) -> None:
        """Pass messages on between a browser and the scheduler until one of them leaves."""
        target = "ws" + self._url.removeprefix("http") + f"/{quote(path)}"
        if browser.url.query:
            target += f"?{browser.url.query}"
        names = browser.headers.get("sec-websocket-protocol", "").split(",")
        wanted = [websockets.Subprotocol(name.strip()) for name in names if name.strip()]
        try:
            scheduler = await websockets.connect(
                target,
                additional_headers=self._access(),
                origin=websockets.Origin(self._url),
                subprotocols=wanted or None,
                ssl=self._tls if target.startswith("wss") else None,
                open_timeout=CONNECT_S,
                max_size=_MESSAGE_BYTES,
                proxy=None,
            )
        except (OSError, TimeoutError, websockets.WebSocketException):
            await browser.close(1013, "the scheduler does not answer")
            return
        async with scheduler:
            await browser.accept(scheduler.subprotocol)
            ways = {
                asyncio.create_task(_to_scheduler(browser, scheduler)),
                asyncio.create_task(_to_browser(browser, scheduler)),
            }
            _, rest = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        with suppress(RuntimeError):  # the browser has left
            await browser.close()

    def _access(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def _refusal(text: str) -> Response:
    return Response(f"{text}\n", 502, headers=_SANDBOX, media_type="text/plain")


def _leads_away(location: str) -> bool:
    r"""Whether a browser would leave this dashboard: it takes a backslash for a slash.

    >>> _leads_away("status?a=1"), _leads_away("/login"), _leads_away("\\\\evil")
    (False, True, True)
    """
    try:
        parts = urlsplit(location)
    except ValueError:
        return True
    return bool(parts.scheme or parts.netloc) or location[:1] in ("/", "\\")


async def _to_scheduler(browser: WebSocket, scheduler: websockets.ClientConnection) -> None:
    with suppress(WebSocketDisconnect, websockets.ConnectionClosed):
        while True:
            message = await browser.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            await scheduler.send(text if text is not None else message["bytes"])


async def _to_browser(browser: WebSocket, scheduler: websockets.ClientConnection) -> None:
    with suppress(RuntimeError, websockets.ConnectionClosed):
        async for message in scheduler:
            if isinstance(message, str):
                await browser.send_text(message)
            else:
                await browser.send_bytes(message)
