"""The shared parts of an API process's streams; `request.app.state.streams`."""

import logging
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, fail_after, to_thread
from fastapi import FastAPI

from distrain.service.api.problems import Problem
from distrain.service.api.streams.event_feed import EventFeed
from distrain.service.api.streams.figures import ServiceMetrics
from distrain.service.api.streams.readiness import certificate_ends_s
from distrain.service.bounded_calls import BoundedCalls
from distrain.service.settings import Settings
from distrain.service.values import Principal
from distrain.storage.retrying import first_line, is_transient

log = logging.getLogger(__name__)

Result = TypeVar("Result")

SAFE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cache-Control": "no-store",
}
"""Headers for files that jobs wrote: a browser displays them without running scripts."""

_FILE_THREADS = 16
_THREAD_S = 5.0


class ApiStreams:
    """The shared objects of the streams of one API process.

    Files are read in separate threads, since their filesystem may hang.
    """

    def __init__(self, store: Any, settings: Settings):
        self.feed = EventFeed(store.events_after, store.last_seq)
        self.open: Counter[str] = Counter()
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 5 // 8
        self.look = BoundedCalls("distrain-health")
        self.metrics = ServiceMetrics()
        # Read once: this process keeps using these certificates, even if their files are replaced.
        self.certificate_ends_s = certificate_ends_s(settings)
        self._threads = CapacityLimiter(_FILE_THREADS)

    async def in_file_thread(self, work: Callable[[], Result]) -> Result:
        """Run `work`, which reads files, in a thread of a separate pool; return its result.

        Raises the problem `unavailable` if no thread is free within 5 seconds, or after a transient
        error of the storage. Other errors of `work` are raised unchanged.
        """
        try:
            with fail_after(_THREAD_S):  # until it begins: running work cannot be cancelled
                return await to_thread.run_sync(work, limiter=self._threads)
        except TimeoutError:
            raise _no_answer("the filesystem of the run folders does not answer") from None
        except OSError as error:
            if not is_transient(error):
                raise
            log.warning("run folders: %s", first_line(error))
            raise _no_answer("the storage of the run folders does not answer") from error

    def take(self, caller: Principal, most: int) -> Callable[[], None]:
        """Count a new stream of a caller; return a function to call when the stream ends.

        A caller is a token, or a user who has none. Raises the problem `rate` if the caller has
        `most` streams already, or this process has too many.
        """
        name = caller.token_id or f"user {caller.user}"
        of_all = self.open.total() >= self._most
        if of_all or self.open[name] >= most:
            open_now = f"{self._most} streams" if of_all else f"{most} streams of this caller"
            raise Problem(
                "rate",
                f"{open_now} are open already",
                hint="Close one first; `/v1/events` has the events of all jobs in one stream.",
                retry_after_s=5,
            )
        self.open[name] += 1

        def release() -> None:
            self.open[name] -= 1
            if self.open[name] <= 0:
                del self.open[name]

        return release

    def stop(self) -> None:
        """Close all event streams without `end`, so that their clients reconnect."""
        self.feed.stop()


def _no_answer(what: str) -> Problem:
    hint = "Try again later. The service's operator can run `distrain serve check`."
    return Problem("unavailable", what, hint=hint, retry_after_s=5)


def streams_of(app: FastAPI) -> ApiStreams:
    found: ApiStreams = app.state.streams
    return found
