"""Copies another run's weights into a model; each rank reads the rows that it holds."""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.canonical_state import CanonicalTensor
from distrain.models.embeddings.columns import TablePlace
from distrain.models.saved_model import model_tensors
from distrain.train.checkpoint.local_rows import LocalRows, Rows, local_rows_of, whole
from distrain.train.checkpoint.shard_reading import RowReceiver
from distrain.train.checkpoint.training_state import TrainingState, table_factor
from distrain.train.data.inputs import find_vocabularies, list_combiners
from distrain.train.data.job_tables import Inputs
from distrain.train.data.vocabularies import new_ids
from distrain.train.warm_start.matching import Match, Side, TableMatch, match
from distrain.train.warm_start.source import WeightsSource, open_on_all_ranks, open_source

log = logging.getLogger("distrain.rank")

Ids = np.ndarray[Any, np.dtype[np.int32]]


class Taken(NamedTuple):
    """The result of `take_weights`, besides the weights that it copied into the model."""

    event: WeightsTaken
    steps: int = 0  # number of steps of the optimizer state, if it was taken over; otherwise 0
    # this rank's own tensors in the checkpoint, such as its random state; `None` if the state was
    # not taken over, or was saved by another number of ranks
    own: Mapping[str, Tensor] | None = None
    # the product of the factors of `reduce_on_plateau`, if the state was taken over; otherwise 1
    reduction: float = 1.0


def check_warm_start(spec: JobSpec, inputs: Inputs) -> None:
    """Raise `SpecError` if the weights of `train.init_from` do not fit the job.

    Call it before the job starts: it reads headers and vocabularies, but no weights. If
    `train.init_strict` is false, weights that do not fit are accepted, but not a source that cannot
    be read.
    """
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
    """Copy the weights of `train.init_from` into a model; a collective operation.

    If `train.init_state` is `all`, the optimizers' state is copied as well, unless it is of other
    kinds of optimizers and `train.init_strict` is false. The ranks agree on the source, and then
    read it without communication. A rank reads, slab by slab, the pieces that may hold its rows. If
    vocabularies differ, a rank holds in memory the two vocabularies of one table at a time, and 4
    bytes for each row of all such tables on disk. Rows without a source keep their initial values.
    Raises the errors of `check_warm_start`.
    """
    assert spec.train.init_from is not None
    model, with_state = state.model, spec.train.init_state == "all"
    peers = model.embeddings.peers
    source = open_on_all_ranks(spec.train.init_from, peers, device, with_state=with_state)
    with_state = with_state and _other_optimizer(spec, source) is None
    tensors = state.tensors() if with_state else model_tensors(model)
    dense = {name: t for name, t in tensors.items() if isinstance(t, Tensor)}
    found = _matched(spec, inputs, source, model, dense)
    if source.manifest is not None:  # the checkpoint's rows are values divided by its factor
        model.embeddings.apply_factor(table_factor(source.manifest.state))
    manifest = source.manifest
    same_ranks = manifest is not None and len(manifest.shards) == peers.num_ranks
    event, own = take_matched(
        source, found, tensors, after_slab, peers.rank, own=with_state and same_ranks
    )
    if not with_state:
        model.embeddings.apply_factor()
    log.info("the rank took the weights of %s: %s", event.path, event.tables)
    if not with_state:
        return Taken(event)
    assert manifest is not None
    state.adopt(manifest.state)
    values = manifest.values
    # steps of its first training, which a refit does not count
    of_first = (values.get("refit") or {}).get("taken", 0)
    steps = manifest.step - of_first + values.get("steps_before", 0)
    reduction = (values.get("validations") or {}).get("reduction", 1.0)
    return Taken(replace(event, state="all"), steps, own if same_ranks else None, reduction)


