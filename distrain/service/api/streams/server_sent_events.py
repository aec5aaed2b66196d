"""Server-sent events as bytes, and streaming responses that carry them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

PING = KEEPALIVE_COMMENT
SEND_S = 30.0  # a stream is closed if its client reads nothing for this time

_UNGATHERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers that stop proxies from buffering the stream, and clients from storing it."""


def frame(kind: str, data: Mapping[str, Any], seq: int) -> bytes:
    """Return an event as bytes: its kind, its data as JSON, and its number as id."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return format_sse_event(event=kind, data_str=text, id=str(seq))


def cursor_frame(seq: int) -> bytes:
    """Return an id without data as bytes: clients keep it as their cursor, and show no event."""
    return format_sse_event(id=str(seq))


class EventStream(StreamingResponse):
    """A response that sends `frames` as they come, and closes if nothing is read for `SEND_S`.

    `done` is called at the end of the response.
    """

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes], done: Callable[[], object]):
        super().__init__(frames, headers=_UNGATHERED)
        self._frames, self._done = frames, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def in_time(message: Message) -> None:
            async with asyncio.timeout(SEND_S):  # `wait_for` would create a task for each message
                await send(message)

        try:
            await super().__call__(scope, receive, in_time)
        except TimeoutError:
            return  # without the last chunk: the client sees that the stream broke
        finally:
            self._done()
            await self._frames.aclose()
