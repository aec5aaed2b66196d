"""The histories of a part's rows, read while the rows are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from distrain.prep.histories.ordering import spans_of_part
from distrain.prep.lists import Int64Array
from distrain.prep.mapped_files import kept_mapped
from distrain.prep.operators.history import Floats, Spans, as_lists, seconds_before, seconds_of
from distrain.prep.parts import Part, read_part


@dataclass(frozen=True)
class Values:
    """The file with the values of one listed column for all events, sorted by key and time."""

    name: str  # the name of the lists
    path: str
    dtype: str
    is_time: bool  # whether these are the events' times; lists then hold seconds from event to row


@dataclass(frozen=True)
class EventLog:
    """The files of all events in sort order, and the files of the rows' spans.

    A row's span says which of the events are its history.
    """

    values: tuple[Values, ...]
    spans: tuple[str, ...]  # the files with the spans of rows

    @property
    def bytes_of_event(self) -> int:
        """Memory of one event while lists are built: indices, seconds, and list items."""
        return 16 + 4 * len(self.values)


@dataclass(frozen=True)
class PartHistory:
    """The files in which the histories of a part are found.

    `opened` reads the rows' spans and times.
    """

    log: EventLog
    number: int  # the index of the part among the parts that need histories
    order: str  # the part's column of times
    most_bytes: int  # maximum memory of the lists of one row group

    def opened(self, part: Part) -> OpenHistory:
        """Return the part's histories, for building lists.

        Reads which events each row has, and its time.
        """
        seconds = seconds_of(self.order, read_part(part, [self.order])[self.order])
        spans = spans_of_part(self.log.spans, self.number, part.num_rows)
        return OpenHistory(self.log, spans, seconds, self.most_bytes)


@dataclass(frozen=True)
class OpenHistory:
    """The histories of a part's rows: which events each row has, and each row's time in seconds."""

    log: EventLog
    spans: Spans
    seconds: Floats
    most_bytes: int

    def pieces(self, places: Int64Array, most_rows: int) -> Iterator[Int64Array]:
        """Yield `places`, indices of rows, in consecutive pieces whose lists fit `most_bytes`.

        A piece has at most `most_rows` rows, and at least one, even if its lists are larger.
        """
        ends = np.cumsum(self.spans.length[places]) * self.log.bytes_of_event
        begin, before = 0, 0
        while begin < len(places):
            fitting = int(np.searchsorted(ends, before + self.most_bytes, side="right"))
            end = max(begin + 1, min(begin + most_rows, fitting))
            yield places[begin:end]
            begin, before = end, int(ends[end - 1])

    def append_to(self, table: pa.Table, places: Int64Array) -> pa.Table:
        """Return the rows of `table` at `places`, with a column for each of the history's lists."""
        table = table.take(pa.array(places))
        spans = self.spans[places]
        items = spans.items()
        for values in self.log.values:
            file = kept_mapped(values.path)
            listed = np.frombuffer(file.content, values.dtype)[items]
            file.forget()
            if values.is_time:
                listed = seconds_before(spans, self.seconds[places], listed)
            lists = as_lists(spans.length, listed)
            table = table.append_column(pa.field(values.name, lists.type, nullable=False), lists)
        return table
