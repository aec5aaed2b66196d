"""Dealing with torch, here on the host, against the filler that the host uses."""

import numpy as np
import pytest
import torch
from host_work import PlayedDevice

from distrain.loader.filling.schedule import RowAssignment
from distrain.loader.filling.torch_filler import TorchFiller
from distrain.loader.partition.wanted_columns import WantedColumn


@pytest.mark.parametrize("wrong", [None, 0, 1, 2])
@pytest.mark.parametrize("places", [[], [2, 0, 1, 1, 0]])
def test_a_device_that_is_filled_finds_bad_columns_and_nobody_waits_for_it(
    places: list[int], wrong: int | None
) -> None:
    wanted = [WantedColumn("id", "id", 9), WantedColumn("x", "value"), WantedColumn("y", "label")]
    rows, counts = np.array([4, 0, 2, 1, 3], np.int32), np.array([3, 2])
    assignment = RowAssignment(
        rows, np.arange(2), np.array([0, 1]), counts, np.array(places, np.int32)
    )
    cells = [torch.arange(5), torch.rand(5), torch.tensor([0.0, 1, 1, 0, 1])]
    if wrong is not None:
        cells[wrong][2] = (-1, torch.nan, 2)[wrong]
    found = {}
    for device in ("cpu", "meta"):
        with PlayedDevice() as played:
            blocks = [torch.zeros((3, 4), dtype=torch.int32, device=device) for _ in range(2)]
            there = [values.to(device, non_blocking=True) for values in cells]
            filler = TorchFiller(wanted, torch.device(device))
            played.waits.clear()
            bad = filler.fill(there, assignment, blocks)
            assert played.waits == []
            assert bad.device.type == device
            found[device] = [part.cpu() for part in (*blocks, bad)]
    assert all(torch.equal(a, b) for a, b in zip(*found.values(), strict=True))
    assert found["cpu"][-1].tolist() == [number == wrong for number in range(3)]
