"""Damaged column chunks: never other values than Arrow's, never a value where Arrow refuses."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page_files import (
    decode_chunk,
    from_arrow,
    in_one_call,
    in_parts,
    opened,
    same,
    span_of,
    written,
)
from wording import Wording

from distrain.errors import DataError
from distrain.loader import Dataset, Loader
from distrain.loader.kernel_version import check_kernel_version
from distrain.loader.parquet_pages.footer import (
    KERNEL_VERSION,
    chunks_of,
    read_row_groups,
)
from distrain.loader.parquet_pages.leaves import BUILT, page_columns
from distrain.loader.parquet_pages.pages_of_file import PagesOfFile
from distrain.loader.partition.statistics import CODECS
from distrain.loader.tuning import footer_summary
from distrain.schema import ColumnSchema, Schema, Tags

pytestmark = pytest.mark.skipif(not BUILT, reason="distrain was built without a compiler")

REFUSED = (ValueError, OSError, pa.ArrowException)
CASES = [
    {"compression": codec, "data_page_version": version, "nullable": nullable, **more}
    for codec in ("none", "snappy", "lz4")
    for version, nullable, more in (
        ("1.0", True, {}),
        ("2.0", True, {"data_page_size": 64, "write_batch_size": 50}),
        ("1.0", False, {"dictionary_pagesize_limit": 100, "write_batch_size": 50}),
    )
]
FILLED = [
    {"compression": codec, "data_page_version": version, "nullable": True, "fill": 5.0}
    | {"data_page_size": 64, "write_batch_size": 70}
    for codec in ("none", "snappy")
    for version in ("1.0", "2.0")
]


def file_of(nullable: bool, fill: float | None = None, **options: Any) -> bytes:
    """A file of ids; where nulls are filled, it has some, and a page of nothing else."""
    rng = np.random.default_rng(5)
    ids = np.minimum((rng.pareto(1.0, 150) * 3).astype(np.int32), 60)
    ids = np.append(np.repeat(ids[:3], 20), ids)
    schema = pa.schema([pa.field("x", pa.int32(), nullable)])
    is_null = (rng.random(len(ids)) < 0.3) | (np.arange(len(ids)) // 70 == 1)
    column = pa.array(ids, mask=None if fill is None else is_null)
    return written(pa.table({"x": column}, schema), **options)


def check(content: bytes, footer: Any, fill: float | None = None) -> bool:
    """Whether the damaged chunk was read here, and then as Arrow reads it."""
    parquet, found = opened(content, footer), None
    with contextlib.suppress(*REFUSED):
        found = in_one_call(content, parquet, 0, 0, fill)
    assert same_or_none(parts_or_none(content, parquet, fill), found)
    assert found is None or same(found, from_arrow(parquet, 0, 0, fill))
    return found is not None


def parts_or_none(content: bytes, parquet: Any, fill: float | None) -> Any:
    with contextlib.suppress(*REFUSED):
        return in_parts(content, parquet, 0, 0, fill, [30, 31, 120])
    return None


def same_or_none(left: Any, right: Any) -> bool:
    return left is right or (left is not None and right is not None and same(left, right))


def damaged(content: bytes, at: int, byte: int) -> bytes:
    return content[:at] + bytes([byte]) + content[at + 1 :]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=(pytest.mark.slow, pytest.mark.release) if place % 2 else ())
        for place, case in enumerate(CASES)
    ]
    + FILLED,
    ids=lambda case: "-".join(map(str, case.values())),
)
def test_a_changed_byte_anywhere(case: dict[str, Any]) -> None:
    content, fill = file_of(**case), case.get("fill")
    footer = opened(content).metadata
    start, stop = span_of(footer.row_group(0).column(0))
    assert check(content, footer, fill)
    read = 0
    for at in range(start, stop):
        for change in (1, 0x80, 0xFF):
            read += check(damaged(content, at, content[at] ^ change), footer, fill)
    assert read < 3 * (stop - start)


def test_with_checksums_no_changed_byte_of_a_page_is_read() -> None:
    content = file_of(nullable=True, write_page_checksum=True, compression="none")
    footer = opened(content).metadata
    _, stop = span_of(footer.row_group(0).column(0))
    assert check(content, footer)
    for at in range(stop - 40, stop):  # in the last page
        assert not check(damaged(content, at, content[at] ^ 1), footer)


@pytest.mark.parametrize("optional", [False, True])
def test_a_page_of_ids_that_ends_before_their_width_is_refused(
    optional: bool, wording: Wording
) -> None:
    levels = b"\2\0\0\0" + b"\6\1" if optional else b""
    size = bytes([len(levels) * 2])  # zigzag
    header = b"\x15\0\x15" + size + b"\x15" + size  # kind, uncompressed, compressed
    header += b"\x2c\x15\6\x15\x10\x15\6\x15\6\0\0"  # 3 values, ids, levels in runs
    out = np.empty(3, np.int32)
    wording.refused(ValueError, lambda: decode_chunk(header + levels, 0, optional, 4, out, 4))


INT32_CHUNK = b"\x1c\x15\x02\x19"  # how its metadata begins: type 1
SNAPPY_OF_A = b"\x18\x01a\x15\x02"  # its path, then its codec


def changed(path: Path, part: bytes, other: bytes) -> None:
    content = path.read_bytes()
    assert content.count(part) == 1
    path.write_bytes(content.replace(part, other))


def test_a_footer_that_gives_a_chunk_another_type_leaves_the_column_to_arrow(
    tmp_path: Path,
) -> None:
    # pyarrow ends the process where it is asked for the statistics of such a chunk.
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": pa.array(range(100), pa.int32())}), path)
    changed(path, INT32_CHUNK, b"\x1c\x15\x04\x19")
    with pq.ParquetFile(path) as parquet:
        pages = PagesOfFile(str(path), page_columns(parquet, ["a"]))
        assert parquet.metadata.row_group(0).column(0).physical_type == "INT64"
        assert pages.open(0, 100, "a") is None
        pages.close()


@pytest.mark.parametrize("codec", [3, 5, 8, 9, 60])
def test_a_codec_that_does_not_exist_is_an_error_that_names_file_and_column(
    tmp_path: Path, codec: int
) -> None:
    # pyarrow ends the process where it is asked for the name of such a codec.
    path = tmp_path / "rows.parquet"
    columns = {"a": pa.array(range(100), pa.int32()), "label": pa.array([0.0] * 100, pa.float32())}
    pq.write_table(pa.table(columns), path)
    changed(path, SNAPPY_OF_A, SNAPPY_OF_A[:-1] + bytes([2 * codec]))
    label = ColumnSchema("label", "float32", (Tags.TARGET,))
    ids = ColumnSchema("a", "int32", (Tags.CATEGORICAL,), cardinality=1000)
    dataset = Dataset(path, Schema((label, ids)))
    loader = Loader(dataset, batch_size=50, lanes=1)
    with loader, pytest.raises(DataError, match="row group") as caught:
        next(iter(loader))
    assert caught.value.where["file"] == str(path)
    assert caught.value.where["column"] == "a"
    assert "LZ4" not in footer_summary(dataset).codec_bytes


def test_every_changed_byte_of_a_footer_is_read_right_or_left_to_arrow() -> None:
    table = pa.table({"a": pa.array(range(100), pa.int32()), "b": pa.array([1.5] * 100)})
    content = written(table, row_group_size=40)
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length : -8]
    found = [chunks_of(part) for part in row_groups_of(content)]
    arrow = opened(content).metadata
    for group, chunks in enumerate(found):
        for number, facts in enumerate(chunks):
            column = arrow.row_group(group).column(number)
            assert facts.num_values == column.num_values
            assert facts.num_bytes == column.total_compressed_size
            assert facts.data_page == column.data_page_offset
            assert facts.dictionary_page == column.dictionary_page_offset
            assert CODECS[facts.codec] == column.compression
            assert facts.nulls == column.statistics.null_count
            assert not facts.is_elsewhere
    refused = 0
    for at in range(length):
        for change in (1, 0x80, 0xFF):
            changed_footer = damaged(footer, at, footer[at] ^ change)
            try:
                for part in row_groups_of(content[: -8 - length] + changed_footer + content[-8:]):
                    chunks_of(part)
            except ValueError:
                refused += 1
    assert refused > length // 3
    for cut in range(length):
        with contextlib.suppress(ValueError):
            for part in row_groups_of(footer[:cut] + cut.to_bytes(4, "little") + b"PAR1"):
                chunks_of(part)


def row_groups_of(content: bytes) -> list[memoryview]:
    return read_row_groups(lambda start, count: content[start : start + count], len(content))


@pytest.mark.parametrize("version", [None, KERNEL_VERSION - 1, KERNEL_VERSION + 1])
def test_a_kernel_that_was_built_from_other_sources_is_refused(version: int | None) -> None:
    with pytest.raises(ImportError):
        check_kernel_version("_pages", version, KERNEL_VERSION)
    check_kernel_version("_pages", KERNEL_VERSION, KERNEL_VERSION)
