"""How far saving and loading raise the peak of a process's memory. Run as a script: FOLDER.

Prints the peaks above what the tables take, in copies of the tables.
"""

import json
import sys
from functools import partial
from pathlib import Path

import torch

from distrain.jobs.spec import MlpSpec
from distrain.models import build_model, load_model, tensor_file
from distrain.models.embeddings import Peers, SparseOptimizer
from distrain.models.saved_model import save_model
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.checkpoint import (
    CheckpointDir,
    CheckpointWriter,
    RankStore,
    TrainingState,
    load_newest,
    shard,
    shard_reading,
)

TABLE_BYTES = 100 * 10**6
SLAB_BYTES = 4 << 20  # as small beside the tables as those of a real training
DIM = 16
SCHEMA = Schema(
    (
        ColumnSchema("clicked", "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
        *(
            ColumnSchema(name, "int32", (Tags.CATEGORICAL,), cardinality=TABLE_BYTES // 8 // DIM)
            for name in ("a", "b")
        ),
    )
)
SPEC = MlpSpec(embedding_dim=DIM, hidden=(3,))


def memory_bytes(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def copies(work):
    """By how much `work` raised the peak, in copies of the tables."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is held
    before = memory_bytes("VmRSS")
    kept = work()
    rise = (memory_bytes("VmHWM") - before) / TABLE_BYTES
    del kept
    return round(rise, 3)


def save_behind(writer, step):
    writer.save(step, 1, {}, {})
    assert writer.wait() is True


def rises_of_saving(folder):
    """The model is dropped at the end."""
    model = build_model(SCHEMA, SPEC, seed=0)
    state = TrainingState(
        model,
        SparseOptimizer(model.embeddings, "sgd"),
        torch.optim.SGD(model.dense.parameters(), lr=0.1),
    )
    place = CheckpointDir(str(folder / "checkpoints"))
    writer = CheckpointWriter(place, state, Peers(), RankStore(), keep=1)
    return {
        "save_model": copies(lambda: save_model(folder / "model", model, SPEC, SCHEMA)),
        "save_straight": copies(lambda: writer.save(1, 1, {}, {}, wait=True)),
        "save_behind": copies(partial(save_behind, writer, 2)),
        "save_behind_again": copies(partial(save_behind, writer, 3)),
        "load": copies(lambda: load_newest(place, state, Peers())),
        "buffer": round(writer.buffer_bytes / TABLE_BYTES, 3),
    }


def main(folder):
    torch.set_num_threads(1)
    for module in (tensor_file, shard, shard_reading):
        vars(module)["SLAB_BYTES"] = SLAB_BYTES
    rises = rises_of_saving(folder)
    rises["load_model"] = copies(lambda: load_model(folder / "model"))
    print(json.dumps(rises))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
