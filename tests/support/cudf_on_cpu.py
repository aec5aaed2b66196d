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


class TypeId(enum.IntEnum):
    BOOL8 = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT32 = 9
    FLOAT64 = 10
    TIMESTAMP_DAYS = 11
    TIMESTAMP_MILLISECONDS = 12
    STRING = 13


_TYPE_IDS = {
    pa.bool_(): TypeId.BOOL8,
    pa.int8(): TypeId.INT8,
    pa.int16(): TypeId.INT16,
    pa.int32(): TypeId.INT32,
    pa.int64(): TypeId.INT64,
    pa.uint8(): TypeId.UINT8,
    pa.uint16(): TypeId.UINT16,
    pa.uint32(): TypeId.UINT32,
    pa.uint64(): TypeId.UINT64,
    pa.float32(): TypeId.FLOAT32,
    pa.float64(): TypeId.FLOAT64,
    pa.date32(): TypeId.TIMESTAMP_DAYS,
    pa.string(): TypeId.STRING,
}
_PADDING = b"\xff" * 8  # a buffer may be larger than its values


class Column:
    def __init__(self, values: pa.Array):
        self._values = values

    def size(self) -> int:
        return len(self._values)

    def type(self) -> Any:
        kind = self._values.type
        return SimpleNamespace(id=lambda: _TYPE_IDS[kind])

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
        raw = np.ascontiguousarray(filled.to_numpy(zero_copy_only=False)).tobytes()
        return np.frombuffer(bytearray(raw + _PADDING), np.uint8)

    def null_mask(self) -> np.ndarray | None:
        if not self._values.null_count:
            return None
        valid = self._values.is_valid().to_numpy(zero_copy_only=False)
        raw = np.packbits(valid, bitorder="little").tobytes()
        return np.frombuffer(bytearray(raw + _PADDING), np.uint8)


class _Builder:
    def __init__(self, file: str):
        self._options = SimpleNamespace(file=file, names=None, row_groups=None)

    def use_pandas_metadata(self, value: bool) -> _Builder:
        assert value is False, "index columns would be added"
        return self

    def column_names(self, names: list[str]) -> _Builder:
        self._options.names = names
        return self

    def build(self) -> Any:
        self._options.set_row_groups = lambda groups: setattr(self._options, "row_groups", groups)
        return self._options


def _read_parquet(
    options: Any, stream: Any = None, mr: Any = None, parquet_metadatas: Any = None
) -> Any:
    assert len(stream.__cuda_stream__()) == 2
    [[group]] = options.row_groups
    [metadata] = parquet_metadatas
    # As Arrow does, and cuDF by default, a column that is missing is left out.
    table = pq.ParquetFile(options.file, metadata=metadata.arrow).read_row_group(
        group, columns=options.names
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
    TypeId=TypeId,
    io=SimpleNamespace(
        SourceInfo=_source_info,
        parquet=SimpleNamespace(
            ParquetReaderOptions=SimpleNamespace(builder=_Builder), read_parquet=_read_parquet
        ),
        parquet_metadata=SimpleNamespace(read_parquet_footers=_read_parquet_footers),
    ),
)
