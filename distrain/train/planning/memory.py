"""The predicted peak of a rank's memory, on the host and on its GPU, by terms.

    process             measured by `memory_probe.py`: torch, NumPy, Arrow, and their first use
    batches, decoding   of the loader: `loader/memory.py`
    tables              weights and optimizer state of this rank's rows, by placement and storage
    dense parameters    one vector of values, one of gradients, and the optimizer's state
    averages            with `train.ema`: gaps to the averages, and copies of weights for scoring
    embeddings          of a slice (a micro-batch), `[rows, columns, dim]`, and their gradient
    recorded step       what a CUDA graph keeps for its tensors, beside other steps and validations
    activations         the other tensors of the dense layers that live at a time (`LiveBytes`)
    routes              of the batch that trains, of the batches made ahead, and of one being made
    exchanged rows      a step's distinct rows, sums of their gradients, data sent between ranks
    host-cached tables  weights and optimizer state in host memory
    metrics             histograms, and the temporaries of an update
    checkpoint copy     a copy of the rank's share of a checkpoint, written while it trains
    saving              on rank 0, slabs of sharded tables; the other ranks need less
    allocator           memory that malloc holds unused between steps

The number of rows of a step is the largest of any rank. Numbers of distinct rows are expected
values (`embeddings/sharding/distinct_rows.py`), or the capacity of a recorded step
(`table_bytes.py`).

The term `allocator` is estimated from measurements, see `EMBEDDING_SLACK`. The supervisor
configures a rank's glibc to keep freed memory. Tensors of many sizes share one heap, and a few live
bytes within a free range prevent its use for the next large tensor. So a heap becomes larger than
the maximum of its live bytes.

On the CPU all terms are host memory. CUDA's own memory, on the host and on a GPU, is not included.
"""

from dataclasses import asdict, dataclass
from typing import Any

from distrain.jobs.optimizers import optimizer_facts
from distrain.jobs.spec.training import TrainSpec
from distrain.loader.memory import LoaderMemory
from distrain.metrics.bins import NUM_BINS
from distrain.models.embeddings.columns import PLACEMENTS
from distrain.models.embeddings.sharding.plan import ShardingPlan
from distrain.models.tensor_file import SLAB_BYTES
from distrain.train.planning.memory_probe import MemoryProbe
from distrain.train.step.device_metrics import COPIES_ON_GPU

EMBEDDING_SLACK, ACTIVATION_SLACK = 1.5, 0.25
"""Bytes of heap that malloc holds beyond the live tensors, as multiples of the tensors' bytes.

The first is a multiple of the bytes of the embeddings and their gradient, the second of those of
the activations. Fitted to measured peaks of MLP and DLRM at width 16 (docs/embeddings.md).
"""

VALUE_BYTES = 4
_KEY_BYTES = 8
_METRIC_ROW_BYTES = 64  # logits, labels, bins and losses of a batch, in 8 bytes each


@dataclass(frozen=True)
class Term:
    """One term of the predicted memory (see the module's docstring)."""

    name: str
    host_bytes: int
    device_bytes: int


@dataclass(frozen=True)
class RankMemory:
    """The predicted peak of a rank's memory; terms without bytes are omitted."""

    terms: tuple[Term, ...]

    @property
    def host_bytes(self) -> int:
        return sum(term.host_bytes for term in self.terms)

    @property
    def device_bytes(self) -> int:
        return sum(term.device_bytes for term in self.terms)

    def to_json(self) -> dict[str, Any]:
        totals = {"host_bytes": self.host_bytes, "device_bytes": self.device_bytes}
        return totals | {"terms": [asdict(term) for term in self.terms]}


