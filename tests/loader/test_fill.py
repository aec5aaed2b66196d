"""The kernels that fill batches, C and NumPy, against a naive loop over single values."""

import ctypes
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from int_arrays import unaligned
from wording import Wording

from distrain.loader.filling import fill_numpy

try:
    from distrain.loader.filling._fill import fill as c_fill
except ImportError:
    c_fill = None  # type: ignore[assignment]


def fill_with_tile(*call: Any) -> bytes:
    """The kernel in C where it has memory for a tile."""
    kernel: Any = c_fill
    cells = call[9:] or (0, 0)
    memory = np.zeros(16 * (max(map(len, call[0]), default=0) + 1), np.uint8)
    start = -memory.ctypes.data % 16
    return kernel(*call[:9], *cells, memory[start:])  # type: ignore[no-any-return]


needs_c = pytest.mark.skipif(c_fill is None, reason="distrain was built without a compiler")
KERNELS = [
    pytest.param(c_fill, id="C", marks=needs_c),
    pytest.param(fill_with_tile, id="C with a tile", marks=needs_c),
    pytest.param(fill_numpy.fill, id="NumPy"),
]

DTYPES = {"i": np.int32, "q": np.int64, "f": np.float32, "d": np.float64}
DTYPES |= {"B": np.uint8, "H": np.uint16}
UNTOUCHED = -889275714
LIMIT = 1000
IDS = [0, 1, LIMIT - 1, LIMIT, -1, 2**31 - 1, -(2**31)]
NARROW_IDS = {"B": [0, 255], "H": [0, LIMIT - 1, LIMIT, 65_535]}
WIDE_IDS = [*IDS, 2**31, 2**32, 2**32 + 5, 2**63 - 1, -(2**63)]
# Zeros, denormals, the largest float32, what overflows it or not by rounding, NaNs of either sign.
FLOATS = [0.0, -0.0, 1.0, 0.5, -1.0, 1e-40, -1e-45, 3.4028234e38, 3.4028235677e38, 3.5e38]
FLOATS += [-1e300, 1e-300, -1e-300, 1 + 1e-12, 16777217.0, math.inf, -math.inf, math.nan, -math.nan]
KINDS = ["ii", "iq", "iB", "iH", "vf", "vd", "lf", "ld", "wf", "wd"]
GOOD_FLOATS = {"v": [0.0, -0.0, 0.5, -3.25, 1e-40, 3.4e38], "l": [0.0, 1.0], "w": [0.0, 2.5, 1e-40]}


@dataclass
class Call:
    """The arguments of one call of a kernel, and the memory around its blocks."""

    sources: list[np.ndarray]
    blocks: list[np.ndarray]
    roles: bytes
    types: bytes
    limits: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    places: np.ndarray

    def run(self, kernel: Any) -> bytes:
        return kernel(*vars(self).values())  # type: ignore[no-any-return]


def float32_bits(source: np.ndarray, row: int) -> int:
    item = source[row].tobytes()
    if source.itemsize == 8:  # C's own conversion, one value at a time
        item = bytes(ctypes.c_float(struct.unpack("<d", item)[0]))
    return int(struct.unpack("<I", item)[0])


def naive_value(role: str, source: np.ndarray, row: int, limit: int) -> tuple[int, bool]:
    """The cell's bits of one value, and whether it is suspicious."""
    value = source[row].item()
    if role == "i":
        return value & 0xFFFFFFFF, not 0 <= value < limit
    bits = float32_bits(source, row)
    if role == "l":
        return bits, value not in (0, 1)
    cell = struct.unpack("<f", struct.pack("<I", bits))[0]
    return bits, not math.isfinite(cell) or (role == "w" and math.copysign(1, cell) < 0)


def naive_fill(call: Call) -> bytes:
    suspicious = bytearray(len(call.sources))
    entry = 0
    for block, start, count in zip(call.blocks, call.starts, call.counts, strict=True):
        for number in range(count):
            place = start + (call.places[entry] if len(call.places) else number)
            for column, source in enumerate(call.sources):
                role, limit = chr(call.roles[column]), int(call.limits[column])
                bits, is_bad = naive_value(role, source, int(call.rows[entry]), limit)
                block.view(np.uint32)[column, place] = bits
                suspicious[column] |= is_bad
            entry += 1
    return bytes(suspicious)


