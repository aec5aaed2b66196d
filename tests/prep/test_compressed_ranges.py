"""Compressed files of one or many members, decompressed and parsed by several threads."""

import gzip
import threading
import zlib
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from distrain.prep.text_files import byte_ranges
from distrain.prep.text_files.byte_ranges import (
    TextRange,
    parsed_pieces,
    plan_ranges,
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
       st.booleans(), st.lists(st.integers(1, 400), max_size=8))  # fmt: skip
def test_a_file_of_members_holds_each_line_once_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    lines: list[bytes],
    ended: bool,
    cuts: list[int],
) -> None:
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("cut") / "raw"
    codec = write(path, content, cuts, kind)
    file = InputFile(str(path), path.stat().st_size)
    read = [p for text in plan_ranges(file, codec, 50) for _, p in read_pieces(text, 50)]
    assert b"".join(read) == content


def lines_of(count: int) -> bytes:
    return b"".join(b"%d,%d\n" % (n, n * n * 7919 % 1000003) for n in range(count))


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
