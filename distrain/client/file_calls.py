"""A job's records and files, page after page and piece by piece."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from distrain.client.connection import Connection
from distrain.client.documents import Artifact, Records
from distrain.client.errors import ServiceError
from distrain.client.exchange import Answer, Call, Failed
from distrain.client.job_calls import job_path

_MOST_BREAKS = 20


def metrics(connection: Connection, job_id: str, since: str | None) -> Records:
    """A job's records, page after page."""
    records: list[Any] = []
    restart = False
    while True:
        params = {} if since is None else {"since": since}
        call = Call("GET", job_path(job_id, "metrics"), params=params)
        page = Records.from_json(connection.document(call))
        if page.restart:
            records, restart = [], True
        records += page.records
        if not page.document.get("more") or page.cursor == since:
            return Records(tuple(records), page.cursor, restart, document=page.document)
        since = page.cursor


def artifacts(connection: Connection, job_id: str, below: str = "") -> tuple[Artifact, ...]:
    """The files of a job's run directory, or of a folder in it, page after page."""
    found: list[Artifact] = []
    after = ""
    while True:
        asked = {"after": after, "below": below}
        params = {name: value for name, value in asked.items() if value}
        call = Call("GET", job_path(job_id, "artifacts"), params=params)
        page = connection.document(call)
        found += [Artifact.from_json(one) for one in page.get("artifacts") or ()]
        cursor = page.get("next_cursor")
        if not isinstance(cursor, str) or cursor in ("", after):
            return tuple(found)
        after = cursor


@dataclass(frozen=True)
class Piece:
    """Bytes of a file, and where they go; those behind are void."""

    offset: int
    data: bytes


def download_target(path: str, to: Path) -> Path:
    """The file to write: `to`, or the file's own name in that folder."""
    name = path.rstrip("/").rpartition("/")[2]
    return to / name if to.is_dir() and name not in ("", ".", "..") else to


def put_piece(file: BinaryIO, piece: Piece) -> None:
    """Write a piece; what was behind its beginning goes."""
    if file.tell() != piece.offset:
        file.seek(piece.offset)
        file.truncate()
    file.write(piece.data)


def download(connection: Connection, job_id: str, path: str) -> Iterator[Piece]:
    """Pieces of a file, until all of it came.

    After a break only what is missing is asked for. If the file has changed meanwhile, its pieces
    begin anew at 0.

    Raises:
        ServiceError: It breaks again and again without a byte, or its length is not the one told.
    """
    base = job_path(job_id, "artifacts") + "/" + quote(path.lstrip("/"), safe="/")
    done, etag, idle = 0, "", 0
    while True:
        call = Call("GET", base, headers=_range(done, etag), whole_s=None)
        with connection.stream(call) as stream:
            answer = stream.answer
            connection.check(answer if answer.is_good else stream.whole(), call)
            begin = _begin(answer)
            if begin not in (0, done):
                raise _wrong(connection, path, f"its bytes begin at {begin}, not at {done}")
            before, done, etag = begin, begin, answer.headers.get("etag", "")
            yield Piece(begin, b"")
            while isinstance(chunk := stream.read(), bytes):
                yield Piece(done, chunk)
                done += len(chunk)
        wanted = _length(answer)
        if not isinstance(chunk, Failed) and wanted in (None, done):
            return
        if wanted is not None and done > wanted:
            raise _wrong(connection, path, f"{done} bytes came of {wanted}")
        idle = 0 if done > before else idle + 1
        if idle > _MOST_BREAKS:
            raise _wrong(connection, path, "the connection breaks before any byte")
        done = done if etag else 0  # without an ETag nobody knows whether it is the same file


def _range(done: int, etag: str) -> dict[str, str]:
    return {"Range": f"bytes={done}-", "If-Range": etag} if done and etag else {}


def _begin(answer: Answer) -> int:
    match = re.match(r"bytes (\d+)-", answer.headers.get("content-range", ""))
    return int(match[1]) if answer.status == 206 and match else 0


def _length(answer: Answer) -> int | None:
    """How long the whole file is, if the answer tells."""
    match = re.match(r"bytes \d+-\d+/(\d+)", answer.headers.get("content-range", ""))
    if answer.status == 206:
        return int(match[1]) if match else None
    text = answer.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _wrong(connection: Connection, path: str, why: str) -> ServiceError:
    return ServiceError(
        f"could not download {path}: {why}", where={"server": connection.address}, hint="Try again."
    )