def random_column(rng: np.random.Generator, role: str, kind: str, size: int, wild: bool) -> Any:
    if role == "i":
        values = rng.integers(0, LIMIT, size).astype(DTYPES[kind])
        special: list[Any] = {**NARROW_IDS, "q": WIDE_IDS, "i": IDS}[kind]
        if not wild:
            special = [0, 255 if kind == "B" else LIMIT - 1]
    else:
        values = rng.choice(np.array(GOOD_FLOATS[role]), size).astype(DTYPES[kind])
        special = FLOATS if wild else GOOD_FLOATS[role]
    with np.errstate(over="ignore"):
        chosen = np.array(special, DTYPES[kind])[rng.integers(0, len(special), size)]
    return np.where(rng.random(size) < 0.3, chosen, values)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=9))
    num_rows = draw(st.integers(1, 40))
    sources = [random_column(rng, *kind, size=num_rows, wild=draw(st.booleans())) for kind in kinds]
    widths = draw(st.lists(st.integers(0, 50), max_size=5))
    blocks = [np.full((len(kinds), width), UNTOUCHED, np.int32) for width in widths]
    starts = [draw(st.integers(0, width)) for width in widths]
    counts = [draw(st.integers(0, w - s)) for w, s in zip(widths, starts, strict=True)]
    places = [rng.permutation(w - s)[:c] for w, s, c in zip(widths, starts, counts, strict=True)]
    scattered = draw(st.booleans()) and sum(counts) > 0
    return Call(
        [unaligned(source) if draw(st.booleans()) else source for source in sources],
        blocks,
        "".join(kind[0] for kind in kinds).encode(),
        "".join(kind[1] for kind in kinds).encode(),
        np.full(len(kinds), LIMIT, np.uint64),
        rng.integers(0, num_rows, sum(counts)).astype(np.int32),
        np.array(starts, np.int64),
        np.array(counts, np.int64),
        np.concatenate(places).astype(np.int32) if scattered else np.empty(0, np.int32),
    )


@pytest.mark.parametrize("kernel", KERNELS)
@settings(deadline=None, max_examples=40)
@given(call=calls())
def test_a_kernel_equals_the_naive_loop(kernel: Any, call: Call) -> None:
    expected = [block.copy() for block in call.blocks]
    flags = naive_fill(Call(**{**vars(call), "blocks": expected}))
    assert call.run(kernel) == flags
    for block, wanted in zip(call.blocks, expected, strict=True):
        assert np.array_equal(block, wanted)


def four_times(call: Call) -> Call:
    """The same of four columns like the only one, which may go by way of a tile."""
    blocks = [np.repeat(block, 4, axis=0) for block in call.blocks]
    many = {"sources": call.sources * 4, "blocks": blocks, "roles": call.roles * 4}
    many |= {"types": call.types * 4, "limits": np.repeat(call.limits, 4)}
    return Call(**{**vars(call), **many})


def one_column(role: str, source: np.ndarray, limit: int = LIMIT, **changes: Any) -> Call:
    """All rows of one column into one block, in their order."""
    rows = len(source)
    call = {
        "sources": [source],
        "blocks": [np.full((1, rows), UNTOUCHED, np.int32)],
        "roles": role.encode(),
        "types": source.dtype.char.replace("l", "q").encode(),
        "limits": np.array([limit], np.uint64),
        "rows": np.arange(rows, dtype=np.int32),
        "starts": np.zeros(1, np.int64),
        "counts": np.array([rows], np.int64),
        "places": np.empty(0, np.int32),
    }
    return Call(**{**call, **changes})


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_id_limit_of_all_int32_ids(kernel: Any) -> None:
    assert one_column("i", np.array([2**31 - 1], np.int64), 2**31).run(kernel) == b"\0"
    assert one_column("i", np.array([2**31], np.int64), 2**31).run(kernel) == b"\1"
    assert one_column("i", np.array([-(2**31)], np.int32), 2**31).run(kernel) == b"\1"


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_bits_of_a_nan_are_kept(kernel: Any) -> None:
    bits = np.array([0x7FC12345, 0xFFC00001, 0x7F800001], np.uint32)
    call = one_column("v", bits.view(np.float32))
    assert call.run(kernel) == b"\1"
    assert call.blocks[0].view(np.uint32).tolist() == [bits.tolist()]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_scattered_run_longer_than_the_kernels_scratch(kernel: Any) -> None:
    rng = np.random.default_rng(0)
    size = 3 * 4096 + 5
    places, rows = (rng.permutation(size).astype(np.int32) for _ in range(2))
    source = rng.integers(0, LIMIT, size).astype(np.int64)
    source[rows[-1]] = LIMIT
    call = four_times(one_column("i", source, rows=rows, places=places))
    assert call.run(kernel) == b"\1\1\1\1"
    for cells in call.blocks[0]:
        assert np.array_equal(cells[places], source[rows])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bad_row", [None, 0, 5_000, 8_999])
