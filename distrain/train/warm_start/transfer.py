"""Each rank puts the rows that it holds of another's weights into its model."""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from distrain.errors import DataError, SpecError
from distrain.jobs.events import WeightsTaken
from distrain.jobs.spec.job import JobSpec
from distrain.models.blueprint import Blueprint
from distrain.models.build import blueprint_of
from distrain.models.click import ClickModel
from distrain.models.embeddings.canonical_state import CanonicalTensor
from distrain.models.saved import model_tensors
from distrain.models.tensor_file import Slabs
from distrain.storage.folder import open_folder
from distrain.train.checkpoint.loading import own_tensors
from distrain.train.checkpoint.local_rows import LocalRows, Rows, local_rows_of
from distrain.train.checkpoint.training_state import TrainingState, table_factor
from distrain.train.data.inputs import find_vocabularies, list_combiners
from distrain.train.data.job_tables import Inputs
from distrain.train.data.vocabularies import new_ids
from distrain.train.warm_start.matching import Match, Side, TableMatch, TablePlace, match
from distrain.train.warm_start.source import WeightsSource, open_source, open_together

log = logging.getLogger("distrain.rank")

Ids = np.ndarray[Any, np.dtype[np.int32]]


class Taken(NamedTuple):
    """What a new run begins with."""

    event: WeightsTaken
    steps: int = 0  # steps that the optimizers' state has had, if that was taken; else 0
    # this rank's own tensors in the checkpoint, such as its random state; none where the state was
    # not taken, or was saved by another number of ranks
    own: Mapping[str, Tensor] | None = None


def check_warm_start(spec: JobSpec, inputs: Inputs) -> None:
    """Refuse weights that do not fit the job, before anything is started: headers are read."""
    if spec.train.init_from is None:
        return
    combiners = list_combiners(inputs.schema, spec.embeddings)
    blueprint = blueprint_of(inputs.schema, spec.model, combiners)
    shapes = blueprint.outline().state_dict(prefix="dense.")
    source = open_source(spec.train.init_from, with_state=spec.train.init_state == "all")
    _matched(spec, inputs, source, blueprint, shapes)


def take_weights(
    spec: JobSpec,
    inputs: Inputs,
    state: TrainingState,
    device: torch.device,
    after_slab: Callable[[], None],
) -> Taken:
    """Give a model the weights of `train.init_from`; a collective operation.

    With `train.init_state` the optimizers get their state as well. The ranks agree on the weights,
    and read them without communication. A rank reads what may hold its rows, slab by slab. Where
    vocabularies differ it holds those of one table at a time, and 4 bytes for each row of such
    tables on disk. Rows without a source keep their initial values. Errors as of
    `check_warm_start`.
    """
    assert spec.train.init_from is not None
    model, with_state = state.model, spec.train.init_state == "all"
    peers = model.embeddings.peers
    source = open_together(spec.train.init_from, peers, device, with_state=with_state)
    with_state = with_state and _other_optimizer(spec, source) is None
    tensors = state.tensors() if with_state else model_tensors(model)
    dense = {name: t for name, t in tensors.items() if isinstance(t, Tensor)}
    found = _matched(spec, inputs, source, model, dense)
    if source.manifest is not None:  # the checkpoint's rows are divided by its factor
        model.embeddings.settle(table_factor(source.manifest.state))
    event = take_matched(source, found, tensors, after_slab)
    if not with_state:
        model.embeddings.settle()
    log.info("the rank took the weights of %s: %s", event.path, event.tables)
    if not with_state:
        return Taken(event)
    manifest = source.manifest
    assert manifest is not None
    state.adopt(manifest.state)
    steps = manifest.step + manifest.values.get("steps_before", 0)
    own = None
    if len(manifest.shards) == peers.num_ranks:
        own = own_tensors(open_folder(source.path), manifest, peers.rank, after_slab)
    return Taken(replace(event, state="all"), steps, own)


def _other_optimizer(spec: JobSpec, source: WeightsSource) -> str | None:
    """In words, why the optimizers' state cannot be taken over."""
    saved = None if source.manifest is None else source.manifest.values.get("spec")
    now = (spec.train.optimizer.kind, spec.train.of_tables.kind, spec.train.ema)
    was = None
    if saved is not None:
        dense = saved["train"]["optimizer"]
        of_tables = saved["train"].get("table_optimizer") or dense
        was = (dense["kind"], of_tables["kind"], saved["train"].get("ema"))
    if was == now:
        return None
    kinds = ["the optimizer", "the optimizer of embeddings", "train.ema"]
    before = was or (None, None, None)
    name, then, today = next(
        found for found in zip(kinds, before, now, strict=True) if found[1] != found[2]
    )
    return f"{name} was {then} and is {today}: it has another state"


def take_matched(
    source: WeightsSource,
    found: Match,
    tensors: Mapping[str, Any],
    after_slab: Callable[[], None],
) -> WeightsTaken:
    """Copy the matched tensors into a model's; as `take_weights`."""
    for name, was in found.dense.items():
        _take_dense(source, was, tensors[name])
    plans = [_Plan.of(matched) for matched in found.tables]
    by_tensor: dict[str, list[_Plan]] = defaultdict(list)
    for plan in plans:
        for one in plan.with_state(tensors):
            if one.match.source is not None:
                by_tensor[one.match.source.tensor].append(one)
    for name, own in by_tensor.items():
        taking = _Taking(own, tensors, after_slab)
        source.weights.read(name, taking.wants, taking.take)
    return WeightsTaken(
        0,
        source.path,
        source.step,
        {plan.match.target.name: plan.counts() for plan in plans},
        len(found.dense),
        found.problems,
    )


