"""What a GPU would write one after another: equal indices of one write. There are none."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.models.embeddings.fixed_shape import FixedTables
from distrain.models.embeddings.kernels import on_torch
from distrain.models.embeddings.kernels.segments import true_positions

COLUMNS = [TableColumn("small", 3, 4), TableColumn("large", 900, 4)]
ROWS = 64


class Writes(TorchDispatchMode):
    """Collects the indices of every write by index."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("index_copy_", "index_copy"):
            self.seen.append(args[2].clone())
        elif name in ("index_put_", "_index_put_impl_"):
            self.seen.extend(index.clone() for index in args[1] if index is not None)
        return func(*args, **(kwargs or {}))

    @property
    def repeated(self):
        return sum(len(index) - len(index.unique()) for index in self.seen)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("rowwise_adagrad", torch.float32), ("adam", torch.bfloat16)]
)
def test_a_padded_step_writes_each_index_once(kind, dtype, monkeypatch):
    monkeypatch.setenv("DISTRAIN_TRITON", "0")
    generator = torch.Generator().manual_seed(0)
    tables = EmbeddingCollection(COLUMNS, generator=generator, dtype=dtype)
    fixed = FixedTables(tables, SparseOptimizer(tables, kind), ROWS)
    # Few distinct rows, and so much padding.
    ids = torch.randint(0, 3, (ROWS, 2), generator=generator)
    before = tables.weights[0].clone()
    with Writes() as writes:
        route = fixed.route(ids.int())
        fixed.begin_step()
        fixed.update(route, [torch.randn(ROWS, 2, 4, generator=generator)], lr=0.1)
    assert writes.seen
    assert writes.repeated == 0
    changed = (tables.weights[0] != before).any(1).nonzero().flatten()
    assert set(changed.tolist()) <= {*ids[:, 0].tolist(), *(ids[:, 1] + 3).tolist()}
    assert len(changed)


def test_what_a_gpu_does_to_find_and_add_up_segments_writes_each_index_once():
    generator = torch.Generator().manual_seed(0)
    inverse = torch.randint(0, 9, (1, 2000), generator=generator, dtype=torch.int32)
    grads = torch.randn(2000, 1, 4, generator=generator)
    sums, expected = torch.zeros(9, 4), torch.zeros(9, 4)
    with Writes() as writes:
        on_torch.collect_in_pieces(grads, inverse, torch.zeros(1, dtype=torch.int64), sums)
        found = true_positions(torch.tensor([False, True, False, True]), 3)
    assert writes.repeated == 0
    assert found.tolist() == [1, 3, 4]
    expected.index_add_(0, inverse[0].long(), grads[:, 0])
    torch.testing.assert_close(sums, expected, rtol=1e-4, atol=1e-4)
