"""Gives advice, from footers, how to change a table for faster reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import pyarrow.parquet as pq

from distrain.loader.dataset import Dataset
from distrain.loader.partition.scanning import read_files
from distrain.loader.partition.statistics import codec_and_bytes, read_chunks
from distrain.loader.partition.wanted_columns import column_of_leaf
from distrain.storage.inputs import open_input

_BYTES_OF_TYPE = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}
_SMALL_GROUP_ROWS = 4096  # with 3,000 rows, 0.3 times the rows/s
_GOOD_GROUP_ROWS = 65536
_SLOW_CODECS = ("ZSTD", "GZIP", "BROTLI")  # decoded by Arrow: 222 ns/row instead of 79


@dataclass(frozen=True)
class FooterSummary:
    """Sizes and codecs of the columns that a loader reads, over all row groups."""

    num_files: int
    group_rows: tuple[int, ...]  # rows of each row group, in the order of the table
    compressed_bytes: int  # compressed bytes of all row groups
    largest_group_bytes: int  # compressed bytes of the largest row group
    decoded_row_bytes: int  # bytes of a row's flat columns after decoding, in the widest file
    codec_bytes: Mapping[str, int]  # compressed bytes by codec, such as `SNAPPY`


class _FileSummary(NamedTuple):
    group_bytes: list[int]
    row_bytes: int
    codec_bytes: Counter[str]


def footer_summary(dataset: Dataset) -> FooterSummary:
    """Read the footers of a dataset's files again, for sizes and codecs that `Table` lacks.

    Raises:
        DataError: A file is missing.
        Unavailable: A file's storage does not answer; there is no second try.
        OSError: A file cannot be read.
    """
    files = dataset.table.compact.files
    flat = {column.name for column in dataset.columns if not column.is_list}
    lists = {column.name for column in dataset.columns if column.is_list}
    summaries = read_files(files, lambda number: _file_summary(files[number], flat, lists))
    group_bytes = [size for file in summaries for size in file.group_bytes]
    return FooterSummary(
        num_files=len(files),
        group_rows=tuple(dataset.table.compact.rows.tolist()),
        compressed_bytes=sum(group_bytes),
        largest_group_bytes=max(group_bytes),
        decoded_row_bytes=max(file.row_bytes for file in summaries),
        codec_bytes=dict(sum((file.codec_bytes for file in summaries), Counter())),
    )


def _file_summary(file: str, flat: set[str], lists: set[str]) -> _FileSummary:
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
        for chunks in read_chunks(handle):
            sizes = [codec_and_bytes(chunks, number) for number in used]
            group_bytes.append(sum(num_bytes for _, num_bytes in sizes))
            for codec, num_bytes in sizes:
                codecs[codec] += num_bytes
    absent = len(flat - types.keys())  # columns from folders' names take 8 bytes a row each
    row_bytes = 8 * absent + sum(_BYTES_OF_TYPE.get(kind, 8) for kind in types.values())
    return _FileSummary(group_bytes, row_bytes, codecs)


def reading_advice(footers: FooterSummary, lanes: int) -> list[str]:
    """Return advice how to change files for faster reading: a text per problem, or none.

    `lanes` is the job's number of lanes.
    """
    advice_or_none = [_about_small_groups(footers, lanes), _about_codecs(footers)]
    return [advice for advice in advice_or_none if advice]


def _about_small_groups(footers: FooterSummary, lanes: int) -> str | None:
    middle = int(median(footers.group_rows))
    better = min(_GOOD_GROUP_ROWS, sum(footers.group_rows) // lanes)
    if middle >= _SMALL_GROUP_ROWS or better < _SMALL_GROUP_ROWS:
        return None  # large enough, or the table is too small for it to matter
    return (
        f"row groups of about {middle:,} rows: opening a row group takes longer than reading its "
        f"rows; write row groups of {better:,} rows (--row-group-rows {better} of `distrain prep`)"
    )


def _about_codecs(footers: FooterSummary) -> str | None:
    slow = {codec: footers.codec_bytes.get(codec, 0) for codec in _SLOW_CODECS}
    share = sum(slow.values()) / max(1, footers.compressed_bytes)
    if share < 0.5:
        return None
    names = ", ".join(codec for codec, size in slow.items() if size)
    return (
        f"{share:.0%} of the bytes are compressed with {names}, which decodes slowly: "
        "LZ4 or Snappy is faster; a cache (`distrain pack`, data.cache_dir) needs no decoding"
    )
