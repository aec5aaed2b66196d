"""Feeds sinks while a job runs: each has a bounded queue and its own thread.

The command that watches a job puts entries into the queues and never waits for them. When a queue
is full, its sink is far behind: new entries are lost until it catches up. When a sink raises, the
entries of that call are lost. Both are reported once, and again at the end with the number of
lost entries.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from distrain.jobs.job_view import Entry
from distrain.runs.sinks.base import RunFacts, Sink, Stamped

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
        for feed in self._feeds:
            feed.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait briefly for the remaining entries, and report lost ones."""
        for feed in self._feeds:
            feed.end(self._state)
        until_s = time.monotonic() + self._last_entries_s
        for feed in self._feeds:
            feed.join(max(0.0, until_s - time.monotonic()))
            self._warn(feed.last_warning())

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


class _Feed(threading.Thread):
    """The thread and the queue of one sink."""

    def __init__(self, name: str, sink: Sink, facts: RunFacts, capacity: int):
        # A sink that hangs must not keep the command from ending.
        super().__init__(name=name, daemon=True)
        self._sink = sink
        self._facts = facts
        self._capacity = capacity
        self._waiting: queue.SimpleQueue[Sequence[Stamped] | None] = queue.SimpleQueue()
        self._state = ""
        self._given = 0  # entries, counted by the caller's thread
        self._stored = 0  # entries, counted by the sink's thread
        self._is_slow = False
        self._trouble = ""
        self._warned = False
        self._waiting.put(())  # opens the sink

    def put(self, entries: Sequence[Stamped]) -> None:
        self._given += len(entries)
        if self._waiting.qsize() < self._capacity:
            self._waiting.put(entries)
        else:
            self._is_slow = True

    def end(self, state: str) -> None:
        self._state = state
        self._waiting.put(None)

    def new_warning(self) -> str:
        """Return a warning at the first call after the sink failed or became slow; else ""."""
        if self._warned or not (self._trouble or self._is_slow):
            return ""
        self._warned = True
        if self._trouble:
            return f"sink {self.name} failed; entries may be lost: {self._trouble}"
        return f"sink {self.name} is too slow, and loses entries"

    def last_warning(self) -> str:
        """Return the warning to print at the end: how many entries are lost, or "".

        Entries of a sink that has not finished count as lost. Without a loss, this is the warning
        about a failure that was not yet reported, such as one of `close`.
        """
        lost = self._given - self._stored
        if self.is_alive():
            return f"sink {self.name} did not finish in time; up to {lost} entries are lost"
        if lost:
            return f"sink {self.name}: {lost} entries were lost: {self._trouble or _SLOW}"
        return "" if self._warned else self.new_warning()

    def run(self) -> None:
        is_open = is_ending = False
        while not is_ending:
            waiting = [self._waiting.get()]
            while not self._waiting.empty():
                waiting.append(self._waiting.get())
            is_ending = None in waiting
            entries = [entry for some in waiting if some is not None for entry in some]
            is_open = is_open or self._guarded(self._sink.open, self._facts)
            if entries and is_open and self._guarded(self._sink.write, entries):
                self._stored += len(entries)
        if is_open:
            self._guarded(self._sink.close, self._state)

    def _guarded(self, act: Callable[..., None], *values: object) -> bool:
        """Call `act`; return True if it succeeded. Catches every exception, even `SystemExit`."""
        try:
            act(*values)
        except BaseException as error:
            log.debug("sink %s", self.name, exc_info=True)
            first_line = (str(error) or repr(error)).splitlines()[0]
            self._trouble = self._trouble or f"{type(error).__name__}: {first_line}"
            return False
        return True
