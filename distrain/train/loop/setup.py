"""Prepares a rank's training: places and builds the model, loads a checkpoint, reads ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from distrain.jobs.assignment import World
from distrain.jobs.events import Event
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.loader.delivery.epoch import EpochIterator
from distrain.loader.loader import Loader
from distrain.loader.partition.table import Table
from distrain.models.blueprint import TableFactory
from distrain.models.build import build_model
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.embeddings.columns import TableColumn
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.sharding.plan import ShardingPlan
from distrain.models.heads.named_head import weigh
from distrain.schema.schema import Schema
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir
from distrain.train.checkpoint.ownership import claim_on_all_ranks
from distrain.train.control.control import Control
from distrain.train.data.inputs import check_negatives, list_combiners
from distrain.train.data.job_extent import JobSpan
from distrain.train.data.job_tables import Inputs
from distrain.train.loop.checkpoints import (
    RankCheckpoints,
    TrainingStart,
    checkpoint_dir,
)
from distrain.train.loop.refit import Refit
from distrain.train.planning.tables_plan import (
    check_metric,
    inits_of,
    plan_tables,
    tables_limit,
)
from distrain.train.step.graph_conditions import is_custom, model_facts, records_steps
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.open_report import OpenReport
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PEERS, READER, waiting
from distrain.train.warm_start.transfer import take_weights


@dataclass
class RankJob:
    """A job as one rank trains it: its inputs, and the objects with which the rank reports.

    `auto` values in the given spec are replaced by those for its rows (`JobSpec.for_rows`).
    """

    spec: JobSpec
    inputs: Inputs
    world: World
    device: torch.device
    paths: RunPaths
    report: Callable[[Event], None]
    job_id: str = ""  # "" for a rank outside of a run
    attempt: int = 1
    control: Control = field(default_factory=Control.alone)
    first_attempt: int = 1  # of this submission; above 1 if it resumes an earlier one
    refit: Refit | None = None  # `None` in the first or only training

    def __post_init__(self) -> None:
        self.spec = self.spec.for_rows(self.inputs.train.num_rows)

    @property
    def rows(self) -> Table:
        """The rows to train on: those of `data.train`, in a refit also those of `data.valid`."""
        return self.inputs.train if self.refit is None else self.inputs.all_rows

    @property
    def valid_rows(self) -> Table | None:
        """The rows that validate this training; `None` without any, and in a refit."""
        return self.inputs.valid if self.refit is None else None

    @property
    def refits_next(self) -> bool:
        """Whether a refit follows this training."""
        return self.spec.train.refit and self.refit is None


@dataclass(frozen=True)
class TrainingParts:
    """A prepared training, ready for its first step."""

    model: ClickModel
    step: TrainStep | GraphedStep
    open_report: OpenReport
    checkpoints: RankCheckpoints
    start: TrainingStart
    batches: EpochIterator


def set_up(job: RankJob, loader: Loader, span: JobSpan) -> TrainingParts:
    """Prepare the training, from the newest checkpoint if there is one; a collective operation.

    Waits for the storage and the other ranks. Raises `SpecError` if another run owns the
    checkpoints' directory, and the errors of loading a checkpoint or of a warm start.
    """
    directory = checkpoint_dir(job.spec, job.paths, job.job_id)
    _claim(job, directory)
    parts = _make(job, span, directory)
    # waits for the storage; waits for other ranks are marked where they occur
    with waiting(READER):
        start, spoilt = parts[-1].load()
    if spoilt:
        parts = _make(job, span, directory)
    step, open_report, checkpoints = parts
    if start.checkpoint is None and job.spec.train.init_from is not None:
        with waiting(READER):
            start = start.reduced_by(_take_weights(job, checkpoints))
    span.check_start(start.step, str(start.checkpoint))
    batches = loader.in_turn(span.steps_from(start.step))
    return TrainingParts(step.model, step, open_report, checkpoints, start, batches)


def _claim(job: RankJob, directory: CheckpointDir) -> None:
    if directory.run is None:  # a rank without a run
        return
    peers = Peers(job.world.rank, job.world.num_ranks)
    # If earlier attempts have trained, this attempt continues even if it can no longer save.
    report = job.report if job.attempt > job.first_attempt else None
    with waiting(READER):
        claim_on_all_ranks(directory, job.paths.place, peers, job.device, report)


def _make(
    job: RankJob, span: JobSpan, directory: CheckpointDir
) -> tuple[TrainStep | GraphedStep, OpenReport, RankCheckpoints]:
    step = _build(job)
    most_steps = min(job.spec.train.log_every_steps, span.num_steps)
    graphed = step if isinstance(step, GraphedStep) else None
    targets = step.model.task.targets
    open_report = OpenReport(job.world.rank, job.device, most_steps, targets, graphed)
    checkpoints = RankCheckpoints(
        job.spec,
        job.inputs,
        directory,
        job.attempt,
        step,
        open_report,
        job.control,
        job.report,
        job.refit,
    )
    return step, open_report, checkpoints


def _take_weights(job: RankJob, checkpoints: RankCheckpoints) -> float:
    """Begin with another run's weights; return its reduction of the learning rate (`Taken`)."""
    slab_done = job.control.activity.count_slab
    taken = take_weights(job.spec, job.inputs, checkpoints.state, job.device, slab_done)
    checkpoints.begin_with(taken.steps, taken.own)
    if job.world.rank == 0:
        job.report(taken.event)
    return taken.reduction


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
    model.dense.embedding_dropout = spec.embeddings.dropout
    model.to(job.device).train()
    with waiting(PEERS):  # waits for rank 0's dense parameters
        if not records_steps(spec.train, job.device, model_facts(model, is_custom(spec))):
            return TrainStep(model, spec.train, world.num_ranks)
        lanes = spec.train.lanes // world.num_ranks
        max_rows = lanes * -(-spec.train.batch_rows // spec.train.lanes)
        return GraphedStep(model, spec.train, world.num_ranks, max_rows)


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _waits(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Result]:
    @wraps(method)
    def waiting_for_peers(
        peers: Any, /, *args: Arguments.args, **options: Arguments.kwargs
    ) -> Result:
        with waiting(PEERS):
            return method(peers, *args, **options)

    return waiting_for_peers


class WaitTrackingPeers(Peers):
    """`Peers` whose collective operations mark the calling thread as waiting, for heartbeats."""

    gather_rows_on_rank_0 = _waits(Peers.gather_rows_on_rank_0)
    wait_for_rows = _waits(Peers.wait_for_rows)
    all_reduce_counts = _waits(Peers.all_reduce_counts)
    all_reduce_max = _waits(Peers.all_reduce_max)
    _all_gather = _waits(Peers._all_gather)
    _all_to_all = _waits(Peers._all_to_all)


STORAGE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def place_tables(spec: JobSpec, schema: Schema, world: World, device: torch.device) -> ShardingPlan:
    """Determine the placement of a job's tables; a collective operation of its ranks.

    All ranks plan with the least memory of any rank. Placement affects the speed of a job, not its
    results. Raises a `SpecError` if the tables do not fit.
    """
    own = tables_limit(spec, device, world.ranks_per_node).size_bytes
    (least,) = Peers(world.rank, world.num_ranks).all_reduce_max([-own])
    return plan_tables(
        spec,
        schema,
        num_ranks=world.num_ranks,
        device_type=device.type,
        budget_bytes=-least,
    )


def table_factory(
    spec: JobSpec, plan: ShardingPlan, world: World, device: torch.device
) -> TableFactory:
    """Return a function that makes a model's tables, placed according to `plan`."""

    def make(
        columns: Sequence[TableColumn], *, generator: torch.Generator | None
    ) -> EmbeddingCollection:
        return EmbeddingCollection(
            columns,
            placements=plan.placements_of(columns),
            peers=WaitTrackingPeers(world.rank, world.num_ranks),
            generator=generator,
            dtype=STORAGE_DTYPES[spec.embeddings.storage],
            cache_bytes=int(spec.embeddings.cache_gib * 2**30),
            device=device,
            init=inits_of(columns, spec.embeddings),
        )

    return make