def _matched(
    spec: JobSpec,
    inputs: Inputs,
    source: WeightsSource,
    model: ClickModel | Blueprint,
    dense: Mapping[str, Tensor],
) -> Match:
    block, names = model.inputs, set(inputs.schema.names)
    hashed = {c.name for c in block.columns if not {c.name, c.name.partition("/")[2]} & names}
    shapes = {name: tuple(tensor.shape) for name, tensor in dense.items()}
    kinds = {name.partition(".")[0] for name in shapes} | {"dense"}
    was = {n: shape for n, shape in source.side.dense.items() if n.partition(".")[0] in kinds}
    vocabularies = find_vocabularies(spec.data, inputs.schema)
    side = Side(block.columns, shapes, vocabularies, frozenset(hashed), model.task)
    found = match(replace(source.side, dense=was), side)
    other = _other_optimizer(spec, source) if spec.train.init_state == "all" else None
    if other is not None:
        found.problems.append(other)
    if not math.isclose(source.negatives, spec.data.negatives, rel_tol=1e-9):
        found.problems.append(
            f"data.negatives was {source.negatives:.6g} and is {spec.data.negatives:g}: until the "
            "weights have learnt that, scores are of odds that differ by the ratio"
        )
    if found.problems and spec.train.init_strict:
        raise SpecError(
            "the weights of train.init_from do not fit the job:\n  " + "\n  ".join(found.problems),
            where={"path": source.path},
            hint="Set train.init_strict to false to take what fits: the rest keeps its initial "
            "values.",
        )
    return found


def _take_dense(source: WeightsSource, name: str, tensor: Tensor | Slabs) -> None:
    assert isinstance(tensor, Tensor)
    target = tensor.detach()
    target = target if target.dim() else target.unsqueeze(0)

    def take(rows: Rows, values: Tensor) -> None:
        target[rows.first : rows.last + 1 : rows.stride] = values.to(target.device)

    source.weights.read(name, lambda _: True, take)


@dataclass(frozen=True)
class _Plan:
    """A table, and the new id of each old one; -1 drops a row, `None` means equal ids."""

    match: TableMatch
    ids: Ids | None

    @classmethod
    def of(cls, matched: TableMatch) -> "_Plan":
        if matched.source is None or matched.vocabularies is None:
            return cls(matched, None)
        old, new = (file.read() for file in matched.vocabularies)
        for place, vocabulary in ((matched.source, old), (matched.target, new)):
            if vocabulary.cardinality != place.cardinality:
                raise DataError(
                    f"its vocabulary has {vocabulary.cardinality:,} ids, and its table "
                    f"{place.cardinality:,} rows",
                    where={"table": place.name},
                    hint="Schema and workflow/ are of different preparations.",
                )
        try:
            return cls(matched, new_ids(old, new))
        except DataError as error:
            raise DataError(error.message, where={"table": matched.target.name}) from None

    def with_state(self, tensors: Mapping[str, Any]) -> "Iterator[_Plan]":
        """The plan, and those of the state that the table's optimizer keeps of its rows."""
        yield self
        now, was = self.match.target, self.match.source
        if was is None:
            return
        of_group = f"sparse_optimizer.{now.tensor.rpartition('.')[2]}."
        for name in (name for name in tensors if name.startswith(of_group)):
            before = f"sparse_optimizer.{was.tensor.rpartition('.')[2]}.{name.rpartition('.')[2]}"
            target, source = replace(now, tensor=name), replace(was, tensor=before)
            yield replace(self, match=replace(self.match, target=target, source=source))

    def counts(self) -> dict[str, Any]:
        now, was = self.match.target, self.match.source
        matched, dropped = 0, 0
        if was is not None:
            matched = min(was.cardinality, now.cardinality)
            if self.ids is not None:
                matched = int((self.ids >= 0).sum())
            dropped = was.cardinality - matched
        return {
            "columns": list(now.columns),
            "by": self.match.by,
            "matched": matched,
            "fresh": now.cardinality - matched,
            "dropped": dropped,
        }


class _Target(NamedTuple):
    plan: _Plan
    tensor: CanonicalTensor
    held: list[LocalRows]


class _Taking:
    """Copies the slabs of one tensor on disk into the tables of a model."""

    def __init__(
        self, plans: list[_Plan], tensors: Mapping[str, Any], after_slab: Callable[[], None]
    ):
        self._after_slab = after_slab
        names = [plan.match.target.tensor for plan in plans]
        self._targets = [
            _Target(plan, tensors[name], local_rows_of({name: tensors[name]}))
            for plan, name in zip(plans, names, strict=True)
        ]

    def wants(self, rows: Rows) -> bool:
        """Whether this rank may hold some of these rows."""
        for target, was, part in self._tables_with(rows):
            own = rows.part(part.start, part.stop)
            moved = replace(own, first=own.first - was.first + target.plan.match.target.first)
            if target.plan.ids is not None or any(moved.may_meet(one.rows) for one in target.held):
                return True
        return False

    def take(self, rows: Rows, values: Tensor) -> None:
        for target, was, part in self._tables_with(rows):
            plan, now = target.plan, target.plan.match.target
            ids = rows.part(part.start, part.stop).numbers() - was.first
            if plan.ids is not None:
                ids = torch.from_numpy(plan.ids)[ids].long()
            known = (ids >= 0) & (ids < now.cardinality)
            taken = values[part][known]
            target.tensor.write_rows(ids[known] + now.first, taken)
        self._after_slab()

    def _tables_with(self, rows: Rows) -> Iterator[tuple[_Target, TablePlace, slice]]:
        """The tables that get some of these rows, their old places, and where those rows stand."""
        for target in self._targets:
            was = target.plan.match.source
            assert was is not None
            ends = was.first, was.first + was.cardinality
            part = slice(*(rows.num_before(end) for end in ends))
            if part.start < part.stop:
                yield target, was, part
