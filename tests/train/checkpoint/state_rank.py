"""The real gloo ranks of `test_any_ranks.py`: gangs of 4, 2, 1, and 3."""

import contextlib
import resource
import signal
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from checkpoint_states import MIXED, SCHEMA, SPEC, new_state
from torch import distributed as dist
from torch.distributed import TCPStore

from distrain.errors import OutputError
from distrain.jobs.assignment import Rendezvous
from distrain.models import load_model, tensor_file
from distrain.models.embeddings import EmbeddingCollection, Peers
from distrain.models.embeddings.canonical_state import canonical_weights
from distrain.models.saved_model import save_model
from distrain.train.checkpoint import (
    CheckpointDir,
    CheckpointWriter,
    RankStore,
    TrainingState,
    load_newest,
    local_rows,
    shard,
    shard_reading,
)
from distrain.train.control.control import join_store

# Several slabs per table, whose ends fall on no column's.
SLAB_BYTES = 170


class Gang(NamedTuple):
    num_ranks: int
    placements: tuple[str, ...]


GANGS = (
    Gang(4, ("row_wise",) * 5),
    Gang(2, MIXED),
    Gang(1, ("replicated",) * 5),
    Gang(3, ("row_wise", "replicated", "host_cached", "row_wise", "row_wise")),
)


def refuse_large_files(rank):
    """Have rank 0 find its disk full after 2,000 bytes."""
    if rank == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))


def fail_to_save_model(state, rank, folder):
    """What each rank hears when rank 0's disk is full, and when the folder is there already."""
    (folder / "taken").mkdir(exist_ok=True)
    heard = []
    for name in ("full", "taken"):
        if name == "full":
            refuse_large_files(rank)
        try:
            save_model(folder / name, state.model, SPEC, SCHEMA)
        except (OutputError, dist.DistError) as error:
            heard.append(f"{type(error).__name__}: {error}")
        if rank == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return heard


def whole_everywhere(state):
    weights = canonical_weights(state.model.embeddings)
    return {
        name: tensor.read(slice(0, tensor.shape[0]), everywhere=True)
        for name, tensor in weights.items()
    }


def last_byte_flipped(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


SERVERS = []


def new_board(peers, name):
    """A board of a writer's own, in a store of rank 0's process; all ranks call it together."""
    if peers.num_ranks == 1:
        return RankStore()
    port = [0]
    if peers.rank == 0:
        SERVERS.append(TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60)))
        port = [SERVERS[-1].port]
    dist.broadcast_object_list(port)
    return join_store(Rendezvous("127.0.0.1", port[0], name), 60.0)


def find_damage(stage, peers, folder):
    """Only the last rank needs the bytes that are damaged; which checkpoint is loaded by each."""
    place = CheckpointDir(str(folder / f"damaged-{stage}"))
    board = new_board(peers, "damaged")
    state = new_state("sgd", ("row_wise",) * 5, peers)
    writer = CheckpointWriter(place, state, peers, board, keep=5)
    for step in (1, 2):
        writer.save(step, 1, {}, {}, wait=True)
    if peers.rank == 0:
        name = shard.shard_file(peers.num_ranks - 1, peers.num_ranks)
        last_byte_flipped(Path(place.list()[0].url) / name)
    peers.all_reduce_sum(torch.zeros(1))
    told = []
    loaded = load_newest(place, state, peers, report=told.append)
    return loaded.entry.step, [trouble.message for trouble in told]


def models(stage, peers, folder):
    """Results of the `models` package, among ranks."""
    gang = GANGS[stage]
    results = {}
    state = new_state("adam", gang.placements, peers, seed=7)
    results["weights"] = whole_everywhere(state)
    model = folder / f"model-{stage}"
    save_model(model, state.model, SPEC, SCHEMA)
    spread = partial(EmbeddingCollection, placements=("row_wise",) * 5, peers=peers)
    loaded = load_model(model, make_tables=spread)
    results["local_rows_of"] = [len(weight) for weight in loaded.model.embeddings.weights]
    results["loaded"] = whole_everywhere(TrainingState(loaded.model, None, None))
    results["heard"] = fail_to_save_model(state, peers.rank, folder)
    return results


@contextlib.contextmanager
def small_slabs():
    """Have tables of some hundred bytes travel in several pieces."""
    with contextlib.ExitStack() as stack:
        for module in (tensor_file, shard, shard_reading):
            stack.enter_context(mock.patch.object(module, "SLAB_BYTES", SLAB_BYTES))
        stack.enter_context(mock.patch.object(local_rows, "SMALL_BYTES", 300))
        yield


def run_stage(rank, num_ranks, stage, folder):
    """All that a rank of a gang finds."""
    folder, peers = Path(folder), Peers(rank, num_ranks)
    with small_slabs():
        results = models(stage, peers, folder)
        if num_ranks > 1:
            results["damage"] = find_damage(stage, peers, folder)
        results["sum"] = peers.all_reduce_sum(torch.tensor([rank + 1]))  # they are still in step
    return results
