"""The real gloo ranks of `test_routes_ahead.py`.

They train the same job several times: with routes made in turn and ahead, and with played graphs.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import torch
from played_graph import PlayedGraph
from small_jobs import make_spec
from torch.distributed import FileStore

from distrain.jobs.assignment import World
from distrain.jobs.events import to_json
from distrain.jobs.run_paths import RunPaths
from distrain.train.checkpoint.rank_store import RankStore
from distrain.train.control.control import Control
from distrain.train.control.step_agreement import StepAgreement
from distrain.train.data.inputs import check_inputs
from distrain.train.loop import setup
from distrain.train.loop.trainer import Trainer
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.timing.phases import RankActivity

# Placements, and how many routes are made ahead, or "played": the step is a played graph.
VARIANTS = (
    ("replicated", 0),
    ("replicated", 2),
    ("replicated", "played"),
    ("row_wise", 0),
    ("row_wise", 1),
    ("row_wise", "played"),
)
# 21 steps of an epoch, the last with few rows; validations between them look up rows as well.
JOB = "train={global_batch_size: 500, epochs: 2, max_steps: 23, log_every_steps: 10}"
# Lanes do not divide these batches, and the first training ends amid an epoch.
REFIT = ("train.refit=true", "train.global_batch_size=503")


class PlayedStep(GraphedStep):
    """A step whose graph a CPU plays."""

    made: ClassVar[list[list[tuple[int, ...]]]] = []  # for each: the ranks' rows of its batches

    def __init__(self, *arguments):
        super().__init__(*arguments, make_graph=PlayedGraph)
        self.asked = []
        self.made.append(self.asked)

    def ask(self, batch, rank_rows):
        self.asked.append(rank_rows)
        return super().ask(batch, rank_rows)


def train(rank, num_ranks, prepared, run_dir, placement, ahead, *more):
    """Train one job; the rank's own dense weights and shares of tables, and its events."""
    plays = ahead == "played"
    with ExitStack() as patched:
        if plays:
            patched.enter_context(patch.object(setup, "GraphedStep", PlayedStep))
            patched.enter_context(patch.object(setup, "_records", lambda *_: True))
        route_ahead = 1 if plays else ahead
        return train_as_set_up(rank, num_ranks, prepared, run_dir, placement, route_ahead, *more)


def train_as_set_up(rank, num_ranks, prepared, run_dir, placement, route_ahead, *more):
    """Train with whatever step `setup` makes."""
    spec = make_spec(
        prepared,
        f"resources.num_ranks={num_ranks}",
        JOB,
        f"train.route_ahead={route_ahead}",
        f"embeddings.placement={placement}",
        "evaluate.every_steps=11",
        "checkpoint.at_end=false",
        *more,
    )
    run_dir.mkdir(parents=True, exist_ok=True)
    store = RankStore(FileStore(str(run_dir / ".store"), num_ranks))
    events = []
    trainer = Trainer(
        spec,
        check_inputs(spec),
        World(rank, num_ranks),
        torch.device("cpu"),
        RunPaths(run_dir),
        lambda event: events.append(to_json(event)),
        control=Control(store, StepAgreement(store, rank, num_ranks), RankActivity()),
    )
    trainer.run()
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}, events


def results(rank, num_ranks, prepared, folder):
    """What each variant came to."""
    return [
        train(rank, num_ranks, Path(prepared), Path(folder, f"{num_ranks}-{number}"), *variant)
        for number, variant in enumerate(VARIANTS)
    ]


def refits(rank, num_ranks, prepared, folder):
    """What a job with a refit comes to, plain and played, and each training's rows of ranks."""
    PlayedStep.made.clear()
    before = PlayedGraph.replays_in_all
    both = [
        train(rank, num_ranks, Path(prepared), Path(folder, str(ahead)), "row_wise", ahead, *REFIT)
        for ahead in (0, "played")
    ]
    return *both, PlayedStep.made, PlayedGraph.replays_in_all - before