def rank_memory(
    train: TrainSpec,
    tables: ShardingPlan,
    probe: MemoryProbe,
    *,
    rows: int,
    slice_rows: int,
    loader: LoaderMemory,
    batches: int,
    on_gpu: bool,
    copies: bool = False,
    scores: bool = False,
    recorded: bool = False,
    binary_targets: int = 1,
) -> RankMemory:
    """Predict a rank's peak memory, for a step of `rows` rows in slices of `slice_rows` rows.

    Args:
        tables: The placement of the tables.
        probe: The measurements of the job's model.
        loader: The memory of the rank's loader.
        batches: The number of batches that the loader and the training hold at a time.
        copies: Whether checkpoints are written from a copy.
        scores: Whether validation rows are scored, in whole batches, without gradients.
        recorded: Whether steps are recorded as CUDA graphs.
        binary_targets: The number of the model's binary targets.
    """
    step = kept_by_graph = probe.slice_bytes(slice_rows)
    embeddings = 2 * probe.embedding_bytes_per_row * slice_rows
    if scores and probe.scoring_bytes(rows) > step:
        step, embeddings = probe.scoring_bytes(rows), probe.embedding_bytes_per_row * rows
    block_bytes = loader.blocks_bytes // loader.batches
    device = {
        **kept_bytes(train, tables, probe.dense_values),
        "embeddings and their gradient": min(embeddings, step),
        "activations": max(0, step - embeddings),
        "recorded step": kept_by_graph if recorded else 0,
        "routes": batches_taken(tables, recorded) * route_bytes(tables, probe.categorical, rows),
        "exchanged rows": exchanged_bytes(tables, train.ema is not None),
        "metrics": 2 * NUM_BINS * 8 + _METRIC_ROW_BYTES * rows,
    }
    decoding = loader.total_bytes - loader.blocks_bytes
    host = {"batches": batches * block_bytes, "decoding": decoding}
    host["saving"] = saving_bytes(tables)
    if copies:
        dense = dense_bytes(probe.dense_values, train.optimizer.kind)
        host["checkpoint copy"] = copy_bytes(tables, dense)
    host["host-cached tables"] = tables.host_bytes_per_rank
    if on_gpu:
        # of training and of validation
        device["metrics"] += 2 * binary_targets * COPIES_ON_GPU * 2 * NUM_BINS * 8
        # Batches are copied to the device when they are taken.
        device["batches"] = batches_taken(tables, recorded) * block_bytes
        # For the sizes of a batch and of a validation batch, two indices per id are cached for all
        # routes.
        device["routes"] += 2 * 2 * _KEY_BYTES * probe.categorical * rows
    else:
        host |= device
        host["allocator"] = heap_slack_bytes(min(embeddings, step), max(0, step - embeddings))
        device = {}
    names = dict.fromkeys(["process", *host, *device])
    host["process"] = probe.process_bytes
    terms = (Term(name, host.get(name, 0), device.get(name, 0)) for name in names)
    return RankMemory(tuple(term for term in terms if term.host_bytes or term.device_bytes))


def batches_taken(tables: ShardingPlan, recorded: bool) -> int:
    """Return the number of batches that a training holds at a time, without those of the loader.

    They are the batch that trains, and the batch whose route is being made. If steps are `recorded`
    and ranks share tables, there is one more: rows are requested one batch ahead.
    """
    is_shared = any(tables.sharers(placement) > 1 for placement in tables.placements)
    return 3 if recorded and is_shared else 2


def kept_bytes(train: TrainSpec, tables: ShardingPlan, dense_values: int) -> dict[str, int]:
    """Return the bytes that a rank holds during the whole training, by term.

    Host-cached tables, and everything that depends on the rows of a step, are not included.
    """
    averages = int(tables.total("average_bytes"))
    if train.ema is not None:  # gaps, and the weights that averages replace while rows are scored
        averages += 2 * VALUE_BYTES * dense_values
    return {
        "table weights": int(tables.total("weight_bytes")),
        "table state": int(tables.total("optimizer_bytes")),
        "dense parameters": dense_bytes(dense_values, train.optimizer.kind),
        "averages": averages,
    }


