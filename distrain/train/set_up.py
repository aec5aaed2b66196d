"""What a rank does before it trains: build the model, take over a checkpoint, read ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from distrain.checkpoint import CheckpointPlace, claim_together
from distrain.embeddings import Peers
from distrain.errors import SpecError
from distrain.events import Event
from distrain.loader import Loader
from distrain.models import ClickModel, build_model
from distrain.run_paths import RunPaths
from distrain.spec import JobSpec
from distrain.train.control import Control
from distrain.train.epochs import EpochsAhead
from distrain.train.graphed_step import GraphedStep
from distrain.train.inputs import Inputs, list_combiners
from distrain.train.saving import Checkpoints, Start, checkpoint_place, likely_start
from distrain.train.span import Span
from distrain.train.step import TrainStep
from distrain.train.tables import place_tables, table_factory
from distrain.train.warm_start import take_weights
from distrain.train.whereabouts import PEERS, READER, waiting
from distrain.train.window import OpenWindow
from distrain.world import World


class Job(Protocol):
    """What a rank was given to train; see `Trainer`."""

    spec: JobSpec
    inputs: Inputs
    world: World
    device: torch.device
    paths: RunPaths
    job_id: str
    attempt: int
    first_attempt: int
    control: Control

    def report(self, event: Event, /) -> None:
        """Take an event."""


@dataclass(frozen=True)
class Parts:
    """What a rank trains with.

    Attributes:
        model: On its device.
        step: Trains it.
        window: The steps since the last report.
        checkpoints: Saves all that.
        start: Where the training begins.
        batches: From there on.
    """

    model: ClickModel
    step: TrainStep | GraphedStep
    window: OpenWindow
    checkpoints: Checkpoints
    start: Start
    batches: EpochsAhead


def set_up(job: Job, loader: Loader, span: Span) -> Parts:
    """Get ready to train, from the newest checkpoint if there is one; a collective operation.

    Raises:
        DistrainError: Spec or checkpoint cannot be used.
    """
    resumed = job.first_attempt > 1
    place = checkpoint_place(job.spec, job.paths, job.job_id, resumed=resumed)
    _claim(job, place)
    guess = min(likely_start(place), span.num_steps)
    ahead = job.spec.data.prefetch_batches
    # Before the model is built, so that the first batch is ready when that is.
    batches = EpochsAhead(loader, span.num_steps, ahead, guess)
    parts = _make(job, span, place)
    with waiting(READER):  # of the storage; waits for the other ranks tell of themselves
        start, spoilt = parts[-1].load()
    if spoilt:
        parts = _make(job, span, place)
    step, window, checkpoints = parts
    if start.checkpoint is None and job.spec.train.init_from is not None:
        with waiting(READER):
            _take_weights(job, step.model)
    if start.step > span.num_steps:
        raise SpecError(
            f"the checkpoint is of step {start.step}, and the job has only {span.num_steps}",
            where={"checkpoint": start.checkpoint},
            hint="Raise train.epochs or train.max_steps.",
        )
    if start.step != guess:  # the newest checkpoint was damaged
        batches.close()
        batches = EpochsAhead(loader, span.num_steps, ahead, start.step)
    return Parts(step.model, step, window, checkpoints, start, batches)


def _claim(job: Job, place: CheckpointPlace) -> None:
    """Take the place for this run, and see whether it can be written; a collective operation."""
    if place.run is None:  # a rank that belongs to no run
        return
    peers = Peers(job.world.rank, job.world.num_ranks)
    # A later attempt of a job that trained already goes on training where it can no longer save.
    report = job.report if job.attempt > job.first_attempt else None
    with waiting(READER):
        claim_together(place, str(job.paths.root), peers, job.device, report)


def _make(
    job: Job, span: Span, place: CheckpointPlace
) -> tuple[TrainStep | GraphedStep, OpenWindow, Checkpoints]:
    step = _build(job)
    most_steps = min(job.spec.train.log_every_steps, span.num_steps)
    window = OpenWindow(job.world.rank, job.device, most_steps)
    checkpoints = Checkpoints(
        job.spec, job.inputs, place, job.attempt, step, window, job.control, job.report
    )
    return step, window, checkpoints


def _take_weights(job: Job, model: ClickModel) -> None:
    told = take_weights(job.spec, job.inputs, model, job.device, job.control.where.count_slab)
    if job.world.rank == 0:
        job.report(told)


def _build(job: Job) -> TrainStep | GraphedStep:
    spec, schema, world = job.spec, job.inputs.schema, job.world
    with waiting(PEERS):
        placed = place_tables(spec, schema, world, job.device)
    model = build_model(
        schema,
        spec.model,
        seed=spec.train.seed,
        make_tables=table_factory(spec, placed, world),
        combiners=list_combiners(schema, spec.embeddings),
    )
    model.to(job.device).train()
    with waiting(PEERS):  # for rank 0's dense parameters
        if not spec.train.cuda_graph:
            return TrainStep(model, spec.train, world.num_ranks)
        lanes = spec.train.lanes // world.num_ranks
        max_rows = lanes * -(-spec.train.global_batch_size // spec.train.lanes)
        return GraphedStep(model, spec.train, world.num_ranks, max_rows)
