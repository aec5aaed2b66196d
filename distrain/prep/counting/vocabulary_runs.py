"""Runs: files with the values that one piece of the counts adds to a vocabulary, in id order.

A vocabulary of any size is written by merging the runs of all pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.counting.spilled import write_rows
from distrain.prep.mapped_files import MappedFile
from distrain.prep.operators.categorify import BY_FREQUENCY
from distrain.prep.operators.counts import Counts
from distrain.prep.sorted_runs import SortedRun, in_ranges
from distrain.prep.vocabulary import VocabularyWriter, is_text

_STRING_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Run:
    """A sorted file of values and counts that one piece of the counts contributes to a vocabulary.

    It has the columns `value` and `count`, in id order.
    """

    path: str
    entries: int  # number of values
    size_bytes: int  # the size of values and counts in memory


def write_run(kept: Counts, path: str) -> Run:
    """Write values with their counts as a run to `path`, and return it."""
    write_rows(kept.rows, path)
    return Run(path, len(kept.values), kept.nbytes)


class RunsInOrder:
    """Merges runs: iterating yields tables of their values and counts, in id order.

    Iteration ends after `most` values (`None`: all). A table has about `range_bytes`.
    """

    def __init__(self, runs: Sequence[Run], most: int | None, range_bytes: int):
        entries = sum(run.entries for run in runs)
        self._size_bytes = sum(run.size_bytes for run in runs)
        files = [MappedFile.staged(run.path) for run in runs]
        self._runs = [SortedRun(file.rows, BY_FREQUENCY, (file,)) for file in files]
        self._at_once = max(1, range_bytes * entries // max(self._size_bytes, 1))
        self.num_values = entries if most is None else min(entries, most)

    def value_type(self, text_before: int = 0, values_before: int = 0) -> pa.DataType:
        """Return the Arrow type of a vocabulary's values, when these runs are appended to it.

        Texts are `string`, or `large_string` if all texts together may exceed the 2 GiB of a
        `string` array; other values keep their type.

        Args:
            text_before: Bytes of the texts that the vocabulary has already.
            values_before: Number of values that the vocabulary has already.
        """
        value_dtype = self._runs[0].rows.schema.field("value").type
        if not is_text(value_dtype):
            return value_dtype
        before = text_before + 8 * (values_before + 1)
        # The size of the runs in memory is an upper bound of the size of their texts.
        if before + self._size_bytes <= _STRING_BYTES:
            return pa.string()
        text = sum(int(pc.sum(pc.binary_length(rows["value"])).as_py()) for rows in self)
        wide = before + text + 8 * self.num_values > _STRING_BYTES
        return pa.large_string() if wide else pa.string()

    def __iter__(self) -> Iterator[pa.Table]:
        left = self.num_values
        for table in in_ranges(self._runs, self._at_once):
            taken = table.slice(0, left)
            yield taken
            left -= taken.num_rows
            if not left:
                return

    def write(self, writer: VocabularyWriter) -> None:
        for rows in self:
            taken = rows.cast(pa.schema([("value", writer.value_type), ("count", pa.int64())]))
            writer.write(taken["value"], taken["count"])
