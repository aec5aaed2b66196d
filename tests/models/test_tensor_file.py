"""The streaming writer and reader against the safetensors library."""

import os
import tempfile
from functools import partial
from pathlib import Path

import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file, save_file

from distrain.errors import DataError
from distrain.models import tensor_file
from distrain.models.embeddings import Peers
from distrain.models.tensor_file import RankZeroWriter, TensorFile, put_rows, write_tensors

DTYPES = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]
SLAB_BYTES = 37


class InSlabs:
    """A tensor that is handed over in slabs, and keeps what it is given."""

    shared = False

    def __init__(self, values):
        self.values = values
        self.shape, self.dtype = tuple(values.shape), values.dtype

    def read(self, rows):
        return self.values[rows].clone()

    def write(self, rows, values):
        self.values[rows] = values


def random_bits(shape, dtype, seed):
    """Any bits, NaN and subnormal numbers included."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    count = torch.Size(shape).numel() * dtype.itemsize
    bits = torch.randint(0, 256, (count,), generator=generator).to(torch.uint8)
    return bits.view(dtype).view(shape)


def bits(values):
    return values.contiguous().reshape(-1).view(torch.uint8).tolist()


def write(path, tensors):
    write_tensors(path, tensors, RankZeroWriter(Peers(), torch.device("cpu"), collective=False))


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name != "__metadata__"
)
shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple)
entries = st.tuples(shapes, st.sampled_from(DTYPES), st.booleans(), st.integers(0, 99))


@settings(deadline=None, max_examples=30)
@given(st.dictionaries(names, entries, max_size=5))
def test_what_is_written_is_what_the_library_reads(described):
    tensors = {
        n: random_bits(shape, dtype, seed) for n, (shape, dtype, _, seed) in described.items()
    }
    handed = {
        name: InSlabs(values) if described[name][2] and values.dim() else values
        for name, values in tensors.items()
    }
    whole_slabs, tensor_file.SLAB_BYTES = tensor_file.SLAB_BYTES, SLAB_BYTES
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tensors"
            write(path, handed)
            read = load_file(path)
            own = TensorFile(path)
            assert set(read) == set(tensors) == set(own.shapes)
            for name, values in tensors.items():
                assert read[name].dtype == values.dtype
                assert read[name].shape == values.shape
                assert bits(read[name]) == bits(values)
                empty = torch.zeros_like(values)
                target = InSlabs(empty) if isinstance(handed[name], InSlabs) else empty
                own.read(name, partial(put_rows, target))
                assert bits(empty) == bits(values)
    finally:
        tensor_file.SLAB_BYTES = whole_slabs


def test_what_the_library_writes_is_read(tmp_path):
    tensors = {str(dtype): random_bits((3, 5), dtype, 1) for dtype in DTYPES}
    save_file(tensors, tmp_path / "tensors", metadata={"made": "elsewhere"})
    file = TensorFile(tmp_path / "tensors")
    assert file.shapes == dict.fromkeys(tensors, (3, 5))
    for name, values in tensors.items():
        target = torch.zeros_like(values)
        file.read(name, partial(put_rows, target))
        assert bits(target) == bits(values)


def test_a_view_of_other_memory_is_written_as_it_looks(tmp_path):
    values = torch.arange(24.0).view(4, 6).T
    write(tmp_path / "tensors", {"a": values, "b": nn_parameter(values)})
    read = load_file(tmp_path / "tensors")
    assert torch.equal(read["a"], values)
    assert torch.equal(read["b"], values)


def nn_parameter(values):
    return torch.nn.Parameter(values)


def test_a_file_that_shrinks_while_it_is_read(tmp_path, wording):
    path = tmp_path / "tensors"
    write(path, {"a": torch.ones(100)})
    file = TensorFile(path)
    path.write_bytes(path.read_bytes()[:-4])
    wording.refused(DataError, lambda: file.read("a", lambda rows, values: None), file=str(path))


def test_a_long_file_is_synced_while_it_is_written(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(tensor_file, "SLAB_BYTES", 400)
    monkeypatch.setattr(tensor_file, "SYNC_BYTES", 1000)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    write(tmp_path / "file", {"x": InSlabs(torch.zeros(500))})
    header = (tmp_path / "file").stat().st_size - 2000
    assert synced == [header + 1200]
