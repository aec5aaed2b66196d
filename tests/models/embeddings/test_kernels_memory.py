"""The C kernels of the tables and arguments that do not fit: refused, and no memory left."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from int_arrays import int32, int64
from wording import Wording

_rows = pytest.importorskip(
    "distrain.models.embeddings.kernels._rows", reason="distrain was built without a compiler"
)


def odd(values: np.ndarray) -> np.ndarray:
    return np.frombuffer(bytearray(b"\0" + values.tobytes()), values.dtype, offset=1).reshape(
        values.shape
    )


def fixed(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


def unique_call() -> dict[str, Any]:
    return {
        "ids": int32(5, 6, 5, 6), "offsets": int64(0, 2).reshape(2, 1),
        "counts": int64(2, 2).reshape(2, 1), "inverse": int32(0, 0, 0, 0),
        "distinct": int32(0, 0, 0, 0), "per_column": int64(0, 0), "slots": np.zeros(4, np.uint64),
    }  # fmt: skip


def batch_call() -> dict[str, Any]:
    """Of `expand`, and of `collect` as well."""
    return {
        "distinct": np.ones((3, 16), np.float32), "inverse": int32(0, 1, 1, 2).reshape(2, 2),
        "places": int64(1, 0), "batch": np.ones((2, 2, 16), np.float32),
    }  # fmt: skip


def gather_call() -> dict[str, Any]:
    return {
        "weight": np.ones((3, 16), np.float32), "is_bfloat16": False, "keys": int64(2, 0),
        "out": np.zeros((2, 16), np.float32),
    }  # fmt: skip


def update_call() -> dict[str, Any]:
    rows = np.ones((3, 16), np.float32)
    return {
        "kind": 3, "weight": rows.copy(), "is_bfloat16": False, "first": rows.copy(),
        "second": rows.copy(), "keys": int64(2, 0), "global_keys": int64(2, 0),
        "grads": np.ones((2, 16), np.float32), "seed": 0, "rate": 0.1, "eps": 0.1, "beta1": 0.9,
        "beta2": 0.9,
    }  # fmt: skip


def draw_call() -> dict[str, Any]:
    return {"key": 7, "rows": int64(2, 0), "scale": 0.1, "out": np.zeros((2, 16), np.float32)}


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (_rows.unique, unique_call), (_rows.expand, batch_call), (_rows.collect, batch_call),
        (_rows.gather, gather_call), (_rows.update, update_call), (_rows.draw, draw_call),
    ],
)  # fmt: skip
def test_the_calls_that_the_others_spoil_are_good(
    function: Callable[..., Any], make: Callable[[], dict[str, Any]]
) -> None:
    function(*make().values())
    for name, value in make().items():
        if isinstance(value, np.ndarray):
            for wrong in (odd(value), value.astype(np.float64), value[..., None]):
                with pytest.raises(ValueError):  # noqa: PT011
                    function(*{**make(), name: wrong}.values())
            with pytest.raises(TypeError):
                function(*{**make(), name: 7}.values())


HUGE = np.zeros((2, 2), np.int64) + 2**62


def test_segments_that_do_not_fit_are_refused(wording: Wording) -> None:
    changes: list[dict[str, Any]] = [
        {"offsets": int64(0, 3).reshape(2, 1)},
        {"offsets": int64(0, -1).reshape(2, 1)},
        {"offsets": int64(0, 2**63 - 1).reshape(2, 1)},
        {"counts": int64(2, -1).reshape(2, 1)},
        {"counts": int64(2, 2**63 - 1).reshape(2, 1)},
        {"offsets": int64(0, 2, 3).reshape(3, 1)},
        {"offsets": HUGE, "counts": HUGE},
        {"inverse": int32(0, 0, 0)},
        {"per_column": int64(0)},
        {"distinct": int32(0, 0, 0)},
        {"slots": np.zeros(3, np.uint64)},
        {"slots": np.zeros(1, np.uint64)},
        {"slots": np.zeros(0, np.uint64)},
        {"ids": int32(*range(8))[::2]},
        {"inverse": int32(*range(8))[::2]},
    ]
    for change in changes:
        call = {**unique_call(), **change}
        wording.refused(ValueError, partial(_rows.unique, *call.values()))


@pytest.mark.parametrize("function", [_rows.expand, _rows.collect])
def test_inverse_indices_and_places_that_do_not_fit_are_refused(
    function: Callable[..., Any], wording: Wording
) -> None:
    changes: list[dict[str, Any]] = [
        {"inverse": int32(0, 1, 1, 3).reshape(2, 2)},
        {"inverse": int32(0, -1, 1, 2).reshape(2, 2)},
        {"inverse": int32(-(2**31), 1, 1, 2).reshape(2, 2)},
        {"distinct": np.ones((0, 16), np.float32)},
        {"places": int64(0, 2)},
        {"places": int64(0, -1)},
        {"places": int64(0)},
        {"inverse": int32(0, 1, 1, 2).reshape(1, 4)},
        {"batch": np.ones((3, 2, 16), np.float32)},
        {"batch": np.ones((2, 2, 8), np.float32)},
        {"batch": np.ones((2, 4, 16), np.float32)[:, ::2]},
        {"inverse": np.zeros((2, 4), np.int32)[:, ::2]},
        {"distinct": np.ones((3, 32), np.float32)[:, ::2]},
    ]
    for change in changes:
        call = {**batch_call(), **change}
        wording.refused(ValueError, partial(function, *call.values()))


@pytest.mark.parametrize("function", [_rows.expand, _rows.collect])
@pytest.mark.parametrize("bad", [3, -1, 2**31 - 1, -(2**31)])
def test_a_bad_inverse_index_anywhere_writes_nothing_outside(
    function: Callable[..., Any], bad: int
) -> None:
    for place in range(40):
        guarded = np.full((5, 16), 7.0, np.float32)
        inverse = np.zeros((1, 40), np.int32)
        inverse[0, place] = bad
        batch = np.zeros((42, 1, 16), np.float32)
        batch[[0, -1]] = 7.0
        with pytest.raises(ValueError, match="outside"):
            function(guarded[1:4], inverse, int64(0), batch[1:-1])
        assert (guarded[[0, -1]] == 7).all()
        assert (batch[[0, -1]] == 7).all()


def test_rows_that_are_not_there_are_not_gathered(wording: Wording) -> None:
    changes: list[dict[str, Any]] = [
        {"keys": int64(3, 0)},
        {"keys": int64(-1, 0)},
        {"keys": int64(2**62, 0)},
        {"keys": int64(0)},
        {"weight": np.ones((0, 16), np.float32)},
        {"weight": np.ones((3, 8), np.float32)},
        {"weight": np.ones((3, 16), np.int16)},
        {"is_bfloat16": True},
    ]
    for change in changes:
        call = {**gather_call(), **change}
        wording.refused(ValueError, partial(_rows.gather, *call.values()))
        assert not call["out"].any()


def test_rows_that_are_not_there_are_not_updated(wording: Wording) -> None:
    changes: list[dict[str, Any]] = [
        {"keys": int64(3, 0)},
        {"keys": int64(2, -1)},
        {"keys": int64(0)},
        {"global_keys": int64(0)},
        {"grads": np.ones((2, 8), np.float32)},
        {"grads": np.ones((1, 16), np.float32)},
        {"first": np.ones((2, 16), np.float32)},
        {"second": np.ones((3, 8), np.float32)},
        {"kind": _rows.RULES["rowwise_adagrad"], "first": np.ones(2, np.float32)},
        {"kind": _rows.RULES["rowwise_adagrad"]},
        {"kind": len(_rows.RULES)},
        {"kind": -1},
        {"is_bfloat16": True},
    ]
    for change in changes:
        call = {**update_call(), **change}
        wording.refused(ValueError, partial(_rows.update, *call.values()))
        assert (call["weight"] == 1).all()


def test_what_may_not_be_written_or_drawn_is_refused() -> None:
    for function, call in (
        (_rows.unique, unique_call() | {"inverse": fixed(int32(0, 0, 0, 0))}),
        (_rows.unique, unique_call() | {"slots": fixed(np.zeros(4, np.uint64))}),
        (_rows.draw, draw_call() | {"rows": int64(2, 0, 1)}),
        (_rows.draw, draw_call() | {"rows": int64(2, 0, 1, 0)[::2]}),
        (_rows.draw, draw_call() | {"out": fixed(np.zeros((2, 16), np.float32))}),
    ):
        with pytest.raises((ValueError, BufferError)):
            function(*call.values())
