"""Columns of lists, from parquet through a workflow to training files, against plain Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError, InputError
from distrain.prep import (
    Categorify,
    Clip,
    ColumnGroup,
    FillMissing,
    ListSlice,
    LogOp,
    Normalize,
    PrepRequest,
    Workflow,
    prepare,
)
from distrain.schema import Schema


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=9),
    st.integers(-7, 7),
    st.one_of(st.none(), st.integers(-7, 7)),
    st.integers(0, 9),
)
def test_list_slice_is_pythons(
    rows: list[list[int]], start: int, end: int | None, offset: int
) -> None:
    if end is None and start == 0:
        return
    values = pa.array([[1]] * offset + rows, pa.list_(pa.int64())).slice(offset)
    ours = ListSlice(start, end).transform("a", values).to_pylist()
    first = slice(None, start) if end is None and start > 0 else slice(start, end)
    assert ours == [row[first] for row in rows]


def test_other_operators_work_on_items() -> None:
    rows = [[3.0, None, -2.0], None, [], [float("nan"), 40.0]]
    operators = (FillMissing(0), Clip(min=0), LogOp(), Normalize())
    workflow = Workflow((ColumnGroup(("prices",), operators),))
    table = pa.table({"prices": pa.array(rows, pa.list_(pa.float64()))})
    result = workflow.fit([table.slice(0, 1), table.slice(1)]).transform(table)["prices"]
    logs = np.log1p([3.0, 0.0, 0.0, 0.0, 40.0])
    wanted = (logs - logs.mean()) / logs.std()
    found = result.to_pylist()
    assert [len(row) for row in found] == [3, 0, 0, 2]
    np.testing.assert_allclose([value for row in found for value in row], wanted, rtol=1e-6)


@pytest.mark.parametrize("others", [(("item",), Categorify()), (("x",), Categorify(domain="item"))])
def test_vocabularies_of_one_name(others: tuple[Any, Any], wording: Wording) -> None:
    shared = ColumnGroup(("seen", "last"), (Categorify(domain="item"),))
    columns, operator = others
    wording.refused(InputError, lambda: Workflow((shared, ColumnGroup(columns, (operator,)))))


def test_columns_of_a_domain_that_hold_different_things(wording: Wording) -> None:
    workflow = Workflow((ColumnGroup(("a", "b"), (Categorify(domain="d"),)),))
    wording.refused(DataError, lambda: workflow.fit([pa.table({"a": [[1]], "b": ["x"]})]))


def test_a_value_that_cannot_be_used_names_its_row(wording: Wording) -> None:
    workflow = Workflow((ColumnGroup(("prices",), (Clip(min=0),)),))
    wording.refused(
        DataError,
        lambda: workflow.transform(pa.table({"prices": [[1.0], [], [2.0, float("inf")]]})),
        row=2,
    )


# ---- on a cluster ----

RUNS = {"label": [0, 1, 0, 1], "seen": [["a", "b"], None, [], ["b"]], "last": ["b", None, "a", "c"]}
SHARED = Workflow(
    (
        ColumnGroup(("seen", "last"), (Categorify(domain="item"),)),
        ColumnGroup(("prices",), (FillMissing(0),)),
    )
)


@pytest.fixture
def prep(client: Any, tmp_path: Path) -> Callable[..., Schema]:
    def run(*tables: pa.Table, workflow: Workflow | None = SHARED, **options: Any) -> Schema:
        for number, table in enumerate(tables):
            pq.write_table(table, tmp_path / f"in-{number}.parquet", row_group_size=3)
        inputs = tuple(str(tmp_path / f"in-{number}.parquet") for number in range(len(tables)))
        out = options.pop("out", tmp_path / "out")
        prepare(PrepRequest(inputs, workflow=workflow, out=out, **options), client)
        return Schema.load(out / "schema.pbtxt")

    return run


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [
        row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]


def test_prepared_lists(prep: Callable[..., Schema], tmp_path: Path) -> None:
    table = pa.table(RUNS).append_column("prices", [[[1.5, None], [], [2.0], [3.0]]])
    schema = prep(table, table.slice(0, 2), valid_rows=1)
    rows = [*rows_of(tmp_path / "out" / "train"), *rows_of(tmp_path / "out" / "valid")]
    ids = {"a": 4, "b": 3, "c": 5}  # of the five rows for training: a 3 times, b 5 times
    assert [row["seen"] for row in rows] == [[4, 3], [], [], [3], [4, 3], []]
    assert [row["last"] for row in rows] == [3, 1, 4, ids["c"], 3, 1]
    assert [row["prices"] for row in rows] == [[1.5, 0], [], [2], [3], [1.5, 0], []]
    seen, last, prices = schema["seen"], schema["last"], schema["prices"]
    assert (seen.is_list, seen.is_ragged, seen.value_count) == (True, True, (0, 2))
    assert (last.is_list, last.value_count) == (False, None)
    assert (prices.is_list, prices.dtype) == (True, "float32")
    assert (seen.domain, last.domain, prices.domain) == ("item", "item", "prices")
    assert seen.cardinality == last.cardinality == 6
    again = prep(
        table.slice(1, 1), workflow=None, saved_workflow=tmp_path / "out/workflow",
        out=tmp_path / "more",
    )  # fmt: skip
    assert rows_of(tmp_path / "more" / "train")[0]["seen"] == []
    assert (again["seen"].domain, again["seen"].cardinality) == ("item", 6)
    assert again["seen"].is_ragged


def test_lists_of_one_length(prep: Callable[..., Schema]) -> None:
    table = pa.table({"label": [0, 1], "words": [["a", "b"], ["b", "c"]]})
    schema = prep(table, workflow=Workflow((ColumnGroup(("words",), (Categorify(),)),)))
    words = schema["words"]
    assert (words.is_list, words.is_ragged, words.value_count) == (True, False, (2, 2))


def test_lists_in_one_file_only(prep: Callable[..., Schema], wording: Wording) -> None:
    workflow = Workflow((ColumnGroup(("words",), (Categorify(),)),))
    flat = pa.table({"label": [0], "words": ["a"]})
    lists = pa.table({"label": [0], "words": [["a"]]})
    wording.refused(DataError, partial(prep, lists, flat, workflow=workflow))
    nested = pa.table({"label": [0], "words": [[["a"]]]})
    wording.refused(
        DataError,
        partial(prep, nested, workflow=workflow),
        partial(
            prep,
            pa.table({"label": [0], "a": [[1]], "b": ["x"]}),
            workflow=Workflow((ColumnGroup(("a", "b"), (Categorify(domain="d"),)),)),
        ),
    )
