"""Triton's kernels on a GPU against their fallbacks, and a step that never makes the host wait."""

import pytest
import torch
from triton_cases import (
    KINDS,
    check_interaction,
    check_interaction_beside,
    check_lookup,
    check_sums,
    check_update,
    twins,
)

from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.models.embeddings.fixed_shape import FixedTables

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]
if torch.cuda.is_available():
    pytest.importorskip("triton", reason="triton is not installed", exc_type=ImportError)


@pytest.fixture(autouse=True)
def with_triton(monkeypatch):
    monkeypatch.setenv("DISTRAIN_TRITON", "1")


COLUMNS = [TableColumn("a", 5000, 16), TableColumn("b", 3, 16), TableColumn("wide", 100, 40)]
ROWS = 20_000


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("returned", [torch.float32, torch.bfloat16])
def test_lookup(stored, returned):
    check_lookup("cuda", stored, returned)


@pytest.mark.parametrize("sizes", [(30, 50, 0), (4, 700, 130), (2, 200_000, 70), (3, 0, 0)])
def test_sums(sizes):
    check_sums("cuda", *sizes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("summed", [False, True])
def test_update(kind, stored, summed):
    check_update("cuda", kind, stored, summed=summed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", [(1000, 27, 16), (1000, 40, 128), (4, 2, 1), (0, 3, 4)])
def test_interaction(case, dtype):
    check_interaction("cuda", *case, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", [(1000, 27, 16), (100, 4, 70), (4, 2, 1), (0, 3, 4)])
def test_interaction_beside(case, dtype):
    check_interaction_beside("cuda", *case, dtype=dtype)


def new_step(kind, dtype):
    tables = EmbeddingCollection(
        COLUMNS, generator=torch.Generator().manual_seed(0), dtype=dtype
    ).to("cuda")
    fixed = FixedTables(tables, SparseOptimizer(tables, kind), ROWS)
    lr = torch.full((), 0.1, dtype=torch.float64, device="cuda")

    def step(ids):
        route = fixed.route(ids)
        embedded = fixed.lookup(route)
        torch.autograd.backward(sum((leaf**2).sum() for leaf in embedded))
        fixed.begin_step()
        fixed.update(route, [leaf.grad for leaf in embedded], lr, 0.5)

    return tables, step


def batches(count):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        ids = [torch.randint(c.cardinality, (ROWS,), generator=generator) for c in COLUMNS]
        yield torch.stack(ids).int().cuda().T


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_is_that_of_the_collection(kind):
    tables, step = new_step(kind, torch.float32)
    others, _ = new_step(kind, torch.float32)
    optimizer = SparseOptimizer(others, kind)
    for ids in batches(3):
        step(ids)
        with twins():
            route = others.route(ids)
            embedded = others.expand(route, others.fetch(route))
            torch.autograd.backward(sum((leaf**2).sum() for leaf in embedded))
            sums = others.collect(route, [leaf.grad for leaf in embedded])
            optimizer.apply(others.exchange(route, sums), 0.1, scale=0.5)
    for ours, theirs in zip(tables.weights, others.weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
