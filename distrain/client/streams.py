"""Events and logs of running jobs; resumed where a connection breaks.

Server-sent events are read as the HTML standard says.
"""

import json
import re
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from distrain.client.connection import Connection, Stream
from distrain.client.documents import Event, Job
from distrain.client.errors import ServiceError, ServiceUnavailable
from distrain.client.job_calls import job_path, read_job
from distrain.client.transport import Call, Reply
from distrain.errors import InputError

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


_SILENT_S = 45.0  # three pings
_POLL_S = (0.25, 2.0)
_LOG_BYTES = 2**22
_HELD_S = 10.0
_TAIL_OF_LOGS_S = 60.0
_ENDS = frozenset({"end", "job.end"})


def follow(connection: Connection, path: str, after: str | None, *, ends: bool) -> Iterator[Event]:
    """Events from a cursor on; a broken stream is opened again, until `end` if it `ends`."""
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
                f"the stream of events breaks again and again, the last {breaks} times before "
                "any event",
                where={"server": connection.address},
                hint="A proxy in between may cut long answers, or hold them back.",
            )
        breaks += 1
        connection.pause(connection.retries.pause_s(breaks), "the stream of events broke")


def _events(
    connection: Connection, path: str, last_id: str
) -> Generator[Event, None, tuple[str, int, bool]]:
    """The events of one answer; returns the cursor, their number, and whether `end` came."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if last_id and not re.fullmatch(r"[\x21-\x7e]{1,200}", last_id):
        raise InputError(f"{last_id!r} is no event's id", hint="It is ASCII without spaces.")
    headers |= {"Last-Event-ID": last_id} if last_id else {}
    call = Call("GET", path, headers=headers, read_s=_SILENT_S, whole_s=None)
    parser, count = SseParser(last_id), 0
    with connection.stream(call) as stream:
        _check_stream(stream, call, connection)
        while isinstance(chunk := stream.read(), bytes):
            for told in parser.feed(chunk):
                if not _is_new(told, last_id):
                    continue
                last_id, count = told.id, count + 1
                yield _event(told)
                if told.kind in _ENDS:
                    return last_id, count, True
    return last_id, count, False


def _check_stream(stream: Stream, call: Call, connection: Connection) -> None:
    answer = stream.answer
    if answer.is_good and "text/event-stream" in answer.headers.get("content-type", ""):
        return
    connection.check(stream.whole(), call)
    raise ServiceError(
        f"what answered {call.method} {call.path} is no stream of events",
        where={"server": connection.address},
        hint="A proxy or a login page may be in between.",
    )


def _is_new(told: ServerEvent, last_id: str) -> bool:
    """Whether an event is behind the cursor; after a `reset` the numbers may begin anew.

    >>> _is_new(ServerEvent("job.state", "{}", "7"), "7")
    False
    """
    if told.kind == "reset" or told.kind in _ENDS:
        return True
    if told.id.isdecimal() and last_id.isdecimal():
        return int(told.id) > int(last_id)
    return not told.id or told.id != last_id


def _event(told: ServerEvent) -> Event:
    try:
        data: Any = json.loads(told.data) if told.data else {}
    except ValueError:
        data = {"text": told.data}
    data = data if isinstance(data, dict) else {"value": data}
    return Event(told.id, told.kind, data, document=data)


@dataclass(frozen=True)
class LogPosition:
    """A place in a rank's log; `offset` is in bytes, `tail` in lines from the end."""

    attempt: int | None
    rank: int
    offset: int | None = 0
    tail: int | None = None


def logs(
    connection: Connection, job_id: str, place: LogPosition, *, follows: bool
) -> Iterator[bytes]:
    """The bytes of a rank's log; with `follows` to its end, with those of later attempts."""
    later = place.attempt is None
    found = read_job(connection, job_id)
    while found.attempt == 0 and later and follows and not found.is_final:
        connection.pause(_POLL_S[1])
        found = read_job(connection, job_id)
    attempt = place.attempt or max(found.attempt, 1)
    while True:
        found = yield from _log(connection, job_id, replace(place, attempt=attempt), follows, found)
        if not (follows and later):
            return
        while found.attempt <= attempt and not found.is_final:
            connection.pause(_POLL_S[1])
            found = read_job(connection, job_id)
        if found.attempt <= attempt:
            return
        attempt, place = attempt + 1, LogPosition(attempt + 1, place.rank)


