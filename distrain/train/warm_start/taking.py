"""Each rank puts the rows that it holds of another's weights into its model."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distrain.checkpoint.held import Held, held_by_rank
from distrain.checkpoint.rows import Rows
from distrain.embeddings.canonical import CanonicalTensor
from distrain.errors import DataError, SpecError
from distrain.events import WeightsTaken
from distrain.models import ClickModel, blueprint_of
from distrain.models.inputs import InputBlock
from distrain.models.saved import model_tensors
from distrain.models.tensor_file import Slabs
from distrain.spec import JobSpec
from distrain.train.inputs import Inputs, list_combiners
from distrain.train.warm_start.matching import Match, Side, TableMatch, match
from distrain.train.warm_start.source import Source, open_source, open_together
from distrain.train.warm_start.vocabularies import find_vocabularies, new_ids

log = logging.getLogger("distrain.rank")

Ids = np.ndarray[Any, np.dtype[np.int32]]


def check_warm_start(spec: JobSpec, inputs: Inputs) -> None:
    """Refuse weights that do not fit the job, before anything is started: headers are read.

    Raises:
        SpecError: There are none, or they do not fit; all that does not is listed.
        DataError: They are damaged.
        Unavailable: They cannot be read now.
    """
    if spec.train.init_from is None:
        return
    combiners = list_combiners(inputs.schema, spec.embeddings)
    blueprint = blueprint_of(inputs.schema, spec.model, combiners)
    shapes = blueprint.outline().state_dict(prefix="dense.")
    source = open_source(spec.train.init_from)
    _matched(spec, inputs, source, blueprint.inputs, shapes)


def take_weights(
    spec: JobSpec,
    inputs: Inputs,
    model: ClickModel,
    device: torch.device,
    after_slab: Callable[[], None],
) -> WeightsTaken:
    """Give a model the weights that `train.init_from` names; a collective operation.

    The ranks agree on which weights these are, and read them without communication.

    A rank reads what may hold rows that it has, slab by slab. Where vocabularies differ it holds
    those of one table at a time, and 4 bytes for each row of such tables on disk.

    Args:
        spec: The job.
        inputs: Its data.
        model: With its initial values, which rows keep that nothing is known of.
        device: Where the ranks' backend wants tensors.
        after_slab: Called after each slab that was read.

    Returns:
        What was taken, the same on every rank.

    Raises:
        SpecError, DataError, Unavailable: As of `check_warm_start`.
    """
    assert spec.train.init_from is not None
    source = open_together(spec.train.init_from, model.embeddings.peers, device)
    tensors = model_tensors(model)
    dense = {name: t for name, t in tensors.items() if isinstance(t, Tensor)}
    found = _matched(spec, inputs, source, model.inputs, dense)
    told = take_matched(source, found, tensors, after_slab)
    log.info("took the weights of %s: %s", told.path, told.tables)
    return told


def take_matched(
    source: Source,
    found: Match,
    tensors: Mapping[str, Tensor | Slabs],
    after_slab: Callable[[], None],
) -> WeightsTaken:
    """Take what fits into a model's tensors; as `take_weights`."""
    for name in found.dense:
        _take_dense(source, name, tensors[name])
    plans = [_Plan.of(matched) for matched in found.tables]
    by_tensor: dict[str, list[_Plan]] = defaultdict(list)
    for plan in plans:
        if plan.match.source is not None:
            by_tensor[plan.match.source.tensor].append(plan)
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
    source: Source,
    block: InputBlock,
    dense: Mapping[str, Tensor],
) -> Match:
    names = set(inputs.schema.names)
    hashed = {c.name for c in block.columns if not {c.name, c.name.partition("/")[2]} & names}
    shapes = {name: tuple(tensor.shape) for name, tensor in dense.items()}
    vocabularies = find_vocabularies(spec.data, inputs.schema)
    found = match(source.side, Side(block.columns, shapes, vocabularies, frozenset(hashed)))
    if found.problems and spec.train.init_strict:
        raise SpecError(
            "the weights of train.init_from do not fit the job:\n  " + "\n  ".join(found.problems),
            where={"path": source.path},
            hint="Set train.init_strict to false to take what fits: the rest keeps its initial "
            "values.",
        )
    return found


def _take_dense(source: Source, name: str, tensor: Tensor | Slabs) -> None:
    assert isinstance(tensor, Tensor)
    target = tensor.detach()
    target = target if target.dim() else target.unsqueeze(0)

    def take(rows: Rows, values: Tensor) -> None:
        numbers = rows.numbers()
        target[numbers.start : numbers.stop : numbers.step] = values.to(target.device)

    source.weights.read(name, lambda _: True, take)


@dataclass(frozen=True)
class _Plan:
    """A table, and the new id of each old one.

    Attributes:
        match: Where its rows come from.
        ids: `[old rows]`, -1 for rows that are dropped; `None` where ids are equal.
    """

    match: TableMatch
    ids: Ids | None

    @classmethod
    def of(cls, matched: TableMatch) -> "_Plan":
        """Reads the vocabularies, if they are needed."""
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

    def counts(self) -> dict[str, Any]:
        """For `WeightsTaken.tables`."""
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


class _Taking:
    """Takes the slabs of one tensor on disk into the tables of a model.

    Args:
        plans: The tables that get rows of it.
        tensors: The model's, by name.
        after_slab: Called after each slab.
    """

    def __init__(
        self,
        plans: list[_Plan],
        tensors: Mapping[str, Any],
        after_slab: Callable[[], None],
    ):
        self._after_slab = after_slab
        self._targets: list[tuple[_Plan, CanonicalTensor, list[Held]]] = []
        for plan in plans:
            name = plan.match.target.tensor
            held = held_by_rank({name: tensors[name]})
            self._targets.append((plan, tensors[name], held))

    def wants(self, rows: Rows) -> bool:
        """Whether this rank may hold some of these rows."""
        for plan, _, held in self._targets:
            was, now = plan.match.source, plan.match.target
            assert was is not None
            own = _between(rows, was.first, was.first + was.cardinality)
            if not own.count:
                continue
            moved = Rows(own.first - was.first + now.first, own.stride, own.count)
            if plan.ids is not None or any(moved.meet(one.rows) for one in held):
                return True
        return False

    def take(self, rows: Rows, values: Tensor) -> None:
        """Put a slab where it belongs."""
        for plan, tensor, _ in self._targets:
            was, now = plan.match.source, plan.match.target
            assert was is not None
            own = _between(rows, was.first, was.first + was.cardinality)
            if not own.count:
                continue
            start = (own.first - rows.first) // rows.stride
            ids = torch.arange(own.count) * own.stride + (own.first - was.first)
            if plan.ids is not None:
                ids = torch.from_numpy(plan.ids)[ids].long()
            known = (ids >= 0) & (ids < now.cardinality)
            tensor.write_rows(ids[known] + now.first, values[start : start + own.count][known])
        self._after_slab()


def _between(rows: Rows, start: int, stop: int) -> Rows:
    """Those of some rows that lie in `start .. stop`.

    >>> _between(Rows(1, 3, 4), 3, 8)
    Rows(first=4, stride=3, count=2)
    """
    skipped = max(0, -(-(start - rows.first) // rows.stride))
    last = max(0, -(-(stop - rows.first) // rows.stride))
    kept = max(0, min(rows.count, last) - skipped)
    return Rows(rows.first + skipped * rows.stride, rows.stride, kept)
