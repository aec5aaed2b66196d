"""What the page's examples for TorchRec, Lightning and Ray are made of."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from interop_tables import ALL, ROWS, SCHEMA
from ragged_rows import rows_of
from wording import Wording

from distrain import Dataset, Loader
from distrain.errors import SpecError
from distrain.interop.torch import as_dict, as_keyed_jagged, batch_of
from distrain.schema import ColumnSchema, Schema


def test_columns_make_the_batch_that_they_came_from(table: Path, wording: Wording) -> None:
    schema = Schema((*SCHEMA.columns, *(ALL[name] for name in ("bought", "weight"))))
    for batch in Loader(Dataset(table, schema), batch_size=500):
        again = batch_of(as_dict(batch), schema)
        assert again.categorical_names == batch.categorical_names
        assert again.label_names == batch.label_names == ("label", "bought")
        for name in ("categorical", "continuous", "label", "labels", "weight"):
            assert torch.equal(getattr(again, name), getattr(batch, name))
            assert getattr(again, name).dtype == getattr(batch, name).dtype
    columns = as_dict(batch)
    for name in ("label", "bought", "weight"):
        del columns[name]
    assert batch_of(columns, schema).label is None
    del columns["I2"]
    wording.refused(SpecError, lambda: batch_of(columns, schema))


def test_a_weight_comes_back_whatever_its_column_is_named() -> None:
    user = ColumnSchema("user", tags=("categorical",), cardinality=9)
    label = ColumnSchema("label", "float32", ("target",))
    schema = Schema((user, label, ColumnSchema("importance", "float32", ("weight",))))
    columns = {
        "user": torch.tensor([7, 1]),
        "label": torch.tensor([0.0, 1.0]),
        "importance": torch.tensor([0.5, 2.0]),
    }
    again = batch_of(as_dict(batch_of(columns, schema)), schema)
    assert again.weight is not None
    assert again.weight.tolist() == [0.5, 2.0]
    kilograms = Schema((*schema, ColumnSchema("weight", "float32", ("continuous",))))
    with pytest.raises(SpecError):
        as_dict(batch_of(columns | {"weight": torch.tensor([70.0, 80.0])}, kilograms))


def test_columns_of_lists_come_back_as_nested_tensors_and_as_rows_of_values(table: Path) -> None:
    for batch in Loader(Dataset(table, ALL), batch_size=500):
        nested = as_dict(batch)
        rows = {name: [row.tolist() for row in nested[name].unbind()] for name in batch.lists}
        for columns in (nested, nested | rows):
            again = batch_of(columns, ALL)
            assert again.lists.keys() == batch.lists.keys()
            for name, one in batch.lists.items():
                for part in ("values", "offsets"):
                    told, was = getattr(again.lists[name], part), getattr(one, part)
                    assert torch.equal(told, was)
                    assert told.dtype == was.dtype
    lists = Schema(tuple(ALL[name] for name in batch.lists))
    assert batch_of(rows, lists).num_rows == batch.num_rows
    limits = {"max_list_length": 1}
    cut = Schema(tuple(replace(c, properties={**c.properties, **limits}) for c in lists))
    for columns in (nested, rows):
        found = {name: rows_of(one) for name, one in batch_of(columns, cut).lists.items()}
        assert found == {name: [row[:1] for row in own] for name, own in rows.items()}


def test_other_columns_say_nothing_of_rows_and_device() -> None:
    user = ColumnSchema("user", tags=("categorical",), cardinality=9)
    columns = {"note": ["a"], "user": torch.empty(3, dtype=torch.int64, device="meta")}
    batch = batch_of(columns, Schema((user,)))
    assert batch.continuous.shape == (3, 0)
    assert batch.continuous.device == batch.categorical.device == torch.device("meta")


def test_keyed_ids_are_those_of_the_batch(table: Path) -> None:
    pytest.importorskip("torchrec", reason="torchrec is not installed", exc_type=ImportError)
    rows = 0
    for batch in Loader(Dataset(table, ALL), batch_size=500):
        keyed, numbers, target = as_keyed_jagged(batch)
        assert keyed.keys() == ["row", "C1", "visited"]
        assert keyed.stride() == batch.num_rows
        for name in ("row", "C1"):
            assert torch.equal(keyed[name].values(), batch[name])
            assert set(keyed[name].lengths().tolist()) == {1}
        assert torch.equal(keyed["visited"].values(), batch.lists["visited"].values)
        assert torch.equal(keyed["visited"].lengths(), batch.lists["visited"].lengths)
        assert torch.equal(numbers, batch.continuous)
        assert target is not None
        rows += batch.num_rows
    assert rows == ROWS
    schema = Schema(SCHEMA.columns)
    batch = next(iter(Loader(Dataset(table, schema), batch_size=500)))
    keyed, _, _ = as_keyed_jagged(batch)
    assert keyed.values().data_ptr() == batch.categorical.data_ptr()  # not copied
