"""The predicted peak of a rank's memory, on the host and on its GPU, by terms.

    process             what `memory_probe.py` measured: torch, NumPy, Arrow, and their first use
    batches, decoding   of the loader: `loader/memory.py`
    tables              weights and optimizer state of this rank's rows, by placement and storage
    dense parameters    one vector of values, one of gradients, and the optimizer's state
    averages            with `train.ema`: gaps of dense parameters, weights while rows are scored
    embeddings          of a slice (a micro-batch): the leaf `[rows, columns, dim]`, its gradient
    activations         what tensors the dense part has beside them at a time (`LiveBytes`)
    routes              of the batch that trains, of those made ahead, and of one being made
    exchanged rows      distinct rows `[u, dim]`, sums of gradients, what ranks send each other
    metrics             histograms, and the temporaries of an update
    checkpoint copy     what a rank writes of a checkpoint while it trains on
    saving              rank 0 puts slabs of spread tables together; the others need less
    allocator           what malloc holds in vain between the tensors of one step and the next

The rows of a step are those of the rank with most. Distinct rows are expected ones
(`embeddings/sharding/distinct_rows.py`), or the capacity of a captured step (`table_bytes.py`).

The last term is not computed but measured. The supervisor has a rank's glibc keep what is freed,
tensors of many sizes share one heap, and a few bytes that live on in the midst of a hole keep the
next large tensor out of it, so a heap becomes larger than what is ever alive in it. See
`EMBEDDING_SLACK`.

On the CPU all terms are of the host. CUDA's own memory, on the host and on a GPU, is not in it.
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

EMBEDDING_SLACK, ACTIVATION_SLACK = 1.5, 0.25
"""What a rank's heap holds beyond live tensors, as shares of embeddings with their gradient and of
activations: fitted to measured peaks of MLP and DLRM at width 16 (docs/embeddings.md)."""

VALUE_BYTES = 4
_KEY_BYTES = 8
_METRIC_ROW_BYTES = 64  # logits, labels, bins and losses of a batch, in 8 bytes each


@dataclass(frozen=True)
class Term:
    name: str
    host_bytes: int
    device_bytes: int


@dataclass(frozen=True)
class RankMemory:
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
) -> RankMemory:
    """Predict the peak of a rank, for a step of `rows` in slices of `slice_rows`.

    `copies`: checkpoints are written from a copy. `scores`: validation rows are scored, in whole
    batches, without gradients.
    """
    step = probe.slice_bytes(slice_rows)
    embeddings = 2 * probe.embedding_bytes_per_row * slice_rows
    if scores and probe.scoring_bytes(rows) > step:
        step, embeddings = probe.scoring_bytes(rows), probe.embedding_bytes_per_row * rows
    block_bytes = loader.blocks_bytes // loader.batches
    device = {
        **kept_bytes(train, tables, probe.dense_values),
        "embeddings and their gradient": min(embeddings, step),
        "activations": max(0, step - embeddings),
        "routes": (2 + train.route_ahead) * route_bytes(tables, probe.categorical, rows),
        "exchanged rows": exchanged_bytes(tables),
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
        # Batches go to the device as they are taken.
        device["batches"] = (2 + train.route_ahead) * block_bytes
        # Of a batch's size, and of a validation's, two indices an id are kept for all routes.
        device["routes"] += 2 * 2 * _KEY_BYTES * probe.categorical * rows
    else:
        host |= device
        host["allocator"] = heap_slack_bytes(min(embeddings, step), max(0, step - embeddings))
        device = {}
    names = dict.fromkeys(["process", *host, *device])
    host["process"] = probe.process_bytes
    terms = (Term(name, host.get(name, 0), device.get(name, 0)) for name in names)
    return RankMemory(tuple(term for term in terms if term.host_bytes or term.device_bytes))


def kept_bytes(train: TrainSpec, tables: ShardingPlan, dense_values: int) -> dict[str, int]:
    """What a rank holds as long as it trains, beside the rows of a step; host-cached rows apart."""
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
    """Bytes of the dense parameters, their gradients, and the optimizer's state for them.

    >>> dense_bytes(1000, "adam")
    16000
    """
    return VALUE_BYTES * values * (2 + optimizer_facts(optimizer).dense_state)


def heap_slack_bytes(embeddings: int, activations: int) -> int:
    """Bytes that glibc's heap wastes, from a slice's embeddings with gradient and its activations.

    >>> heap_slack_bytes(1000, 400)
    1600
    """
    return int(EMBEDDING_SLACK * embeddings + ACTIVATION_SLACK * activations)


def route_bytes(tables: ShardingPlan, columns: int, rows: int) -> int:
    """Bytes of a batch's route: the number of each id, and keys of distinct rows."""
    total = 4.0 * columns * rows
    for table in tables.tables:
        room, ranks = table.room, tables.num_ranks
        if ranks == 1:
            total += 2 * _KEY_BYTES * room  # ids, keys
        elif not PLACEMENTS[table.placement].is_dealt:
            # Keys of its own and of all, and for each rank's rows where they stand among these.
            total += _KEY_BYTES * (room + _touched(table.rows, room, ranks))
            total += 4 * ranks * room
        else:
            # Twice their order, what others ask for and where it stands, distinct rows of it.
            total += _KEY_BYTES * (3 * room + _touched(table.rows, room, ranks) / ranks)
            total += 4 * room
    return int(total)


def exchanged_bytes(tables: ShardingPlan) -> int:
    total = 0.0
    for table in tables.tables:
        row_bytes, room, ranks = VALUE_BYTES * table.dim, table.room, tables.num_ranks
        touched = _touched(table.rows, room, ranks)
        if ranks == 1:
            copies = 2 * room  # rows, sums
        elif not PLACEMENTS[table.placement].is_dealt:
            copies = (2 + ranks) * room + touched  # and all ranks' sums, and the total
        else:
            copies = 4 * room + touched / ranks  # and both in the owners' order
        total += row_bytes * copies
    return int(total)


def saving_bytes(tables: ShardingPlan) -> int:
    """Bytes on rank 0 when it writes a model of shared tables: own part, all parts, a slab."""
    facts = [(t.weight_bytes, PLACEMENTS[t.placement]) for t in tables.tables]
    whole = tables.num_ranks * sum(size for size, of in facts if of.is_dealt and not of.on_host)
    if tables.num_ranks == 1 or whole == 0:
        return 0
    slab = min(SLAB_BYTES, whole)
    return slab + slab + slab // tables.num_ranks


def copy_bytes(tables: ShardingPlan, dense: int) -> int:
    """Bytes that a rank copies for a checkpoint: its own rows, and all of `dense` at most."""
    total = dense
    for table in tables.tables:
        held = table.host_bytes or table.weight_bytes + table.optimizer_bytes
        total += -(-held * tables.sharers(table.placement) // tables.num_ranks)
    return total


def _touched(rows: int, unique: float, num_ranks: int) -> float:
    return min(float(rows), num_ranks * unique)
