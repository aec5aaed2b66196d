"""The client of a service, for threads."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

from distrain.client import file_flows, job_flows, stream_flows
from distrain.client.documents import Artifact, Cluster, Event, Job, Me, Records, Token, Validation
from distrain.client.errors import ServiceError
from distrain.client.exchange import (
    Answer,
    Call,
    Done,
    Emit,
    Failed,
    Flow,
    Now,
    Open,
    Pause,
    Read,
    Send,
    finished,
)
from distrain.client.files import whole_file
from distrain.client.retries import Retries
from distrain.client.stream_flows import LogPlace
from distrain.client.transport import Collected, failures, find_target, head, request_options, slow

Result = TypeVar("Result")


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
        self._target = find_target(address, token, ca_file, plain_http=plain_http)
        self._service = job_flows.Service(self._target.address.text, retries or Retries())
        self._on_retry = on_retry
        socket = self._target.address.socket
        transport = httpx2.HTTPTransport(uds=str(socket)) if socket else None
        self._http = httpx2.Client(**self._target.options(), transport=transport)

    @property
    def address(self) -> str:
        """The service's address."""
        return self._target.address.text

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
        self._http.close()

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
        body = job_flows.submission(spec, project, cluster, priority, tags)
        return self._run(job_flows.submit(self._service, body, key or job_flows.new_key()))

    def submit_body(self, body: Mapping[str, Any], key: str) -> Job:
        """Submit a job under a key; `body` is what `submission` made."""
        return self._run(job_flows.submit(self._service, body, key))

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
        body = job_flows.submission(spec, project, cluster)
        return self._run(job_flows.validate(self._service, body, data=data))

    def job(self, job_id: str) -> Job:
        """A job as it stands.

        Raises:
            NotFound: There is none that this user may see.
        """
        return self._run(job_flows.job(self._service, job_id))

    def spec(self, job_id: str) -> Mapping[str, Any]:
        """A job's spec, as resolved."""
        return self._run(job_flows.spec(self._service, job_id))

    def find(self, word: str) -> Job:
        """The job whose id is `word`, or the only one that begins with it.

        Raises:
            NotFound: There is none.
            InputError: There are several.
        """
        return self._run(job_flows.find(self._service, word))

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
        filters = job_flows.job_filters(
            project, owner, states, cluster, tags or {}, created_after, text
        )
        return self._iterate(job_flows.jobs(self._service, filters, page_jobs))

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
        return self._run(job_flows.wait(self._service, job_id, timeout_s), on_change)

    def cancel(
        self, job_id: str, *, grace_s: float | None = None, force: bool = False, why: str = ""
    ) -> Job:
        """Ask for a job's end; one that has ended stays as it is.

        Args:
            grace_s: What its ranks get to save a checkpoint. Default: the spec's.
            force: The same as a grace of 0 s.
            why: For those who look later.
        """
        return self._run(job_flows.cancel(self._service, job_id, grace_s, force, why))

    def resume(
        self, job_id: str, overrides: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Job:
        """Let a job that has ended go on from its last checkpoint.

        Args:
            overrides: By dotted path: `{"train.epochs": 3}`.
            key: As of `submit`.
        """
        key = key or job_flows.new_key()
        return self._run(job_flows.remade(self._service, job_id, "resume", overrides or {}, key))

    def clone(
        self, job_id: str, overrides: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Job:
        """Submit a new job with a job's spec; the arguments are those of `resume`."""
        key = key or job_flows.new_key()
        return self._run(job_flows.remade(self._service, job_id, "clone", overrides or {}, key))

    def set_priority(self, job_id: str, priority: int) -> Job:
        """Change the priority of a job that waits."""
        return self._run(job_flows.change(self._service, job_id, priority, None))

    def set_tags(self, job_id: str, tags: Mapping[str, str | None]) -> Job:
        """Set single tags of a job, and remove those whose value is `None`; others stay."""
        return self._run(job_flows.change(self._service, job_id, None, tags))

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended.

        Raises:
            NotFinished: It has not.
        """
        self._run(job_flows.delete(self._service, job_id))

    # What a job does and leaves

    def follow(self, job_id: str, after: str | None = None) -> Iterator[Event]:
        """Iterate over a job's events to its end.

        A connection that breaks is opened again behind the last event, so that none is lost and
        none comes twice. The last event is of kind `end`.

        Args:
            after: The `id` of the last event that is known already.
        """
        path = job_flows.job_path(job_id, "events")
        return self._iterate(stream_flows.follow(self._service, path, after, ends=True))

    def events(self, after: str | None = None) -> Iterator[Event]:
        """Iterate over the events of all jobs that this user may see, without end."""
        return self._iterate(stream_flows.follow(self._service, "/v1/events", after, ends=False))

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
        return self._iterate(stream_flows.logs(self._service, job_id, place, follows=follow))

    def metrics(self, job_id: str, since: str | None = None) -> Records:
        """A job's records of training and validation, or those since a cursor."""
        return self._run(file_flows.metrics(self._service, job_id, since))

    def artifacts(self, job_id: str, below: str = "") -> tuple[Artifact, ...]:
        """The files of a job's run directory.

        Args:
            below: Only those in this folder of it.
        """
        return self._run(file_flows.artifacts(self._service, job_id, below))

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
        target = file_flows.download_target(path, Path(to))
        with whole_file(target) as file:
            for piece in self._iterate(file_flows.download(self._service, job_id, path)):
                file_flows.put_piece(file, piece)
        return target

    # Clusters and people

    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters that this user may use."""
        return self._run(file_flows.clusters(self._service))

    def me(self) -> Me:
        """Who the token belongs to, and what it allows."""
        return self._run(file_flows.me(self._service))

    def tokens(self) -> tuple[Token, ...]:
        """This user's tokens, without their texts."""
        return self._run(file_flows.tokens(self._service))

    def make_token(self, **values: Any) -> Token:
        """Make a token: `label`, `scopes`, `days`, `user`. Its text is in this answer alone.

        It is not tried again: look at `tokens` if no answer came.
        """
        return self._run(file_flows.make_token(self._service, values))

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token, at once."""
        self._run(file_flows.revoke_token(self._service, token_id))

    # Steps

    def _run(self, flow: Flow[Result], on_value: Callable[[Any], object] | None = None) -> Result:
        results: list[Result] = []
        for value in self._iterate(finished(flow)):
            if isinstance(value, Done):
                results.append(value.result)
            elif on_value is not None:
                on_value(value)
        return results[0]

    def _iterate(self, flow: Flow[Any]) -> Iterator[Any]:
        opened: httpx2.Response | None = None
        chunks: Iterator[bytes] = iter(())
        brought: Any = None
        try:
            while True:
                step = flow.send(brought)
                brought = None
                if isinstance(step, Emit):
                    yield step.value
                elif isinstance(step, Now):
                    brought = time.monotonic()
                elif isinstance(step, Pause):
                    self._pause(step)
                elif isinstance(step, Send):
                    brought = self._send(step.call)
                elif isinstance(step, Open):
                    if opened is not None:
                        opened.close()
                    opened, brought = self._open(step.call)
                    chunks = opened.iter_raw() if opened else iter(())
                elif isinstance(step, Read):
                    brought = self._read(chunks)
        except StopIteration:
            return
        except ServiceError as error:
            raise self._target.cleared(error) from None
        finally:
            flow.close()
            if opened is not None:
                opened.close()

    def _pause(self, step: Pause) -> None:
        if step.why and self._on_retry is not None:
            self._on_retry(step.why)
        time.sleep(step.seconds)

    def _send(self, call: Call) -> Answer | Failed:
        collected = Collected(call)
        with failures(self._target) as outcome:
            response = self._begin(call)
            try:
                collected.begin(response)
                for chunk in response.iter_raw():
                    if not collected.add(chunk):
                        break
            finally:
                response.close()
        return collected.answer(outcome)

    def _begin(self, call: Call) -> httpx2.Response:
        """Send a request and read the head of its answer; who waits is told of a late one."""
        request = self._http.build_request(**request_options(call))
        if self._on_retry is None:
            return self._http.send(request, stream=True)
        late_s, words = slow(call)
        timer = threading.Timer(late_s, self._on_retry, (words,))
        timer.daemon = True
        timer.start()
        try:
            return self._http.send(request, stream=True)
        finally:
            timer.cancel()

    def _open(self, call: Call) -> tuple[httpx2.Response | None, Answer | Failed | None]:
        with failures(self._target) as outcome:
            response = self._begin(call)
            return response, head(response)
        return None, outcome.failed

    def _read(self, chunks: Iterator[bytes]) -> bytes | Failed | None:
        with failures(self._target) as outcome:
            return next(chunks, None)
        return outcome.failed
