"""Compressed files of many members cut into ranges; those of one, read by several threads."""

import gzip
import threading
import zlib
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError
from distrain.prep.text_files import byte_ranges, compressed
from distrain.prep.text_files.byte_ranges import (
    TextRange,
    count_lines_before,
    parsed_pieces,
    plan_compressed,
    read_pieces,
)
from distrain.storage.inputs import InputFile


def zstd(content: bytes) -> bytes:
    frame: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return frame


def bgzip(content: bytes) -> bytes:
    """One block as bgzip writes it: its size is in an extra field."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    data = packer.compress(content) + packer.flush()
    size = len(data) + 25
    head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + size.to_bytes(2, "little")
    tail = zlib.crc32(content).to_bytes(4, "little") + len(content).to_bytes(4, "little")
    return head + data + tail


def stored(content: bytes) -> bytes:
    return gzip.compress(content, 0)


SKIPPABLE = (0x184D2A5E).to_bytes(4, "little") + (7).to_bytes(4, "little") + b"seeking"
WRITERS = {"gzip": gzip.compress, "bgzip": bgzip, "zstd": zstd, "skips": zstd, "stored": stored}


def write(path: Path, content: bytes, cuts: list[int], kind: str) -> str:
    """The content in members that are cut anywhere, also inside of lines."""
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(content)), len(content)]
    parts = [content[a:b] for a, b in pairwise(places)]
    apart = SKIPPABLE if kind == "skips" else b""
    path.write_bytes(b"".join(WRITERS[kind](part) + apart for part in parts))
    return "zstd" if kind in ("zstd", "skips") else "gzip"


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), min_size=1),
       st.booleans(), st.lists(st.integers(1, 400), max_size=8), st.integers(1, 300))  # fmt: skip
def test_ranges_of_members_hold_each_line_once_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    lines: list[bytes],
    ended: bool,
    cuts: list[int],
    block_bytes: int,
) -> None:
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("cut") / "raw"
    codec = write(path, content, cuts, kind)
    file = InputFile(str(path), path.stat().st_size)
    read = b""
    for text in plan_compressed(file, codec, block_bytes):
        block = b"".join(piece for _, piece in read_pieces(text, 50))
        if block:
            assert count_lines_before(text) == read.count(b"\n")
        read += block
    assert read == content


def lines_of(count: int) -> bytes:
    return b"".join(b"%d,%d\n" % (n, n * n * 7919 % 1000003) for n in range(count))


@pytest.mark.parametrize("kind", ["gzip", "bgzip", "zstd", "skips"])
def test_a_file_of_many_members_is_read_by_as_many_tasks_as_it_has_blocks(
    tmp_path: Path, kind: str
) -> None:
    content = lines_of(4000)
    path = tmp_path / "raw"
    codec = write(path, content, list(range(0, len(content), 2500)), kind)
    size = path.stat().st_size
    ranges = plan_compressed(InputFile(str(path), size), codec, size // 8)
    assert 6 <= len(ranges) <= 8
    assert [text.stop for text in ranges] == [*(text.start for text in ranges[1:]), None]


def test_what_only_looks_like_a_member_is_none(tmp_path: Path) -> None:
    inner = gzip.compress(b"x" * 100)[:20]  # is cut short: no member begins there
    content = b"".join(b"%d" % n + inner + b"\n" for n in range(500))
    path = tmp_path / "raw"
    path.write_bytes(gzip.compress(content, 0))
    assert compressed.cuts_of(str(path), "gzip", path.stat().st_size, 1000) == [0]


def test_a_cut_where_no_member_ends_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """A whole gzip file inside one that only stores it: the one case in which a guess is wrong."""
    monkeypatch.setattr(compressed, "_TRIED_BYTES", 500)
    inner = gzip.compress(lines_of(300))
    path = tmp_path / "raw"
    path.write_bytes(gzip.compress(lines_of(500) + inner + lines_of(500), 0))
    file = InputFile(str(path), path.stat().st_size)
    ranges = plan_compressed(file, "gzip", 2000)
    assert len(ranges) == 2
    wording.refused(DataError, lambda: list(read_pieces(ranges[0], 1000)))


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_damage_in_one_range_names_its_bytes(tmp_path: Path, kind: str, wording: Wording) -> None:
    content = lines_of(4000)
    path = tmp_path / "raw"
    codec = write(path, content, list(range(0, len(content), 5000)), kind)
    file = InputFile(str(path), path.stat().st_size)
    ranges = plan_compressed(file, codec, file.size_bytes // 4)
    data = bytearray(path.read_bytes())
    place = (ranges[1].start + ranges[2].start) // 2
    if kind == "zstd":  # without a checksum only what leads from block to block is told
        place = data.find(b"\x28\xb5\x2f\xfd", place)
    data[place] ^= 4
    path.write_bytes(data)
    list(read_pieces(ranges[2], 1000))
    wording.refused(
        DataError,
        lambda: list(read_pieces(ranges[1], 1000)),
        **{"since byte": f"{ranges[1].start:,}"},
    )


def test_one_member_is_decompressed_and_parsed_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pieces are parsed at the same time, while more are decompressed."""
    monkeypatch.setattr(byte_ranges, "_PIECE_BYTES", 1000)
    content = lines_of(2000)
    path = tmp_path / "raw.gz"
    path.write_bytes(gzip.compress(content))
    of_two_pieces = content[:2000].count(b"\n")
    together = threading.Barrier(2, timeout=60)
    threads = set()

    def parse(piece: bytes, lines_before: int) -> tuple[int, bytes]:
        if lines_before < of_two_pieces:  # the first two wait for each other
            together.wait()
        threads.add(threading.get_ident())
        return lines_before, piece

    found = list(parsed_pieces(TextRange(str(path), codec="gzip"), 3000, parse))
    assert b"".join(piece for _, (_, piece) in found) == content
    assert len(threads) == 2
    assert threading.get_ident() not in threads
    blocks = [number for number, _ in found]
    assert blocks == sorted(blocks)
    assert set(blocks) == set(range(-(-len(content) // 3000)))
