"""Batches by name: nothing added, nothing lost, nothing copied."""

from pathlib import Path

import pytest
import torch
from interop_tables import ALL, SCHEMA

from distrain import Dataset, Loader, Schema
from distrain.errors import SpecError
from distrain.interop.named_inputs import NamedInputs


def dataset(table: Path, schema: Schema = ALL, **options: bool) -> Dataset:
    return Dataset(table, schema, **options)


def test_columns_are_the_batch_s(table: Path) -> None:
    data = dataset(table)
    batch = Loader(data, batch_size=300).sample_batch()
    inputs, target, weight = NamedInputs.of(data, "columns", 3)(batch)
    assert list(inputs) == ["row", "C1", "I1", "I2", "visited"]
    for name in ("row", "C1", "I1", "I2"):
        assert torch.equal(inputs[name], batch[name])
        assert inputs[name].data_ptr() == batch[name].data_ptr()
    assert torch.equal(target, batch.labels)
    assert torch.equal(weight, batch.weight)
    for row, items in zip(inputs["row"].tolist(), inputs["visited"].tolist(), strict=True):
        assert items == [item if item <= row % 5 else 0 for item in (1, 2, 3)]


def test_matrices_are_the_batch_s(table: Path) -> None:
    data = dataset(table, SCHEMA)
    batch = Loader(data, batch_size=300).sample_batch()
    inputs, target = NamedInputs.of(data, "matrices", None)(batch)
    assert inputs["categorical"] is batch.categorical
    assert inputs["continuous"] is batch.continuous
    assert target is batch.label


def test_the_schema_s_greatest_length_is_taken(table: Path) -> None:
    visited = ALL["visited"]
    bounded = type(visited)(
        "visited", "int32", visited.tags, is_list=True, cardinality=9, value_count=(0, 4)
    )
    data = dataset(table, ALL.with_columns(bounded))
    assert NamedInputs.of(data, "columns", None).list_lengths == {"visited": 4}
    assert NamedInputs.of(data, "columns", {"visited": 2}).list_lengths == {"visited": 2}


@pytest.mark.parametrize(
    ("form", "lengths", "message"),
    [
        ("rows", 3, "unknown inputs 'rows'\n  hint: Allowed: columns, matrices"),
        ("columns", None, "list columns need a length of 1 or more: visited"),
        ("columns", 0, "list columns need a length of 1 or more: visited"),
        ("columns", {"C1": 3}, "there is no list column C1\n  hint: List columns here: visited"),
    ],
)
def test_mistakes_are_told(
    table: Path, form: str, lengths: int | dict[str, int] | None, message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        NamedInputs.of(dataset(table), form, lengths)
    assert message in str(caught.value)
