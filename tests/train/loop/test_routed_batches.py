"""Routes made ahead: the same as in turn, bounded, and over when they should be."""

import gc
import threading
import weakref

import pytest
import torch
from click_models import model_over
from streams_on_cpu import CpuStreams
from waiting import until

from distrain.errors import DataError
from distrain.loader.batch import Batch
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.train.loop import routed_batches as ahead
from distrain.train.loop.routed_batches import PrefetchedRoutes, SynchronousRoutes
from distrain.train.step.routing import routes_of
from distrain.train.timing.phases import PhaseClock

CPU = torch.device("cpu")
LONG_S = 120.0


def make_model():
    generator = torch.Generator().manual_seed(3)
    columns = [TableColumn("a", 50, 4), TableColumn("b", 9, 4)]
    return model_over(EmbeddingCollection(columns, generator=generator), MLPBlock([2]))


def make_batch(number):
    generator = torch.Generator().manual_seed(number)
    rows = 5 + number % 3
    ids = [torch.randint(0, top, (rows,), generator=generator).int() for top in (50, 9)]
    return Batch(torch.stack(ids, 1), torch.zeros(rows, 0), torch.zeros(rows), ("a", "b"), ())


class Source:
    """Batches 0, 1, ...: then the end, an error, or a wait that only `close` ends."""

    def __init__(self, count, then="end"):
        self.count = count
        self.then = then
        self.taken = self.given = self.most_open = 0
        self.closed = threading.Event()
        self.waiting = threading.Event()
        self.refs = []

    def __next__(self):
        if self.closed.is_set():
            raise StopIteration
        if self.taken == self.count:
            if self.then == "wait":
                self.waiting.set()
                assert self.closed.wait(LONG_S)
            if isinstance(self.then, Exception):
                raise self.then
            raise StopIteration
        batch = make_batch(self.taken)
        self.taken += 1
        self.most_open = max(self.most_open, self.taken - self.given)
        self.refs.append(weakref.ref(batch.categorical))
        return batch

    def close(self):
        self.closed.set()


def take_all(source, routes):
    clock, taken = PhaseClock(), []
    while True:
        source.given += 1
        try:
            taken.append(routes.take(clock))
        except StopIteration:
            return taken


def route_threads():
    return [thread for thread in threading.enumerate() if thread.name == "routes"]


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_routes_ahead_are_the_routes_in_turn(depth, count):
    model = make_model()
    expected = take_all(source := Source(count), SynchronousRoutes(source, routes_of(model), CPU))
    source = Source(count)
    with PrefetchedRoutes(source, model, CPU, depth) as routes:
        taken = take_all(source, routes)
        assert len(taken) == len(expected) == count
        with pytest.raises(StopIteration):
            routes.take(PhaseClock())
    tables = model.embeddings
    for ours, theirs in zip(taken, expected, strict=True):
        assert torch.equal(ours.batch.categorical, theirs.batch.categorical)
        assert ours.route.traffic == theirs.route.traffic
        assert ours.route_s > 0
        for own, other in zip(
            tables.expand(ours.route, tables.fetch(ours.route)),
            tables(theirs.batch.categorical),
            strict=True,
        ):
            assert torch.equal(own, other)
    # One that waits finished, or is in the making, for each place, and the one just given.
    assert source.most_open <= depth
    assert route_threads() == []


def test_what_was_taken_is_not_kept():
    source = Source(4)
    with PrefetchedRoutes(source, make_model(), CPU, 1) as routes:
        for number in range(3):
            routed = routes.take(PhaseClock())
            assert source.refs[number]() is routed.batch.categorical
            del routed
            until(lambda number=number: source.taken == number + 2)
            until(lambda number=number: source.refs[number]() is None)


@pytest.mark.parametrize("error", [DataError("a bad row"), RuntimeError("connection closed")])
def test_an_error_comes_as_it_is_after_the_batches_before_it(error):
    source = Source(3, then=error)
    with PrefetchedRoutes(source, make_model(), CPU, 2) as routes:
        for _ in range(3):
            routes.take(PhaseClock())
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                routes.take(PhaseClock())
            assert caught.value is error
        assert route_threads() == []


def test_waiting_for_a_pair_is_waiting_for_data():
    clock = PhaseClock()
    with PrefetchedRoutes(Source(3), make_model(), CPU, 1) as routes:
        for _ in range(3):
            routes.take(clock)
    window = clock.lap()
    assert window["data_wait"] > 0
    assert window["copy"] == window["exchange"] == 0.0


def test_closing_ends_a_thread_that_waits_for_room():
    source = Source(100)
    routes = PrefetchedRoutes(source, make_model(), CPU, 2)
    until(lambda: source.taken == 2)
    routes.close()
    assert route_threads() == []
    with pytest.raises(StopIteration):
        routes.take(PhaseClock())
    routes.close()


def test_dropping_ends_the_thread_too():
    source = Source(100)
    routes = PrefetchedRoutes(source, make_model(), CPU, 2)
    until(lambda: source.taken == 2)
    del routes
    gc.collect()
    until(lambda: not route_threads())
    assert source.closed.is_set()


def test_a_thread_in_a_collective_operation_is_left_behind(monkeypatch):
    monkeypatch.setattr(ahead, "LONGEST_JOIN_S", 0.01)
    model = make_model()
    tables = model.embeddings
    tables.route_peers = Peers(0, 2)
    inside, lost = threading.Event(), threading.Event()

    def wait_for_a_peer(*_args, **_options):
        inside.set()
        assert lost.wait(LONG_S)
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(tables, "route", wait_for_a_peer)
    with PrefetchedRoutes(Source(3), model, CPU, 2):
        assert inside.wait(LONG_S)
    (thread,) = route_threads()
    assert thread.daemon
    lost.set()
    thread.join(LONG_S)
    assert not thread.is_alive()


class AllOnDevice(CpuStreams):
    """A device that holds every tensor."""

    def holds(self, tensor):
        return True


def test_the_training_stream_follows_and_its_thread_does_not_wait(monkeypatch):
    streams, model = AllOnDevice(), make_model()
    tables = model.embeddings
    make_route, beside = tables.route, []

    def route(*args, **options):
        beside.append(streams._depth)
        return make_route(*args, **options)

    monkeypatch.setattr(tables, "route", route)
    source = Source(2)
    with PrefetchedRoutes(source, model, CPU, 1, streams) as routes:
        routed = [routes.take(PhaseClock()) for _ in range(2)]
    assert beside == [1, 1]
    assert streams.log.count(("mark", "routes")) == 2
    assert [step for step, thread in streams.log if thread == "MainThread"] == ["follow"] * 2
    assert [event.waits for event in streams.events] == [0, 0]
    for (event, memory), made, pair in zip(streams.followed, streams.events, routed, strict=True):
        assert event is made
        held = {tensor.untyped_storage().data_ptr() for tensor in memory}
        own = pair.route.stores[0]
        for tensor in (pair.batch.categorical, pair.batch.label, own.inverse, own.rows.keys):
            assert tensor.untyped_storage().data_ptr() in held
