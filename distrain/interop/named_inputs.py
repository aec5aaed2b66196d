"""Turns a batch into inputs by name, a target and weights, for other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.errors import SpecError
from distrain.loader.batch import Batch
from distrain.loader.dataset import Dataset

FORMS = ("columns", "matrices")


@dataclass(frozen=True)
class NamedInputs:
    """Converts batches to `(inputs, target, weight)`, `(inputs, target)` or `(inputs,)`.

    `inputs` is a dict of tensors by name.

    >>> import torch
    >>> batch = Batch(
    ...     categorical=torch.tensor([[1, 2], [3, 4]], dtype=torch.int32),
    ...     continuous=torch.tensor([[0.5], [0.25]]),
    ...     label=torch.tensor([0.0, 1.0]),
    ...     categorical_names=("C1", "C2"),
    ...     continuous_names=("I1",),
    ... )
    >>> inputs, target = NamedInputs()(batch)
    >>> inputs["C2"].tolist(), inputs["I1"].tolist(), target.tolist()
    ([2, 4], [0.5, 0.25], [0.0, 1.0])
    >>> {name: tuple(values.shape) for name, values in NamedInputs("matrices")(batch)[0].items()}
    {'categorical': (2, 2), 'continuous': (2, 1)}

    Attributes:
        form: `"columns"` gives each column as `[rows]` under its name. `"matrices"` gives
            `categorical` `[rows, columns]`, int32, and `continuous` `[rows, columns]`, float32,
            each only if it has columns. Ids are int32, numbers float32.
        list_lengths: The length to which each list column is cut or padded with 0: `[rows, length]`
            under its name in either form.
    """

    form: str = "columns"
    list_lengths: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, dataset: Dataset, form: str, list_lengths: int | Mapping[str, int] | None
    ) -> NamedInputs:
        """Return the conversion for batches of a dataset.

        List columns without a length in `list_lengths` get the schema's maximum length.

        Raises:
            SpecError: `form` is neither `columns` nor `matrices`; a list column has no length or a
                length below 1; or `list_lengths` names a column that is not a list column.
        """
        if form not in FORMS:
            raise SpecError(f"unknown inputs {form!r}", hint=f"Allowed: {', '.join(FORMS)}.")
        limits = {column.name: column.max_length for column in dataset.columns if column.is_list}
        if isinstance(list_lengths, int):
            given: dict[str, int | None] = dict.fromkeys(limits, list_lengths)
        else:
            given = dict(list_lengths or {})
        unknown = sorted(given.keys() - limits.keys())
        if unknown:
            raise SpecError(
                f"there is no list column {', '.join(unknown)}",
                hint=f"List columns here: {', '.join(limits) or 'none'}.",
            )
        lengths = limits | given
        unbounded = sorted(name for name, length in lengths.items() if not length or length < 1)
        if unbounded:
            raise SpecError(
                f"list columns need a length of 1 or more: {', '.join(unbounded)}",
                hint="Pass list_lengths: lists are cut or padded with 0 to it.",
            )
        return cls(form, {name: int(length or 0) for name, length in lengths.items()})

    def __call__(self, batch: Batch) -> tuple[Any, ...]:
        """Return `(inputs,)`, `(inputs, target)` or `(inputs, target, weight)`.

        The target is `[rows]`, float32, or `[rows, targets]` for several targets; the weight is
        `[rows]`, float32. Without lists, nothing is copied.
        """
        names = (*batch.categorical_names, *batch.continuous_names)
        if self.form == "columns":
            inputs = {name: batch[name] for name in names}
        else:
            both = {"categorical": batch.categorical, "continuous": batch.continuous}
            inputs = {name: values for name, values in both.items() if values.shape[1]}
        for name, length in self.list_lengths.items():
            inputs[name] = batch.lists[name].padded(length)
        if batch.label is None:
            return (inputs,)
        target = batch.labels if len(batch.label_names) > 1 else batch.label
        return (inputs, target) if batch.weight is None else (inputs, target, batch.weight)
