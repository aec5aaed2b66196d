"""One real gloo rank of `test_routes_ahead.py`, run as a script: RANK NUM_RANKS FOLDER PREPARED.

Trains the same job several times, with routes made in turn and ahead, and writes what came out.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from small_jobs import make_spec
from torch import distributed as dist

from distrain.events import to_json
from distrain.run_paths import RunPaths
from distrain.train.inputs import check_inputs
from distrain.train.loop import Trainer
from distrain.world import World

VARIANTS = (
    ("replicated", 0),
    ("replicated", 2),
    ("row_wise", 0),
    ("row_wise", 1),
)
# 21 steps of an epoch, the last with few rows; validations between them look up rows as well.
JOB = "train={global_batch_size: 500, epochs: 2, max_steps: 23, log_every_steps: 10}"


def train(rank, num_ranks, prepared, run_dir, placement, route_ahead):
    """Train one job; the rank's own dense weights and shares of tables, and its events."""
    spec = make_spec(
        prepared,
        f"resources.num_ranks={num_ranks}",
        JOB,
        f"train.route_ahead={route_ahead}",
        f"embeddings.placement={placement}",
        "evaluate.every_steps=11",
        "checkpoint.at_end=false",  # the ranks have no board
    )
    events = []
    trainer = Trainer(
        spec,
        check_inputs(spec),
        World(rank, num_ranks),
        torch.device("cpu"),
        RunPaths(run_dir),
        lambda event: events.append(to_json(event)),
    )
    trainer.run()
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}, events


def main(rank, num_ranks, folder, prepared):
    torch.set_num_threads(1)
    if num_ranks > 1:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(str(folder / "store"), num_ranks),
            rank=rank,
            world_size=num_ranks,
            timeout=timedelta(seconds=60),
        )
    for number, variant in enumerate(VARIANTS):
        weights, events = train(rank, num_ranks, prepared, folder / f"run{number}", *variant)
        torch.save(weights, folder / f"{rank}.{number}.pt")
        (folder / f"{rank}.{number}.json").write_text(json.dumps(events))
    if num_ranks > 1:
        dist.destroy_process_group()
    (folder / f"{rank}.done").touch()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
    # gloo sometimes aborts at interpreter exit, after all work is done.
    os._exit(0)
