"""What a table's footers say about how it will be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow.parquet as pq

from distrain.loader.dataset import Dataset
from distrain.partition.columns import column_of_leaf
from distrain.storage import open_input

_READERS = 16
_BYTES_OF_TYPE = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}


@dataclass(frozen=True)
class TableFacts:
    """Sizes and codecs of the columns that are read, over all row groups.

    Attributes:
        num_files: How many files.
        group_rows: Rows of each row group, in the order of the table.
        compressed_bytes: Of all row groups.
        largest_group_bytes: Compressed bytes of the largest row group.
        decoded_row_bytes: Bytes of a row's flat columns after decoding, in the widest file.
        codec_bytes: Compressed bytes by codec, such as `SNAPPY`.
        wide_ids: Categorical columns that some file keeps as int64.
    """

    num_files: int
    group_rows: tuple[int, ...]
    compressed_bytes: int
    largest_group_bytes: int
    decoded_row_bytes: int
    codec_bytes: Mapping[str, int]
    wide_ids: tuple[str, ...]


class _FileFacts(NamedTuple):
    group_bytes: list[int]
    row_bytes: int
    codec_bytes: Counter[str]
    wide: set[str]


def table_facts(dataset: Dataset) -> TableFacts:
    """Read the footers of a dataset's files once more, for what plans and checks do not keep.

    Raises:
        DataError: A file is gone.
        OSError: It cannot be read any more.
    """
    files = dataset.table.compact.files
    flat = {column.name for column in dataset.columns if not column.is_list}
    lists = {column.name for column in dataset.columns if column.is_list}
    with ThreadPoolExecutor(min(_READERS, len(files))) as readers:
        found = list(readers.map(partial(_file_facts, flat=flat, lists=lists), files))
    wide = set().union(*(facts.wide for facts in found))
    group_bytes = [size for facts in found for size in facts.group_bytes]
    return TableFacts(
        num_files=len(files),
        group_rows=tuple(dataset.table.compact.rows.tolist()),
        compressed_bytes=sum(group_bytes),
        largest_group_bytes=max(group_bytes),
        decoded_row_bytes=max(facts.row_bytes for facts in found),
        codec_bytes=_sum(facts.codec_bytes for facts in found),
        wide_ids=tuple(c.name for c in dataset.columns if c.kind == "id" and c.name in wide),
    )


def _file_facts(file: str, flat: set[str], lists: set[str]) -> _FileFacts:
    with open_input(file) as handle, pq.ParquetFile(handle) as parquet:
        footer = parquet.metadata
        leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
        names = [column_of_leaf(leaf.path, flat, lists) for leaf in leaves]
        types = {
            name: leaf.physical_type
            for name, leaf in zip(names, leaves, strict=True)
            if name is not None and name in flat
        }
        used = [number for number, name in enumerate(names) if name is not None]
        codecs: Counter[str] = Counter()
        group_bytes = []
        for index in range(footer.num_row_groups):
            chunks = [footer.row_group(index).column(number) for number in used]
            group_bytes.append(sum(chunk.total_compressed_size for chunk in chunks))
            for chunk in chunks:
                codecs[chunk.compression] += chunk.total_compressed_size
    absent = len(flat - types.keys())  # folders' names give these, as 8 bytes a row
    row_bytes = 8 * absent + sum(_BYTES_OF_TYPE.get(kind, 8) for kind in types.values())
    wide = {name for name, kind in types.items() if kind == "INT64"}
    return _FileFacts(group_bytes, row_bytes, codecs, wide)


def _sum(counters: Iterable[Counter[str]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return dict(total)
