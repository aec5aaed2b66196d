"""What of a device's values is brought to the host, and when."""

import pytest
import torch
from devices import on_gpu
from host_work import PlayedDevice

from distrain.loader.host_memory import Slab, in_turn, to_device


def test_a_device_works_on_the_next_batch_before_the_host_has_this_one():
    told = []

    def batches():
        for number in range(4):
            told.append(f"begun {number}")
            yield torch.full((number, 2), float(number), device="meta")

    with PlayedDevice() as device:
        kept = []
        for values in in_turn(batches()):
            told.append(f"here {len(values)}")
            kept.append(values)
        assert device.waits == []
    assert told[:4] == ["begun 0", "begun 1", "here 0", "begun 2"]
    assert [values.tolist() for values in kept] == [[[float(n)] * 2] * n for n in range(4)]


@on_gpu
def test_batches_of_a_gpu_come_as_they_were(device):
    batches = [torch.full((rows, 3), float(rows), device=device) for rows in (5, 0, 70_000, 7)]
    found = list(in_turn(batch.clone() for batch in batches))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(found, batches, strict=True))
    slab = Slab()
    assert slab.on_host(batches[2]).is_pinned()
    assert torch.equal(slab.on_host(batches[0]), batches[0].cpu())


def test_what_lies_on_the_host_is_handed_on_at_once():
    batches = [torch.ones(2), torch.zeros(3)]
    assert all(given is own for given, own in zip(in_turn(batches), batches, strict=True))


def test_nobody_waits_for_a_small_copy():
    with PlayedDevice() as device:
        there = to_device(torch.arange(3), torch.device("meta"))
        assert there.device.type == "meta"
        assert device.waits == []
        assert there.cpu().tolist() == [0, 1, 2]
        assert len(device.waits) == 1


def test_a_slab_is_page_locked_for_a_gpu_and_used_again(monkeypatch: pytest.MonkeyPatch):
    asked, empty = [], torch.empty

    def fake(*size, pin_memory=False, **options):
        asked.append(pin_memory)
        return empty(*size, **options)

    monkeypatch.setattr(torch, "empty", fake)
    gpu, host = torch.device("cuda", 1), torch.device("cpu")
    slab = Slab(least_bytes=100)
    first = slab.allocate(10, gpu)
    assert (
        slab.allocate(90, gpu).data_ptr() == first.data_ptr() == slab.allocate(100, host).data_ptr()
    )
    assert asked == [True]
    slab.allocate(101, gpu)
    assert asked == [True, True]
    assert Slab().allocate(7, host).shape == (7,)
    assert asked == [True, True]
