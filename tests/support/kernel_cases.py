"""What the tests of the tables' kernels share."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from devices import no_waiting
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer
from distrain.models.embeddings.kernels import cpu as kernels_cpu, on_torch as kernels_torch

needs_c = pytest.mark.skipif(not kernels_cpu.AVAILABLE, reason="built without a compiler")
BOTH = pytest.mark.parametrize(
    "impl",
    [pytest.param(kernels_cpu, marks=needs_c, id="C"), pytest.param(kernels_torch, id="twin")],
)
DIMS = st.sampled_from([1, 3, 4, 8, 15, 16, 17, 32, 40])


def bits(values: Tensor) -> list[int]:
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    return values.contiguous().view(whole).flatten().tolist()


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class NeverAsks(TorchDispatchMode):
    """Refuses what would read a value of a tensor to know a shape, or to go on."""

    ASKS = ("aten.nonzero", "aten._local_scalar_dense", "aten._unique2", "aten.masked_select")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not str(func).startswith(self.ASKS), func
        indices = args[1] if str(func).startswith("aten.index.") else ()
        assert not any(i is not None and i.dtype == torch.bool for i in indices), func
        return func(*args, **(kwargs or {}))


def check_sums_in_pieces(device: str, rows: int) -> None:
    """Gradients are integers, whose sums are exact in any order, for 3 of 4 places of a batch.

    The first column has two numbers, the third one none of the last 50.
    """
    generator = torch.Generator().manual_seed(0)
    grads = torch.randint(-8, 9, (rows, 4, 5), generator=generator).float().to(device)
    bounds = ((0, 2), (2, 400), (400, 450))
    drawn = [torch.randint(low, top, (rows,), generator=generator) for low, top in bounds]
    numbers, places = torch.stack(drawn).int().to(device), torch.tensor([3, 0, 1])
    sums = torch.ones(500, 5, device=device)
    expected = sums.cpu().double()
    for column, place in enumerate(places.tolist()):
        expected.index_add_(0, drawn[column], grads[:, place].cpu().double())
    collect = kernels_torch.collect_in_pieces
    collect(grads, numbers, places, torch.zeros_like(sums))  # copies the places
    with NeverAsks(), no_waiting(device):
        collect(grads, numbers, places, sums)
    assert torch.equal(sums.cpu().double(), expected)


def by_column(tables: EmbeddingCollection, embedded: Sequence[Tensor]) -> dict[str, Tensor]:
    """Each column's `[rows, dim]`, in the order of the columns."""
    found = {
        position: values[:, place]
        for group, values in zip(tables.groups, embedded, strict=True)
        for place, position in enumerate(group)
    }
    return {tables.columns[position].name: found[position] for position in sorted(found)}


def take_step(
    tables: EmbeddingCollection,
    optimizer: SparseOptimizer,
    loss_of: Callable[[dict[str, Tensor]], Tensor],
    *batch: Any,
    lr: float = 0.1,
) -> None:
    """Train tables a step by a loss of each column's looked-up values."""
    route = tables.route(*batch)
    embedded = tables.expand(route, tables.fetch(route))
    torch.autograd.backward(loss_of(by_column(tables, embedded)))
    sums = tables.collect(route, [leaf.grad for leaf in embedded])
    optimizer.apply(tables.exchange(route, sums), lr)
