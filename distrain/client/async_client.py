"""The client of a service, for asyncio: `Client` with `await`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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


class AsyncClient:
    """`Client` for asyncio: the same arguments, methods, retries and errors.

    Methods are awaited; those that iterate give an asynchronous iterator.

    >>> async def report(job_id: str) -> None:
    ...     async with AsyncClient() as client:
    ...         async for event in client.follow(job_id):
    ...             print(event.kind)
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
        transport = httpx2.AsyncHTTPTransport(uds=str(socket)) if socket else None
        self._http = httpx2.AsyncClient(**self._target.options(), transport=transport)

    @property
    def address(self) -> str:
        """The service's address."""
        return self._target.address.text

    def __repr__(self) -> str:
        """The address, without the token."""
        return f"{type(self).__name__}({self.address!r})"

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    # Jobs

    async def submit(
        self,
        spec: Mapping[str, Any],
        *,
        project: str | None = None,
        cluster: str | None = None,
        priority: int | None = None,
        tags: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Job:
        """As `Client.submit`."""
        body = job_flows.submission(spec, project, cluster, priority, tags)
        return await self._run(job_flows.submit(self._service, body, key or job_flows.new_key()))

    async def submit_body(self, body: Mapping[str, Any], key: str) -> Job:
        """As `Client.submit_body`."""
        return await self._run(job_flows.submit(self._service, body, key))

    async def validate(
        self,
        spec: Mapping[str, Any],
        *,
        project: str | None = None,
        cluster: str | None = None,
        data: bool = False,
    ) -> Validation:
        """As `Client.validate`."""
        body = job_flows.submission(spec, project, cluster)
        return await self._run(job_flows.validate(self._service, body, data=data))

    async def job(self, job_id: str) -> Job:
        """As `Client.job`."""
        return await self._run(job_flows.job(self._service, job_id))

    async def spec(self, job_id: str) -> Mapping[str, Any]:
        """As `Client.spec`."""
        return await self._run(job_flows.spec(self._service, job_id))

    async def find(self, word: str) -> Job:
        """As `Client.find`."""
        return await self._run(job_flows.find(self._service, word))

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
    ) -> AsyncIterator[Job]:
        """As `Client.jobs`."""
        filters = job_flows.job_filters(
            project, owner, states, cluster, tags or {}, created_after, text
        )
        return self._iterate(job_flows.jobs(self._service, filters, page_jobs))

    async def wait(
        self,
        job_id: str,
        timeout_s: float | None = None,
        on_change: Callable[[Job], object] | None = None,
    ) -> Job:
        """As `Client.wait`."""
        return await self._run(job_flows.wait(self._service, job_id, timeout_s), on_change)

    async def cancel(
        self, job_id: str, *, grace_s: float | None = None, force: bool = False, why: str = ""
    ) -> Job:
        """As `Client.cancel`."""
        return await self._run(job_flows.cancel(self._service, job_id, grace_s, force, why))

    async def resume(
        self, job_id: str, overrides: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Job:
        """As `Client.resume`."""
        key = key or job_flows.new_key()
        return await self._run(
            job_flows.remade(self._service, job_id, "resume", overrides or {}, key)
        )

    async def clone(
        self, job_id: str, overrides: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Job:
        """As `Client.clone`."""
        key = key or job_flows.new_key()
        return await self._run(
            job_flows.remade(self._service, job_id, "clone", overrides or {}, key)
        )

    async def set_priority(self, job_id: str, priority: int) -> Job:
        """As `Client.set_priority`."""
        return await self._run(job_flows.change(self._service, job_id, priority, None))

    async def set_tags(self, job_id: str, tags: Mapping[str, str | None]) -> Job:
        """As `Client.set_tags`."""
        return await self._run(job_flows.change(self._service, job_id, None, tags))

    async def delete(self, job_id: str) -> None:
        """As `Client.delete`."""
        await self._run(job_flows.delete(self._service, job_id))

    # What a job does and leaves

    def follow(self, job_id: str, after: str | None = None) -> AsyncIterator[Event]:
        """As `Client.follow`."""
        path = job_flows.job_path(job_id, "events")
        return self._iterate(stream_flows.follow(self._service, path, after, ends=True))

    def events(self, after: str | None = None) -> AsyncIterator[Event]:
        """As `Client.events`."""
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
    ) -> AsyncIterator[bytes]:
        """As `Client.logs`."""
        place = LogPlace(attempt, rank, offset, tail)
        return self._iterate(stream_flows.logs(self._service, job_id, place, follows=follow))

    async def metrics(self, job_id: str, since: str | None = None) -> Records:
        """As `Client.metrics`."""
        return await self._run(file_flows.metrics(self._service, job_id, since))

    async def artifacts(self, job_id: str, below: str = "") -> tuple[Artifact, ...]:
        """As `Client.artifacts`."""
        return await self._run(file_flows.artifacts(self._service, job_id, below))

    async def download(self, job_id: str, path: str, to: str | Path) -> Path:
        """As `Client.download`."""
        target = file_flows.download_target(path, Path(to))
        with whole_file(target) as file:
            async for piece in self._iterate(file_flows.download(self._service, job_id, path)):
                file_flows.put_piece(file, piece)
        return target

    # Clusters and people

    async def clusters(self) -> tuple[Cluster, ...]:
        """As `Client.clusters`."""
        return await self._run(file_flows.clusters(self._service))

    async def me(self) -> Me:
        """As `Client.me`."""
        return await self._run(file_flows.me(self._service))

    async def tokens(self) -> tuple[Token, ...]:
        """As `Client.tokens`."""
        return await self._run(file_flows.tokens(self._service))

    async def make_token(self, **values: Any) -> Token:
        """As `Client.make_token`."""
        return await self._run(file_flows.make_token(self._service, values))

    async def revoke_token(self, token_id: str) -> None:
        """As `Client.revoke_token`."""
        await self._run(file_flows.revoke_token(self._service, token_id))

    # Steps

    async def _run(
        self, flow: Flow[Result], on_value: Callable[[Any], object] | None = None
    ) -> Result:
        results: list[Result] = []
        async for value in self._iterate(finished(flow)):
            if isinstance(value, Done):
                results.append(value.result)
            elif on_value is not None:
                on_value(value)
        return results[0]

    async def _iterate(self, flow: Flow[Any]) -> AsyncIterator[Any]:
        opened: httpx2.Response | None = None
        chunks: AsyncIterator[bytes] | None = None
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
                    await self._pause(step)
                elif isinstance(step, Send):
                    brought = await self._send(step.call)
                elif isinstance(step, Open):
                    if opened is not None:
                        await opened.aclose()
                    opened, brought = await self._open(step.call)
                    chunks = opened.aiter_raw() if opened else None
                elif isinstance(step, Read):
                    brought = await self._read(chunks)
        except StopIteration:
            return
        except ServiceError as error:
            raise self._target.cleared(error) from None
        finally:
            flow.close()
            if opened is not None:
                await opened.aclose()

    async def _pause(self, step: Pause) -> None:
        if step.why and self._on_retry is not None:
            self._on_retry(step.why)
        await asyncio.sleep(step.seconds)

    async def _send(self, call: Call) -> Answer | Failed:
        collected = Collected(call)
        with failures(self._target) as outcome:
            response = await self._begin(call)
            try:
                collected.begin(response)
                async for chunk in response.aiter_raw():
                    if not collected.add(chunk):
                        break
            finally:
                await response.aclose()
        return collected.answer(outcome)

    async def _begin(self, call: Call) -> httpx2.Response:
        """Send a request and read the head of its answer; who waits is told of a late one."""
        request = self._http.build_request(**request_options(call))
        if self._on_retry is None:
            return await self._http.send(request, stream=True)
        late_s, words = slow(call)
        timer = asyncio.get_running_loop().call_later(late_s, self._on_retry, words)
        try:
            return await self._http.send(request, stream=True)
        finally:
            timer.cancel()

    async def _open(self, call: Call) -> tuple[httpx2.Response | None, Answer | Failed | None]:
        with failures(self._target) as outcome:
            response = await self._begin(call)
            return response, head(response)
        return None, outcome.failed

    async def _read(self, chunks: AsyncIterator[bytes] | None) -> bytes | Failed | None:
        with failures(self._target) as outcome:
            return await anext(chunks, None) if chunks is not None else None
        return outcome.failed
