"""Small trainings whose state tests save and load."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import torch

from distrain.jobs.spec import MlpSpec
from distrain.models import build_model
from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.storage.folder import open_folder
from distrain.train.checkpoint import CheckpointWriter, RankStore, TrainingState, load_newest
from distrain.train.checkpoint.manifest import from_document
from distrain.train.checkpoint.shard_reading import ShardReading, receivers_of
from distrain.train.step.dense import _without_compiler

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
SHARED_TABLE = SCHEMA.with_columns(
    replace(SCHEMA["a"], cardinality=300),
    replace(SCHEMA["e"], properties={"domain": "a"}),
)
"""Columns "a" and "e" look up one table."""
SPEC = MlpSpec(embedding_dim=None, hidden=(3,))
MIXED = ("row_wise", "replicated", "replicated", "row_wise", "row_wise")


def new_state(
    kind="adam",
    placements=("replicated",) * 5,
    peers=None,
    seed=0,
    dtype=torch.float32,
    schema=SCHEMA,
):
    """The state of a rank; it has all of the peers' shapes, and needs no process group."""
    tables = partial(EmbeddingCollection, placements=placements, peers=peers, dtype=dtype)
    model = build_model(schema, SPEC, seed=seed, make_tables=tables)
    of_torch = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}.get(kind, torch.optim.Adagrad)
    dense = _without_compiler(of_torch)(model.dense.parameters(), lr=0.1)  # it takes a rank seconds
    return TrainingState(model, SparseOptimizer(model.embeddings, kind), dense)


def some_content(state, seed):
    """Values by name in the shapes of a state's canonical tensors, which no two places share."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(tuple(tensor.shape), generator=generator).to(tensor.dtype)
        for name, tensor in state.tensors().items()
    }


@torch.no_grad()
def fill(state, content):
    """Have a rank hold its part of some content."""
    for name, tensor in state.tensors().items():
        if isinstance(tensor, torch.Tensor):
            tensor.copy_(content[name])
        else:
            tensor.write(slice(0, tensor.shape[0]), content[name])


def raw_values(state):
    """All that a rank holds, as it holds it."""
    return [
        *(weight.data.clone() for weight in state.model.embeddings.weights),
        *(value.clone() for value in state.sparse_optimizer.state_dict().values()),
        *(
            tensor.clone()
            for name, tensor in state.tensors().items()
            if name.startswith("dense") and isinstance(tensor, torch.Tensor)
        ),
    ]


def same_values(left, right):
    a, b = raw_values(left), raw_values(right)
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def save_together(place, states, rank_tensors=None, **options):
    """Save as so many ranks, each a thread of this process; what each was told, and the reports.

    Options of the writer and of `save` are mixed.
    """
    reports = []
    saving = {"step": 1, "attempt": 1, "values": {}, "auc": None, "wait": True}
    saving |= {key: options.pop(key) for key in list(options) if key in saving}
    board = RankStore()

    def save(rank):
        writer = CheckpointWriter(
            place,
            states[rank],
            Peers(rank, len(states)),
            board,
            **{"keep": 10, "patience_s": 20.0, "report": reports.append} | options,
        )
        own = rank_tensors[rank] if rank_tensors else {}
        writer.save(
            saving["step"],
            saving["attempt"],
            saving["values"],
            own,
            saving["auc"],
            wait=saving["wait"],
        )
        told = writer.wait(20.0)
        writer.close()
        return told

    with ThreadPoolExecutor(len(states)) as threads:
        told = list(threads.map(save, range(len(states))))
    return told, reports


def read_all(place, name, states):
    """Load on every rank, without the ranks' agreement on what to load."""
    manifest = from_document(place.read_manifest(name))
    folder = open_folder(place.url).sub(name)
    own = []
    for rank, state in enumerate(states):
        state.check_fits(manifest.state, manifest.tensors, name)
        owned = range(rank, len(manifest.shards), len(states))
        reading = ShardReading(
            folder, manifest, receivers_of(state.tensors()), rank, lambda: None, owned
        )
        reading.check()
        own.append(reading.run())
        state.adopt(manifest.state)
    return own


def load_again(place):
    """Load the newest checkpoint into a new state; what was loaded, the state, and the reports."""
    told = []
    state = new_state("adagrad", seed=5)
    return load_newest(place, state, Peers(), report=told.append), state, told
