"""Where tables of raw rows go: one open file per format."""

import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet

from distrain.synth.draw import CHUNK_ROWS
from distrain.synth.encode import RAW_SCHEMA

Write = Callable[[Any], None]


@contextlib.contextmanager
def tsv_sink(path: Path) -> Iterator[Write]:
    """Criteo's format: tabs, no header, an empty field for a missing value."""
    with path.open("wb") as file, _csv_writer(file) as writer:
        yield writer.write


@contextlib.contextmanager
def tsv_gz_sink(path: Path) -> Iterator[Write]:
    """The same, gzipped; no name and no time in the header, so equal rows give equal bytes.

    Level 1: hashes hardly compress, and level 6 takes three times as long for 4 % less.
    """
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 1, file, mtime=0) as packed,
        _csv_writer(packed) as writer,
    ):
        yield writer.write


@contextlib.contextmanager
def parquet_sink(path: Path) -> Iterator[Write]:
    """Raw values in parquet, one row group per table written."""
    with pyarrow.parquet.ParquetWriter(path, RAW_SCHEMA, compression="snappy") as writer:
        yield lambda table: writer.write_table(table, row_group_size=CHUNK_ROWS)


SINKS = {"tsv": tsv_sink, "tsv.gz": tsv_gz_sink, "parquet": parquet_sink}


def _csv_writer(file: Any) -> Any:
    options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter="\t", quoting_style="none", batch_size=CHUNK_ROWS
    )
    return pyarrow.csv.CSVWriter(file, RAW_SCHEMA, write_options=options)
