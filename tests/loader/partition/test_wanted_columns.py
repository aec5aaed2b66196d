from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError, SchemaError, SpecError
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.wanted_columns import (
    WantedColumn,
    type_hint,
    type_problem,
    wanted_columns,
)
from distrain.schema import ColumnSchema, Schema, Tags

ROLES = (Tags.CATEGORICAL, Tags.CONTINUOUS, Tags.TARGET)


def column(name: str, *tags: str, **fields: Any) -> ColumnSchema:
    return ColumnSchema(name, tags=tags, **fields)


FULL = Schema(
    (
        column("genres", Tags.CATEGORICAL, cardinality=9, is_list=True, value_count=(0, 5)),
        column("bought", Tags.TARGET),
        column("price", Tags.CONTINUOUS),
        column("user", Tags.CATEGORICAL, cardinality=10),
        column("importance", Tags.WEIGHT),
        column("prices", Tags.CONTINUOUS, is_list=True, is_ragged=True),
        column("clicked", Tags.TARGET),
        column("item", Tags.CATEGORICAL),
        column("note"),
    )
)


def test_columns_stand_in_the_order_that_batches_have() -> None:
    assert wanted_columns(FULL, need_label=True) == (
        WantedColumn("user", "id", 10),
        WantedColumn("item", "id", None),
        WantedColumn("price", "value"),
        WantedColumn("bought", "label"),
        WantedColumn("clicked", "label"),
        WantedColumn("importance", "weight"),
        WantedColumn("genres", "id", 9, is_list=True, max_length=5),
        WantedColumn("prices", "value", is_list=True),
    )


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from([*ROLES, "other"]), st.booleans()), min_size=1, max_size=12),
    st.booleans(),
)
def test_every_tagged_column_is_wanted_once_flat_ones_first(
    drawn: list[tuple[str, bool]], need_label: bool
) -> None:
    columns = [
        column(f"c{i}", tag, is_list=is_list and tag != Tags.TARGET)
        for i, (tag, is_list) in enumerate(drawn)
    ]
    tags = {c.tags[0] for c in columns}
    if not tags & {*ROLES[:2]} or (need_label and Tags.TARGET not in tags):
        with pytest.raises(SchemaError):
            wanted_columns(Schema(tuple(columns)), need_label=need_label)
        return
    found = wanted_columns(Schema(tuple(columns)), need_label=need_label)
    wanted_tags = ROLES if need_label else ROLES[:2]
    assert sorted(c.name for c in found) == sorted(
        c.name for c in columns if c.tags[0] in wanted_tags
    )
    rank = {"id": 0, "value": 1, "label": 2}
    order = [(c.is_list, rank[c.kind], int(c.name[1:])) for c in found]
    assert order == sorted(order)


def test_nulls_of_features_are_filled_and_those_of_labels_never() -> None:
    found = wanted_columns(FULL, need_label=True, fill_null_id=0, fill_null_value=-1.5)
    assert {c.name: c.fill_null for c in found} == {
        "user": 0,
        "item": 0,
        "price": -1.5,
        "bought": None,
        "clicked": None,
        "importance": None,
        "genres": 0,
        "prices": -1.5,
    }


@pytest.mark.parametrize("fill", [-1, 9, 10])
def test_a_filled_id_is_an_id_of_every_column(fill: int, wording: Wording) -> None:
    wording.refused(SchemaError, lambda: wanted_columns(FULL, need_label=True, fill_null_id=fill))
    assert wanted_columns(FULL, need_label=True, fill_null_id=8)[0].fill_null == 8


@pytest.mark.parametrize("fill", [float("nan"), float("inf"), -1e39])
def test_a_filled_value_is_a_finite_float32(fill: float, wording: Wording) -> None:
    wording.refused(SpecError, lambda: wanted_columns(FULL, need_label=True, fill_null_value=fill))


