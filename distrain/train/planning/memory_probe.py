"""Runs a small training step, to measure the memory that a plan cannot compute.

Two parts of a rank's memory depend on libraries, not on the job: the memory of a process that has
used torch, NumPy and Arrow, and the tensors of the dense layers that live at the same time. So the
planning process runs some steps of up to 4,096 rows with the job's own model, whose tables have a
few rows each, and measures itself.
"""

import gc
import weakref
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from distrain.jobs.spec.job import JobSpec
from distrain.loader.batch import Batch, Ragged
from distrain.models.build import blueprint_of, build_model
from distrain.models.click_model import ClickModel
from distrain.models.row_independence import rows_are_independent
from distrain.schema.column import ColumnSchema
from distrain.schema.schema import Schema
from distrain.train.step.dense import DenseTraining
from distrain.train.step.device_metrics import DeviceTargets
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

_WARM_UP_ROWS = (256, 512)
_MOST_ROWS = 4096  # rows of the measured slice; above this, all memory is proportional to the rows
_TABLE_ROWS = 8


@dataclass(frozen=True)
class MemoryProbe:
    """The measurements of `probe_memory`."""

    process_bytes: int  # resident memory of this process after the probe
    dense_values: int  # values of all dense parameters
    fixed_bytes: int  # bytes of a slice's tensors that do not depend on its rows
    bytes_per_row: int  # maximum bytes of a slice's live tensors for each row, with gradients
    embedding_bytes_per_row: int  # the embeddings' part of `bytes_per_row`
    categorical: int  # the number of columns with embeddings
    # maximum bytes of live tensors for each scored row, with embeddings
    scoring_bytes_per_row: int = 0
    rows_are_independent: bool = True  # whether the model computes each row from that row alone

    def scoring_bytes(self, rows: int) -> int:
        return self.scoring_bytes_per_row * rows

    def slice_bytes(self, rows: int) -> int:
        return self.fixed_bytes + self.bytes_per_row * rows


