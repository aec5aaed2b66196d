"""Fetches row groups of remote files before they are requested, within a memory bound."""

from __future__ import annotations

import heapq
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow.parquet as pq

from distrain.loader.options import FetchOptions
from distrain.loader.own_threads import mark_own_thread
from distrain.loader.partition.table import RowGroup
from distrain.loader.reading.partial_file import PartialFile, Span, plan_ranges
from distrain.loader.reading.reader import Expected
from distrain.loader.reading.remote_file import RemoteFile
from distrain.storage.ranges import Connections

_Key = tuple[str, int]
_MOST_AHEAD = 64  # maximum of prefetched row groups, since the partial file of each is an open file
_MOST_LOOKED_AT = 1024  # how many row groups to look ahead, after those that were loaded
_FILES_WITH_HANDLES = 32
_DEMANDED, _AHEAD = 0, 1  # the urgency of a request

SpansOf = Callable[[RowGroup, Sequence[str], pq.RowGroupMetaData], list[Span]]
IsHeld = Callable[[RowGroup], bool]


class Fetcher:
    """Returns partial files of row groups: files in memory with the bytes of the wanted columns.

    Expected row groups are fetched in the announced order, within the limits of `FetchOptions`; a
    row group that a caller waits for takes precedence. A failed request is retried only when a
    caller has received the error and calls again; ranges of the row group that were fetched are
    kept. `spans_of` returns the byte ranges of a row group's wanted columns.
    """

    def __init__(self, spans_of: SpansOf, options: FetchOptions | None = None):
        self._spans_of = spans_of
        self._options = options or FetchOptions()
        self._changed = threading.Condition()
        self._connections = Connections(self._options.connections)
        self._files: dict[str, RemoteFile] = {}
        self._with_handles: OrderedDict[str, RemoteFile] = OrderedDict()  # oldest use first
        self._wanted: dict[_Key, _Wanted] = {}  # row groups being fetched, in announced order
        self._partial_files: weakref.WeakValueDictionary[_Key, PartialFile] = (
            weakref.WeakValueDictionary()
        )
        self._expectations: list[_Expectation] = []
        self._tasks: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._num_threads = 0

    def file(self, url: str) -> RemoteFile:
        """Return the file with a URL; its idle handles may be closed if many files are in use."""
        with self._changed:
            return self._file(url)

    def expect(self, groups: Iterator[RowGroup | None], is_held: IsHeld | None = None) -> Expected:
        """Prefetch row groups that will be requested in this order; see `Reader.expect`."""
        expectation = _Expectation(groups, is_held, self._forget)
        with self._changed:
            self._expectations.append(expectation)
            self._look_ahead()
        return expectation

    def take(self, group: RowGroup) -> PartialFile:
        """Return the partial file of a row group; waits until it is fetched.

        Raises the filesystem's errors. After an error, call it again to retry.
        """
        with self._changed:
            partial_file = self._partial_files.get((group.file, group.index)) or self._fetched(
                group
            )
            for expectation in self._expectations:
                expectation.hold(group, partial_file)
            return partial_file

    def _fetched(self, group: RowGroup) -> PartialFile:
        key = (group.file, group.index)
        wanted = self._wanted.get(key)
        if wanted is None:
            wanted = self._wanted[key] = _Wanted(group)
        wanted.is_taken = True
        if wanted.is_reported:
            wanted.error, wanted.is_reported = None, False
        if wanted.error is None:
            self._ask(wanted, _DEMANDED)
        self._look_ahead()
        self._changed.wait_for(lambda: wanted.is_whole or wanted.has_failed)
        if wanted.has_failed:
            wanted.is_reported = True
            assert wanted.error is not None
            raise wanted.error
        if self._wanted.get(key) is wanted:
            del self._wanted[key]
        assert wanted.partial_file is not None
        self._partial_files[key] = wanted.partial_file
        return wanted.partial_file

    def close(self) -> None:
        with self._changed:
            self._expectations.clear()
            self._wanted.clear()
            self._tasks.clear()
            self._changed.wait_for(lambda: not self._num_threads)
            for file in self._files.values():
                file.close()
            self._connections.close()

    def _file(self, url: str) -> RemoteFile:
        if url not in self._files:
            self._files[url] = RemoteFile(url, self._connections)
        file = self._with_handles[url] = self._files[url]
        self._with_handles.move_to_end(url)
        return file

    def _forget(self, expectation: _Expectation, *, all_of_it: bool) -> None:
        with self._changed:
            expectation.let_go(all_of_it=all_of_it)
            if all_of_it and expectation in self._expectations:
                self._expectations.remove(expectation)
            for key, wanted in list(self._wanted.items()):
                is_over = all_of_it or wanted.number < expectation.num_passed
                is_idle = not wanted.is_taken or wanted.has_failed
                if wanted.expectation is expectation and is_over and is_idle:
                    del self._wanted[key]
                    wanted.missing.clear()
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Start the fetches that the memory bound allows, in the order in which they are expected.

        Also plans further fetches, at most one for each free connection and `_MOST_AHEAD` in all.
        The caller holds the lock.
        """
        ahead = [wanted for wanted in self._wanted.values() if not wanted.is_taken]
        held = sum(wanted.num_bytes for wanted in ahead if wanted.is_started)
        for wanted in ahead:
            if wanted.is_started or wanted.error is not None:
                continue
            if wanted.partial_file is None:
                break  # fetches start in order
            if held and held + wanted.num_bytes > self._options.ahead_bytes:
                return
            held += wanted.num_bytes
            self._ask(wanted, _AHEAD)
        unplanned = sum(not wanted.is_started for wanted in ahead)
        room = min(self._options.connections - unplanned, _MOST_AHEAD - len(ahead))
        for _ in range(room if held < self._options.ahead_bytes else 0):
            following = self._next_expected()
            if following is None:
                return
            self._wanted[following.key] = following
            self._plan(following, _AHEAD)

    def _next_expected(self) -> _Wanted | None:
        for expectation in self._expectations:
            while (following := expectation.next()) is not None:
                if following.key not in self._wanted and following.key not in self._partial_files:
                    return following
        return None

    def _ask(self, wanted: _Wanted, urgency: int) -> None:
        if wanted.partial_file is None:
            self._plan(wanted, urgency)
            return
        wanted.is_started = True
        for span in sorted(wanted.missing):
            self._submit(urgency, partial(self._fetch, wanted, span))

    def _plan(self, wanted: _Wanted, urgency: int) -> None:
        self._submit(urgency, partial(self._make_image, wanted))

    def _submit(self, urgency: int, task: Callable[[], None]) -> None:
        heapq.heappush(self._tasks, (urgency, next(self._count), task))
        if self._num_threads < self._options.connections:
            threading.Thread(target=self._run_tasks, name="fetch", daemon=True).start()
            self._num_threads += 1  # after the start, which may fail

    def _run_tasks(self) -> None:
        mark_own_thread()
        while True:
            with self._changed:
                if not self._tasks:
                    self._num_threads -= 1
                    self._changed.notify_all()
                    return
                task = heapq.heappop(self._tasks)[2]
            task()

    def _make_image(self, wanted: _Wanted) -> None:
        """Plan which byte ranges of a row group to fetch, and create its partial file.

        If a caller waits for the row group, its ranges are then requested. Does nothing if another
        thread plans it, if it is planned already, or if it is no longer wanted.
        """
        group, options = wanted.group, self._options
        with self._changed:
            if wanted.partial_file is not None or wanted.is_planning or not self._is_wanted(wanted):
                return
            wanted.is_planning = True
            file = self._file(group.file)
            unused = self._take_unused()
        for other in unused:
            other.close()
        try:
            if self._drop_if_cached(wanted):
                return
            metadata, begin, part = file.row_group(group.index)
            # With a damaged footer, spans may be beyond the end of the file.
            spans = [
                Span(max(0, span.begin), min(span.end, file.num_bytes))
                for span in self._spans_of(group, file.paths, metadata)
            ]
            ranges = plan_ranges(spans, gap_bytes=options.gap_bytes, most_bytes=options.range_bytes)
            partial_file = PartialFile(file.num_bytes)
            partial_file.write(begin, part)
        except BaseException as error:
            with self._changed:
                wanted.is_planning = False
                self._fail(wanted, error)
            return
        with self._changed:
            self._file(group.file)  # marks the file as used last: it has one more idle handle
            wanted.is_planning = False
            wanted.partial_file, wanted.missing = partial_file, set(ranges)
            wanted.num_bytes = sum(span.num_bytes for span in ranges)
            if wanted.is_taken and self._is_wanted(wanted):
                self._ask(wanted, _DEMANDED)
            self._look_ahead()
            self._changed.notify_all()

    def _drop_if_cached(self, wanted: _Wanted) -> bool:
        """Stop prefetching a row group if a cache already has it and no caller waits for it.

        Returns True if so.
        """
        expectation = wanted.expectation
        if wanted.is_taken or expectation is None or expectation.is_held is None:
            return False
        is_held = expectation.is_held(wanted.group)
        with self._changed:
            if not is_held or wanted.is_taken:
                return False
            wanted.is_planning = False
            if self._is_wanted(wanted):
                del self._wanted[wanted.key]
            self._look_ahead()
            return True

    def _take_unused(self) -> list[RemoteFile]:
        count = max(0, len(self._with_handles) - _FILES_WITH_HANDLES)
        return [self._with_handles.popitem(last=False)[1] for _ in range(count)]

    def _fetch(self, wanted: _Wanted, span: Span) -> None:
        with self._changed:
            if span not in wanted.missing:  # another thread fetches it, or it is no longer needed
                return
            wanted.missing.remove(span)
            wanted.in_flight += 1
            file = self._file(wanted.group.file)
        partial_file = wanted.partial_file
        assert partial_file is not None
        try:
            partial_file.write(span.begin, file.read(*span))
        except BaseException as error:
            with self._changed:
                wanted.in_flight -= 1
                if self._is_wanted(wanted):
                    wanted.missing.add(span)
                self._fail(wanted, error)
            return
        with self._changed:
            self._file(wanted.group.file)  # marks the file as used last: it has one more handle
            wanted.in_flight -= 1
            self._changed.notify_all()

    def _is_wanted(self, wanted: _Wanted) -> bool:
        return self._wanted.get(wanted.key) is wanted

    def _fail(self, wanted: _Wanted, error: BaseException) -> None:
        wanted.error = error
        self._look_ahead()
        self._changed.notify_all()


class _Expectation(Expected):
    def __init__(
        self,
        groups: Iterator[RowGroup | None],
        is_held: IsHeld | None,
        forget: Callable[..., None],
    ):
        self._groups = groups
        self._num_seen = 0
        self._forget = forget
        self.is_held = is_held
        self.num_passed = 0
        self._last_of: dict[_Key, int] = {}  # the last known slice of each row group
        self._partial_files: dict[_Key, PartialFile] = {}

    def next(self) -> _Wanted | None:
        """Return the next announced row group that was not passed (loaded or skipped) yet.

        Returns `None` if it is too far ahead, and after the last row group.
        """
        count = self.num_passed + _MOST_LOOKED_AT - self._num_seen
        for group in itertools.islice(self._groups, max(0, count)):
            number = self._num_seen
            self._num_seen += 1
            if group is not None and group.slice:
                self._last_of[group.file, group.index] = number
            if group is not None and number >= self.num_passed:
                return _Wanted(group, self, number)
        return None

    def hold(self, group: RowGroup, partial_file: PartialFile) -> None:
        """Keep the partial file until all slices of the row group were loaded.

        Otherwise a thread that is late with a slice would fetch the row group again, if the threads
        with its other slices have finished by then.
        """
        key = (group.file, group.index)
        if self._last_of.get(key, -1) >= self.num_passed:
            self._partial_files[key] = partial_file

    def let_go(self, *, all_of_it: bool) -> None:
        """Drop partial files that `hold` kept: all, or those whose last slice was passed."""
        for key in list(self._partial_files):
            if all_of_it or self._last_of[key] < self.num_passed:
                del self._partial_files[key]

    def passed(self, count: int) -> None:
        self.num_passed = count
        self._forget(self, all_of_it=False)

    def close(self) -> None:
        self._forget(self, all_of_it=True)


class _Wanted:
    """A row group to fetch, and the state of its requests.

    It is number `number` among the row groups of `expectation`; `None` if it was requested without
    being announced.
    """

    def __init__(self, group: RowGroup, expectation: _Expectation | None = None, number: int = 0):
        self.group = group
        self.key = (group.file, group.index)
        self.expectation = expectation
        self.number = number
        self.partial_file: PartialFile | None = None  # `None` until the ranges are planned
        self.missing: set[Span] = set()  # ranges that still have to be requested
        self.in_flight = 0  # number of ranges being requested
        self.num_bytes = 0  # bytes of all ranges
        self.is_planning = False
        self.is_started = False  # its ranges were handed to the fetching threads
        self.is_taken = False  # a caller has requested it
        self.error: BaseException | None = None  # the error of the last failed request
        self.is_reported = False  # a caller has received the error

    @property
    def is_whole(self) -> bool:
        return self.partial_file is not None and not self.missing and not self.in_flight

    @property
    def has_failed(self) -> bool:
        return self.error is not None and not self.in_flight and not self.is_planning
