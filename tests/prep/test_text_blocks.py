"""Files cut into blocks of whole lines."""

import errno
import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from criteo_staging import stage_text
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError
from distrain.prep.features.file_format import detect_format
from distrain.prep.parts import read_part
from distrain.prep.raw_lines import RAW_COLUMNS, TextLayout, parse_lines
from distrain.prep.text_files import byte_ranges
from distrain.prep.text_files.byte_ranges import (
    TextRange,
    count_lines_before,
    plan_ranges,
    read_pieces,
)
from distrain.storage.inputs import InputFile


def write_zstd(path: Path, content: bytes) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(content)


@pytest.fixture(params=[16, byte_ranges._PIECE_BYTES], ids=["small pieces", "usual pieces"])
def piece_bytes(request: pytest.FixtureRequest) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_ranges, "_PIECE_BYTES", request.param)
        yield request.param


@pytest.mark.usefixtures("piece_bytes")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=9).map(lambda b: b.replace(b"\n", b"")), min_size=1),
       st.integers(1, 40), st.booleans())  # fmt: skip
def test_byte_ranges_hold_each_line_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block_bytes: int, ended: bool
) -> None:
    path = tmp_path_factory.mktemp("cut") / "raw.tsv"
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    path.write_bytes(content)
    file = InputFile(str(path), len(content))
    read = b""
    for text in plan_ranges(file, None, block_bytes):
        block = b"".join(piece for _, piece in read_pieces(text, block_bytes))
        if block:
            assert count_lines_before(text) == read.count(b"\n")
        read += block
    assert read == content


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_pieces_of_a_block_are_one_staging_file_with_the_rows_in_order(
    tmp_path: Path,
    make_lines: Callable[..., list[bytes]],
    codec: str | None,
    piece_bytes: int,
    wording: Wording,
) -> None:
    good = make_lines(60)
    lines = [*good[:20], b"bad", *good[20:50], b"", *good[50:]]
    content = b"\n".join(lines) + b"\n"
    path = tmp_path / "raw"
    path.write_bytes(gzip.compress(content) if codec else content)
    ranges = plan_ranges(InputFile(str(path), len(content)), codec, len(content))
    (text,) = ranges
    staged = stage_text(text, TextLayout(), True, len(content) + 1, str(tmp_path / "staged"))
    (part,) = staged.parts
    assert read_part(part, RAW_COLUMNS).equals(parse_lines(b"\n".join(good), TextLayout()))
    assert (staged.num_lines, part.num_rows) == (62, 60)
    assert [bad.line for bad in staged.bad_lines.examples] == [21, 52]
    wording.refused(
        DataError,
        lambda: stage_text(text, TextLayout(), False, len(content) + 1, str(tmp_path / "stopped")),
        line=21,
    )
    assert [found.name for found in tmp_path.glob("*.arrow*")] == [Path(part.path).name]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize(("lost", "more"), [(1, 0), (200, 0), (0, 512)])
def test_a_compressed_file_that_is_cut_short_or_padded_is_named(
    tmp_path: Path,
    make_lines: Callable[..., list[bytes]],
    codec: str,
    lost: int,
    more: int,
    wording: Wording,
) -> None:
    path = tmp_path / "raw"
    content = b"\n".join(make_lines(60))
    if codec == "gzip":
        path.write_bytes(gzip.compress(content))
    else:
        write_zstd(path, content)
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) - lost] + bytes(more))  # some tapes and copies pad a file
    wording.refused(
        DataError,
        lambda: list(read_pieces(TextRange(str(path), codec=codec), 1000)),
        file=str(path),
    )


@pytest.mark.parametrize("header", [False, True], ids=["rows", "header"])
def test_a_byte_order_mark_is_left_out_at_the_start_of_a_file_alone(
    tmp_path: Path, make_lines: Callable[..., list[bytes]], piece_bytes: int, header: bool
) -> None:
    mark, lines, path = b"\xef\xbb\xbf", make_lines(4), tmp_path / "raw"
    names = ["\t".join(RAW_COLUMNS).encode()] if header else []
    path.write_bytes(mark + b"\n".join([*names, *lines[:2], mark + lines[2], lines[3]]))
    text = TextRange(str(path), 0, path.stat().st_size)
    rows = parse_lines(b"\n".join([*lines[:2], lines[3]]), TextLayout())
    layout, stem = TextLayout(header=header), str(tmp_path / f"staged-{piece_bytes}")
    staged = stage_text(text, layout, True, 1 << 20, stem)
    assert [bad.line for bad in staged.bad_lines.examples] == [3 + header]
    (part,) = staged.parts
    assert read_part(part, RAW_COLUMNS).equals(rows)


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_an_input_that_fails_while_it_is_read_is_named_and_not_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str | None, wording: Wording
) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(byte_ranges, "open_input", lambda path, retry_s: Failing())
    text = TextRange("day_0", 0, None if codec else 10, codec)
    wording.refused(
        DataError,
        lambda: stage_text(text, TextLayout(), False, 100, str(tmp_path / "staged")),
        file="day_0",
    )
    assert not list(tmp_path.iterdir())


def test_a_file_without_line_ends_is_refused(tmp_path: Path, wording: Wording) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed.gz"
    plain.write_bytes(b"7" * (3 << 20))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    wording.refused(
        DataError,
        lambda: list(read_pieces(plan_ranges(InputFile(str(plain), 3 << 20), None, 1000)[0], 1000)),
        lambda: list(read_pieces(TextRange(str(packed), codec="gzip"), 1000)),
    )


def test_a_file_that_shrinks_is_named(tmp_path: Path, wording: Wording) -> None:
    path = tmp_path / "raw.tsv"
    path.write_bytes(b"1\n2\n")
    wording.refused(DataError, lambda: list(read_pieces(TextRange(str(path), 0, 10), 10)))


@pytest.mark.parametrize(
    "head",
    [
        b"BZh91",
        b"\xfd7zXZ\x00",
        b"PK\x03\x04",
        b"ORC",
    ],
)
def test_other_formats_are_named(tmp_path: Path, head: bytes, wording: Wording) -> None:
    (tmp_path / "raw").write_bytes(head + b"....")
    wording.refused(DataError, lambda: detect_format(str(tmp_path / "raw")))