def _log(
    connection: Connection, job_id: str, place: LogPosition, follows: bool, found: Job
) -> Generator[bytes, None, Job]:
    pause_s = _POLL_S[0]
    progress_s = time.monotonic()
    while True:
        piece = yield from _piece(connection, job_id, place, follows and not found.is_final)
        if piece.data:
            yield piece.data
            progress_s, pause_s = time.monotonic(), _POLL_S[0]
        if piece.offset is not None:
            place = replace(place, offset=piece.offset, tail=None)
        if piece.is_complete and not piece.more:
            return found
        if piece.data or piece.more:
            continue
        if not follows:
            return found
        now_s = time.monotonic()
        if found.is_final or found.attempt > (place.attempt or 0):
            if piece.is_complete is None:
                return found
            if now_s - progress_s > _TAIL_OF_LOGS_S:
                raise _incomplete(connection, job_id, place)
        connection.pause(pause_s)
        pause_s = min(_POLL_S[1], pause_s * 2)
        found = read_job(connection, job_id)


@dataclass(frozen=True)
class _Piece:
    data: bytes = b""
    offset: int | None = None  # behind it; `None` if it is not known yet
    # whether the log ends here for good; `None`: the service does not say
    is_complete: bool | None = False
    more: bool = False  # whether the answer was cut, so that more is there at once


_Pieces = Generator[bytes, None, _Piece]


def _piece(connection: Connection, job_id: str, place: LogPosition, waits: bool) -> _Pieces:
    """The next bytes of a log; `waits` for them, and for the log, which an attempt begins."""
    params = {"rank": str(place.rank), "limit": str(_LOG_BYTES)}
    params |= {} if place.attempt is None else {"attempt": str(place.attempt)}
    if place.tail is not None:
        params["tail"] = str(place.tail)
    else:
        params["offset"] = str(place.offset or 0)
    held_s = min(_HELD_S, connection.held_s) if waits else 0.0
    if waits:  # the service answers as soon as there are bytes, and goes on
        params["wait_s"] = f"{held_s:.3f}"
    path, read_s = job_path(job_id, "logs"), 30.0 + _HELD_S
    call = Call("GET", path, params=params, read_s=read_s, whole_s=None, held_s=held_s)
    if waits and place.tail is None:
        return (yield from _following_piece(connection, call, place))
    keeps_cut = place.tail is None  # it is not known where the bytes of a cut tail were
    answer = connection.ask(call, keeps_cut=keeps_cut)
    if answer.status in (404, 416) and waits:
        return _Piece()  # the attempt's file is made at its start
    connection.check(answer, call)
    return _read_piece(answer, place)


def _following_piece(connection: Connection, call: Call, place: LogPosition) -> _Pieces:
    """The bytes of an answer that goes on while the rank prints; returns the place behind them."""
    call = replace(call, params={**call.params, "follow": "true"})
    with connection.stream(call) as stream:
        begin, _ = _ends(stream.answer)
        if not stream.answer.is_good or begin is None or "x-next-offset" in stream.answer.headers:
            whole = stream.whole()
            if whole.status in (404, 416):
                return _Piece()
            connection.check(whole, call)
            return _read_piece(whole, place)
        end = begin
        while isinstance(chunk := stream.read(), bytes):
            end += len(chunk)
            yield chunk
    return _Piece(b"", end, more=end > begin)


def _read_piece(answer: Reply, place: LogPosition) -> _Piece:
    told = answer.headers.get("x-complete")
    is_complete = None if told is None else told == "true"
    begin, end = _ends(answer)
    if place.tail is not None:
        return _Piece(answer.content, end, is_complete)
    begin = place.offset or 0 if begin is None else begin
    offset = begin + len(answer.content)
    is_cut = bool(answer.cut) or (end is not None and end > offset)
    return _Piece(answer.content, offset, is_complete, more=is_cut and bool(answer.content))


def _ends(answer: Reply) -> tuple[int | None, int | None]:
    """The numbers of a whole answer's first byte, which may be another than asked, and its end."""
    first, end, length = (
        int(text) if (text := answer.headers.get(name, "")).isdecimal() else None
        for name in ("x-offset", "x-next-offset", "content-length")
    )
    if first is None and end is not None and length is not None:
        first = end - length
    return first, end


def _incomplete(connection: Connection, job_id: str, place: LogPosition) -> ServiceError:
    return ServiceError(
        f"the log of rank {place.rank}, attempt {place.attempt} of job {job_id} is not complete",
        where={"server": connection.address, "read": f"{place.offset} bytes"},
        hint="The job has ended, and its files may still be on their way: try again.",
        code="incomplete",
    )