def test_long_runs_of_large_batches(kernel: Any, bad_row: int | None) -> None:
    # Which the kernel writes past the caches, but for what is not a whole line.
    rng = np.random.default_rng(0)
    rows, counts = 9_000, np.array([2_741, 255, 256, 5_748], np.int64)
    sources = [rng.integers(0, LIMIT, rows).astype(np.int32), rng.random(rows).astype(np.float32)]
    sources += [sources[0].astype(np.int64), sources[1].astype(np.float64), sources[1]]
    sources += [sources[0].astype(np.uint16), (sources[0] % 200).astype(np.uint8)]
    sources += [(sources[1] > 0.5).astype(np.float32)]
    if bad_row is not None:
        for source in sources:
            source[bad_row] = {"i": -1, "u": 255}.get(source.dtype.kind, np.inf)
        sources[5][bad_row] = LIMIT
    roles, types, starts = b"iviwwiil", b"ifqdfHBf", np.array([0, 3, 17, 2], np.int64)
    order = rng.permutation(rows).astype(np.int32)
    blocks = [np.full((8, 8_192 + number), UNTOUCHED, np.int32) for number in range(4)]
    expected = [block.copy() for block in blocks]
    limits, places = np.array([LIMIT] * 6 + [200, 0], np.uint64), np.empty(0, np.int32)
    call = Call(sources, blocks, roles, types, limits, order, starts, counts, places)
    flags = fill_numpy.fill(sources, expected, roles, types, limits, order, starts, counts, places)
    assert call.run(kernel) == flags == bytes([bad_row is not None] * 8)
    for block, wanted in zip(blocks, expected, strict=True):
        assert np.array_equal(block, wanted)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(deadline=None, max_examples=30)
@given(call=calls(), first=st.integers(0, 2), more=st.integers(0, 2))
def test_columns_are_written_to_their_places_in_wider_blocks(
    kernel: Any, call: Call, first: int, more: int
) -> None:
    count = len(call.sources)
    blocks = [np.full((first + count + more, b.shape[1]), UNTOUCHED, np.int32) for b in call.blocks]
    wide = Call(**{**vars(call), "blocks": blocks})
    flags = kernel(*vars(wide).values(), first, first + count + more)
    assert flags == call.run(fill_numpy.fill)
    for block, own in zip(blocks, call.blocks, strict=True):
        assert np.array_equal(block[first : first + count], own)
        assert (block[:first] == UNTOUCHED).all()
        assert (block[first + count :] == UNTOUCHED).all()


@needs_c
@pytest.mark.parametrize(
    ("first", "columns"), [(-1, 2), (1, 2), (0, 1), (0, -2), (0, 5), (0, 2**62)]
)
def test_columns_beyond_their_block_are_refused(first: int, columns: int, wording: Wording) -> None:
    from distrain.loader.filling._fill import fill

    block = np.full(24, 0x5A, np.uint8)
    source = np.arange(3, dtype=np.int32)
    one = np.array([3], np.int64)
    call = (
        [source, source.view(np.float32)], [block], b"iv", b"if", np.array([9, 9], np.uint64),
        source, one - 3, one, b"", first, columns,
    )  # fmt: skip
    wording.refused(ValueError, lambda: fill(*call))
    assert (block == 0x5A).all()