def _other_optimizer(spec: JobSpec, source: WeightsSource) -> str | None:
    """Return why the optimizers' state cannot be taken over; `None` if it can.

    It can if the kinds of both optimizers and `train.ema` are the same as in the checkpoint's spec.
    """
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
    rank: int = 0,
    own: bool = False,
) -> tuple[WeightsTaken, Mapping[str, Tensor]]:
    """Copy the matched tensors of a source into `tensors`, the live tensors by name.

    Returns the event to report and, with `own`, the checkpoint's tensors that belong to rank `rank`
    alone.
    """
    receivers: dict[str, list[RowReceiver]] = defaultdict(list)
    for name, was in found.dense.items():
        receivers[was].append(whole(was, tensors[name], alone=False))
    plans = [_Plan.of(matched) for matched in found.tables]
    for plan in plans:
        for one in plan.with_state(tensors):
            if one.match.source is not None:
                target = tensors[one.match.target.tensor]
                receivers[one.match.source.tensor].append(_IntoTable.of(one, target))
    of_rank = source.weights.read(receivers, rank, after_slab, own)
    taken = WeightsTaken(
        0,
        source.path,
        source.step,
        {plan.match.target.name: plan.counts() for plan in plans},
        len(found.dense),
        found.problems,
    )
    return taken, of_rank


def _matched(
    spec: JobSpec,
    inputs: Inputs,
    source: WeightsSource,
    model: ClickModel | Blueprint,
    dense: Mapping[str, Tensor],
) -> Match:
    """Match a source with a model, whose dense tensors by name are `dense`.

    Raises `SpecError` with all mismatches if `train.init_strict` is true.
    """
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
            "weights have adapted, the predicted odds differ by the ratio"
        )
    if found.problems and spec.train.init_strict:
        raise SpecError(
            "the weights of train.init_from do not fit the job:\n  " + "\n  ".join(found.problems),
            where={"path": source.path},
            hint="Set train.init_strict to false to use the weights that fit; the others keep "
            "their initial values.",
        )
    return found


@dataclass(frozen=True)
class _Plan:
    """How a table gets its rows: its match, and the new id of each saved id.

    `ids` has -1 for rows that are dropped; it is `None` if all ids stay the same.
    """

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
        """Yield this plan, and one for each tensor of optimizer state that has the table's rows."""
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
        """Return the table's entry in `WeightsTaken`: how many rows were copied and how."""
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


@dataclass(frozen=True)
class _IntoTable:
    """Receives saved rows of a table's weights or optimizer state; implements `RowReceiver`."""

    plan: _Plan
    tensor: CanonicalTensor
    held: Sequence[LocalRows]
    device = torch.device("cpu")

    @classmethod
    def of(cls, plan: _Plan, tensor: CanonicalTensor) -> "_IntoTable":
        return cls(plan, tensor, local_rows_of({plan.match.target.tensor: tensor}))

    def wants(self, rows: Rows) -> bool:
        """Return True if this rank may hold some of these rows."""
        was, part = self._part(rows)
        if part.start >= part.stop:
            return False
        own = rows.part(part.start, part.stop)
        moved = replace(own, first=own.first - was.first + self.plan.match.target.first)
        return self.plan.ids is not None or any(moved.may_meet(one.rows) for one in self.held)

    def take(self, rows: Rows, values: Tensor) -> None:
        was, part = self._part(rows)
        if part.start >= part.stop:
            return
        now = self.plan.match.target
        ids = rows.part(part.start, part.stop).numbers() - was.first
        if self.plan.ids is not None:
            ids = torch.from_numpy(self.plan.ids)[ids].long()
        known = (ids >= 0) & (ids < now.cardinality)
        self.tensor.write_rows(ids[known] + now.first, values[part][known])

    def _part(self, rows: Rows) -> tuple[TablePlace, slice]:
        """Return the saved table's position in its tensor, and which of `rows` belong to it.

        The latter is a slice of the indices of `rows`.
        """
        was = self.plan.match.source
        assert was is not None
        ends = was.first, was.first + was.cardinality
        return was, slice(*(rows.num_before(end) for end in ends))
