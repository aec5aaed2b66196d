"""Work beside the main stream of a recorded step: every read and write waits for what it needs."""

from contextlib import contextmanager

import pytest
import torch
from absent_peers import NcclPeers
from click_models import batches_for, model_over
from played_graph import PlayedGraph
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from distrain.jobs.spec import TrainSpec
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn, fixed_shape
from distrain.train.step import graphed_step
from distrain.train.step.device_metrics import DeviceTargets
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.timing.phases import PhaseClock

COLUMNS = [TableColumn("a", 50, 4), TableColumn("b", 3, 4), TableColumn("c", 9, 2)]
NUMBERS = ("x", "y")
ROWS = 20
MAIN = 0


class PlayedStreams(TorchDispatchMode):
    """Fails if an operation touches memory that another stream may still read or write.

    Attributes:
        beside: How many operations ran on each stream other than the main one.
    """

    def __init__(self):
        super().__init__()
        self.stream, self.on_side_stream = MAIN, []
        self._time = 0
        self._done = [{}]  # for each stream, and each other one: the time up to which it has waited
        self._uses = {}  # by memory: a reference; stream, time, and whether it was written
        self._read_beside = []

    def new_branch(self, _device):
        self._done.append({})
        self.on_side_stream.append(0)
        return PlayedBranch(self, len(self.on_side_stream))

    def wait(self, stream, other):
        for seen, time in [*self._done[other].items(), (other, self._time)]:
            self._done[stream][seen] = max(time, self._done[stream].get(seen, 0))
        if stream == MAIN:
            kept = [one for one in self._read_beside if one[0] == other]
            assert not any(memory.expired() for _, memory in kept), "freed before the join"
            self._read_beside = [one for one in self._read_beside if one[0] != other]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.is_view:
            return out
        self._time += 1
        if self.stream != MAIN:
            self.on_side_stream[self.stream - 1] += 1
        given, made = memory_of((args, kwargs)), memory_of(out)
        written = made | memory_of(list(changed_by(func, args, kwargs or {})))
        for key, storage in (given | made).items():
            # While there is a weak reference, no other storage gets the same key.
            memory, uses = self._uses.setdefault(key, (StorageWeakRef(storage), []))
            for stream, time, wrote in uses:
                if stream != self.stream and (wrote or key in written):
                    assert self._done[self.stream].get(stream, 0) >= time, f"{func} does not wait"
            if self.stream != MAIN and any(stream == MAIN for stream, _, _ in uses):
                self._read_beside.append((self.stream, memory))
            uses.append((self.stream, self._time, key in written))
        return out


def memory_of(some):
    tensors = [leaf for leaf in tree_leaves(some) if torch.is_tensor(leaf)]
    return {one.untyped_storage()._cdata: one.untyped_storage() for one in tensors}


def changed_by(func, args, kwargs):
    for place, about in enumerate(func._schema.arguments):
        if about.alias_info is not None and about.alias_info.is_write:
            yield args[place] if place < len(args) else kwargs.get(about.name)


class PlayedBranch:
    def __init__(self, streams, number):
        self._streams, self._number = streams, number

    @contextmanager
    def on_side_stream(self):
        self._streams.wait(self._number, self._streams.stream)
        before, self._streams.stream = self._streams.stream, self._number
        yield
        self._streams.stream = before

    def join(self):
        self._streams.wait(self._streams.stream, self._number)


class SilentPeers(NcclPeers):
    """Two ranks of which the other has no rows."""

    def _all_gather(self, rows):
        return torch.stack([rows, torch.zeros_like(rows)])

    def _all_to_all(self, received, rows, receive=None, send=None):
        received.zero_()

    def all_reduce_max(self, numbers):
        return list(numbers)


CASES = {
    "one rank": (Peers(), "replicated"),
    "replicated": (SilentPeers(0, 2), "replicated"),
    "row-wise": (SilentPeers(0, 2), "row_wise"),
}


def play(name, section, monkeypatch):
    """Take some steps; the numbers of operations on their branches."""
    streams, (peers, placement) = PlayedStreams(), CASES[name]
    for module in (fixed_shape, graphed_step):
        monkeypatch.setattr(module, "Branch", streams.new_branch)
    tables = EmbeddingCollection(COLUMNS, placements=[placement] * 3, peers=peers)
    spec = TrainSpec.model_validate(section)
    step = GraphedStep(model_over(tables, MLPBlock([8]), NUMBERS), spec, 1, ROWS, PlayedGraph)
    step.count_by(DeviceTargets(step.model.task.targets, torch.device("cpu")).update)
    for batch in batches_for(COLUMNS, NUMBERS, ROWS, 5):
        asked = step.request_rows(batch, (ROWS,) * peers.num_ranks)
        with streams:
            step(batch, ROWS, 0.1, PhaseClock(), asked)
    return streams.on_side_stream


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("section", [{}, {"clip_grad_norm": 0.1}], ids=str)
def test_the_branches_of_a_step_wait_for_what_they_need(name, section, monkeypatch):
    assert min(play(name, section, monkeypatch)) > 5 * 5  # so many for sorting, and for counting


def test_a_step_that_does_not_join_its_branches_fails(monkeypatch):
    monkeypatch.setattr(PlayedBranch, "join", lambda self: None)
    with pytest.raises(AssertionError, match="does not wait"):
        play("one rank", {}, monkeypatch)
