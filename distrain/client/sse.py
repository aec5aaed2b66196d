"""Server-sent events out of bytes, as the HTML standard reads them."""

from dataclasses import dataclass

_LONGEST_BYTES = 8 * 2**20


@dataclass(frozen=True)
class ServerEvent:
    kind: str
    data: str
    id: str  # the cursor after it: that of the last event that had one


class SseParser:
    r"""Parses bytes as they come into whole events.

    An event without its blank line is kept back: a cut stream leaves no half of one.

    >>> parser = SseParser()
    >>> parser.feed(b"id: 7\nevent: job.state\nda")
    []
    >>> parser.feed(b'ta: {"a": 1}\n\n: ping\n\nid: 8\ndata: lost')
    [ServerEvent(kind='job.state', data='{"a": 1}', id='7')]
    """

    def __init__(self, last_id: str = "") -> None:
        self._rest = b""
        self._kind = ""
        self._data: list[str] = []
        self._id = last_id

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end within these bytes; raises ValueError for a line beyond 8 MiB."""
        lines = (self._rest + chunk).splitlines(keepends=True)
        # "\r" at the end may be the first half of "\r\n".
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        if len(self._rest) > _LONGEST_BYTES:
            raise ValueError(f"a line of the stream is longer than {_LONGEST_BYTES} bytes")
        found = (self._line(line.rstrip(b"\r\n").decode("utf-8", "replace")) for line in lines)
        return [event for event in found if event is not None]

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _event(self) -> ServerEvent | None:
        kind, data = self._kind or "message", "\n".join(self._data)
        has_data = bool(self._data)
        self._kind, self._data = "", []
        return ServerEvent(kind, data, self._id) if has_data or kind != "message" else None
