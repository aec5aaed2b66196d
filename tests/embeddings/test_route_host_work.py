"""What the host does for a route of a batch that lies on another device."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from distrain.embeddings.kernels import on_torch

COLUMNS, ROWS = 6, 4096


class HostWork(TorchDispatchMode):
    """Notes the most values that an operation gave on the host, and counts operations."""

    def __init__(self):
        super().__init__()
        self.most = self.operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operations += 1
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
                self.most = max(self.most, leaf.numel())
        return out


def test_the_host_makes_nothing_of_the_length_of_the_ids():
    # "meta" has no values, so it stops where a device would be asked for a number of rows.
    ids = torch.empty(COLUMNS * ROWS, dtype=torch.int32, device="meta")
    offsets = (torch.arange(COLUMNS) * ROWS).view(COLUMNS, 1)
    counts = torch.full((COLUMNS, 1), ROWS)
    found = []
    for _ in range(2):
        with HostWork() as work, pytest.raises(NotImplementedError):
            on_torch.unique(ids, offsets, counts)
        assert work.most <= 4 * COLUMNS
        found.append(work.operations)
    assert found[1] < found[0], "the second batch of a size finds the indices of the first"


@pytest.mark.parametrize("counts", [[[3, 0], [2, 2]], [[3, 0], [3, 0]], [[0, 0], [0, 0]]])
def test_indices_are_those_of_the_segments(counts):
    offsets = torch.tensor([[0, 7], [3, 9]])
    places, columns = on_torch._places_and_columns(
        torch.device("cpu"), offsets, torch.tensor(counts)
    )
    expected = [
        (start + i, column)
        for column in range(2)
        for start, count in zip(offsets[column].tolist(), counts[column], strict=True)
        for i in range(count)
    ]
    assert list(zip(places.tolist(), columns.tolist(), strict=True)) == expected
