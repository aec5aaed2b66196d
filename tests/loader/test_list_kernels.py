"""The kernels that deal lists, C and NumPy, against lists of Python, and unfit arguments."""

import struct
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from int_arrays import int32, int64

from distrain.loader.filling import fill_numpy as lists_numpy

try:
    from distrain.loader.filling import _fill as c_kernels
except ImportError:
    c_kernels = None  # type: ignore[assignment]

needs_c = pytest.mark.skipif(c_kernels is None, reason="distrain was built without a compiler")
KERNELS = [
    pytest.param(c_kernels, id="C", marks=needs_c),
    pytest.param(lists_numpy, id="NumPy"),
]
LIMIT = 1000
DTYPES = {"i": np.int32, "q": np.int64, "f": np.float32, "d": np.float64}
DTYPES |= {"B": np.uint8, "H": np.uint16}
GOOD = {"i": [0, 1, LIMIT - 1], "B": [0, 255], "f": [0.0, -0.0, 1.5, -3.25, 1e-40, 3.4e38]}
BAD: dict[str, list[float]] = {
    "B": [],
    "H": [LIMIT, 65_535],
    "i": [LIMIT, -1],
    "q": [LIMIT, -1, 2**32 + 5],
    "f": [np.nan, -np.inf],
    "d": [np.nan, 3.5e38],
}


def bits_of(value: Any, kind: str) -> int:
    if kind in "iqBH":
        return int(value) & 0xFFFFFFFF
    return int(struct.unpack("<I", np.float32(value).tobytes())[0])


