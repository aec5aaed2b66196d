"""The real gloo ranks of `test_routes_ahead.py`.

They train the same job several times: with routes made in turn and ahead, and with played graphs.
"""

from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch
from played_graph import PlayedGraph
from small_jobs import make_spec

from distrain.jobs.assignment import World
from distrain.jobs.events import to_json
from distrain.jobs.run_paths import RunPaths
from distrain.train.data.inputs import check_inputs
from distrain.train.loop import setup
from distrain.train.loop.trainer import Trainer
from distrain.train.step.graphed_step import GraphedStep

# Placements, and how many routes are made ahead, or "played": the step is a played graph.
VARIANTS = (
    ("replicated", 0),
    ("replicated", 2),
    ("replicated", "played"),
    ("row_wise", 0),
    ("row_wise", 1),
    ("row_wise", "played"),
)
NUM_RANKS = (1, 2)
# 21 steps of an epoch, the last with few rows; validations between them look up rows as well.
JOB = "train={global_batch_size: 500, epochs: 2, max_steps: 23, log_every_steps: 10}"


class PlayedStep(GraphedStep):
    """A step whose graph a CPU plays."""

    def __init__(self, *arguments):
        super().__init__(*arguments, make_graph=PlayedGraph)


def train(rank, num_ranks, prepared, run_dir, placement, ahead):
    """Train one job; the rank's own dense weights and shares of tables, and its events."""
    plays = ahead == "played"
    with ExitStack() as patched:
        if plays:
            patched.enter_context(patch.object(setup, "GraphedStep", PlayedStep))
            patched.enter_context(patch.object(setup, "_records", lambda *_: True))
        return train_as_set_up(rank, num_ranks, prepared, run_dir, placement, 1 if plays else ahead)


def train_as_set_up(rank, num_ranks, prepared, run_dir, placement, route_ahead):
    """Train with whatever step `setup` makes."""
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


def results(rank, num_ranks, prepared, folder):
    """What each variant came to."""
    return [
        train(rank, num_ranks, Path(prepared), Path(folder, f"{num_ranks}-{number}"), *variant)
        for number, variant in enumerate(VARIANTS)
    ]
