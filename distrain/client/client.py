"""The client of a service."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from distrain.client import file_calls, job_calls, streams
from distrain.client.connection import Connection
from distrain.client.documents import Artifact, Cluster, Event, Job, Me, Records, Token, Validation
from distrain.client.exchange import Call
from distrain.client.files import whole_file
from distrain.client.retries import Retries
from distrain.client.streams import LogPlace
from distrain.client.transport import find_target


class Client:
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
        """The service's address."""
        return self._connection.address

    def __repr__(self) -> str:
        """The address, without the token."""
        return f"{type(self).__name__}({self.address!r})"

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._connection.close()

    # Jobs

    def submit(
        self,
        spec: Mapping[str, Any],
        *,
        project: str | None = None,
        cluster: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Job:
        """Submit a job.

        Args:
            spec: The job spec as JSON values; paths in it are absolute.
            project: Default: the service's.
            cluster: Needed where several can be used.
            key: What makes two calls one: with the key of an earlier submission, that one's job is
                returned. Keep it to be able to repeat a call that was interrupted.

        Raises:
            RequestRefused: The spec is wrong (`pointers` say where), or a quota is full.
            ServiceUnavailable: No answer came. The job may have been made: the same call with the
                same key tells.
        """
        body = job_calls.submission(spec, project, cluster, priority, tags)
        return job_calls.submit(self._connection, body, key or job_calls.new_key())

    def submit_body(self, body: Mapping[str, Any], key: str) -> Job:
        """Submit a job under a key; `body` is what `submission` made."""
        return job_calls.submit(self._connection, body, key)

    def validate(
        self,
        spec: Mapping[str, Any],
        *,
        project: str | None = None,
        cluster: str | None = None,
        data: bool = False,
    ) -> Validation:
        """What the service says of a spec; nothing is submitted.

        Args:
            data: Have a worker of the cluster look at the data as well, and wait for what it finds.

        Raises:
            ServiceUnavailable: With `data`: the cluster cannot look now.
        """
        body = job_calls.submission(spec, project, cluster)
        return job_calls.validate(self._connection, body, data=data)

    def job(self, job_id: str) -> Job:
        """A job as it stands.

        Raises:
            NotFound: There is none that this user may see.
        """
        return job_calls.job(self._connection, job_id)

    def spec(self, job_id: str) -> Mapping[str, Any]:
        """A job's spec, as resolved."""
        return job_calls.spec(self._connection, job_id)

    def find(self, word: str) -> Job:
        """The job whose id is `word`, or the only one that begins with it.

        Raises:
            NotFound: There is none.
            InputError: There are several.
        """
        return job_calls.find(self._connection, word)

    def jobs(
        self,
        *,
        project: str | None = None,
        owner: str | None = None,
        states: Sequence[str] = (),
        cluster: str | None = None,
        tags: Mapping[str, str] | None = None,
        created_after: str | None = None,
        text: str | None = None,
        page_jobs: int = 100,
    ) -> Iterator[Job]:
        """Iterate over jobs, the newest first; pages are fetched as they are needed.

        Args:
            states: Any of these.
            tags: All of these.
            created_after: RFC 3339.
            text: Part of the name or the id.
            page_jobs: How many to fetch at once; at most 200.
        """
        filters = job_calls.job_filters(
            project, owner, states, cluster, tags or {}, created_after, text
        )
        return job_calls.jobs(self._connection, filters, page_jobs)

    def wait(
        self,
        job_id: str,
        timeout_s: float | None = None,
        on_change: Callable[[Job], object] | None = None,
    ) -> Job:
        """Wait for a job's end, also across restarts of the service.

        Args:
            on_change: Called with the job at first, and whenever it has changed.

        Raises:
            WaitTimedOut: It has not ended within `timeout_s`.
        """
        return job_calls.wait(self._connection, job_id, timeout_s, on_change)

    def cancel(
        self, job_id: str, *, grace_s: float | None = None, force: bool = False, why: str = ""
    ) -> Job:
        """Ask for a job's end; one that has ended stays as it is.

        Args:
            grace_s: What its ranks get to save a checkpoint. Default: the spec's.
            force: The same as a grace of 0 s.
            why: For those who look later.
        """
        return job_calls.cancel(self._connection, job_id, grace_s, force, why)

    def resume(
        self, job_id: str, overrides: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Job:
        """Let a job that has ended go on from its last checkpoint.

        Args:
            overrides: By dotted path: `{"train.epochs": 3}`.
            key: As of `submit`.
        """
        key = key or job_calls.new_key()
        return job_calls.remade(self._connection, job_id, "resume", overrides or {}, key)

    def clone(
        self, job_id: str, overrides: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Job:
        """Submit a new job with a job's spec; the arguments are those of `resume`."""
        key = key or job_calls.new_key()
        return job_calls.remade(self._connection, job_id, "clone", overrides or {}, key)

    def set_priority(self, job_id: str, priority: int) -> Job:
        """Change the priority of a job that waits."""
        return job_calls.change(self._connection, job_id, priority, None)

    def set_tags(self, job_id: str, tags: Mapping[str, str | None]) -> Job:
        """Set single tags of a job, and remove those whose value is `None`; others stay."""
        return job_calls.change(self._connection, job_id, None, tags)

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended.

        Raises:
            NotFinished: It has not.
        """
        job_calls.delete(self._connection, job_id)

    # What a job does and leaves

    def follow(self, job_id: str, after: str | None = None) -> Iterator[Event]:
        """Iterate over a job's events to its end.

        A connection that breaks is opened again behind the last event, so that none is lost and
        none comes twice. The last event is of kind `end`.

        Args:
            after: The `id` of the last event that is known already.
        """
        path = job_calls.job_path(job_id, "events")
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
        place = LogPlace(attempt, rank, offset, tail)
        return streams.logs(self._connection, job_id, place, follows=follow)

    def metrics(self, job_id: str, since: str | None = None) -> Records:
        """A job's records of training and validation, or those since a cursor."""
        return file_calls.metrics(self._connection, job_id, since)

    def artifacts(self, job_id: str, below: str = "") -> tuple[Artifact, ...]:
        """The files of a job's run directory.

        Args:
            below: Only those in this folder of it.
        """
        return file_calls.artifacts(self._connection, job_id, below)

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
        target = file_calls.download_target(path, Path(to))
        with whole_file(target) as file:
            for piece in file_calls.download(self._connection, job_id, path):
                file_calls.put_piece(file, piece)
        return target

    # Clusters and people

    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters that this user may use."""
        document = self._connection.document(Call("GET", "/v1/clusters"))
        return tuple(Cluster.from_json(one) for one in document.get("clusters") or ())

    def me(self) -> Me:
        """Who the token belongs to, and what it allows."""
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
        """Revoke a token, at once."""
        call = Call("DELETE", f"/v1/tokens/{quote(token_id, safe='')}")
        answer = self._connection.ask(call)
        if not (answer.status == 404 and isinstance(answer.document(), dict)):
            self._connection.check(answer, call)
