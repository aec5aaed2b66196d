"""The C kernel and arguments that do not fit: refused, and no memory touched."""

import struct
from typing import Any

import numpy as np
import pytest
from int_arrays import int32, int64, unaligned
from wording import Wording

_fill = pytest.importorskip(
    "distrain.loader.filling._fill", reason="distrain was built without a compiler"
)

UNTOUCHED = -889275714
GUARD = 64


def good_call(memory: np.ndarray) -> dict[str, Any]:
    """Two columns of 4 rows into two blocks of 4 and 3 cells a column, inside guarded memory."""
    return {
        "sources": [int32(1, 2, 3, 4), np.ones(4)],
        "blocks": [
            memory[GUARD : GUARD + 8].reshape(2, 4),
            memory[2 * GUARD + 8 : 2 * GUARD + 14].reshape(2, 3),
        ],
        "roles": b"iv",
        "types": b"id",
        "limits": np.array([9, 9], np.uint64),
        "rows": int32(3, 0, 1, 2),
        "starts": int64(1, 0),
        "counts": int64(2, 2),
        "places": np.empty(0, np.int32),
    }


@pytest.fixture
def memory() -> np.ndarray:
    return np.full(3 * GUARD + 14, UNTOUCHED, np.int32)


def test_the_call_that_the_others_spoil_is_good(memory: np.ndarray) -> None:
    call = good_call(memory)
    assert _fill.fill(*call.values()) == b"\0\0"
    assert call["blocks"][0][0].tolist() == [UNTOUCHED, 4, 1, UNTOUCHED]
    assert call["blocks"][1][0].tolist() == [2, 3, UNTOUCHED]
    call["places"] = int32(2, 0, 2, 1)
    assert _fill.fill(*call.values()) == b"\0\0"
    assert call["blocks"][0][0].tolist() == [UNTOUCHED, 1, 1, 4]
    assert call["blocks"][1][0].tolist() == [2, 3, 2]
    assert (memory[:GUARD] == UNTOUCHED).all()
    assert (memory[GUARD + 8 : 2 * GUARD + 8] == UNTOUCHED).all()
    assert (memory[-GUARD:] == UNTOUCHED).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": int32(3, 0, 1, 4)},
        {"rows": int32(3, 0, 1, 2**31 - 1)},
        {"rows": int32(3, 0, 1, -1)},
        {"rows": int32(3, 0, 1, -(2**31))},
        {"sources": [int32(1, 2, 3, 4), np.ones(3)]},
        {"sources": [int32(1, 2, 3, 4), np.ones(4, np.float32)]},
        {"types": b"qd"},
        {"types": b"Bd", "sources": [np.ones(3, np.uint8), np.ones(4)]},
        {"types": b"Hd", "sources": [np.ones(3, np.uint16), np.ones(4)]},
        {"sources": [int32(1, 2, 3, 4)]},
        {"sources": []},
        {"roles": b"i"},
        {"types": b"idd"},
        {"limits": np.array([9], np.uint64)},
        {"limits": np.array([9, 9], np.uint32)},
        {"starts": int64(1)},
        {"starts": int32(1, 0)},
        {"counts": int64(2, 2, 0)},
        {"starts": int64(1, 0, 0), "counts": int64(2, 2, 0)},
        {"places": int32(0, 1, 0)},
        {"roles": b"xv"},
        {"roles": b"i\0"},
        {"types": b"ih"},
        {"types": b"i\0"},
        {"roles": b"vv"},
        {"roles": b"ii"},
        {"types": b"iB"},
        {"counts": int64(4, 0)},
        {"counts": int64(2**62, 2)},
        {"counts": int64(-1, 2)},
        {"starts": int64(3, 0)},
        {"starts": int64(-1, 0)},
        {"starts": int64(2**63 - 1, 0)},
        {"starts": int64(-(2**63), 0)},
        {"counts": int64(3, 2)},
        {"counts": int64(2, 1)},
        {"places": int32(0, 3, 0, 1)},
        {"places": int32(0, -1, 0, 1)},
        {"places": int32(0, 1, 0, 2**31 - 1)},
        {"rows": unaligned(int32(3, 0, 1, 2))},
        {"starts": unaligned(int64(1, 0))},
        {"counts": unaligned(int64(2, 2))},
        {"places": unaligned(int32(0, 1, 0, 1))},
        {"limits": unaligned(np.array([9, 9], np.uint64))},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_is_written(
    memory: np.ndarray, changes: dict[str, Any], wording: Wording
) -> None:
    call = {**good_call(memory), **changes}
    wording.refused(ValueError, lambda: _fill.fill(*call.values()))
    assert (memory == UNTOUCHED).all()


def test_blocks_that_do_not_fit_are_refused(memory: np.ndarray, wording: Wording) -> None:
    call = good_call(memory)
    first = call["blocks"][0]
    wording.refused(ValueError, lambda: _fill.fill(*{**call, "blocks": [first]}.values()))
    wording.refused(
        ValueError, lambda: _fill.fill(*{**call, "blocks": [first, memory[:7]]}.values())
    )
    shifted = memory.view(np.uint8)[1:25].view(np.int32).reshape(2, 3)
    wording.refused(ValueError, lambda: _fill.fill(*{**call, "blocks": [first, shifted]}.values()))
    with pytest.raises(ValueError, match="contiguous"):
        _fill.fill(*{**call, "blocks": [first, memory[:12].reshape(2, 6)[:, ::2]]}.values())
    fixed = memory[:6].reshape(2, 3).view()
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _fill.fill(*{**call, "blocks": [first, fixed]}.values())
    assert (memory == UNTOUCHED).all()


def test_buffers_are_let_go_after_good_and_bad_calls(memory: np.ndarray) -> None:
    held = bytearray(struct.pack("<4i", 1, 2, 3, 4))
    call = good_call(memory) | {"sources": [held, np.ones(4)]}
    _fill.fill(*call.values())
    for spoilt in ({"rows": int32(9, 9, 9, 9)}, {"blocks": [call["blocks"][0], 7]}):
        with pytest.raises((ValueError, TypeError)):
            _fill.fill(*{**call, **spoilt}.values())
    held.append(0)  # raises BufferError while anybody holds the buffer
