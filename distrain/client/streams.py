"""Streams of job events; a broken stream is reopened after the last event."""

import json
import re
import time
from collections.abc import Generator, Iterator
from typing import Any

import httpx2

from distrain.client.connection import Call, Connection
from distrain.client.errors import ServiceError, ServiceUnavailable
from distrain.errors import InputError
from distrain.jobs.api_answers import Event

_SILENT_S = 45.0  # three pings
_END = "end"


def follow(connection: Connection, path: str, after: str | None, *, ends: bool) -> Iterator[Event]:
    """Yield the events after the cursor `after`; with `ends`, until the event `end`.

    A broken stream is reopened after the last event. Raises ServiceUnavailable if streams break
    without any event for `retries.for_s` seconds.
    """
    last_id, breaks = after or "", 0
    quiet_since_s = time.monotonic()
    while True:
        opened_s = time.monotonic()
        last_id, count, ended = yield from _events(connection, path, last_id)
        if ended and ends:
            return
        now_s = time.monotonic()
        if count or now_s - opened_s > _SILENT_S:
            breaks, quiet_since_s = 0, now_s
        if now_s - quiet_since_s > connection.retries.for_s:
            raise ServiceUnavailable(
                f"the stream of events broke {breaks} times in a row without an event",
                where={"server": connection.address},
                hint="Does a proxy in between cut long answers?",
            )
        breaks += 1
        connection.pause(connection.retries.pause_s(breaks))


def _events(
    connection: Connection, path: str, last_id: str
) -> Generator[Event, None, tuple[str, int, bool]]:
    """Yield the events of one response after the cursor `last_id`.

    Returns the last cursor, the number of events, and whether the last event was `end`. A broken
    connection ends the events. Raises `InputError` if `last_id` cannot be a cursor.
    """
    if last_id and not re.fullmatch(r"[\x21-\x7e]{1,200}", last_id):
        raise InputError(
            f"{last_id!r} is not the id of an event", hint="It is ASCII without spaces."
        )
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    headers |= {"Last-Event-ID": last_id} if last_id else {}
    call, count = Call("GET", path, headers=headers, read_s=_SILENT_S), 0
    with connection.stream(call) as answer:
        _check_stream(answer, call, connection)
        try:
            for event in httpx2.EventSource(answer):
                last_id = event.id or last_id
                if event.event == "message" and not event.data:
                    continue  # only the cursor, at the start of a stream
                count += 1
                yield _event(event, last_id)
                if event.event == _END:
                    return last_id, count, True
        except httpx2.TransportError:
            pass  # `follow` opens the stream again
    return last_id, count, False


def _check_stream(answer: httpx2.Response, call: Call, connection: Connection) -> None:
    connection.check(answer, call)
    if "text/event-stream" not in answer.headers.get("content-type", ""):
        raise ServiceError(
            f"what answered {call.method} {call.path} is not a stream of events",
            where={"server": connection.address},
            hint="A proxy or a login page may be in between.",
        )


def _event(event: httpx2.ServerSentEvent, last_id: str) -> Event:
    try:
        data: Any = json.loads(event.data) if event.data else {}
    except ValueError:
        data = {"text": event.data}
    data = data if isinstance(data, dict) else {"value": data}
    return Event.read({"id": last_id, "kind": event.event, "data": data})
