"""The gangs of `test_any_ranks.py`, run as a script: FOLDER. 2 ranks, then 1, then 3, on gloo.

The ranks are forks of the script, which is spared importing torch six times.

What a training comes to must not depend on who adds its gradients, so they are multiples of 1/64,
whose sums are exact in any order, and depend on the step and the id alone.
"""

import os
import resource
import signal
import sys
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import distributed as dist

from distrain.checkpoint import TrainingState
from distrain.embeddings import EmbeddingCollection, Peers, SparseOptimizer
from distrain.embeddings.canonical import canonical_weights
from distrain.errors import OutputError
from distrain.models import build_model, load_model, save_model, tensor_file
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.spec import MlpSpec

KINDS = ("sgd", "adagrad", "rowwise_adagrad", "adam")
SIZES = {"a": (50, 4), "b": (3, 4), "c": (29, 2), "d": (1, 2), "e": (300, 4)}
SCHEMA = Schema(
    (
        ColumnSchema("clicked", "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
        *(
            ColumnSchema(
                name, "int32", (Tags.CATEGORICAL,), cardinality=cardinality, embedding_dim=dim
            )
            for name, (cardinality, dim) in SIZES.items()
        ),
        ColumnSchema("x", "float32", (Tags.CONTINUOUS,)),
    )
)
SPEC = MlpSpec(embedding_dim=None, hidden=(3,))
PLACEMENTS = {
    "replicated": ["replicated"] * 5,
    "row_wise": ["row_wise"] * 5,
    "mixed": ["row_wise", "replicated", "replicated", "row_wise", "row_wise"],
}
# By the number of ranks, in the order in which the gangs run.
STEPS_OF = {2: range(3), 1: range(3, 5), 3: range(5, 8)}
BEFORE = {2: 0, 1: 2, 3: 1}
PLACEMENT_OF = {2: "row_wise", 1: "replicated", 3: "mixed"}
# Several slabs per table, whose ends fall on no column's.
SLAB_BYTES = 170


def new_state(kind, placement="replicated", peers=None, seed=0, dtype=torch.float32):
    tables = partial(
        EmbeddingCollection, placements=PLACEMENTS[placement], peers=peers, dtype=dtype
    )
    model = build_model(SCHEMA, SPEC, seed=seed, make_tables=tables)
    dense = {
        "sgd": partial(torch.optim.SGD, lr=0.1),
        "adam": partial(torch.optim.Adam, lr=0.1),
    }.get(kind, partial(torch.optim.Adagrad, lr=0.1))
    return TrainingState(
        model, SparseOptimizer(model.embeddings, kind), dense(model.dense.parameters())
    )


def train(state, steps):
    """Take these steps, of 24 rows of which each rank has its share."""
    tables = state.model.embeddings
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        ids = torch.stack(
            [torch.randint(0, c.cardinality, (24,), generator=generator) for c in tables.columns]
        ).T
        mine = ids[tables.peers.rank :: tables.peers.num_ranks]
        route = tables.route(mine)
        leaves = tables.expand(route, tables.fetch(route))
        grads = []
        for group, leaf in zip(tables.groups, leaves, strict=True):
            of_id = (mine[:, group] * 7 + step * 13) % 129 - 64
            grads.append((of_id.unsqueeze(2) + torch.arange(leaf.shape[2])).float() / 64)
        state.sparse_optimizer.apply(tables.exchange(route, tables.collect(route, grads)), 0.1)
        for number, parameter in enumerate(state.model.dense.parameters()):
            parameter.grad = torch.full_like(parameter, (step - number) / 8)
        state.dense_optimizer.step()


def refuse_large_files(rank):
    """Have rank 0 find its disk full after 2,000 bytes."""
    if rank == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))


def fail_to_save(state, rank, folder):
    """What each rank hears when rank 0's disk is full, and when the folder is there already."""
    (folder / "taken").mkdir(exist_ok=True)
    heard = []
    for name in ("full", "taken"):
        if name == "full":
            refuse_large_files(rank)
        try:
            state.save(folder / name)
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


def run_rank(rank, num_ranks, folder):
    """Load what the last gang saved, train on, save; then all else that ranks can be asked."""
    store = dist.FileStore(str(folder / f"store{num_ranks}"), num_ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=120)
    )
    peers = Peers(rank, num_ranks)
    results = {}
    for kind in KINDS:
        state = new_state(kind, PLACEMENT_OF[num_ranks], peers, seed=num_ranks)
        results[kind] = state.load(folder / f"{kind}-{BEFORE[num_ranks]}")
        train(state, STEPS_OF[num_ranks])
        state.save(folder / f"{kind}-{num_ranks}", {"stage": num_ranks})
    results["weights"] = whole_everywhere(state)
    model = folder / f"model-{num_ranks}"
    save_model(model, state.model, SPEC, SCHEMA)
    spread = partial(EmbeddingCollection, placements=PLACEMENTS["row_wise"], peers=peers)
    loaded = load_model(model, make_tables=spread)
    results["local_rows"] = [len(weight) for weight in loaded.model.embeddings.weights]
    results["loaded"] = whole_everywhere(TrainingState(loaded.model, None, None))
    half = new_state("sgd", PLACEMENT_OF[num_ranks], peers, dtype=torch.bfloat16)
    half.save(folder / f"half-{num_ranks}")
    results["heard"] = fail_to_save(state, rank, folder)
    results["sum"] = peers.add_up(torch.tensor([rank + 1]))  # they are still in step
    torch.save(results, folder / f"{rank}of{num_ranks}.part")
    (folder / f"{rank}of{num_ranks}.part").rename(folder / f"{rank}of{num_ranks}.pt")
    dist.destroy_process_group()
    # gloo sometimes aborts at interpreter exit, after all work is done.
    os._exit(0)


def main(folder):
    torch.set_num_threads(1)
    tensor_file.SLAB_BYTES = SLAB_BYTES
    for kind in KINDS:
        new_state(kind).save(folder / f"{kind}-0")
    context = get_context("fork")
    for num_ranks in STEPS_OF:
        ranks = [
            context.Process(target=run_rank, args=(rank, num_ranks, folder))
            for rank in range(num_ranks)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
