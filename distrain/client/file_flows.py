"""What is read beside a job's events: metrics, files, clusters, people."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from distrain.client.answers import good_document, raise_for_problem
from distrain.client.documents import Artifact, Cluster, Me, Records, Token
from distrain.client.errors import ServiceError
from distrain.client.exchange import Answer, Call, Emit, Failed, Flow, Read
from distrain.client.job_flows import Service, job_path
from distrain.client.retries import answered

_MOST_BREAKS = 20


def metrics(service: Service, job_id: str, since: str | None) -> Flow[Records]:
    """A job's records, page after page."""
    records: list[Any] = []
    restart = False
    while True:
        params = {} if since is None else {"since": since}
        call = Call("GET", job_path(job_id, "metrics"), params=params)
        page = Records.from_json((yield from service.document(call)))
        if page.restart:
            records, restart = [], True
        records += page.records
        if not page.document.get("more") or page.cursor == since:
            return Records(tuple(records), page.cursor, restart, document=page.document)
        since = page.cursor


def artifacts(service: Service, job_id: str, below: str = "") -> Flow[tuple[Artifact, ...]]:
    """The files of a job's run directory, or of a folder in it, page after page."""
    found: list[Artifact] = []
    after = ""
    while True:
        asked = {"after": after, "below": below}
        params = {name: value for name, value in asked.items() if value}
        call = Call("GET", job_path(job_id, "artifacts"), params=params)
        page = yield from service.document(call)
        found += [Artifact.from_json(one) for one in page.get("artifacts") or ()]
        cursor = page.get("next_cursor")
        if not isinstance(cursor, str) or cursor in ("", after):
            return tuple(found)
        after = cursor


def clusters(service: Service) -> Flow[tuple[Cluster, ...]]:
    """The clusters that the user may use."""
    document = yield from service.document(Call("GET", "/v1/clusters"))
    return tuple(Cluster.from_json(one) for one in document.get("clusters") or ())


def me(service: Service) -> Flow[Me]:
    """Who the token belongs to."""
    return Me.from_json((yield from service.document(Call("GET", "/v1/me"))))


def tokens(service: Service) -> Flow[tuple[Token, ...]]:
    """The user's tokens, without their texts."""
    document = yield from service.document(Call("GET", "/v1/tokens"))
    return tuple(Token.from_json(one) for one in document.get("tokens") or ())


def make_token(service: Service, body: Mapping[str, Any]) -> Flow[Token]:
    """Make a token: never repeated, since nobody could say which of two was stored."""
    call = Call("POST", "/v1/tokens", body=dict(body), repeats=False)
    return Token.from_json(good_document((yield from service.ask(call)), call, service.address))


def revoke_token(service: Service, token_id: str) -> Flow[None]:
    """Revoke a token; one that is gone is revoked."""
    call = Call("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")
    answer = yield from service.ask(call)
    if not (answer.status == 404 and isinstance(answer.document(), dict)):
        raise_for_problem(answer, call, service.address)


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


def download(service: Service, job_id: str, path: str) -> Flow[None]:
    """Emit pieces of a file until all of it was emitted.

    After a break only what is missing is asked for. If the file has changed meanwhile, its pieces
    begin anew at 0.

    Raises:
        ServiceError: It breaks again and again without a byte, or its length is not the one told.
    """
    base = job_path(job_id, "artifacts") + "/" + quote(path.lstrip("/"), safe="/")
    done, etag, idle = 0, "", 0
    while True:
        call = Call("GET", base, headers=_range(done, etag), whole_s=None)
        answer = yield from answered(call, service.retries, service.address, stream=True)
        if not answer.is_good:
            answer = yield from service.ask(call)  # with its content, which says why
            raise_for_problem(answer, call, service.address)
            continue
        begin = _begin(answer)
        if begin not in (0, done):
            raise _wrong(service, path, f"its bytes begin at {begin}, not at {done}")
        before, done, etag = begin, begin, answer.headers.get("etag", "")
        yield Emit(Piece(begin, b""))
        while isinstance(chunk := (yield Read()), bytes):
            yield Emit(Piece(done, chunk))
            done += len(chunk)
        wanted = _length(answer)
        if not isinstance(chunk, Failed) and wanted in (None, done):
            return
        if wanted is not None and done > wanted:
            raise _wrong(service, path, f"{done} bytes came of {wanted}")
        idle = 0 if done > before else idle + 1
        if idle > _MOST_BREAKS:
            raise _wrong(service, path, "the connection breaks before any byte")
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


def _wrong(service: Service, path: str, why: str) -> ServiceError:
    return ServiceError(
        f"could not download {path}: {why}", where={"server": service.address}, hint="Try again."
    )