def dense_bytes(values: int, optimizer: str) -> int:
    """Return the bytes of the dense parameters, their gradients, and their optimizer state.

    >>> dense_bytes(1000, "adam")
    16000
    """
    return VALUE_BYTES * values * (2 + optimizer_facts(optimizer).dense_state)


def heap_slack_bytes(embeddings: int, activations: int) -> int:
    """Return the bytes that glibc's heap wastes, given the bytes of a slice's tensors.

    >>> heap_slack_bytes(1000, 400)
    1600
    """
    return int(EMBEDDING_SLACK * embeddings + ACTIVATION_SLACK * activations)


def route_bytes(tables: ShardingPlan, columns: int, rows: int) -> int:
    """Return the bytes of a batch's route: the index of each id, and the keys of distinct rows.

    `columns` is the number of categorical columns, and `rows` the number of the batch's rows.
    """
    total = 4.0 * columns * rows
    for table in tables.tables:
        room, ranks = table.room, tables.num_ranks
        if ranks == 1:
            total += 2 * _KEY_BYTES * room  # ids, keys
        elif not PLACEMENTS[table.placement].is_dealt:
            # This rank's keys and those of all ranks, and the positions of each rank's rows among
            # the latter.
            total += _KEY_BYTES * (room + _touched(table.rows, room, ranks))
            total += 4 * ranks * room
        else:
            # Two orders of the rows, the requests of other ranks with their positions, and distinct
            # requested rows.
            total += _KEY_BYTES * (3 * room + _touched(table.rows, room, ranks) / ranks)
            total += 4 * room
    return int(total)


def exchanged_bytes(tables: ShardingPlan, averaged: bool = False) -> int:
    """Return the bytes of a step's distinct rows, their gradients' sums, and copies for peers.

    The bytes are those of one rank, for all tables. With `averaged` (`train.ema`), they include the
    updated rows before and after, and their difference.
    """
    total = 0.0
    for table in tables.tables:
        row_bytes, room, ranks = VALUE_BYTES * table.dim, table.room, tables.num_ranks
        touched = _touched(table.rows, room, ranks)
        if ranks == 1:
            touched, copies = room, 2 * room  # rows and sums
        elif not PLACEMENTS[table.placement].is_dealt:
            copies = (2 + ranks) * room + touched  # and the sums of all ranks, and their total
        else:
            touched /= ranks
            copies = 4 * room + touched  # and both in the order of the owners
        total += row_bytes * (copies + 3 * touched if averaged else copies)
    return int(total)


def saving_bytes(tables: ShardingPlan) -> int:
    """Return the bytes that rank 0 needs to write a model with sharded tables; 0 without them.

    These are its own part of a slab, the parts of all ranks, and the slab.
    """
    facts = [(t.weight_bytes, PLACEMENTS[t.placement]) for t in tables.tables]
    whole = tables.num_ranks * sum(size for size, of in facts if of.is_dealt and not of.on_host)
    if tables.num_ranks == 1 or whole == 0:
        return 0
    slab = min(SLAB_BYTES, whole)
    return slab + slab + slab // tables.num_ranks


def copy_bytes(tables: ShardingPlan, dense: int) -> int:
    """Return the largest number of bytes that a rank copies for a checkpoint.

    These are its share of the tables (of a replicated table, 1 / num_ranks of the rows) and
    `dense`, the bytes of the dense parameters and their state.
    """
    total = dense
    for table in tables.tables:
        held = table.host_bytes or table.weight_bytes + table.optimizer_bytes
        total += -(-held * tables.sharers(table.placement) // tables.num_ranks)
    return total


def _touched(rows: int, unique: float, num_ranks: int) -> float:
    """Return the most rows of a table that a step can touch if each rank needs `unique` rows.

    `rows` is the size of the table.
    """
    return min(float(rows), num_ranks * unique)