@pytest.mark.parametrize("kernels", KERNELS)
@settings(deadline=None, max_examples=20)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 3, 7, 8, 9, 30]), min_size=1, max_size=40),
    before=st.integers(0, 3),
    kind=st.sampled_from("iqBHfd"),
    most=st.sampled_from([0, 1, 3, 8, 2**31 - 1]),
    counts=st.lists(st.integers(0, 30), max_size=4),
    is_bad=st.booleans(),
    seed=st.integers(0, 99),
)
def test_dealt_and_joined_lists_equal_lists_of_python(
    kernels: ModuleType, lengths: list[int], before: int, kind: str, most: int,
    counts: list[int], is_bad: bool, seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([before, *lengths]).astype(np.int32)
    choices = GOOD["B" if kind == "B" else "i" if kind in "iqH" else "f"] + BAD[kind] * is_bad
    items = np.array(rng.choice(np.array(choices, DTYPES[kind]), offsets[-1]))
    rows = rng.integers(0, len(lengths), sum(counts)).astype(np.int32)
    expected = [items[offsets[row] : offsets[row + 1]][:most].tolist() for row in rows]

    of_runs, got_lengths = np.array(counts, np.int64), np.empty(len(rows), np.int32)
    totals = np.empty(len(counts), np.int64)
    longest = kernels.measure_lists(offsets, len(items), rows, of_runs, most, got_lengths, totals)
    assert got_lengths.tolist() == [len(row) for row in expected]
    assert longest == max(map(len, expected), default=0)

    # Each block has a cell more behind it, which stays as it was.
    memory = [np.full(total + 1, 77, np.int32) for total in totals]
    role = b"i" if kind in "iqBH" else b"v"
    with np.errstate(over="ignore"):
        suspicious = kernels.gather_lists(
            offsets, items, role, kind.encode(), LIMIT, rows, of_runs, most,
            [block[:-1] for block in memory],
        )  # fmt: skip
        cells = [[bits_of(value, kind) for value in row] for row in expected]
    used = [value for row in expected for value in row]
    bad = {str(value) for value in BAD[kind]}
    assert suspicious == any(str(value) in bad for value in used)
    runs = np.split(np.arange(len(rows)), np.cumsum(counts)[:-1]) if counts else []
    for block, run in zip(memory, runs, strict=True):
        assert block.view(np.uint32).tolist() == [*(c for row in run for c in cells[row]), 77]

    places = rng.permutation(len(rows)).astype(np.int32)
    joined = np.empty(len(rows) + 1, np.int32)
    joined[0] = 0
    by_place = np.empty(len(rows), np.int32)
    by_place[places] = got_lengths
    np.cumsum(by_place, out=joined[1:])
    values = np.empty(joined[-1], np.int32)
    for block, run in zip(memory, runs, strict=True):
        kernels.place_lists(block[:-1], places[run], joined, values)
    row_at = np.argsort(places)
    assert values.view(np.uint32).tolist() == [c for row in row_at for c in cells[row]]


# Three lists, [10, 11], [] and [12], of which rows 2 and 0 are taken by two runs.
MEASURE: dict[str, Any] = {
    "offsets": int32(0, 2, 2, 3), "num_items": 3, "rows": int32(2, 0), "counts": int64(1, 1),
    "most": 9, "lengths": int32(7, 7), "totals": int64(7, 7),
}  # fmt: skip
GATHER: dict[str, Any] = {
    "offsets": int32(0, 2, 2, 3), "items": int32(10, 11, 12), "role": b"i", "kind": b"i",
    "limit": 99, "rows": int32(2, 0), "counts": int64(1, 1), "most": 9,
    "blocks": [int32(7), int32(7, 7)],
}  # fmt: skip
PLACE: dict[str, Any] = {
    "items": int32(10, 11, 12), "places": int32(1, 0), "offsets": int32(0, 1, 3),
    "values": int32(7, 7, 7),
}  # fmt: skip
ODD = np.frombuffer(bytes(17), np.int32, 4, offset=1)
ROWS = [
    {"rows": int32(3, 0)},
    {"rows": int32(-1, 0)},
    {"offsets": int32(0, 2, 1, 3), "rows": int32(1, 0)},
    {"offsets": int32(0, 2, 2, 4)},
    {"offsets": int32(-1, 2, 2, 3)},
    {"offsets": np.empty(0, np.int32)},
    {"offsets": ODD},
    {"counts": int64(1, 2)},
    {"counts": int64(1, -1)},
    {"counts": int64(1, 0)},
    {"most": -1},
]
UNFIT = [
    *(("measure_lists", MEASURE | change) for change in ROWS),
    ("measure_lists", MEASURE | {"lengths": int32(7)}),
    ("measure_lists", MEASURE | {"totals": int64(7)}),
    *(("gather_lists", GATHER | change) for change in ROWS),
    ("gather_lists", GATHER | {"blocks": [int32(7)]}),
    ("gather_lists", GATHER | {"blocks": [int32(7), int32(7)]}),
    ("gather_lists", GATHER | {"blocks": [int32(7), int32(7, 7, 7)]}),
    ("gather_lists", GATHER | {"blocks": [int32(7), ODD[:2].copy().view(np.int8)[:7]]}),
    ("gather_lists", GATHER | {"items": int32(10, 11)}),
    ("gather_lists", GATHER | {"kind": b"q"}),
    ("gather_lists", GATHER | {"kind": b"f"}),
    ("gather_lists", GATHER | {"role": b"v"}),
    ("gather_lists", GATHER | {"role": b""}),
    ("place_lists", PLACE | {"places": int32(1, 2)}),
    ("place_lists", PLACE | {"places": int32(1, -1)}),
    ("place_lists", PLACE | {"offsets": int32(0, 1, 4)}),
    ("place_lists", PLACE | {"offsets": int32(0, -1, 3)}),
    ("place_lists", PLACE | {"offsets": np.empty(0, np.int32)}),
    ("place_lists", PLACE | {"items": int32(10, 11)}),
    ("place_lists", PLACE | {"items": int32(10, 11, 12, 13)}),
    ("place_lists", PLACE | {"values": int32(7, 7)}),
    ("place_lists", PLACE | {"items": ODD[:3]}),
]


@needs_c
def test_the_calls_that_the_others_spoil_are_good() -> None:
    assert c_kernels.measure_lists(*MEASURE.values()) == 2
    assert (MEASURE["lengths"].tolist(), MEASURE["totals"].tolist()) == ([1, 2], [1, 2])
    assert not c_kernels.gather_lists(*GATHER.values())
    assert [block.tolist() for block in GATHER["blocks"]] == [[12], [10, 11]]
    c_kernels.place_lists(*PLACE.values())
    assert PLACE["values"].tolist() == [12, 10, 11]


@needs_c
@pytest.mark.parametrize(("name", "call"), UNFIT)
def test_what_does_not_fit_is_refused(name: str, call: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        getattr(c_kernels, name)(*call.values())


@needs_c
def test_what_is_no_array_is_refused() -> None:
    for name, call in (
        ("measure_lists", MEASURE),
        ("gather_lists", GATHER),
        ("place_lists", PLACE),
    ):
        for place in range(len(call)):
            arguments = list(call.values())
            arguments[place] = None
            with pytest.raises(TypeError):
                getattr(c_kernels, name)(*arguments)
