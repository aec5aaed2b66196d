"""Dealing with torch, here on the host, against the filler that the host uses."""

from typing import Any

import numpy as np
import pytest
import torch
from host_work import PlayedDevice
from hypothesis import given, settings, strategies as st

from distrain.errors import DataError
from distrain.loader.filling.filler import Filler
from distrain.loader.filling.schedule import Deal
from distrain.loader.filling.torch_filler import TorchFiller
from distrain.partition import RowGroup
from distrain.partition.wanted_columns import WantedColumn

CPU = torch.device("cpu")
WHOLE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
EDGES = [0, 1, 2, 99, 100, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 5]
EDGES += [2**24 + 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 2**39, 2**63 + 2**39 + 1, 2**64 - 1]
FLOATS = [0.0, -0.0, 1.0, 0.5, -1.0, 1e-60, -1e-60, 1 + 1e-12, 3.4e38, 1e39, -1e39]
FLOATS += [float("inf"), float("-inf"), float("nan"), 16777217.0, 1e-45]


@st.composite
def columns(draw: st.DrawFn, kind: str, num_rows: int) -> tuple[WantedColumn, np.ndarray]:
    types = WHOLE if kind == "id" else [*WHOLE, "float32", "float64"]
    dtype = np.dtype(draw(st.sampled_from(types)))
    if dtype.kind == "f":
        any_value: Any = st.one_of(st.sampled_from(FLOATS), st.floats(width=32))
        values = draw(st.lists(any_value, min_size=num_rows, max_size=num_rows))
        with np.errstate(over="ignore"):
            array = np.array(values, np.float64).astype(dtype)
    else:
        whole = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**64 - 1))
        values = draw(st.lists(whole, min_size=num_rows, max_size=num_rows))
        array = np.array([value % 2**64 for value in values], np.uint64).astype(dtype)
    if draw(st.booleans()):  # else some value is almost always wrong
        array = array.clip(0, 1).round() if kind != "value" else array.astype("f8").clip(-128, 100)
        array = np.nan_to_num(array).astype(dtype)
    cardinality = draw(st.sampled_from([None, 2, 100, 2**31, 2**40])) if kind == "id" else None
    of_labels = draw(st.sampled_from(["binary", "regression", "multiclass"]))
    if kind != "label":
        return WantedColumn("c", kind, cardinality), array  # type: ignore[arg-type]
    classes = draw(st.sampled_from([2, 100, 2**24])) if of_labels == "multiclass" else None
    return WantedColumn("c", "label", classes, target_kind=of_labels), array


@st.composite
def deals(draw: st.DrawFn, num_rows: int, with_places: bool) -> tuple[Deal, list[int]]:
    """Some rows of a group in runs for batches, and the batches' sizes."""
    rows = draw(st.permutations(range(num_rows)))[: draw(st.integers(1, num_rows))]
    cuts = draw(st.lists(st.integers(0, len(rows)), max_size=3).map(sorted))
    counts = np.diff([0, *cuts, len(rows)])
    starts = [draw(st.integers(0, 3)) for _ in counts]
    sizes, places = [], []
    for start, count in zip(starts, counts.tolist(), strict=True):
        room = count + draw(st.integers(0, 3)) if with_places else count
        places += draw(st.permutations(range(room)))[:count]
        sizes.append(start + room + draw(st.integers(0, 2)))
    deal = Deal(
        np.array(rows, np.int32),
        np.arange(len(counts)),
        np.array(starts, np.int64),
        counts.astype(np.int64),
        np.array(places if with_places else [], np.int32),
    )
    return deal, sizes


@settings(max_examples=30, deadline=None)
@given(data=st.data(), num_rows=st.integers(1, 12), with_places=st.booleans())
def test_it_fills_as_the_host_does(data: st.DataObject, num_rows: int, with_places: bool) -> None:
    kinds = ["id"] * data.draw(st.integers(0, 2)) + ["value"] * data.draw(st.integers(0, 2))
    kinds += ["label"] * data.draw(st.integers(0, 3)) + ["weight"] * data.draw(st.integers(0, 1))
    kinds += ["task_weight"] * data.draw(st.integers(0, 2))
    kinds = kinds or ["id"]
    wanted, arrays = zip(*(data.draw(columns(kind, num_rows)) for kind in kinds), strict=True)
    deal, sizes = data.draw(deals(num_rows, with_places))
    expected = [np.full((len(kinds), size), -7, np.int32) for size in sizes]
    found = [torch.full((len(kinds), size), -7, dtype=torch.int32) for size in sizes]

    cells = [torch.from_numpy(array.copy()) for array in arrays]
    bad = TorchFiller(wanted, CPU).fill(cells, deal, found)

    assert bad.dtype == torch.bool
    group = RowGroup("f", 0, num_rows)
    for column, array, is_bad in zip(wanted, arrays, bad.tolist(), strict=True):
        blocks = [np.empty((1, size), np.int32) for size in sizes]
        if is_bad:
            with pytest.raises(DataError):
                Filler([column]).fill([array], deal, blocks, group)
        else:
            Filler([column]).fill([array], deal, blocks, group)
    if not bad.any():
        Filler(wanted).fill(arrays, deal, expected, group)
        for block, other in zip(found, expected, strict=True):
            assert np.array_equal(block.numpy(), other)


@pytest.mark.parametrize("places", [[], [2, 0, 1, 1, 0]])
def test_nobody_waits_for_a_device_that_is_filled(places: list[int]) -> None:
    wanted = [WantedColumn("id", "id", 9), WantedColumn("x", "value"), WantedColumn("y", "label")]
    rows, counts = np.array([4, 0, 2, 1, 3], np.int32), np.array([3, 2])
    deal = Deal(rows, np.arange(2), np.array([0, 1]), counts, np.array(places, np.int32))
    cells = [torch.arange(5), torch.rand(5), torch.tensor([0.0, 1, 1, 0, 1])]
    found = {}
    for device in ("cpu", "meta"):
        with PlayedDevice() as played:
            blocks = [torch.zeros((3, 4), dtype=torch.int32, device=device) for _ in range(2)]
            there = [values.to(device, non_blocking=True) for values in cells]
            filler = TorchFiller(wanted, torch.device(device))
            played.waits.clear()
            bad = filler.fill(there, deal, blocks)
            assert played.waits == []
            assert bad.device.type == device
            found[device] = [part.cpu() for part in (*blocks, bad)]
    assert all(torch.equal(a, b) for a, b in zip(*found.values(), strict=True))
