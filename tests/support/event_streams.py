"""Server-sent events as a plain client reads them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True)
class Told:
    """One event."""

    kind: str
    id: int
    data: dict[str, Any]


@contextmanager
def stream_of(
    client: httpx2.Client, path: str, after: int | None = None
) -> Iterator[Iterator[Told]]:
    """The events of a stream as they come; the iterator ends with the stream."""
    headers = {"Last-Event-ID": str(after)} if after is not None else {}
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield _events(answer)


def _events(answer: httpx2.Response) -> Iterator[Told]:
    fields: dict[str, str] = {}
    try:
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                yield Told(fields["event"], int(fields["id"]), json.loads(fields["data"]))
                fields = {}
            else:
                fields = {}  # a ping
    except (httpx2.RemoteProtocolError, httpx2.ReadError):
        return  # cut
