"""Makes the score columns of a prediction, which depend on the kinds of a model's targets."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from distrain.errors import DataError
from distrain.models.heads.targets import Target

_NAMES = {
    "binary": ("logit", "probability"),
    "regression": ("prediction",),
    "multiclass": ("class", "probability"),
}
_VALUE = "class_value"


def score_names(targets: Sequence[Target], *, with_values: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the score columns; with several targets they end in `_TARGET`.

    `with_values` has the names of the targets whose class values are known. For these, the columns
    of the values are included. Raises `DataError` if one of these has the name of another column:
    `class_value_x` is the class of a target `value_x`, and the class value of a target `x`.

    >>> score_names([Target("click")])
    ('logit', 'probability')
    >>> score_names([Target("click"), Target("price", kind="regression")])
    ('logit_click', 'probability_click', 'prediction_price')
    """
    names = (
        *(name for target in targets for name in _names_of(target, targets)),
        *(_name_of(_VALUE, target, targets) for target in targets if target.name in with_values),
    )
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(
            f"two score columns would have the name {twice[0]}",
            where={"targets": ", ".join(target.name for target in targets)},
            hint=f"Rename the target {twice[0].removeprefix('class_')}, and train again.",
        )
    return names


def side_by_side(scores: Sequence[Tensor]) -> Tensor:
    """Return a batch's scores of all targets as one float32 tensor, `[rows, scores]`.

    With one target whose rows have a single score, the shape is `[rows]`.
    """
    if len(scores) == 1:
        return scores[0].float()
    columns = [score.float() if score.dim() == 2 else score.float()[:, None] for score in scores]
    return torch.cat(columns, dim=1)


def score_columns(
    targets: Sequence[Target], scores: Tensor, classes: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Return the score columns, by name, of scores that `side_by_side` returned.

    A binary target has a logit and a probability, a regression target a prediction, all float32. A
    multiclass target has the most probable class, int32, and a list of all classes' probabilities,
    and last the value of the most probable class, if `classes` has the values of its classes.
    """
    values = scores if scores.dim() == 2 else scores[:, None]
    bounds = pairwise(np.append(0, np.cumsum([one.num_scores for one in targets])).tolist())
    columns_by_name: dict[str, pa.Array] = {}
    for target, (start, stop) in zip(targets, bounds, strict=True):
        own = values[:, start:stop]
        columns = _classes(own) if target.kind == "multiclass" else _numbers(target, own[:, 0])
        columns_by_name |= zip(_names_of(target, targets), columns, strict=True)
        if target.name in classes:
            value = classes[target.name].take(columns[0])
            columns_by_name[_name_of(_VALUE, target, targets)] = value
    return columns_by_name


def _names_of(target: Target, targets: Sequence[Target]) -> list[str]:
    return [_name_of(name, target, targets) for name in _NAMES[target.kind]]


def _name_of(name: str, target: Target, targets: Sequence[Target]) -> str:
    return name if len(targets) == 1 else f"{name}_{target.name}"


def _numbers(target: Target, scores: Tensor) -> list[pa.Array]:
    if target.kind == "regression":
        return [_array(scores)]
    return [_array(scores), _array(torch.sigmoid(scores))]


def _classes(logits: Tensor) -> list[pa.Array]:
    shares = torch.softmax(logits, dim=1)
    lists = pa.FixedSizeListArray.from_arrays(_array(shares.flatten()), logits.shape[1])
    return [_array(logits.argmax(dim=1).int()), lists]


def _array(values: Tensor) -> pa.Array:
    """Return an Arrow array that shares a tensor's memory.

    `pa.array` of a NumPy array would import pandas, if it is installed.
    """
    held = values.contiguous().numpy()
    buffers = [None, pa.py_buffer(held)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(held.dtype), len(held), buffers)
