"""A job's records and files, page after page and piece by piece."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from distrain.client.connection import Connection
from distrain.client.documents import Artifact, Records
from distrain.client.errors import ServiceError
from distrain.client.files import whole_file
from distrain.client.job_calls import job_path
from distrain.client.transport import Call, Failed, Reply

_MOST_BREAKS = 20


class FileCalls:
    """The part of `Client` for jobs' records and files."""

    _connection: Connection

    def metrics(self, job_id: str, since: str | None = None) -> Records:
        """A job's records of training and validation, or those since a cursor."""
        records: list[Any] = []
        restart = False
        while True:
            params = {} if since is None else {"since": since}
            call = Call("GET", job_path(job_id, "metrics"), params=params)
            page = Records.from_json(self._connection.document(call))
            if page.restart:
                records, restart = [], True
            records += page.records
            if not page.document.get("more") or page.cursor == since:
                return Records(tuple(records), page.cursor, restart, document=page.document)
            since = page.cursor

    def artifacts(self, job_id: str, below: str = "") -> tuple[Artifact, ...]:
        """The files of a job's run directory.

        Args:
            below: Only those in this folder of it.
        """
        found: list[Artifact] = []
        after = ""
        while True:
            asked = {"after": after, "below": below}
            params = {name: value for name, value in asked.items() if value}
            call = Call("GET", job_path(job_id, "artifacts"), params=params)
            page = self._connection.document(call)
            found += [Artifact.from_json(one) for one in page.get("artifacts") or ()]
            cursor = page.get("next_cursor")
            if not isinstance(cursor, str) or cursor in ("", after):
                return tuple(found)
            after = cursor

    def download(self, job_id: str, path: str, to: str | Path) -> Path:
        """Write a file of a job's run directory to this machine, whole or not at all.

        Args:
            path: As `artifacts` names it.
            to: A file, or a folder that is there.

        Returns:
            The file.

        Raises:
            OutputError: It could not be written; what was there before is still there.
        """
        name = path.rstrip("/").rpartition("/")[2]
        target = Path(to)
        if target.is_dir() and name not in ("", ".", ".."):
            target = target / name
        with whole_file(target) as file:
            for offset, data in _pieces(self._connection, job_id, path):
                if file.tell() != offset:
                    file.seek(offset)
                    file.truncate()
                file.write(data)
        return target


def _pieces(connection: Connection, job_id: str, path: str) -> Iterator[tuple[int, bytes]]:
    """Pieces of a file and their places, until all of it came; bytes behind a piece are void.

    After a break only the missing bytes are asked for. If the file has changed meanwhile, its
    pieces begin again at 0.
    """
    base = job_path(job_id, "artifacts") + "/" + quote(path.lstrip("/"), safe="/")
    done, etag, idle = 0, "", 0
    while True:
        rest = {"Range": f"bytes={done}-", "If-Range": etag} if done and etag else {}
        call = Call("GET", base, headers=rest, whole_s=None)
        with connection.stream(call) as stream:
            answer = stream.answer
            connection.check(answer if answer.is_good else stream.whole(), call)
            begin = _begin(answer)
            if begin not in (0, done):
                raise _wrong(connection, path, f"its bytes begin at {begin}, not at {done}")
            before, done, etag = begin, begin, answer.headers.get("etag", "")
            yield begin, b""
            while isinstance(chunk := stream.read(), bytes):
                yield done, chunk
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


def _begin(answer: Reply) -> int:
    match = re.match(r"bytes (\d+)-", answer.headers.get("content-range", ""))
    return int(match[1]) if answer.status == 206 and match else 0


def _length(answer: Reply) -> int | None:
    """The length of the whole file, if the answer has it."""
    match = re.match(r"bytes \d+-\d+/(\d+)", answer.headers.get("content-range", ""))
    if answer.status == 206:
        return int(match[1]) if match else None
    text = answer.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _wrong(connection: Connection, path: str, why: str) -> ServiceError:
    return ServiceError(
        f"could not download {path}: {why}", where={"server": connection.address}, hint="Try again."
    )
