"""The real gloo ranks of `test_refit_of_ranks.py`.

They train the same job twice: with plain steps, and with played graphs.
"""

from contextlib import ExitStack, suppress
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

    def request_rows(self, batch, rank_rows):
        self.asked.append(rank_rows)
        return super().request_rows(batch, rank_rows)


def train(rank, num_ranks, prepared, run_dir, how, fails_at=None):
    """Train one job; the rank's own dense weights and shares of tables, and its events.

    With `fails_at`, the first event of that kind cannot be reported.
    """
    with ExitStack() as patched:
        if how == "played":
            patched.enter_context(patch.object(setup, "GraphedStep", PlayedStep))
            patched.enter_context(patch.object(setup, "records_steps", lambda *_: True))
        return train_as_set_up(rank, num_ranks, prepared, run_dir, fails_at)


def train_as_set_up(rank, num_ranks, prepared, run_dir, fails_at=None):
    """Train with whatever step `setup` makes."""
    spec = make_spec(
        prepared,
        f"resources.num_ranks={num_ranks}",
        JOB,
        "embeddings.placement=row_wise",
        "evaluate.every_steps=11",
        "checkpoint.at_end=false",
        *REFIT,
    )
    run_dir.mkdir(parents=True, exist_ok=True)
    store = RankStore(FileStore(str(run_dir / ".store"), num_ranks))
    events = []

    def report(event):
        events.append(to_json(event))
        if events[-1]["kind"] == fails_at:
            raise ConnectionError(fails_at)

    trainer = Trainer(
        spec,
        check_inputs(spec),
        World(rank, num_ranks),
        torch.device("cpu"),
        RunPaths(run_dir),
        report,
        control=Control(store, StepAgreement(store, rank, num_ranks), RankActivity()),
    )
    trainer.run()
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}, events


def refits(rank, num_ranks, prepared, folder):
    """What a job with a refit comes to, plain and played, and each training's rows of ranks."""
    PlayedStep.made.clear()
    before, held = PlayedGraph.replays_in_all, held_graphs()
    both = [
        train(rank, num_ranks, Path(prepared), Path(folder, how), how)
        for how in ("plain", "played")
    ]
    assert held_graphs() == held
    return *both, PlayedStep.made, PlayedGraph.replays_in_all - before


def held_graphs():
    """How many graphs were made and not released."""
    return PlayedGraph.made - PlayedGraph.released


def held_after(rank, num_ranks, prepared, folder):
    """How many graphs a training made that failed, and how many of them it still holds."""
    made, held = PlayedGraph.made, held_graphs()
    with suppress(ConnectionError):
        train(rank, num_ranks, Path(prepared), Path(folder), "played", "evaluation_done")
        raise AssertionError("no evaluation was reported")
    return PlayedGraph.made - made, held_graphs() - held
