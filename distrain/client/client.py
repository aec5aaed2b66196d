"""The client of a service, with its calls for jobs' records and files."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx2

from distrain.client import streams
from distrain.client.connection import Call, Connection
from distrain.client.credentials import Address
from distrain.client.errors import ServiceError
from distrain.client.files import whole_file
from distrain.client.job_calls import JobCalls, job_path
from distrain.client.logs import artifact_path, list_artifacts, logs
from distrain.client.retries import Retries, json_of
from distrain.client.target import ServiceTarget, find_target
from distrain.jobs.documents import Artifact, Cluster, Event, Me, NewToken, Records, Token

_MOST_BREAKS = 20


class FileCalls:
    _connection: Connection

    def metrics(self, job_id: str, since: str | None = None) -> Records:
        """A job's records of training and validation, or those since a cursor."""
        records: list[Any] = []
        restart = False
        while True:
            params = {} if since is None else {"since": since}
            call = Call("GET", job_path(job_id, "metrics"), params=params)
            page = Records.read(self._connection.document(call))
            if page.restart:
                records, restart = [], True
            records += page.records
            if not page.more or page.cursor == since:
                return page.model_copy(update={"records": records, "restart": restart})
            since = page.cursor

    def artifacts(self, job_id: str, below: str = "") -> tuple[Artifact, ...]:
        """The files of a job's run directory.

        Args:
            below: Only those in this folder of it.
        """
        return list_artifacts(self._connection, job_id, below)

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
    done, etag, idle = 0, "", 0
    while True:
        rest = {"Range": f"bytes={done}-", "If-Range": etag} if done and etag else {}
        call = Call("GET", artifact_path(job_id, path), headers=rest)
        with connection.stream(call) as answer:
            connection.check(answer, call)
            begin = _begin(answer)
            if begin not in (0, done):
                raise _wrong(connection, path, f"its bytes begin at {begin}, not at {done}")
            before, done, etag, is_cut = begin, begin, answer.headers.get("etag", ""), False
            yield begin, b""
            try:
                for chunk in answer.iter_raw():
                    yield done, chunk
                    done += len(chunk)
            except httpx2.TransportError:
                is_cut = True
        wanted = _length(answer)
        if not is_cut and wanted in (None, done):
            return
        if wanted is not None and done > wanted:
            raise _wrong(connection, path, f"{done} bytes came of {wanted}")
        idle = 0 if done > before else idle + 1
        if idle > _MOST_BREAKS:
            raise _wrong(connection, path, "the connection breaks before any byte")
        done = done if etag else 0  # without an ETag nobody knows whether it is the same file


def _begin(answer: httpx2.Response) -> int:
    match = re.match(r"bytes (\d+)-", answer.headers.get("content-range", ""))
    return int(match[1]) if answer.status_code == 206 and match else 0


def _length(answer: httpx2.Response) -> int | None:
    """The length of the whole file, if the answer has it."""
    match = re.match(r"bytes \d+-\d+/(\d+)", answer.headers.get("content-range", ""))
    if answer.status_code == 206:
        return int(match[1]) if match else None
    text = answer.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _wrong(connection: Connection, path: str, why: str) -> ServiceError:
    return ServiceError(
        f"could not download {path}: {why}", where={"server": connection.address}, hint="Try again."
    )


class Client(JobCalls, FileCalls):
    """Submits, follows and cancels jobs of a service.

    What fails on the way is tried again: connections that break, timeouts, 502 to 504, and 429 when
    the service says. A repeated request makes nothing twice: a new job's id is chosen here. Several
    threads may use a client; each iterator belongs to one of them.

    Args:
        address: `https://HOST`, `http://127.0.0.1:PORT` or `unix:/PATH`. Default: the environment's
            DISTRAIN_SERVER, or that of `distrain login`.
        token: Default: DISTRAIN_TOKEN, or that of `distrain login`.
        ca_file: PEM file of the authority that signed the service's certificate.
        plain_http: Allow that a token is sent over http:// to another machine.
        retries: How long to try again.
        on_retry: Called with the words of why, before each pause, and by another thread where an
            answer is late.

    Raises:
        InputError: No service is named, or the token may not be sent to it.
    """

    def __init__(
        self,
        address: str | None = None,
        token: str | None = None,
        *,
        ca_file: str | Path | None = None,
        plain_http: bool = False,
        retries: Retries | None = None,
        on_retry: Callable[[str], object] | None = None,
    ):
        target = find_target(address, token, ca_file, plain_http=plain_http)
        self._connection = Connection(target, retries or Retries(), on_retry)

    @classmethod
    def of_scheduler(
        cls,
        address: str,
        transport: httpx2.BaseTransport,
        *,
        url: str = "http://scheduler",
        token: str | None = None,
    ) -> Self:
        """A client of one scheduler, which answers a part of the calls; nothing is tried again.

        Args:
            address: For people.
            transport: What carries the requests.
            url: What they are sent to: that of its HTTP server.
        """
        client = cls.__new__(cls)
        target = ServiceTarget(Address(address, f"{url}/distrain"), token, None)
        client._connection = Connection(target, Retries(most_tries=1), None, transport)
        return client

    @property
    def connection(self) -> Connection:
        """What sends the calls."""
        return self._connection

    @property
    def address(self) -> str:
        return self._connection.address

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def follow(self, job_id: str, after: str | None = None) -> Iterator[Event]:
        """Iterate over a job's events to its end.

        A connection that breaks is opened again behind the last event, so that none is lost and
        none comes twice. The last event is of kind `end`.

        Args:
            after: The `id` of the last event that is known already.
        """
        path = job_path(job_id, "events")
        return streams.follow(self._connection, path, after, ends=True)

    def events(self, after: str | None = None) -> Iterator[Event]:
        """Iterate over the events of all jobs that this user may see, without end."""
        return streams.follow(self._connection, "/v1/events", after, ends=False)

    def logs(
        self,
        job_id: str,
        *,
        rank: int = 0,
        attempt: int | None = None,
        offset: int = 0,
        tail: int | None = None,
        follow: bool = False,
    ) -> Iterator[bytes]:
        """Iterate over the bytes of a rank's log: in order and each once, whatever breaks.

        Args:
            attempt: Default: the job's last one; with `follow` also those that come after it.
            offset: Where to begin, in bytes.
            tail: Begin with this many of the last lines.
            follow: Go on to the log's end.
        """
        return logs(
            self._connection,
            job_id,
            rank=rank,
            attempt=attempt,
            offset=offset,
            tail=tail,
            follows=follow,
        )

    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters that this user may use."""
        document = self._connection.document(Call("GET", "/v1/clusters"))
        return tuple(Cluster.read(one) for one in document.get("clusters") or ())

    def me(self) -> Me:
        """The token's user, and its rights."""
        return Me.read(self._connection.document(Call("GET", "/v1/me")))

    def tokens(self) -> tuple[Token, ...]:
        """This user's tokens, without their texts."""
        document = self._connection.document(Call("GET", "/v1/tokens"))
        return tuple(Token.read(one) for one in document.get("tokens") or ())

    def make_token(self, **values: Any) -> NewToken:
        """Make a token: `label`, `scopes`, `days`, `user`. Its text is in this answer alone.

        It is not tried again: look at `tokens` if no answer came.
        """
        call = Call("POST", "/v1/tokens", body=values, repeats=False)
        return NewToken.read(self._connection.document(call))

    def revoke_token(self, token_id: str) -> None:
        call = Call("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")
        answer = self._connection.ask(call)
        if not (answer.status_code == 404 and isinstance(json_of(answer), dict)):
            self._connection.check(answer, call)
