"""Fetches row groups of remote files before they are requested, within a memory bound."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

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

SpansOf = Callable[[RowGroup, Sequence[str], pq.RowGroupMetaData], list[Span]]
IsHeld = Callable[[RowGroup], bool]


class Fetcher:
    """Returns partial files of row groups: files in memory with the bytes of the wanted columns.

    Expected row groups are fetched in the announced order, within the limits of `FetchOptions`; a
    row group that a caller waits for takes precedence. A failed request is retried only when a
    caller has received the error and calls again; ranges of the row group that were fetched are
    kept. `spans_of` returns the byte ranges of a row group's wanted columns.

    Each thread makes one request after another, and ends when none may be made (see `_next`).
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
        self._num_threads = 0

    def file(self, url: str) -> RemoteFile:
        """Return the file with a URL; closes idle handles of others if many files are in use."""
        with self._changed:
            if url not in self._files:
                self._files[url] = RemoteFile(url, self._connections)
            file = self._with_handles[url] = self._files[url]
            self._with_handles.move_to_end(url)
            count = max(0, len(self._with_handles) - _FILES_WITH_HANDLES)
            unused = [self._with_handles.popitem(last=False)[1] for _ in range(count)]
        for other in unused:
            other.close()
        return file

    def expect(self, groups: Iterator[RowGroup | None], is_held: IsHeld | None = None) -> Expected:
        """Prefetch row groups that will be requested in this order; see `Reader.expect`."""
        expectation = _Expectation(groups, is_held, self._forget)
        with self._changed:
            self._expectations.append(expectation)
            self._begin()
        return expectation

    def take(self, group: RowGroup) -> PartialFile:
        """Return the partial file of a row group; waits until it is fetched.

        Raises the filesystem's errors. After an error, call it again to retry.
        """
        with self._changed:
            key = (group.file, group.index)
            partial_file = self._partial_files.get(key) or self._fetched(key, group)
            for expectation in self._expectations:
                expectation.hold(group, partial_file)
            return partial_file

    def _fetched(self, key: _Key, group: RowGroup) -> PartialFile:
        wanted = self._wanted.setdefault(key, _Wanted(group))
        wanted.is_taken = True
        if wanted.is_reported:
            wanted.error, wanted.is_reported = None, False
        self._begin()
        self._changed.wait_for(lambda: wanted.is_over)
        if wanted.error is not None:
            wanted.is_reported = True
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
            self._changed.wait_for(lambda: not self._num_threads)
            for file in self._files.values():
                file.close()
            self._connections.close()

    def _forget(self, expectation: _Expectation, *, all_of_it: bool) -> None:
        with self._changed:
            expectation.let_go(all_of_it=all_of_it)
            if all_of_it and expectation in self._expectations:
                self._expectations.remove(expectation)
            for key, wanted in list(self._wanted.items()):
                is_passed = all_of_it or wanted.number < expectation.num_passed
                has_failed = wanted.error is not None and wanted.is_over
                is_unused = not wanted.is_taken or has_failed
                if wanted.expectation is expectation and is_passed and is_unused:
                    del self._wanted[key]
            self._begin()

    def _begin(self) -> None:
        """Start threads for the requests that may be made now; the caller holds the lock."""
        while self._num_threads < self._options.connections:
            request = self._next()
            if request is None:
                return
            # The thread removes the request from the list: its arguments live as long as itself.
            thread = threading.Thread(
                target=self._run, args=([request],), name="fetch", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the process has too many threads
                request.end(error)
            else:
                self._num_threads += 1

    def _next(self) -> _Request | None:
        """Return the most urgent request that may be made, if any; the caller holds the lock.

        First come row groups that callers wait for, then expected ones, in order, up to the memory
        bound. Expected row groups are planned earlier: at most one for each connection, and
        `_MOST_AHEAD` in all.
        """
        for wanted in self._wanted.values():
            if wanted.is_taken and (request := wanted.request()) is not None:
                return request
        most_bytes = self._options.ahead_bytes
        ahead = [one for one in self._wanted.values() if not one.is_taken]
        held = sum(one.num_bytes for one in ahead if one.is_started)
        for wanted in (one for one in ahead if one.error is None):
            if wanted.partial_file is None:
                break  # fetches start in order
            if not wanted.is_started:
                if held and held + wanted.num_bytes > most_bytes:
                    return None
                wanted.is_started = True
                held += wanted.num_bytes
            if (request := wanted.request()) is not None:
                return request
        num_planned = sum(not one.is_started for one in ahead)
        if (
            held >= most_bytes
            or num_planned >= self._options.connections
            or len(ahead) >= _MOST_AHEAD
        ):
            return None
        following = self._next_expected()
        return None if following is None else following.request()

    def _next_expected(self) -> _Wanted | None:
        for expectation in self._expectations:
            while (following := expectation.next()) is not None:
                if following.key not in self._wanted and following.key not in self._partial_files:
                    self._wanted[following.key] = following
                    return following
        return None

    def _run(self, requests: list[_Request]) -> None:
        mark_own_thread()
        request: _Request | None = requests.pop()
        while request is not None:
            error: BaseException | None = None
            try:
                self._make(request)
            except BaseException as raised:
                error = raised
            with self._changed:
                request.end(error)
                request = self._next()
                self._num_threads -= request is None
                self._begin()
                self._changed.notify_all()

    def _make(self, request: _Request) -> None:
        wanted, url = request.wanted, request.wanted.group.file
        file = self.file(url)
        if request.span is None:
            self._plan(wanted, file)
        else:
            assert wanted.partial_file is not None
            wanted.partial_file.write(request.span.begin, file.read(*request.span))
        self.file(url)  # marks the file as used last: it has one more idle handle

    def _plan(self, wanted: _Wanted, file: RemoteFile) -> None:
        """Create the partial file of a row group, and decide which ranges to fetch.

        A row group that is in a cache is dropped instead, unless a caller waits for it.
        """
        group, options, expectation = wanted.group, self._options, wanted.expectation
        is_held = expectation is not None and expectation.is_held
        if is_held and not wanted.is_taken and is_held(group):
            with self._changed:
                if not wanted.is_taken:
                    self._wanted.pop(wanted.key, None)
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
        with self._changed:
            wanted.partial_file, wanted.missing = partial_file, ranges[::-1]
            wanted.num_bytes = sum(span.num_bytes for span in ranges)


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
        self.missing: list[Span] = []  # ranges that still have to be requested, the next one last
        self.in_flight = 0  # number of requests that are being made
        self.num_bytes = 0  # bytes of all ranges
        self.is_started = False  # some of its ranges were requested
        self.is_taken = False  # a caller has requested it
        self.error: BaseException | None = None  # the error of the last failed request
        self.is_reported = False  # a caller has received the error

    def request(self) -> _Request | None:
        """Return the next request to make; `None` if there is none, or a request has failed."""
        if self.error is not None or (self.partial_file is None and self.in_flight):
            return None
        if self.partial_file is not None and not self.missing:
            return None
        self.in_flight += 1
        return _Request(self, None if self.partial_file is None else self.missing.pop())

    @property
    def is_over(self) -> bool:
        """Whether no request is being made, and either all were made or one has failed."""
        is_whole = self.partial_file is not None and not self.missing
        return not self.in_flight and (is_whole or self.error is not None)


class _Request(NamedTuple):
    """A request for a range of a row group, or for the metadata by which its ranges are planned."""

    wanted: _Wanted
    span: Span | None

    def end(self, error: BaseException | None) -> None:
        """Record that the request has ended, with an error if it has failed."""
        self.wanted.in_flight -= 1
        if error is not None:
            self.wanted.error = error
            if self.span is not None:
                self.wanted.missing.append(self.span)
