"""Targets of a model's tasks: columns of labels, and weights of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from distrain.loader.batch import Batch
from distrain.schema.column import TargetKind


@dataclass(frozen=True)
class Target:
    """The target of a task.

    Attributes:
        name: The task's name. A single task without a name has the name of the target's column.
        column: The column of labels; `None` for the first target of the schema.
        classes: Number of classes of a multiclass target, whose labels are `0 .. classes-1`.
        weight: The column of row weights for this target only; `None` for the batch's weights.
        is_count: Whether labels are counts, so that labels below 0 are errors.
        known: The column that is 1 in rows whose label is known, and 0 in rows that do not count;
            `None` if all labels are known.
    """

    name: str
    column: str | None = None
    kind: TargetKind = "binary"
    classes: int = 2
    weight: str | None = None
    is_count: bool = False
    known: str | None = None

    @property
    def num_scores(self) -> int:
        """The number of scores of each row: that of the classes of a multiclass target, else 1."""
        return self.classes if self.kind == "multiclass" else 1


class Candidates(NamedTuple):
    """Items, of some rows or drawn for them, against which all rows of a step are scored.

    Attributes:
        vectors: Vectors of items, `[candidates, dim]`.
        ids: Ids of the items, `[candidates]`, int64.
        known: `[pairs, 2]`, int64: users, and items that they are known to have. A pair with a
            user below 0 is ignored.
    """

    vectors: Tensor
    ids: Tensor
    known: Tensor


def output_names(targets: Sequence[Target]) -> tuple[str, ...]:
    """Return the output names of an exported model.

    A single binary target has the output "logits". Otherwise outputs have the targets' names.
    """
    is_plain = len(targets) == 1 and targets[0].kind == "binary"
    return ("logits",) if is_plain else tuple(target.name for target in targets)


def label_of(batch: Batch, column: str | None) -> Tensor:
    """Return the labels of a target's column, `[rows]`; `None` means the first target.

    The batch must have labels.
    """
    if column is not None:
        return batch[column]
    assert batch.label is not None, "rows without labels have no loss"
    return batch.label


def weight_of(batch: Batch, target: Target) -> Tensor | None:
    """Return the weights of rows for a target, `[rows]`; 0 where its label is unknown.

    Returns `None` if neither the batch nor the target has weights, and all labels are known.
    """
    weights = batch.weight if target.weight is None else batch[target.weight]
    if target.known is None:
        return weights
    known = batch[target.known]
    return known if weights is None else weights * known