@pytest.mark.parametrize(
    "extra",
    [
        column("second", Tags.WEIGHT),
        column("importance", Tags.WEIGHT, Tags.CONTINUOUS),
        column("clicked", Tags.TARGET, is_list=True),
        column("importance", Tags.WEIGHT, is_ragged=True),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(extra: ColumnSchema, wording: Wording) -> None:
    wording.refused(SchemaError, lambda: wanted_columns(FULL.with_columns(extra), need_label=True))


ID, VALUE, LABEL, WEIGHT = (WantedColumn("x", kind) for kind in ("id", "value", "label", "weight"))
INTEGERS = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.bool_()]
DATES = [pa.date32(), pa.date64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
LISTS = [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 3)]


def test_numbers_are_usable() -> None:
    for kind in INTEGERS:
        assert [type_problem(wanted, kind) for wanted in (ID, VALUE, LABEL, WEIGHT)] == [None] * 4
    for kind in DATES:
        assert type_problem(ID, kind) is None
        assert type_problem(VALUE, kind) is None
        assert "but numbers are needed" in str(type_problem(LABEL, kind))
    for kind in FLOATS:
        assert "but integer ids are needed" in str(type_problem(ID, kind))
        assert [type_problem(wanted, kind) for wanted in (VALUE, LABEL, WEIGHT)] == [None] * 3


@pytest.mark.parametrize("make_list", LISTS)
def test_items_of_lists_obey_the_same_rules(make_list: Any) -> None:
    ids, values = WantedColumn("x", "id", is_list=True), WantedColumn("x", "value", is_list=True)
    for kind in [*INTEGERS, *DATES, *FLOATS, pa.string(), pa.decimal128(5, 2), pa.list_(pa.int8())]:
        for wanted, flat in ((ids, ID), (values, VALUE)):
            assert (type_problem(wanted, make_list(kind)) is None) == (
                type_problem(flat, kind) is None and not pa.types.is_nested(kind)
            )
    assert "one value per row is needed" in str(type_problem(ID, make_list(pa.int32())))
    assert "is_list" in type_hint(ID, make_list(pa.int32()))
    assert "the schema says that each row holds a list" in str(type_problem(ids, pa.int32()))
    assert "is_list" in type_hint(ids, pa.int32())


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.string(), "`distrain prep`"),
        (pa.large_string(), "`distrain prep`"),
        (pa.dictionary(pa.int32(), pa.string()), "`distrain prep`"),
        (pa.dictionary(pa.int8(), pa.int64()), "`distrain prep`"),
        (pa.binary(), "Prepare the raw table"),
        (pa.decimal128(9, 2), "where the table is written"),
        (pa.timestamp("us", "UTC"), "a float32 count of hours"),
        (pa.timestamp("ns"), "a float32 count of hours"),
        (pa.time32("s"), "a float32 count of hours"),
        (pa.duration("s"), "a float32 count of hours"),
        (pa.struct({"a": pa.int32()}), "a separate column"),
        (pa.map_(pa.string(), pa.int32()), "a separate column"),
    ],
)
def test_other_types_are_refused_with_a_way_out(kind: pa.DataType, hint: str) -> None:
    for wanted in (ID, VALUE, LABEL, WEIGHT):
        assert str(kind) in str(type_problem(wanted, kind))
        assert hint in type_hint(wanted, kind)


def test_decimal_ids_are_cast_to_whole_numbers() -> None:
    assert "int64" in type_hint(ID, pa.decimal128(38, 0))
    assert "float32 or float64" in type_hint(VALUE, pa.decimal128(38, 0))


SMALL = Schema(
    (
        column("clicked", Tags.TARGET),
        column("day", Tags.CATEGORICAL, cardinality=100),
        column("tags", Tags.CATEGORICAL, cardinality=10, is_list=True),
        column("price", Tags.CONTINUOUS),
        column("w", Tags.WEIGHT),
    )
)


def write_small(path: Path, **changes: Any) -> str:
    columns: dict[str, Any] = {
        "clicked": pa.array([True, False]),
        "day": pa.array([3, 99], pa.date32()),
        "tags": pa.array([[], [9, 0]], pa.list_(pa.int32())),
        "tags.other": pa.array([[77], [78]]),
        "price": pa.array([1.5, 2.0]),
        "w": np.array([0.0, 2.5], np.float32),
        **changes,
    }
    pq.write_table(pa.table(columns), path / "x.parquet")
    return str(path / "x.parquet")


def test_filled_nulls_pass_the_footers_but_bad_values_do_not(
    tmp_path: Path, wording: Wording
) -> None:
    holes = {"price": [None, 1.0], "day": pa.array([None, 5], pa.int32())}
    path = write_small(tmp_path, **holes)
    fills = {"fill_null_id": 0, "fill_null_value": 0.0}
    assert read_footers(path, SMALL, **fills).num_rows == 2
    wording.refused(DataError, lambda: read_footers(path, SMALL, fill_null_id=0))
    write_small(tmp_path, **holes | {"clicked": [1, None]})
    wording.refused(DataError, lambda: read_footers(path, SMALL, **fills))
    write_small(tmp_path, **holes | {"price": [None, float("-inf")]})
    wording.refused(DataError, lambda: read_footers(path, SMALL, **fills))
