"""The cache of host-cached tables against a table without one."""

import pytest
import torch
from host_work import PlayedDevice
from hypothesis import given, settings, strategies as st
from kernel_cases import take_step

from distrain.errors import SpecError
from distrain.models.embeddings import EmbeddingCollection, SparseOptimizer, TableColumn
from distrain.models.embeddings.canonical_state import canonical_state
from distrain.models.embeddings.device_row_cache import DeviceRowCache

COLUMNS = [TableColumn("a", 400, 4), TableColumn("b", 5, 4), TableColumn("c", 300, 2)]


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.lists(st.tuples(st.lists(st.integers(0, 29), unique=True), st.booleans()), max_size=12),
)
def test_cached_rows_are_the_tables_rows(num_rows, capacity, batches):
    """Any sequence of reads and writes through the cache equals the same on a plain table."""
    plain = torch.arange(num_rows, dtype=torch.float32)
    host, companion = plain.clone(), plain.clone() * 10
    cache = DeviceRowCache(num_rows, capacity)
    assert (cache.attach(host), cache.attach(companion)) == (0, 1)
    for step, (wanted, writes) in enumerate(batches):
        rows = torch.tensor([row for row in wanted if row < num_rows], dtype=torch.int64)
        if len(rows) > cache.capacity:
            with pytest.raises(SpecError):
                cache.admit(rows)
            continue
        places = cache.admit(rows)
        assert len(set(places.tolist())) == len(rows)
        assert torch.equal(cache.rows_at(places), rows)
        assert torch.equal(cache.places(rows), places)
        assert torch.equal(cache.values(0)[places], plain[rows])
        assert torch.equal(cache.values(1)[places], plain[rows] * 10)
        if writes:
            plain[rows] += step
            cache.values(0)[places] += step
            cache.values(1)[places] = plain[rows] * 10
            cache.changed()
    cache.flush()
    assert torch.equal(host, plain)
    assert torch.equal(companion, plain * 10)


def test_a_device_is_waited_for_once_a_batch():
    """For the batch's numbers; what else travels does so while the host goes on."""
    rows, plain = torch.arange(0, 40, 2), torch.arange(80.0).view(40, 2)
    host = plain.clone()
    cache = DeviceRowCache(40, 24)
    cache.attach(host)
    with PlayedDevice() as device:
        for step in range(6):
            wanted = (rows + 7 * step) % 40
            there = wanted.to("meta", non_blocking=True)
            device.waits.clear()
            places = cache.admit(there)
            cache.changed()
            assert len(device.waits) == 1
            values = cache.values(0)
            assert {values.device.type, places.device.type} == {"meta"}
            assert torch.equal(values[places].cpu(), plain[wanted])
            values.index_add_(0, places, torch.ones(len(rows), 2, device="meta"))
            plain[wanted] += 1
        cache.flush()
    assert torch.equal(host, plain)


def test_rows_in_use_stay():
    cache = DeviceRowCache(num_rows=1000, capacity=100)
    cache.attach(torch.zeros(1000, 1))
    hot = torch.arange(50)
    places = cache.admit(hot)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        others = 50 + torch.randperm(950, generator=generator)[:50]
        cache.admit(torch.cat([hot, others]))
        assert torch.equal(cache.places(hot), places)


def test_only_changed_rows_go_back():
    host = torch.zeros(100, 1)
    cache = DeviceRowCache(num_rows=100, capacity=10)
    cache.attach(host)
    cache.admit(torch.arange(3, 10))
    cache.admit(torch.arange(3))
    cache.changed()
    host.fill_(1.0)  # where a row is written back, the cache's zero shows
    cache.admit(torch.arange(10, 20))
    cache.flush()
    assert (host == 0).flatten().nonzero().flatten().tolist() == [0, 1, 2]


def squares(found):
    return sum((values**2).sum() for values in found.values())


def train(tables, kind, steps=12):
    optimizer = SparseOptimizer(tables, kind)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        ids = torch.stack(
            [torch.randint(0, c.cardinality, (40,), generator=generator) for c in COLUMNS]
        )
        take_step(tables, optimizer, squares, ids.int().T)
    return optimizer


def new_tables(placement, dtype=torch.float32, **options):
    placements = [placement, "replicated", placement]
    generator = torch.Generator().manual_seed(1)
    return EmbeddingCollection(
        COLUMNS, placements=placements, generator=generator, dtype=dtype, **options
    )


@pytest.mark.parametrize(
    ("kind", "dtype"), [("rowwise_adagrad", torch.float32), ("adam", torch.bfloat16)]
)
def test_training_through_a_cache_gives_the_same_bits(kind, dtype):
    plain, cached = (
        new_tables("replicated", dtype),
        new_tables("host_cached", dtype, cache_bytes=500 * dtype.itemsize),
    )
    one, other = train(plain, kind), train(cached, kind)
    for store in cached.stores:
        if store.placement == "host_cached":
            assert store.cache.capacity < store.num_rows
    for column in COLUMNS:
        assert torch.equal(plain.table(column.name), cached.table(column.name))
    remembered = canonical_state(other)
    for name, tensor in canonical_state(one).items():
        every_row = slice(0, tensor.shape[0])
        assert torch.equal(tensor.read(every_row), remembered[name].read(every_row))


def test_a_batch_that_does_not_fit_is_refused(wording):
    tables = new_tables("host_cached", cache_bytes=100)  # some places of each table
    ids = torch.stack([torch.arange(5) * 20, torch.arange(5), torch.arange(5) * 30]).int().T
    wording.refused(SpecError, lambda: tables.lookup(ids))


def test_weights_stay_on_the_host_when_the_model_moves():
    tables = new_tables("host_cached")
    moved = tables.to(torch.float64)  # stands for a device here: what moves changes
    kinds = [weight.dtype for weight in moved.weights]
    wanted = [
        torch.float32 if store.placement == "host_cached" else torch.float64
        for store in tables.stores
    ]
    assert kinds == wanted
    assert torch.float32 in kinds
    assert torch.float64 in kinds
