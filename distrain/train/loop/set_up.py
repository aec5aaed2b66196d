"""What a rank does before it trains: build the model, take over a checkpoint, read ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from distrain.checkpoint import CheckpointDir, claim_together
from distrain.embeddings import Peers
from distrain.events import Event
from distrain.jobs import World
from distrain.loader import Loader
from distrain.models import ClickModel, build_model
from distrain.models.heads import weigh
from distrain.run_paths import RunPaths
from distrain.spec import JobSpec
from distrain.train.control import Control
from distrain.train.data import Inputs, JobSpan, check_negatives, list_combiners
from distrain.train.loop.epoch_prefetch import EpochPrefetch
from distrain.train.loop.tables import place_tables, table_factory
from distrain.train.planning import check_metric
from distrain.train.saving import RankCheckpoints, TrainingStart, checkpoint_dir, likely_start
from distrain.train.step import GraphedStep, OpenWindow, TrainStep
from distrain.train.timing import PEERS, READER, waiting
from distrain.train.warm_start import take_weights


@dataclass
class RankJob:
    spec: JobSpec
    inputs: Inputs
    world: World
    device: torch.device
    paths: RunPaths
    report: Callable[[Event], None]
    job_id: str = ""
    attempt: int = 1
    control: Control = field(default_factory=Control.alone)
    first_attempt: int = 1


@dataclass(frozen=True)
class TrainingParts:
    model: ClickModel
    step: TrainStep | GraphedStep
    window: OpenWindow
    checkpoints: RankCheckpoints
    start: TrainingStart
    batches: EpochPrefetch


def set_up(job: RankJob, loader: Loader, span: JobSpan) -> TrainingParts:
    """Get ready to train, from the newest checkpoint if there is one; a collective operation."""
    resumed = job.first_attempt > 1
    directory = checkpoint_dir(job.spec, job.paths, job.job_id, resumed=resumed)
    _claim(job, directory)
    guess = min(likely_start(directory), span.num_steps)
    ahead = job.spec.data.prefetch_batches
    # Before the model is built, so that the first batch is ready when that is.
    batches = EpochPrefetch(loader, span.num_steps, ahead, guess)
    parts = _make(job, span, directory)
    with waiting(READER):  # for the storage; waits for other ranks are noted where they are
        start, spoilt = parts[-1].load()
    if spoilt:
        parts = _make(job, span, directory)
    step, window, checkpoints = parts
    if start.checkpoint is None and job.spec.train.init_from is not None:
        with waiting(READER):
            _take_weights(job, checkpoints)
    span.check_start(start.step, str(start.checkpoint))
    if start.step != guess:  # the newest checkpoint was damaged
        batches.close()
        batches = EpochPrefetch(loader, span.num_steps, ahead, start.step)
    return TrainingParts(step.model, step, window, checkpoints, start, batches)


def _claim(job: RankJob, directory: CheckpointDir) -> None:
    if directory.run is None:  # a rank that belongs to no run
        return
    peers = Peers(job.world.rank, job.world.num_ranks)
    # A later attempt of a job that trained already goes on training where it can no longer save.
    report = job.report if job.attempt > job.first_attempt else None
    with waiting(READER):
        claim_together(directory, job.paths.place, peers, job.device, report)


def _make(
    job: RankJob, span: JobSpan, directory: CheckpointDir
) -> tuple[TrainStep | GraphedStep, OpenWindow, RankCheckpoints]:
    step = _build(job)
    most_steps = min(job.spec.train.log_every_steps, span.num_steps)
    graphed = step if isinstance(step, GraphedStep) else None
    targets = step.model.task.targets
    window = OpenWindow(job.world.rank, job.device, most_steps, targets, graphed)
    checkpoints = RankCheckpoints(
        job.spec, job.inputs, directory, job.attempt, step, window, job.control, job.report
    )
    return step, window, checkpoints


def _take_weights(job: RankJob, checkpoints: RankCheckpoints) -> None:
    slab_done = job.control.activity.count_slab
    taken = take_weights(job.spec, job.inputs, checkpoints.state, job.device, slab_done)
    checkpoints.begin_with(taken.steps, taken.own)
    if job.world.rank == 0:
        job.report(taken.event)


def _build(job: RankJob) -> TrainStep | GraphedStep:
    spec, schema, world = job.spec, job.inputs.schema, job.world
    with waiting(PEERS):
        placed = place_tables(spec, schema, world, job.device)
    model = build_model(
        schema,
        spec.model,
        seed=spec.train.seed,
        make_tables=table_factory(spec, placed, world, job.device),
        combiners=list_combiners(schema, spec.embeddings),
    )
    check_metric(spec, model.dense.task)
    weigh(model.dense.task, schema, spec.data.class_weight)
    check_negatives(spec.data, schema, model.dense.task)
    model.dense.logit_shift = spec.data.logit_shift
    model.to(job.device).train()
    with waiting(PEERS):  # for rank 0's dense parameters
        if not spec.train.cuda_graph:
            return TrainStep(model, spec.train, world.num_ranks)
        lanes = spec.train.lanes // world.num_ranks
        max_rows = lanes * -(-spec.train.global_batch_size // spec.train.lanes)
        return GraphedStep(model, spec.train, world.num_ranks, max_rows)
