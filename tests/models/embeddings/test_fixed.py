"""The step in shapes known beforehand: the bits of the other one, and no look at the device."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from distrain.errors import InputError
from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
from distrain.models.embeddings.fixed_shape import FixedTables
from distrain.models.embeddings.kernels.fixed_shape import segments_of
from distrain.train.step.clipping import add_tables, clip_scale

COLUMNS = [
    TableColumn("a", 40, 4),
    TableColumn("wide", 11, 18),
    TableColumn("b", 3, 4),
    TableColumn("c", 1, 4),
]
KINDS = ["rowwise_adagrad", "adam"]
MAX_ROWS = 33


@pytest.fixture(autouse=True)
def no_triton(monkeypatch):
    monkeypatch.setenv("DISTRAIN_TRITON", "0")


def new_tables(dtype, kind):
    tables = EmbeddingCollection(COLUMNS, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return tables, SparseOptimizer(tables, kind, seed=5)


def batches():
    generator = torch.Generator().manual_seed(0)
    for rows in (MAX_ROWS, 20, 0, 1, MAX_ROWS):
        ids = [torch.randint(0, c.cardinality, (rows,), generator=generator) for c in COLUMNS]
        shapes = ((rows, 3, 4), (rows, 1, 18))
        yield (
            torch.stack(ids).to(torch.int32).T,
            [torch.randn(shape, generator=generator) for shape in shapes],
        )


def dynamic_step(tables, optimizer, ids, grads):
    route = tables.route(ids)
    rows = tables.fetch(route)
    optimizer.apply(tables.exchange(route, tables.collect(route, grads)), 0.1, scale=0.5)
    return tables.expand(route, rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("in_one", [True, False])
def test_equals_the_other_step_bitwise(kind, dtype, in_one):
    tables, optimizer = new_tables(dtype, kind)
    others, other_optimizer = new_tables(dtype, kind)
    fixed = FixedTables(tables, optimizer, MAX_ROWS)
    lr = torch.tensor(0.1, dtype=torch.float64)
    for ids, grads in batches():
        route = fixed.route(ids)
        embedded = fixed.lookup(route)
        fixed.begin_step()
        if in_one:
            fixed.update(route, grads, lr, 0.5)
        else:
            sums = fixed.collect(route, grads)
            fixed.apply(fixed.exchange(route, sums), lr, 0.5)
        expected = dynamic_step(others, other_optimizer, ids, grads)
        for ours, theirs in zip(embedded, expected, strict=True):
            assert ours.is_leaf
            assert ours.requires_grad
            assert torch.equal(ours, theirs)
        for ours, theirs in zip(tables.weights, others.weights, strict=True):
            assert torch.equal(ours, theirs)
    state, expected_state = optimizer.state_dict(), other_optimizer.state_dict()
    assert all(torch.equal(state[name], expected_state[name]) for name in expected_state)


def test_shapes_follow_from_the_batch_alone():
    tables, optimizer = new_tables(torch.float32, "sgd")
    fixed = FixedTables(tables, optimizer, MAX_ROWS)
    grads = [torch.ones(20, 3, 4), None]
    shapes = set()
    for ids in (torch.zeros(20, 4, dtype=torch.int32), next(batches())[0][:20]):
        route = fixed.route(ids)
        touched = fixed.exchange(route, fixed.collect(route, grads))
        shapes.add(str([(rows.keys.shape, rows.grads.shape) for rows in touched]))
        narrow = touched[0]
        padding = narrow.keys == 44
        assert (narrow.grads[padding] == 0).all()
        assert narrow.grads[:, 0].sum() == 60
        assert (touched[1].grads == 0).all()
    # min(33, 40) + min(33, 3) + min(33, 1), and min(33, 11).
    assert shapes == {
        str([(torch.Size([37]), torch.Size([37, 4])), (torch.Size([11]), torch.Size([11, 18]))])
    }


class NothingLeavesTheDevice(TorchDispatchMode):
    """Raises where an operation makes a tensor on the host, or reads one from there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, out)):
            if isinstance(value, torch.Tensor) and value.device.type != "meta":
                raise AssertionError(f"{func} touches the host")
        return out


@dataclass(frozen=True)
class SilentPeers(Peers):
    """Ranks that move shapes alone."""

    def _all_gather(self, rows):
        return rows.new_empty(self.num_ranks, *rows.shape)

    def _all_to_all(self, received, rows, receive=None, send=None):
        assert (sum(receive), sum(send)) == (len(received), len(rows))


def test_nothing_asks_the_device_where_tables_are_spread():
    peers = SilentPeers(1, 4)
    placements = ["row_wise", "row_wise", "replicated", "row_wise"]
    tables = EmbeddingCollection(COLUMNS, placements=placements, peers=peers, dtype=torch.bfloat16)
    tables.to("meta")
    fixed = FixedTables(tables, SparseOptimizer(tables, "adam"), MAX_ROWS)
    ids = torch.empty(MAX_ROWS, 4, dtype=torch.int32, device="meta")
    with NothingLeavesTheDevice():
        wanted, *answers = fixed.request_rows(ids)
        route = fixed.route(ids, fixed.routes_of(answers))
        embedded = fixed.lookup(route)
        sum((leaf**2).sum() for leaf in embedded).backward()
        touched = fixed.exchange(route, fixed.collect(route, [leaf.grad for leaf in embedded]))
        norm = add_tables(ids.new_zeros((), dtype=torch.float32), tables.stores, touched)
        fixed.apply(touched, norm.double(), clip_scale(norm, 0.5))
    assert wanted.shape == (2,)
    assert [tuple(leaf.shape) for leaf in embedded] == [(33, 3, 4), (33, 1, 18)]


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 3))
def test_segments(keys, spare):
    distinct = sorted({key for key in keys if key < 9})
    capacity = len(distinct) + spare
    segments = segments_of(torch.tensor(keys, dtype=torch.int32), capacity, 9)
    assert segments.keys.tolist() == distinct + [9] * spare
    for key, start, stop in zip(
        distinct, segments.starts.tolist(), segments.starts.tolist()[1:], strict=False
    ):
        assert segments.order[start:stop].tolist() == [i for i, k in enumerate(keys) if k == key]


def test_what_it_cannot_do_is_refused(wording):
    lists = EmbeddingCollection([TableColumn("a", 3, 2), TableColumn("l", 3, 2, "sum")])
    wording.refused(InputError, lambda: FixedTables(lists, SparseOptimizer(lists, "sgd"), 8))
    tables, optimizer = new_tables(torch.float32, "sgd")
    fixed = FixedTables(tables, optimizer, 8)
    too_many = torch.zeros(9, 4, dtype=torch.int32)
    wording.refused(ValueError, lambda: fixed.route(too_many))
