"""Operators in a row, saved and loaded."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from wording import Wording

from distrain.errors import DataError, InputError
from distrain.prep import (
    Categorify,
    Clip,
    ColumnGroup,
    FillMissing,
    LogOp,
    Normalize,
    Workflow,
    output_schema,
)
from distrain.prep.workflow import criteo_workflow
from distrain.schema import criteo_schema

TABLE = pa.table(
    {"I1": [3, None, -2, 40, 0], "I2": [1.0, 2.0, 3.0, float("nan"), 9.0], "C1": list("abbcb")}
)


def small_workflow() -> Workflow:
    numbers = (FillMissing(0), Clip(min=0), LogOp(), Normalize())
    return Workflow(
        (
            ColumnGroup(("I1",), numbers),
            ColumnGroup(("I2",), (FillMissing(0),)),
            ColumnGroup(("C1",), (Categorify(),)),
        )
    )


def test_a_label_is_kept_as_it_is_and_other_columns_are_left_out() -> None:
    labels = pa.array([True, False, None, True, False])
    table = TABLE.append_column("label", labels).append_column("note", pa.array(list("vwxyz")))
    fitted = small_workflow().fit([table])
    found = fitted.transform(table)
    assert found.column_names == ["label", "I1", "I2", "C1"]
    assert found["label"].combine_chunks() == labels
    assert found.drop_columns("label").equals(fitted.transform(TABLE))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "{",
        '{"version": 99}',
        '{"version": 1}',
        '{"version": 1, "groups": [{"columns": ["I1"], "operators": [{"kind": "Pickle"}]}]}',
        '{"version": 1, "groups": [{"columns": ["I1"], '
        '"operators": [{"kind": "Clip", "below": 3}]}]}',
    ],
)
def test_an_unusable_saved_workflow_is_refused(
    tmp_path, text: str | None, wording: Wording
) -> None:
    if text is not None:
        (tmp_path / "workflow.json").write_text(text)
    wording.refused(DataError, lambda: Workflow.load(tmp_path))


def test_what_cannot_work_is_refused(wording: Wording) -> None:
    wording.refused(
        InputError,
        lambda: Workflow((ColumnGroup(("I1",), ()), ColumnGroup(("I1",), ()))),
        lambda: ColumnGroup(("C1",), (Categorify(), Clip(min=0))),
        lambda: Workflow((ColumnGroup(("label",), ()),)),
    )
    wording.refused(DataError, lambda: small_workflow().transform(TABLE))


def test_gaps_and_infinities_do_not_reach_the_output(wording: Wording) -> None:
    bare = Workflow((ColumnGroup(("I1",), ()),))
    wording.refused(DataError, lambda: bare.transform(TABLE))
    huge = pa.table({"I1": [1.0, 1e300]})
    wording.refused(DataError, lambda: bare.transform(huge), column="I1", row=1)


def test_the_criteo_preset_gives_the_criteo_schema() -> None:
    workflow = criteo_workflow()
    cardinalities = dict.fromkeys(workflow.categorical, 9)
    schema = output_schema(workflow, cardinalities, 16)
    assert schema == criteo_schema(cardinalities, embedding_dim=16)


FITTED_ON = {"words": [["a", "b"], ["a"]], "shop": ["x", "y"], "price": [1.5, 2.0]}


def fitted_workflow() -> Workflow:
    groups = (
        ColumnGroup(("words", "shop"), (Categorify(),)),
        ColumnGroup(("price",), (FillMissing(0), Normalize())),
    )
    return Workflow(groups).fit([pa.table(FITTED_ON)])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("words", ["a|b", "a"]),
        ("words", [[1], [2]]),
        ("shop", [["x"], ["y"]]),
        ("shop", [1, 2]),
        ("shop", [1.0, 2.0]),
        ("shop", [True, False]),
        ("price", ["1.5", "2.0"]),
        ("price", [[1.5], [2.0]]),
    ],
)
def test_a_fitted_workflow_refuses_values_of_another_kind_than_it_was_fitted_on(
    tmp_path: Path, column: str, values: list[Any], wording: Wording
) -> None:
    workflow = fitted_workflow()
    workflow.save(tmp_path)
    for one in (workflow, Workflow.load(tmp_path)):
        wording.refused(
            DataError,
            partial(one.transform, pa.table({**FITTED_ON, column: values})),
            column=column,
        )


def test_a_fitted_workflow_takes_other_widths_and_columns_without_values(wording: Wording) -> None:
    workflow = fitted_workflow()
    plain = workflow.transform(pa.table(FITTED_ON))
    shop = pa.array(FITTED_ON["shop"]).dictionary_encode()
    price = pa.array([1.5, 2.0], pa.float32())
    for dtype in (
        pa.large_list(pa.large_string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ):
        words = pa.array(FITTED_ON["words"], dtype)
        other = pa.table({"words": words, "shop": shop, "price": price})
        assert workflow.transform(other).to_pydict() == plain.to_pydict()
        assert Workflow(workflow.groups).fit([other]).transform(other).equals(plain)
    nothing = {**FITTED_ON, "shop": pa.nulls(2), "price": pa.nulls(2, pa.float64())}
    assert workflow.transform(pa.table(nothing))["shop"].to_pylist() == [1, 1]
    wording.refused(
        DataError,
        lambda: workflow.transform(pa.table({"words": FITTED_ON["words"], "price": [1.0, 2.0]})),
        columns="shop",
    )
