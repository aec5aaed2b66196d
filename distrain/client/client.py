"""The client of a service."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from distrain.client import streams
from distrain.client.connection import Connection
from distrain.client.documents import Cluster, Event, Me, Token
from distrain.client.file_calls import FileCalls
from distrain.client.job_calls import JobCalls, job_path
from distrain.client.retries import Retries
from distrain.client.streams import LogPosition
from distrain.client.transport import Call, find_target


class Client(JobCalls, FileCalls):
    """Submits, follows and cancels jobs of a service.

    What fails on the way is tried again: connections that break, timeouts, 502 to 504, and 429 when
    the service says. Requests that make something bear an idempotency key, so that a repeated one
    makes nothing twice. Several threads may use a client; each iterator belongs to one of them.

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
        place = LogPosition(attempt, rank, offset, tail)
        return streams.logs(self._connection, job_id, place, follows=follow)

    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters that this user may use."""
        document = self._connection.document(Call("GET", "/v1/clusters"))
        return tuple(Cluster.from_json(one) for one in document.get("clusters") or ())

    def me(self) -> Me:
        """The token's user, and its rights."""
        return Me.from_json(self._connection.document(Call("GET", "/v1/me")))

    def tokens(self) -> tuple[Token, ...]:
        """This user's tokens, without their texts."""
        document = self._connection.document(Call("GET", "/v1/tokens"))
        return tuple(Token.from_json(one) for one in document.get("tokens") or ())

    def make_token(self, **values: Any) -> Token:
        """Make a token: `label`, `scopes`, `days`, `user`. Its text is in this answer alone.

        It is not tried again: look at `tokens` if no answer came.
        """
        call = Call("POST", "/v1/tokens", body=values, repeats=False)
        return Token.from_json(self._connection.document(call))

    def revoke_token(self, token_id: str) -> None:
        call = Call("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")
        answer = self._connection.ask(call)
        if not (answer.status == 404 and isinstance(answer.document(), dict)):
            self._connection.check(answer, call)
