"""As much of pylibcudf 26.10 as the loader uses, played on the host with Arrow.

It has the names and signatures of the package; that the package does what this does is for
`tests/gpu` to show.
"""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_TYPES = {
    "BOOL8": pa.bool_(),
    "INT8": pa.int8(),
    "INT16": pa.int16(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "UINT8": pa.uint8(),
    "UINT16": pa.uint16(),
    "UINT32": pa.uint32(),
    "UINT64": pa.uint64(),
    "FLOAT32": pa.float32(),
    "FLOAT64": pa.float64(),
    "TIMESTAMP_DAYS": pa.date32(),
}
_TYPE_IDS = enum.IntEnum("TypeId", list(_TYPES))  # type: ignore[misc]
_PADDING = b"\xff" * 8  # a buffer may be larger than its values


class Column:
    def __init__(self, values: pa.Array):
        self._values = values

    def size(self) -> int:
        return len(self._values)

    def type(self) -> Any:
        (name,) = (name for name, kind in _TYPES.items() if kind == self._values.type)
        return SimpleNamespace(id=lambda: _TYPE_IDS[name])

    def null_count(self) -> int:
        return int(self._values.null_count)

    def data(self) -> np.ndarray | None:
        """As bytes, with something arbitrary where there are nulls."""
        filled = self._values
        if not len(filled):
            return None
        if pa.types.is_date32(filled.type):
            filled = filled.view(pa.int32())
        if filled.null_count:
            some = True if pa.types.is_boolean(filled.type) else 77
            filled = filled.fill_null(some)
        return _buffer(filled.to_numpy(zero_copy_only=False))

    def null_mask(self) -> np.ndarray | None:
        valid = self._values.is_valid().to_numpy(zero_copy_only=False)
        return _buffer(np.packbits(valid, bitorder="little"))


def _buffer(values: np.ndarray) -> np.ndarray:
    return np.frombuffer(bytearray(values.tobytes() + _PADDING), np.uint8)


class _Options:
    """Its own builder."""

    def __init__(self, file: str):
        self.file = file

    def use_pandas_metadata(self, value: bool) -> _Options:
        assert value is False, "index columns would be added"
        return self

    def column_names(self, names: list[str]) -> _Options:
        self.names = names
        return self

    def build(self) -> _Options:
        return self

    def set_row_groups(self, groups: list[list[int]]) -> None:
        [[self.group]] = groups


def _read_parquet(options: _Options, stream: Any, parquet_metadatas: list[Any]) -> Any:
    assert len(stream.__cuda_stream__()) == 2
    [metadata] = parquet_metadatas
    # As Arrow does, and cuDF by default, a column that is missing is left out.
    table = pq.ParquetFile(options.file, metadata=metadata.arrow).read_row_group(
        options.group, columns=options.names
    )
    columns = tuple(Column(pa.concat_arrays(column.chunks)) for column in table.columns)
    return SimpleNamespace(columns=columns, column_names=lambda: table.column_names)


def _read_parquet_footers(file: str) -> list[Any]:
    arrow = pq.read_metadata(file)

    def chunk(group: int, column: int) -> Any:
        found = arrow.row_group(group).column(column)
        meta_data = SimpleNamespace(
            path_in_schema=found.path_in_schema.split("."),
            total_compressed_size=found.total_compressed_size,
        )
        return SimpleNamespace(meta_data=meta_data)

    groups = [
        SimpleNamespace(columns=[chunk(group, column) for column in range(arrow.num_columns)])
        for group in range(arrow.num_row_groups)
    ]
    return [SimpleNamespace(arrow=arrow, row_groups=groups)]


def _source_info(sources: list[str]) -> str:
    [file] = sources
    return file


pylibcudf = SimpleNamespace(
    TypeId=_TYPE_IDS,
    io=SimpleNamespace(
        SourceInfo=_source_info,
        parquet=SimpleNamespace(
            ParquetReaderOptions=SimpleNamespace(builder=_Options), read_parquet=_read_parquet
        ),
        parquet_metadata=SimpleNamespace(read_parquet_footers=_read_parquet_footers),
    ),
)
