"""What passes between a device and a checkpoint's files goes through one slab of the host."""

import pytest
import torch

from distrain.loader.host_memory import Slab
from distrain.storage.folder import open_folder
from distrain.train.checkpoint import shard as shard_module, shard_reading
from distrain.train.checkpoint.local_rows import local_rows_of, share_of
from distrain.train.checkpoint.manifest import Manifest
from distrain.train.checkpoint.shard_reading import ShardReading, takers_of
from distrain.train.checkpoint.training_state import facts_of

ROWS, SLAB_BYTES = 1000, 1024
SLABS = ROWS * 16 // SLAB_BYTES + 1


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    for module in (shard_module, shard_reading):
        monkeypatch.setattr(module, "SLAB_BYTES", SLAB_BYTES)


@pytest.fixture
def noted(monkeypatch):
    """Bytes that each slab brought to the host, and the devices that slabs were lent to."""
    brought, lent = [], []
    on_host, lend = Slab.on_host, Slab.lend

    def note_on_host(slab, values):
        brought.append((slab, values.nbytes))
        return on_host(slab, values)

    def note_lend(slab, num_bytes, device):
        lent.append((slab, device.type))
        return lend(slab, num_bytes, device)

    monkeypatch.setattr(Slab, "on_host", note_on_host)
    monkeypatch.setattr(Slab, "lend", note_lend)
    return brought, lent


def test_every_slab_of_a_copy_a_file_and_a_reading_passes_through_one(tmp_path, noted):
    brought, lent = noted
    values = torch.arange(4.0 * ROWS).view(ROWS, 4)
    content = shard_module.content_of(share_of(local_rows_of({"w": values}), 0, 1), {})
    copy = shard_module.copied(content, torch.empty(values.nbytes, dtype=torch.uint8), list)
    folder = open_folder(str(tmp_path))
    shard = shard_module.write_shard(folder, "file", content, list)
    assert torch.equal(copy.held[0].values, values)
    assert len(brought) == 2 * SLABS
    assert len({id(slab) for slab, _ in brought}) == 2
    assert sum(num_bytes for _, num_bytes in brought) == 2 * values.nbytes
    assert lent == [], "what lies on the host is not copied"

    manifest = Manifest(1, 1, None, {}, {}, facts_of({"w": values}), (shard,), "run")
    for device in ("cpu", "meta"):  # the latter in the place of a GPU
        lent.clear()
        target = torch.zeros(ROWS, 4, device=device)
        ShardReading(folder, manifest, takers_of({"w": target}), 0, list).run()
        assert {kind for _, kind in lent} == {device}
        assert len({id(slab) for slab, _ in lent}) == 1
        assert device == "meta" or torch.equal(target, values)