def probe_memory(spec: JobSpec, schema: Schema) -> MemoryProbe:
    """Run steps of the job's model with small tables on the CPU, and return the measurements.

    The steps are neither recorded nor cut into slices. The bytes per row are the difference between
    batches of two sizes, so that fixed memory does not count.
    """
    model = _small_model(spec, schema)
    precision = "bf16" if spec.train.precision == "bf16" else "fp32"  # with tf32, tensors are fp32
    # A recorded step consists of the same operations, and needs a GPU.
    plain = {"precision": precision, "cuda_graph": False, "micro_batches": 1}
    train = spec.train.model_copy(update=plain)
    independent = rows_are_independent(model.dense)
    step = TrainStep(model, train, 1)
    metrics, clock = DeviceTargets(model.task.targets, torch.device("cpu")), PhaseClock()
    for rows in _WARM_UP_ROWS:
        batch = _batch(model, rows)
        scores, _ = step(batch, rows, spec.train.optimizer.lr, clock)
        metrics.update(scores, batch)
    metrics.read_and_reset()
    gc.collect()
    process_bytes = psutil.Process().memory_info().rss
    # Most layers treat each event of a row like a row.
    most = _MOST_ROWS // max((one.max_length for one in model.inputs.shape.events), default=1)
    most = max(2, most)
    few, more = (_most_of_a_slice(step.dense, model, n) for n in (most // 2, most))
    per_row = (more - few) // (most - most // 2)
    tables = model.inputs.columns
    return MemoryProbe(
        process_bytes=process_bytes,
        dense_values=sum(p.numel() for p in model.dense.parameters()),
        fixed_bytes=max(0, more - per_row * most),
        bytes_per_row=per_row,
        embedding_bytes_per_row=sum(leaf.nbytes for leaf in _embedded(model, 1)),
        categorical=len(tables),
        scoring_bytes_per_row=_most_of_scoring(model, most) // most,
        rows_are_independent=independent,
    )


def _small_model(spec: JobSpec, schema: Schema) -> ClickModel:
    """Return the job's model with tables of `_TABLE_ROWS` rows and the job's widths.

    Pooled list columns become flat columns: one id in each row.
    """
    columns: list[ColumnSchema] = []
    tables = {table.name: table for table in blueprint_of(schema, spec.model).inputs.columns}
    for column in schema.columns:
        if column.name in tables:
            dim = tables[column.name].dim
            column = replace(column, cardinality=_TABLE_ROWS, embedding_dim=dim)
            if column.holds_lists and not tables[column.name].is_sequence:
                # The properties are removed: as a flat column with the domain of an event list, it
                # would be a second target of these events.
                column = replace(column, is_list=False, is_ragged=False, value_count=None)
                column = replace(column, properties={})
        columns.append(column)
    return build_model(Schema(tuple(columns)), spec.model, seed=0)


def _batch(model: ClickModel, rows: int) -> Batch:
    """Return a batch of made-up rows with labels, for all columns of the model.

    Each row has the maximum number of events. The batch has a key, so that negatives are drawn.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = model.inputs
    names = inputs.categorical_names
    shape = (len(names), rows)
    none = Ragged(torch.zeros(0, dtype=torch.int32), torch.zeros(rows + 1, dtype=torch.int32))
    # The model may not use all lists.
    lists = dict.fromkeys((*inputs.list_names, *inputs.number_names), none)
    for events in inputs.shape.events:  # each row has the maximum number of events
        offsets = torch.arange(rows + 1, dtype=torch.int32) * events.max_length
        fields = dict.fromkeys(inputs.list_names, torch.int32)
        fields |= {column.name: torch.float32 for column in events.numbers}
        for name, dtype in fields.items():
            lists[name] = Ragged(torch.zeros(rows * events.max_length, dtype=dtype), offsets)
    # 0 and 1 are valid labels for every kind of target, and valid weights.
    targets = model.task.targets
    columns = tuple(dict.fromkeys(one.column for one in targets if one.column is not None))
    weights = tuple(dict.fromkeys(one.weight for one in targets if one.weight is not None))
    label = torch.randint(2, (rows,), generator=generator).float()
    return Batch(
        torch.randint(_TABLE_ROWS, shape, dtype=torch.int32, generator=generator).t(),
        torch.randn(len(model.continuous_names), rows, generator=generator).t(),
        label,
        names,
        model.continuous_names,
        labels=label[:, None].expand(-1, len(columns)),
        label_names=columns,
        lists=lists,
        task_weights=torch.ones(rows, len(weights)),
        task_weight_names=weights,
        key=1,
    )


def _embedded(model: ClickModel, rows: int) -> tuple[Tensor, ...]:
    """Return zeros in the shapes of the looked-up embeddings of `rows` rows, and of their draws."""
    shape, draws = model.inputs.shape, model.inputs.draws
    sizes = {
        place: (rows * events.max_length, dim)
        for events in shape.events
        for place, dim in zip(events.lists, events.dims, strict=True)
    }
    if draws is not None:  # the last column is that of drawn items
        last = len(model.inputs.columns) - 1
        sizes[last] = (rows * draws.per_row, model.inputs.columns[last].dim)
    return (
        *(torch.zeros(rows, len(group.columns), group.dim) for group in shape.groups),
        *(torch.zeros(sizes[place]) for place in sorted(sizes)),
    )


def _most_of_a_slice(dense: DenseTraining, model: ClickModel, rows: int) -> int:
    """Return the maximum bytes of live tensors while a slice of `rows` rows is trained."""
    batch = _batch(model, rows)
    with LiveBytes() as counted:
        _train_slice(dense, model, batch)
    dense.zero_grad()
    return int(counted.most)


@torch.no_grad()
def _most_of_scoring(model: ClickModel, rows: int) -> int:
    """Return the maximum bytes of live tensors while `rows` rows are scored."""
    batch = _batch(model, rows)
    model.eval()
    with LiveBytes() as counted:
        lists = model.inputs.event_lists(batch)
        model.task.scores(model.dense(_embedded(model, rows), batch.continuous, lists))
    model.train()
    return int(counted.most)


def _train_slice(dense: DenseTraining, model: ClickModel, batch: Batch) -> None:
    rows = len(batch.categorical)
    leaves = tuple(leaf.requires_grad_() for leaf in _embedded(model, rows))
    dense.begin_slice(True)
    lists = model.inputs.event_lists(batch)
    loss = model.task.loss(dense.forward(leaves, batch.continuous, lists), batch)
    dense.backward(loss / rows)


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that counts the bytes of live tensors created in it.

    The attribute `live` is the current number of bytes, `most` the maximum so far. Only operations
    of the calling thread count. On the CPU a backward pass runs in this thread, so its tensors
    count too. Views and temporaries inside operations are not counted.

    >>> with LiveBytes() as counted:
    ...     for _ in range(3):
    ...         made = torch.zeros(256)
    >>> counted.live, counted.most
    (1024, 2048)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.most = 0
        self._sizes: dict[int, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would load torch's compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Tensors from outside of the context, and views of them, are not counted.
        for given in tree_leaves((args, kwargs)):
            self._note(given, counts=False)
        results = func(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            self._note(result, counts=True)
        return results

    def _note(self, value: object, *, counts: bool) -> None:
        if not isinstance(value, Tensor):
            return
        storage = value.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes() if counts else 0
        self.live += self._sizes[key]
        self.most = max(self.most, self.live)
        weakref.finalize(storage, self._drop, key).atexit = False

    def _drop(self, key: int) -> None:
        self.live -= self._sizes.pop(key)
