"""From a job's spec and data to what it takes on N ranks of a machine that need not be here."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from distrain.jobs.assignment import World
from distrain.jobs.optimizers import optimizer_facts
from distrain.jobs.spec.job import JobSpec
from distrain.loader.tuning import footer_summary
from distrain.models.embeddings.columns import PLACEMENTS
from distrain.models.embeddings.sharding.costs import Costs
from distrain.models.embeddings.sharding.plan import ShardingPlan
from distrain.train.data.job_tables import Inputs
from distrain.train.data.loaders import job_loader
from distrain.train.planning.machine_file import MachineFile
from distrain.train.planning.memory import VALUE_BYTES, RankMemory
from distrain.train.planning.memory_probe import MemoryProbe, dense_flops, probe_memory
from distrain.train.planning.plan import peak_of, slicing_of_job
from distrain.train.planning.scale import Scale, TableStore, Work, predict
from distrain.train.planning.tables_plan import MEMORY_SHARE, plan_tables

_SORT_PASSES = 8  # of a radix sort of 4-byte ids, a byte at a time: read and write


@dataclass(frozen=True)
class ScalePlan:
    """A job on a number of ranks of a machine; `peak` and the memory there is for it."""

    machine: MachineFile
    work: Work
    scale: Scale
    tables: ShardingPlan
    peak: RankMemory
    device_memory_bytes: float
    host_memory_bytes: float

    @property
    def fits(self) -> bool:
        on_gpu = self.peak.device_bytes <= self.device_memory_bytes
        return on_gpu and self.peak.host_bytes <= self.host_memory_bytes

    def to_json(self) -> dict[str, Any]:
        return {
            "machine": asdict(self.machine),
            "work": asdict(self.work),
            "scale": self.scale.to_json(),
            "tables": self.tables.to_json(),
            "peak": self.peak.to_json(),
            "device_memory_bytes": self.device_memory_bytes,
            "host_memory_bytes": self.host_memory_bytes,
            "fits": self.fits,
        }


def plan_scale(spec: JobSpec, inputs: Inputs, machine: MachineFile) -> ScalePlan:
    """Plan a job for `resources.num_ranks` ranks of a machine; footers are read, rows are not."""
    ranks, on_gpu = spec.resources.num_ranks, machine.device == "cuda"
    host_bytes = machine.host_memory_bytes / machine.on_host(ranks)
    device_bytes = machine.device_memory_bytes if on_gpu else host_bytes
    asked_gib = spec.embeddings.memory_gib
    budget = MEMORY_SHARE * device_bytes if asked_gib is None else asked_gib * 2**30
    tables = plan_tables(
        spec,
        inputs.schema,
        num_ranks=ranks,
        device_type=machine.device,
        budget_bytes=int(budget),
        costs=costs_of(machine, ranks),
    )
    device = torch.device("cpu")  # what decodes, wherever it trains
    shuffle = spec.data.shuffle
    loader = job_loader(spec, inputs.schema, inputs.train, World(0, ranks), device, shuffle=shuffle)
    probe = probe_memory(spec, inputs.schema)
    trained_on = torch.device(machine.device)
    peak = peak_of(spec, loader, footer_summary(loader.dataset), tables, trained_on, probe)
    work = work_of(spec, inputs, tables, probe, trained_on)
    return ScalePlan(machine, work, predict(work, machine), tables, peak, device_bytes, host_bytes)


def costs_of(machine: MachineFile, num_ranks: int) -> Costs:
    """The slower of the machine's links, as the one link that the rule of placements knows."""
    if num_ranks <= machine.ranks_per_node:
        return Costs(machine.link_bytes_per_s, machine.link_latency_s)
    return Costs(machine.network_bytes_per_s, machine.network_latency_s)


def work_of(
    spec: JobSpec, inputs: Inputs, tables: ShardingPlan, probe: MemoryProbe, device: torch.device
) -> Work:
    ranks = tables.num_ranks
    rows = -(-spec.train.batch_rows // ranks)
    columns = len(inputs.schema.columns)
    stores: dict[tuple[int, str], float] = {}
    for table in tables.tables:
        key = (table.dim, table.placement)
        stores[key] = stores.get(key, 0.0) + table.sent.total
    return Work(
        num_ranks=ranks,
        rows=rows,
        global_rows=spec.train.batch_rows,
        values=float(rows * columns),
        copied_bytes=float(rows * columns * VALUE_BYTES),
        flops=dense_flops(spec, inputs.schema) * rows,
        memory_bytes=_memory_bytes(spec, tables, probe, rows),
        dense_bytes=float(probe.dense_values * VALUE_BYTES),
        threads=spec.resources.threads_per_rank,
        stores=tuple(
            TableStore(dim, placement, sent, PLACEMENTS[placement].collectives)
            for (dim, placement), sent in sorted(stores.items())
        ),
        slices=slicing_of_job(spec, probe, device).count_of(rows),
    )


def _memory_bytes(spec: JobSpec, tables: ShardingPlan, probe: MemoryProbe, rows: int) -> float:
    """Bytes through the device's memory in a step, each tensor written once and read once.

    Looked-up values are read and written twice, ids sorted, touched rows updated with their state.
    """
    embeddings = 4.0 * probe.embedding_bytes_per_row * rows
    activations = 2.0 * (probe.bytes_per_row * rows)
    ids = 2.0 * _SORT_PASSES * VALUE_BYTES * probe.categorical * rows
    state = optimizer_facts(spec.train.of_tables.kind).dense_state
    touched = 0.0
    for table in tables.tables:
        owners = tables.sharers(table.placement)
        touched += min(table.rows, table.room * tables.num_ranks) * table.dim / owners
    return embeddings + activations + ids + 2.0 * VALUE_BYTES * (1 + state) * touched
