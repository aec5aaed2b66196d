"""Drawn features as tables of raw Criteo values, written in one of several formats."""

import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from distrain.schema import CATEGORICAL, CONTINUOUS, LABEL
from distrain.synth.draw import CHUNK_ROWS, DrawnFeatures, Flags, Words32, raw_category

# Four hexadecimal digits of every 16-bit word, as the four bytes of an integer.
_HEX = np.frombuffer("".join(f"{word:04x}" for word in range(1 << 16)).encode(), np.uint32)

RAW_SCHEMA = pa.schema(
    [
        (LABEL, pa.int32()),
        *((name, pa.int64()) for name in CONTINUOUS),
        *((name, pa.string()) for name in CATEGORICAL),
    ]
)


def raw_table(features: DrawnFeatures, labels: npt.NDArray[np.int32]) -> Any:
    """The rows as a `pyarrow.Table` of `RAW_SCHEMA`: label, I1..I13, C1..C26; missing is null."""
    arrays = [pa.array(labels)]
    for name in CONTINUOUS:
        values = features.integers[name].astype(np.int64)
        arrays.append(pa.array(values, mask=features.missing.get(name)))
    for column, name in enumerate(CATEGORICAL):
        words = raw_category(column, features.ids[name])
        arrays.append(_hex_strings(words, features.missing.get(name)))
    return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)


def _hex_strings(words: Words32, missing: Flags | None) -> Any:
    rows = len(words)
    digits = np.empty((rows, 2), np.uint32)
    digits[:, 0] = _HEX[words >> np.uint32(16)]
    digits[:, 1] = _HEX[words & np.uint32(0xFFFF)]
    offsets = np.zeros(rows + 1, np.int32)
    if missing is None:
        offsets[1:] = 8
        validity = None
    else:
        offsets[1:] = np.where(missing, 0, 8)
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
        digits = digits[~missing]
    np.cumsum(offsets, out=offsets)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(digits), validity)


Write = Callable[[Any], None]


@contextlib.contextmanager
def tsv_sink(path: Path) -> Iterator[Write]:
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
    with pyarrow.parquet.ParquetWriter(path, RAW_SCHEMA, compression="snappy") as writer:
        yield lambda table: writer.write_table(table, row_group_size=CHUNK_ROWS)


SINKS = {"tsv": tsv_sink, "tsv.gz": tsv_gz_sink, "parquet": parquet_sink}
FORMATS = tuple(SINKS)


def _csv_writer(file: Any) -> Any:
    options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter="\t", quoting_style="none", batch_size=CHUNK_ROWS
    )
    return pyarrow.csv.CSVWriter(file, RAW_SCHEMA, write_options=options)
