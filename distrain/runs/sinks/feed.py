"""Feeds sinks while a job runs: each has a bounded queue and its own thread.

The command that watches a job puts entries into the queues and never waits for them. When a queue
is full, its sink is far behind: the oldest waiting entries are dropped. When a sink raises, the
entries of that call are passed once more, together with the next ones; then they are lost. Both are
reported once, and again at the end with the number of lost entries.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from distrain.jobs.job_view import Entry
from distrain.runs.sinks.base import RunFacts, Sink, Stamped
from distrain.storage.background import BackgroundWriter, LossyQueue

CAPACITY = 1024  # the largest number of calls of `Feeds.put` that wait for a sink
LAST_ENTRIES_S = 15.0
"""How long a command waits at its end for its sinks to store the remaining entries."""

_SLOW = "it was too slow"

log = logging.getLogger(__name__)


class Feeds:
    """Feeds the sinks of one run, given by name; `say` gets warnings for the user.

    The queue of a sink holds the entries of up to `capacity` calls of `put`. The end of the `with`
    block waits up to `last_entries_s` until all sinks have stored their entries.
    """

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        facts: RunFacts,
        say: Callable[[str], None],
        capacity: int = CAPACITY,
        last_entries_s: float = LAST_ENTRIES_S,
    ):
        self._feeds = [_Feed(name, sink, facts, capacity) for name, sink in sinks.items()]
        self._say = say
        self._last_entries_s = last_entries_s
        self._state = "failed"  # unless `ends` is called

    def __enter__(self) -> "Feeds":
        return self

    def __exit__(self, *_: object) -> None:
        """Wait briefly for the remaining entries, and report lost ones."""
        for feed in self._feeds:
            feed.end(self._state)
        until_s = time.monotonic() + self._last_entries_s
        for feed in self._feeds:
            self._warn(feed.last_warning(max(0.0, until_s - time.monotonic())))

    def put(self, entries: Iterable[Entry]) -> None:
        """Queue new entries for all sinks; never waits."""
        stamped = [Stamped(entry, time.time()) for entry in entries]
        for feed in self._feeds:
            feed.put(stamped)
            self._warn(feed.new_warning())

    def ends(self, state: str) -> None:
        """Set the job's final state, which is passed to `Sink.close`; `failed` if not called."""
        self._state = state

    def _warn(self, text: str) -> None:
        if text:
            self._say(f"warning: {text}")


class _Feed:
    """The thread and the queue of one sink."""

    def __init__(self, name: str, sink: Sink, facts: RunFacts, capacity: int):
        self._name = name
        self._sink = sink
        self._facts = facts
        # A sink that hangs must not keep the command from ending.
        self._writer = BackgroundWriter(name)
        self._waiting = LossyQueue[Sequence[Stamped]](self._writer, capacity, self._take)
        self._given = 0  # entries, counted by the caller's thread
        self._batch: list[Stamped] = []  # taken from the queue, to be written by one call
        self._failed: list[Stamped] = []  # of the last call, which failed; written once more
        self._stored = 0  # entries, counted by the sink's thread
        self._is_open = False
        self._error = ""  # the first one
        self._warned = False
        self._writer.do(self._open)

    def put(self, entries: Sequence[Stamped]) -> None:
        if entries:
            self._given += len(entries)
            self._waiting.put(entries, 1)

    def end(self, state: str) -> None:
        self._writer.do(lambda: self._close(state))
        self._writer.close()

    def new_warning(self) -> str:
        """Return a warning at the first call after the sink failed or became slow; else ""."""
        trouble = self._error or (_SLOW if self._waiting.left_out_items else "")
        if self._warned or not trouble:
            return ""
        self._warned = True
        return f"sink {self._name} may lose entries: {trouble}"

    def last_warning(self, timeout_s: float) -> str:
        """Wait for the sink's end; return the warning to print: how many entries are lost, or "".

        Entries of a sink that has not finished count as lost. Without a loss, this is the warning
        about a failure that was not yet reported, such as one of `close`.
        """
        is_done = self._writer.join(timeout_s)
        lost = self._given - self._stored
        if not is_done:
            return f"sink {self._name} did not finish in time; up to {lost} entries are lost"
        if lost:
            return f"sink {self._name}: {lost} entries were lost: {self._error or _SLOW}"
        return self.new_warning()

    def _open(self) -> None:
        self._is_open = self._is_open or self._guarded(self._sink.open, self._facts)

    def _take(self, _left_out_bytes: int, entries: Sequence[Stamped]) -> None:
        if not self._batch:  # written after the calls that take the other waiting entries
            self._writer.do(self._write)
        self._batch += entries

    def _write(self) -> None:
        batch, self._batch = self._batch, []
        entries, self._failed = [*self._failed, *batch], batch
        if not entries:
            return
        self._open()
        if self._is_open and self._guarded(self._sink.write, entries):
            self._stored += len(entries)
            self._failed = []

    def _close(self, state: str) -> None:
        self._write()
        if self._is_open:
            self._guarded(self._sink.close, state)

    def _guarded(self, act: Callable[..., None], *values: object) -> bool:
        """Call `act`; return True if it succeeded. Catches every exception, even `SystemExit`."""
        try:
            act(*values)
        except BaseException as error:
            log.debug("sink %s", self._name, exc_info=True)
            first_line = (str(error) or repr(error)).splitlines()[0]
            self._error = self._error or f"{type(error).__name__}: {first_line}"
            return False
        return True
