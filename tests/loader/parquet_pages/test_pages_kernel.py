"""The kernel of pages against its fallback; arguments that do not fit are refused."""

import contextlib
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pages_twin import ids_of, number, packed, repeated
from wording import Wording

_pages = pytest.importorskip(
    "distrain.loader.parquet_pages._pages", reason="distrain was built without a compiler"
)

UNTOUCHED = -889275714


def begin(width: int, position: int = 0) -> np.ndarray:
    return np.array([position, width, 0, 0, 0, 0], np.int64)


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


@pytest.mark.parametrize("width", range(1, 33))
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_runs_of_any_width_read_in_parts_of_any_size(width: int, dtype: Any) -> None:
    rng = np.random.default_rng(width)
    dictionary = rng.integers(-(2**31), 2**31, 5000).astype(dtype)
    for _ in range(6):
        page, count = random_runs(rng, width, len(dictionary))
        expected = dictionary[ids_of(page, width, count)]
        found, run = np.empty(count, dtype), begin(width)
        for part in np.split(found, np.sort(rng.integers(0, count + 1, 5))):
            _pages.lookup(exactly(page), run, dictionary, part, dictionary.itemsize)
        assert found.tobytes() == expected.tobytes()


def test_no_bytes_of_a_page_lead_out_of_its_memory() -> None:
    rng = np.random.default_rng(7)
    dictionary = np.arange(40, dtype=np.int32)
    refused = 0
    pages = {width: random_runs(rng, width, 40)[0][:200] for width in range(1, 33)}
    for _ in range(4000):
        width = int(rng.integers(1, 33))
        page = bytearray(pages[width])
        for at in rng.integers(0, len(page), 2):
            page[at] = rng.integers(0, 256)
        memory = np.full(600, UNTOUCHED, np.int32)
        try:
            _pages.lookup(exactly(page), begin(width), dictionary, memory[50:-50], 4)
        except ValueError:
            refused += 1
        assert (memory[:50] == UNTOUCHED).all()
        assert (memory[-50:] == UNTOUCHED).all()
        assert np.isin(memory, [UNTOUCHED, *dictionary]).all()
    assert refused > 1000


def test_arguments_that_do_not_fit_are_refused() -> None:
    page, dictionary = repeated(1, 4, 3), np.arange(8, dtype=np.int32)
    out = np.empty(4, np.int32)
    _pages.lookup(page, begin(3), dictionary, out, 4)
    assert out.tolist() == [1] * 4
    unaligned = np.frombuffer(bytes(33), np.uint8)[1:]
    for call in (
        (page, begin(0), dictionary, out, 4),
        (page, begin(33), dictionary, out, 4),
        (page, begin(3)[:5], dictionary, out, 4),
        (page, begin(3, 9), dictionary, out, 4),
        (page, begin(3), unaligned, out, 4),
        (page, begin(3), dictionary, out, 3),
        (page, begin(3), dictionary, out.view(np.uint8)[:6], 4),
        (page, begin(3), dictionary[:1], out, 4),
        (page, begin(3), dictionary[:0], out, 4),
        (b"", begin(3), dictionary, out, 4),
        (number(0) + page, begin(3), dictionary, out, 4),
        (b"\xff" * 8, begin(3), dictionary, out, 4),
        (repeated(1, 3, 3), begin(3), dictionary, out, 4),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            _pages.lookup(*call)
    frozen = out.copy()
    frozen.flags.writeable = False
    with pytest.raises((BufferError, TypeError)):
        _pages.lookup(page, begin(3), dictionary, frozen, 4)


def test_no_header_leads_out_of_its_memory() -> None:
    rng = np.random.default_rng(9)
    for length in range(60):
        for _ in range(60):
            noise = exactly(rng.integers(0, 256, length, np.uint8).tobytes())
            with pytest.raises(ValueError, match=r"\w"):
                _pages.headers(noise, 1, True)
            with contextlib.suppress(ValueError):
                assert 0 <= _pages.skip_levels(noise, 3, int(rng.integers(-1, 9))) <= length
            for codec in ("SNAPPY", "ZSTD", "?"):
                assert _pages.content_bytes(codec, noise) >= -1


def lz4_of(rng: np.random.Generator, length: int) -> bytes:
    """Bytes that repeat at all kinds of distances."""
    content = bytearray(rng.integers(0, 256, min(length, 40), np.uint8))
    while len(content) < length:
        back = int(rng.choice([1, 2, 3, 7, 8, 9, 15, 16, 17, 40, len(content)]))
        piece = content[-min(back, len(content)) :]
        content += (piece * 300)[: int(rng.choice([4, 5, 8, 15, 16, 19, 33, 300]))]
        content += rng.integers(
            0, 256, int(rng.choice([0, 1, 14, 15, 16, 300])), np.uint8
        ).tobytes()
    return bytes(content[:length])


def test_lz4_gives_what_was_compressed_and_nothing_else() -> None:
    rng, codec = np.random.default_rng(12), pa.Codec("lz4_raw")
    for length in [*range(1, 80), 300, 5000, 70_000]:
        content = lz4_of(rng, length)
        block = exactly(codec.compress(content, asbytes=True))
        out = np.empty(length, np.uint8)
        _pages.lz4(block, out)
        assert out.tobytes() == content
        for other in (np.empty(length - 1, np.uint8), np.empty(length + 1, np.uint8)):
            with pytest.raises(ValueError, match="page"):
                _pages.lz4(block, other)


def test_no_block_of_lz4_leads_out_of_its_memory() -> None:
    rng, codec = np.random.default_rng(13), pa.Codec("lz4_raw")
    read = refused = 0
    for length in (20, 60, 200, 1000):
        block = codec.compress(lz4_of(rng, length), asbytes=True)
        for _ in range(1500):
            damaged = bytearray(block)
            for at in rng.integers(0, len(block), rng.integers(1, 4)):
                damaged[at] = rng.integers(0, 256)
            cut = bytes(
                damaged[: rng.integers(1, len(block) + 1)] if rng.random() < 0.2 else damaged
            )
            out = np.zeros(length, np.uint8)
            try:
                _pages.lz4(exactly(cut), out)
            except ValueError:
                refused += 1
                continue
            read += 1
            assert out.tobytes() == codec.decompress(cut, length, asbytes=True)
    assert read > 100
    assert refused > 100


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
