"""What a job's ranks will read, hold and exchange, told before anything is started."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from distrain.embeddings.sharding_plan import ShardingPlan
from distrain.loader import Loader
from distrain.loader.advice import advice_for
from distrain.loader.facts import TableFacts, table_facts
from distrain.loader.held import batches_held
from distrain.loader.memory import LoaderMemory, largest_chunk_rows, memory_of
from distrain.spec import JobSpec
from distrain.train.inputs import Inputs
from distrain.train.loaders import job_loader
from distrain.train.memory import RankMemory, rank_memory
from distrain.train.rehearsal import rehearse
from distrain.train.tables_plan import plan_tables, tables_budget_bytes
from distrain.world import World

_MOST_RANK_NUMBERS = 12


@dataclass(frozen=True)
class RankShare:
    """What one rank has to do if the job has so many ranks.

    Attributes:
        num_ranks: So many.
        lanes: Lanes of a rank.
        rows_per_step: Rows of a step on a rank, at most.
        memory_bytes: What a rank's loader holds at most.
    """

    num_ranks: int
    lanes: int
    rows_per_step: int
    memory_bytes: int


@dataclass(frozen=True)
class JobPlan:
    """What a job's ranks will read and hold.

    Attributes:
        rows: Training rows of an epoch.
        files: Files that they are in.
        row_groups: Row groups of all files.
        row_group_rows: Rows of the smallest and the largest row group.
        compressed_bytes: Of the columns that are read.
        fingerprint: The training table's.
        steps_per_epoch: Steps of an epoch, the same on all ranks.
        steps: Steps of the job.
        global_batch_size: Rows of a step over all ranks.
        lanes: How many spans an epoch is cut into.
        share: What each rank does with the number of ranks that the spec names.
        reader: Who reads row groups.
        reader_reason: Why.
        shuffle: How rows are shuffled.
        chunk_rows: Rows that are shuffled together, at most.
        prefetch_batches: Finished batches that may wait.
        decode_threads: Row groups that are decoded at a time.
        memory: What the loader of a rank holds at most, by terms.
        other_numbers: The same share for other numbers of ranks that the lanes allow.
        advice: What would be better otherwise, most pressing first.
        tables: Where the embedding tables live.
        peak: What a rank will hold at its peak, by terms.
    """

    rows: int
    files: int
    row_groups: int
    row_group_rows: tuple[int, int]
    compressed_bytes: int
    fingerprint: str
    steps_per_epoch: int
    steps: int
    global_batch_size: int
    lanes: int
    share: RankShare
    reader: str
    reader_reason: str
    shuffle: str
    chunk_rows: int
    prefetch_batches: int
    decode_threads: int
    memory: LoaderMemory
    other_numbers: tuple[RankShare, ...]
    advice: tuple[str, ...]
    tables: ShardingPlan
    peak: RankMemory

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self) | {"tables": self.tables.to_json(), "peak": self.peak.to_json()}


def plan_job(
    spec: JobSpec, inputs: Inputs, device: torch.device, memory_budget_bytes: int
) -> JobPlan:
    """Plan a job's loading and its tables; footers are read, rows are not.

    Without `embeddings.memory_gib` this machine's memory counts, with all ranks on it.

    Args:
        spec: The job.
        inputs: Its checked data.
        device: Where its ranks will train.
        memory_budget_bytes: More than this for a rank's loader is advised against.

    Raises:
        SpecError: The loader cannot serve such a job, or its tables do not fit.
    """

    def loader_of(num_ranks: int) -> Loader:
        world = World(0, num_ranks)
        shuffle = spec.data.shuffle
        return job_loader(spec, inputs.schema, inputs.train, world, device, shuffle=shuffle)

    loader = loader_of(spec.resources.num_ranks)
    facts = table_facts(loader.dataset)
    pinned = device.type == "cuda"
    numbers = [n for n in range(1, spec.train.lanes + 1) if spec.train.lanes % n == 0]
    steps = spec.train.epochs * loader.num_steps
    tables = _tables(spec, inputs, device)
    advice = advice_for(
        loader.dataset,
        loader.options,
        facts,
        memory_budget_bytes=memory_budget_bytes,
        pinned=pinned,
    )
    return JobPlan(
        rows=loader.num_rows,
        files=facts.num_files,
        row_groups=len(facts.group_rows),
        row_group_rows=(min(facts.group_rows), max(facts.group_rows)),
        compressed_bytes=facts.compressed_bytes,
        fingerprint=inputs.train.fingerprint,
        steps_per_epoch=loader.num_steps,
        steps=min(steps, spec.train.max_steps or steps),
        global_batch_size=spec.train.global_batch_size,
        lanes=spec.train.lanes,
        share=_share(loader, facts, pinned),
        reader=loader.reader_choice.name,
        reader_reason=loader.reader_choice.reason,
        shuffle=loader.options.shuffle,
        chunk_rows=largest_chunk_rows(loader.dataset, loader.options),
        prefetch_batches=loader.options.prefetch_batches,
        decode_threads=loader.options.decode_threads,
        memory=_memory(loader, facts, pinned),
        other_numbers=tuple(
            _share(loader_of(number), facts, pinned)
            for number in numbers[:_MOST_RANK_NUMBERS]
            if number != spec.resources.num_ranks
        ),
        advice=tuple(advice),
        tables=tables,
        peak=_peak(spec, inputs, loader, facts, tables, device),
    )


def _tables(spec: JobSpec, inputs: Inputs, device: torch.device) -> ShardingPlan:
    num_ranks = spec.resources.num_ranks
    return plan_tables(
        spec,
        inputs.schema,
        num_ranks=num_ranks,
        device_type=device.type,
        budget_bytes=tables_budget_bytes(
            spec.embeddings, device, num_ranks, spec.resources.memory_per_rank_gib
        ),
    )


def _peak(
    spec: JobSpec,
    inputs: Inputs,
    loader: Loader,
    facts: TableFacts,
    tables: ShardingPlan,
    device: torch.device,
) -> RankMemory:
    on_gpu = device.type == "cuda"
    memory = _memory(loader, facts, on_gpu)
    return rank_memory(
        spec.train,
        tables,
        rehearse(spec, inputs.schema),
        rows=memory.batch_rows,
        loader=memory,
        batches=batches_held(
            loader.dataset,
            loader.options,
            # The one that trains, those with a route, and one that is being given a route.
            consumer_batches=2 + spec.train.route_ahead,
            num_steps=spec.train.max_steps or loader.num_steps,
        ),
        on_gpu=on_gpu,
        copies=_copies_checkpoints(spec),
    )


def _copies_checkpoints(spec: JobSpec) -> bool:
    """Whether any is written while training goes on."""
    checkpoint = spec.checkpoint
    on_its_way = checkpoint.every_steps or checkpoint.every_s or spec.best_metric
    return checkpoint.asynchronous and bool(on_its_way)


def _share(loader: Loader, facts: TableFacts, pinned: bool) -> RankShare:
    memory = _memory(loader, facts, pinned)
    ranks = loader.options.num_ranks
    lanes = loader.options.lanes // ranks
    return RankShare(ranks, lanes, memory.batch_rows, memory.total_bytes)


def _memory(loader: Loader, facts: TableFacts, pinned: bool) -> LoaderMemory:
    return memory_of(
        loader.dataset,
        loader.options,
        reader=loader.reader_choice.name,
        pinned=pinned,
        decoded_row_bytes=facts.decoded_row_bytes,
        compressed_group_bytes=facts.largest_group_bytes,
    )
