"""The kernel of pages: what is wrong is reported of each column chunk."""

import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from page_files import decode_chunk
from pages_twin import ids_of, number, packed, repeated
from wording import Wording

_pages = pytest.importorskip(
    "distrain.loader.parquet_pages._pages", reason="distrain was built without a compiler"
)

UNTOUCHED = -889275714


def exactly(content: bytes) -> np.ndarray:
    """The bytes in memory of just their length, for whoever watches its ends."""
    return np.frombuffer(content, np.uint8).copy()


def random_runs(rng: np.random.Generator, width: int, entries: int) -> tuple[bytes, int]:
    limit, page, count = min(entries, 1 << width), b"", 0
    for _ in range(rng.integers(1, 8)):
        if rng.random() < 0.5:
            length = int(rng.choice([1, 2, 8, 300, 3000]))
            page += repeated(int(rng.integers(limit)), length, width)
        else:
            length = int(rng.choice([8, 16, 64, 1024, 1032, 2048]))
            page += packed(rng.integers(limit, size=length).tolist(), width)
        count += length
    return page, count


def chunk_of_ids(dictionary: np.ndarray, width: int, runs: bytes, count: int) -> np.ndarray:
    """A chunk of a dictionary and one page of ids, not compressed."""
    page = bytes([width]) + runs
    sizes = [b"\x15" + number(2 * size) for size in (dictionary.nbytes, len(page))]
    head = b"\x15\4" + sizes[0] * 2 + b"\x4c\x15" + number(2 * len(dictionary)) + b"\x15\0\0\0"
    ids = b"\x15\0" + sizes[1] * 2 + b"\x2c\x15" + number(2 * count)
    return exactly(head + dictionary.tobytes() + ids + b"\x15\x10\x15\6\x15\6\0\0" + page)


@pytest.mark.parametrize("width", range(1, 33))
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_runs_of_any_width(width: int, dtype: Any) -> None:
    rng = np.random.default_rng(width)
    dictionary = rng.integers(-(2**31), 2**31, 5000).astype(dtype)
    size = dictionary.itemsize
    for _ in range(6):
        page, count = random_runs(rng, width, len(dictionary))
        found = np.empty(count, dtype)
        decode_chunk(chunk_of_ids(dictionary, width, page, count), 0, False, size, found, size)
        assert found.tobytes() == dictionary[ids_of(page, width, count)].tobytes()


def test_no_bytes_of_a_page_lead_out_of_its_memory() -> None:
    rng = np.random.default_rng(7)
    dictionary = np.arange(40, dtype=np.int32)
    refused = 0
    pages = {width: random_runs(rng, width, 40)[0][:200] for width in range(1, 33)}
    for _ in range(2000):
        width = int(rng.integers(1, 33))
        page = bytearray(pages[width])
        for at in rng.integers(0, len(page), 2):
            page[at] = rng.integers(0, 256)
        memory = np.full(600, UNTOUCHED, np.int32)
        try:
            chunk = chunk_of_ids(dictionary, width, bytes(page), 500)
            decode_chunk(chunk, 0, False, 4, memory[50:-50], 4)
        except ValueError:
            refused += 1
        assert (memory[:50] == UNTOUCHED).all()
        assert (memory[-50:] == UNTOUCHED).all()
        assert np.isin(memory, [UNTOUCHED, *dictionary]).all()
    assert refused > 500


def page_of(content: bytes, codec: str) -> bytes:
    """A chunk of one plain page of 4-byte values."""
    block = pa.Codec(codec).compress(content, asbytes=True)
    sizes = b"".join(b"\x15" + number(2 * size) for size in (len(content), len(block)))
    values = b"\x15" + number(2 * (len(content) // 4))
    return b"\x15\0" + sizes + b"\x2c" + values + b"\x15\0\x15\6\x15\6\0\0" + block


def test_what_is_wrong_is_told_of_each_chunk(wording: Wording) -> None:
    chunk, wide = exactly(page_of(bytes(40), "snappy")), np.full(5, 1 << 40).tobytes()
    large = exactly(page_of(wide, "snappy"))
    large[large.tobytes().index(b"\x14\x15\0")] = 10  # five values of eight bytes
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(chunk)
        file.write(large)
        outs = [np.full(10, UNTOUCHED, np.int32) for _ in range(4)]
        places = [(0, len(chunk)), (0, len(chunk) - 1), (len(chunk), len(large) + 1)]
        chunks = [(*places[n], 1, False, 4, outs[n], 4, b"") for n in range(3)]
        chunks.append((len(chunk), len(large), 1, False, 8, outs[3][:5], 4, b""))
        good, cut, beyond, too_wide = _pages.decode(file.fileno(), _pages.memory(), chunks)
        assert _pages.decode(file.fileno(), _pages.memory(), []) == []
        wording.refused(
            ValueError,
            lambda: _pages.decode(file.fileno(), _pages.memory(), [(-1, *chunks[0][1:])]),
        )
        with pytest.raises(TypeError):
            _pages.decode(file.fileno(), _pages.memory(), [chunks[0], ()])
    assert good is None
    assert outs[0].tolist() == [0] * 10
    assert cut
    assert beyond == "a column chunk ends early"
    assert too_wide == _pages.TOO_WIDE
