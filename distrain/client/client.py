"""`Client`, and its calls for metrics and files of jobs."""

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
from distrain.client.job_calls import JobCalls, job_path
from distrain.client.logs import artifact_path, list_artifacts, logs
from distrain.client.retries import Retries, json_of
from distrain.client.service_target import ServiceTarget, find_target
from distrain.jobs.api_answers import Artifact, Cluster, Event, Me, NewToken, Records, Token
from distrain.storage.outputs import atomic_file

_MOST_BREAKS = 20


class FileCalls:
    """The methods of `Client` for the metrics and files of jobs.

    Besides the errors that a method lists, all raise `InputError` for a malformed job id,
    `NotFound` if there is no such job or file, or this user may not see it, and another
    `ServiceError` for any other failed request.
    """

    _connection: Connection

    def metrics(self, job_id: str, since: str | None = None) -> Records:
        """Return a job's records of training and validation, in the order of their writing.

        Args:
            job_id: The job.
            since: The `cursor` of an earlier result; only newer records are returned. If the new
                result has `restart`, it replaces the records of all earlier results.
        """
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
        """Return the files of a job's run folder, sorted by name.

        Args:
            job_id: The job.
            below: Only files in this folder of the run folder, and in its subfolders.
        """
        return list_artifacts(self._connection, job_id, below)

    def download(self, job_id: str, path: str, to: str | Path) -> Path:
        """Download a file of a job's run folder, completely or not at all.

        Args:
            job_id: The job.
            path: The file's name in `artifacts`.
            to: A file, or an existing folder.

        Returns:
            The path of the local file.

        Raises:
            OutputError: The file could not be written; an existing file is unchanged.
        """
        name = path.rstrip("/").rpartition("/")[2]
        target = Path(to)
        if target.is_dir() and name not in ("", ".", ".."):
            target = target / name
        with atomic_file(target, make_folder=False) as partial, partial.open("wb") as file:
            for offset, data in _pieces(self._connection, job_id, path):
                if file.tell() != offset:
                    file.seek(offset)
                    file.truncate()
                file.write(data)
        return target


def _pieces(connection: Connection, job_id: str, path: str) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of a file with their offsets; a piece replaces all bytes from its offset on.

    After a broken connection, only the missing bytes are requested. If the file may have changed
    meanwhile, the pieces begin again at offset 0. Raises `ServiceError` if the service sends other
    bytes than requested, or the connection breaks repeatedly without a new byte.
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
        if not is_cut:
            return
        idle = 0 if done > before else idle + 1
        if idle > _MOST_BREAKS:
            raise _wrong(connection, path, "the connection broke before the first byte")
        done = done if etag else 0  # without an ETag, the file may have changed


def _begin(answer: httpx2.Response) -> int:
    """Return the offset in the whole file of a response's first byte."""
    match = re.match(r"bytes (\d+)-", answer.headers.get("content-range", ""))
    return int(match[1]) if answer.status_code == 206 and match else 0


def _wrong(connection: Connection, path: str, why: str) -> ServiceError:
    return ServiceError(
        f"could not download {path}: {why}", where={"server": connection.address}, hint="Try again."
    )


class Client(JobCalls, FileCalls):
    """Submits, follows and cancels jobs of a service.

    Requests are retried after broken connections, timeouts and the statuses 502 to 504, and after
    429 at the time that the service names. A retried request has no second effect, because the
    client chooses the id of a new job; `make_token` is not retried. A method whose request fails
    for good raises a `ServiceError`, mostly a subclass; an iterator raises it when it is read.
    Several threads may share a client, but each iterator belongs to one thread.

    Args:
        address: `https://HOST`, `http://127.0.0.1:PORT` or `unix:/PATH`. Default: the environment's
            DISTRAIN_SERVER, or the address of `distrain login`.
        token: Default: DISTRAIN_TOKEN, or the token of `distrain login`.
        ca_file: PEM file of the CA that signed the service's certificate.
        plain_http: Allow sending the token over http:// to another machine.
        retries: How long to retry.
        on_retry: Called with the reason before each pause.

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
    def of_scheduler(cls, address: str, transport: httpx2.BaseTransport) -> Self:
        """Return a client that calls a cluster's scheduler directly, without a service.

        A scheduler supports only some of the calls. They are not retried.

        Args:
            address: The scheduler's address, as messages show it.
            transport: Sends the requests.
        """
        client = cls.__new__(cls)
        target = ServiceTarget(Address(address, "http://scheduler/distrain"), None, None)
        client._connection = Connection(target, Retries(most_tries=1), None, transport)
        return client

    @property
    def connection(self) -> Connection:
        """The connection that sends the calls."""
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
        """Iterate over a job's events until its end.

        A broken connection is reopened after the last event, so that no event is lost or repeated.
        The last event has the kind `end`.

        Args:
            job_id: The job.
            after: The `id` of the last event that the caller has. Default: begin with the job's
                current state.
        """
        path = job_path(job_id, "events")
        return streams.follow(self._connection, path, after, ends=True)

    def events(self, after: str | None = None) -> Iterator[Event]:
        """Iterate over the events of all jobs that this user may see, without an end.

        Args:
            after: The `id` of the last event that the caller has. Default: only new events.
        """
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
        """Iterate over the bytes of a rank's log; a broken connection causes no gap or repetition.

        Args:
            job_id: The job.
            rank: The rank.
            attempt: The number of the attempt. Default: the job's last attempt, and with `follow`
                also later attempts.
            offset: The offset in the log of the first byte to return.
            tail: Begin with this many of the last lines, and ignore `offset`.
            follow: Wait for more bytes until the log has ended.
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
        """Return the clusters that this user may use."""
        document = self._connection.document(Call("GET", "/v1/clusters"))
        return tuple(Cluster.read(one) for one in document.get("clusters") or ())

    def me(self) -> Me:
        """Return the token's user, with projects, roles and scopes."""
        return Me.read(self._connection.document(Call("GET", "/v1/me")))

    def tokens(self) -> tuple[Token, ...]:
        """Return this user's tokens, without their secret texts."""
        document = self._connection.document(Call("GET", "/v1/tokens"))
        return tuple(Token.read(one) for one in document.get("tokens") or ())

    def make_token(self, **values: Any) -> NewToken:
        """Create a token; only this result has its secret text, which cannot be read again.

        The call is not retried. If there was no response, check `tokens`.

        Args:
            values: `label`, `scopes`, `days` (until the token expires) and `user`, all optional.
        """
        call = Call("POST", "/v1/tokens", body=values, repeats=False)
        return NewToken.read(self._connection.document(call))

    def revoke_token(self, token_id: str) -> None:
        call = Call("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")
        answer = self._connection.request(call)
        if not (answer.status_code == 404 and isinstance(json_of(answer), dict)):
            self._connection.check(answer, call)
