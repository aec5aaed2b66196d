"""Predicts the steps, the loading and the memory of a job's ranks, before the job starts."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from distrain.jobs.assignment import World
from distrain.jobs.spec.job import JobSpec
from distrain.loader.loader import Loader
from distrain.loader.memory import LoaderMemory, batches_held, largest_chunk_rows, memory_of
from distrain.loader.tuning import FooterSummary, footer_summary, reading_advice
from distrain.models.build import blueprint_of
from distrain.models.embeddings.sharding.plan import ShardingPlan
from distrain.schema.schema import Schema
from distrain.train.data.job_tables import Inputs
from distrain.train.data.loaders import job_loader
from distrain.train.planning.memory import RankMemory, batches_taken, rank_memory
from distrain.train.planning.memory_probe import MemoryProbe, probe_memory
from distrain.train.planning.tables_plan import plan_tables, tables_limit
from distrain.train.step.graph_conditions import planned_facts, records_steps
from distrain.train.step.step import Slicing, slicing_of


@dataclass(frozen=True)
class RankShare:
    """One rank's share of a job with `num_ranks` ranks.

    `rows_per_step` and `memory_bytes`, the memory of its loader, are maxima over ranks and steps.
    """

    num_ranks: int
    lanes: int
    rows_per_step: int
    memory_bytes: int


@dataclass(frozen=True)
class JobPlan:
    """The predictions of `plan_job`."""

    rows: int  # training rows of an epoch, in all `files`
    files: int
    row_groups: int
    row_group_rows: tuple[int, int]  # rows of the smallest and of the largest row group
    compressed_bytes: int  # compressed bytes of the columns that are read
    fingerprint: str  # of the training data's files
    steps_per_epoch: int
    steps: int  # of the whole job
    global_batch_size: int
    lanes: int
    share: RankShare  # a rank's share, with the job's number of ranks
    slices: int  # number of slices (micro-batches) of a rank's batch
    reader: str
    reader_reason: str
    shuffle: str
    chunk_rows: int  # maximum number of rows that are shuffled together
    prefetch_batches: int
    decode_threads: int
    memory: LoaderMemory  # the maximum memory of a rank's loader, by terms
    advice: tuple[str, ...]  # how to change the files for faster reading
    tables: ShardingPlan
    peak: RankMemory  # a rank's peak memory, by terms
    windows: tuple[str, ...] = ()  # the names of the windows of `data.windows`, in order

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"tables": self.tables.to_json(), "peak": self.peak.to_json()}


def plan_job(spec: JobSpec, inputs: Inputs, device: torch.device) -> JobPlan:
    """Predict a job's steps, loading and memory.

    Reads the files' footers, but no rows, and measures training steps on made-up rows
    (`probe_memory`). Without `embeddings.memory_gib`, the tables are limited by this machine's GPU
    or, on the CPU, by its free memory, which all ranks share (`tables_limit`).
    Raises `DataError` if a file is missing, and `OSError` if it cannot be read.
    """
    world, shuffle = World(0, spec.resources.num_ranks), spec.data.shuffle
    loader = job_loader(spec, inputs.schema, inputs.train, world, device, shuffle=shuffle)
    footers = footer_summary(loader.dataset)
    pinned = device.type == "cuda"
    steps = spec.train.num_epochs * loader.num_steps
    tables = _tables(spec, inputs, device)
    probe, share = probe_memory(spec, inputs.schema), _share(loader, footers, pinned)
    return JobPlan(
        rows=loader.num_rows,
        files=footers.num_files,
        row_groups=len(footers.group_rows),
        row_group_rows=(min(footers.group_rows), max(footers.group_rows)),
        compressed_bytes=footers.compressed_bytes,
        fingerprint=inputs.train.fingerprint,
        steps_per_epoch=loader.num_steps,
        steps=min(steps, spec.train.max_steps or steps),
        global_batch_size=spec.train.batch_rows,
        lanes=spec.train.lanes,
        share=share,
        slices=slicing_of_job(spec, probe, device).count_of(share.rows_per_step),
        reader=loader.reader_choice.name,
        reader_reason=loader.reader_choice.reason,
        shuffle=loader.options.shuffle,
        chunk_rows=largest_chunk_rows(loader.dataset, loader.options, loader.reader_choice.kind),
        prefetch_batches=loader.options.prefetch_batches,
        decode_threads=loader.options.decode_threads,
        memory=_memory(loader, footers, pinned),
        advice=tuple(reading_advice(footers, loader.options.lanes)),
        tables=tables,
        peak=peak_of(spec, loader, footers, tables, device, probe, inputs.schema),
        windows=inputs.train.windows.names if inputs.train.windows else (),
    )


def _tables(spec: JobSpec, inputs: Inputs, device: torch.device) -> ShardingPlan:
    num_ranks = spec.resources.num_ranks
    return plan_tables(
        spec,
        inputs.schema,
        num_ranks=num_ranks,
        device_type=device.type,
        budget_bytes=tables_limit(spec, device, num_ranks).size_bytes,
    )


def peak_of(
    spec: JobSpec,
    loader: Loader,
    footers: FooterSummary,
    tables: ShardingPlan,
    device: torch.device,
    probe: MemoryProbe,
    schema: Schema,
) -> RankMemory:
    """Predict the peak memory of a rank.

    Only the type of `device` matters: this machine need not have such a device.
    """
    on_gpu, checkpoint = device.type == "cuda", spec.checkpoint
    blueprint = blueprint_of(schema, spec.model)
    facts = planned_facts(spec, blueprint, spec.resources.num_ranks, tables)
    recorded = records_steps(spec.train, device, facts)
    memory = _memory(loader, footers, on_gpu)
    # A step may have one row less of each lane, and the last batch of an epoch or a window is
    # smaller. Smaller batches may be cut into fewer slices, which are then larger.
    lanes = loader.options.lanes // loader.options.num_ranks
    sizes = {memory.batch_rows, max(1, memory.batch_rows - 2 * lanes)}
    most_steps = spec.train.max_steps or loader.num_steps
    spans = map(loader.steps.span, range(len(loader.steps.plans)))
    for last in (end - 1 for first, end in spans if first < end <= most_steps):
        of_rank = -(-loader.rows_in_step(last) // spec.resources.num_ranks)
        sizes.add(min(memory.batch_rows, of_rank))
    before_the_end = checkpoint.every_steps or checkpoint.every_s or spec.best_metric
    return rank_memory(
        spec.train,
        tables,
        probe,
        rows=memory.batch_rows,
        slice_rows=max(map(slicing_of_job(spec, probe, device).most_rows, sizes)),
        loader=memory,
        batches=batches_held(
            loader.dataset,
            loader.options,
            consumer_batches=batches_taken(tables, recorded),
            num_steps=most_steps,
        ),
        on_gpu=on_gpu,
        copies=checkpoint.asynchronous and bool(before_the_end),
        scores=bool(spec.data.valid),
        recorded=recorded,
        binary_targets=sum(target.kind == "binary" for target in blueprint.task.targets),
    )


def slicing_of_job(spec: JobSpec, probe: MemoryProbe, device: torch.device) -> Slicing:
    return slicing_of(
        spec.train,
        on_cpu=device.type == "cpu",
        rows_are_independent=probe.rows_are_independent,
        num_threads=spec.resources.threads_per_rank,
    )


def _share(loader: Loader, footers: FooterSummary, pinned: bool) -> RankShare:
    memory, ranks = _memory(loader, footers, pinned), loader.options.num_ranks
    lanes = loader.options.lanes // ranks
    return RankShare(ranks, lanes, memory.batch_rows, memory.total_bytes)


def _memory(loader: Loader, footers: FooterSummary, pinned: bool) -> LoaderMemory:
    return memory_of(
        loader.dataset,
        loader.options,
        reader=loader.reader_choice.kind,
        pinned=pinned,
        decoded_row_bytes=footers.decoded_row_bytes,
        compressed_group_bytes=footers.largest_group_bytes,
    )
