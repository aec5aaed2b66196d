"""What is found out about a job's data before anything is trained."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_jobs import make_spec, write_prepared
from wording import Wording

from distrain.errors import DataError, SchemaError, SpecError
from distrain.jobs.spec.models.kinds import EmbeddingsSpec
from distrain.schema import ColumnSchema, Schema
from distrain.train.data.inputs import check_inputs, list_combiners


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    return write_prepared(tmp_path / "day [1] für alle")


def test_the_schema_is_found_beside_a_folder_a_glob_and_a_file(prepared: Path) -> None:
    os.rename(prepared, plain := prepared.parent / "plain")
    for train in (plain / "train", plain / "train" / "*.parquet", plain / "train/part-0.parquet"):
        assert len(check_inputs(make_spec(plain, f"data.train={train}")).schema) == 40


def test_brackets_in_a_folder_that_exists_are_no_pattern(prepared: Path) -> None:
    assert check_inputs(make_spec(prepared)).train.num_rows == 10_500


def test_a_missing_file_is_told_before_a_missing_schema(tmp_path: Path, wording: Wording) -> None:
    wording.refused(DataError, lambda: check_inputs(make_spec(tmp_path / "nowhere")))


def test_a_schema_that_is_nowhere_is_asked_for(prepared: Path, wording: Wording) -> None:
    (prepared / "schema.pbtxt").unlink()
    wording.refused(SchemaError, lambda: check_inputs(make_spec(prepared)))


def test_validating_on_training_rows_is_refused(prepared: Path, wording: Wording) -> None:
    valid = prepared / "train" / "part-1.parquet"
    wording.refused(SpecError, lambda: check_inputs(make_spec(prepared, f"data.valid='{valid}'")))


def test_lists_of_numbers_are_refused(prepared: Path, wording: Wording) -> None:
    file = prepared / "schema.pbtxt"
    column = ColumnSchema("I1", "float32", ("continuous",), is_list=True)
    Schema.load(file).with_columns(column).save(file)
    wording.refused(SchemaError, lambda: check_inputs(make_spec(prepared)))


def test_lists_of_ids_are_taken_where_the_files_hold_such(prepared: Path, wording: Wording) -> None:
    file = prepared / "schema.pbtxt"
    tags = ColumnSchema("tags", "int32", ("categorical",), 9, is_list=True, is_ragged=True)
    Schema.load(file).with_columns(tags).save(file)
    wording.refused(DataError, lambda: check_inputs(make_spec(prepared)))
    for path in prepared.glob("*/*.parquet"):
        rows = pq.read_table(path)
        lists = pa.array([[8, 0]] * len(rows), pa.list_(pa.int32()))
        pq.write_table(rows.append_column("tags", lists), path)
    assert "tags" in check_inputs(make_spec(prepared, "data.cache_dir=cache")).schema


def test_combiners_are_for_lists(prepared: Path, wording: Wording) -> None:
    spec = make_spec(prepared, "embeddings.combiners={C1: sum, nosuch: mean}")
    wording.refused(SpecError, lambda: check_inputs(spec))


def test_a_combiner_for_all_and_for_one() -> None:
    schema = Schema(
        (
            ColumnSchema("a", tags=("categorical",), is_list=True),
            ColumnSchema("b", tags=("categorical",), is_ragged=True),
            ColumnSchema("c", tags=("categorical",)),
            ColumnSchema("d", tags=("continuous",), is_list=True),
        )
    )
    assert list_combiners(schema, EmbeddingsSpec()) == {"a": "mean", "b": "mean"}
    embeddings = EmbeddingsSpec(combiner="sum", combiners={"b": "mean"})
    assert list_combiners(schema, embeddings) == {"a": "sum", "b": "mean"}
    with pytest.raises(SpecError, match="d") as caught:
        list_combiners(schema, EmbeddingsSpec(combiners={"d": "sum"}))
    assert caught.value.hint == "Columns of lists: a, b."


def test_limits_of_lists_are_in_the_schema_that_is_saved(tmp_path: Path, wording: Wording) -> None:
    (tmp_path / "train").mkdir()
    kind: dict[str, Any] = {"tags": ("categorical",), "cardinality": 9}
    tag = ColumnSchema("tag", "int32", **kind)
    tags = ColumnSchema("tags", "int32", **kind, is_list=True, properties={"domain": "tag"})
    label = ColumnSchema("label", "float32", ("target",))
    Schema((label, tag, tags)).save(tmp_path / "schema.json")
    labels = pa.array([0, 1], pa.float32())
    rows = pa.table({"label": labels, "tag": [1, 2], "tags": [[1, 2], [3]]})
    pq.write_table(rows, tmp_path / "train" / "a.parquet")
    spec = make_spec(tmp_path, "data.valid=[]", "data.max_list_length={tags: 1}")
    assert check_inputs(spec).schema["tags"].max_list_length == 1
    spec = make_spec(
        tmp_path, "data.valid=[]", "data.max_list_length={tags: 1}", "model={kind: din}"
    )
    wording.refused(SpecError, lambda: check_inputs(spec))
    spec = make_spec(tmp_path, "data.valid=[]", "data.max_list_length={label: 1}")
    wording.refused(SpecError, lambda: check_inputs(spec))


def test_a_filter_is_refused_where_the_files_are_checked(prepared: Path) -> None:
    for text, place in (("C5 > 3 and nothing > 2", 12), ("C5 == 'a'", 1), ("C5 < 0", None)):
        spec = make_spec(prepared, f"data.filter={text}", "data.valid=null")
        with pytest.raises(SpecError) as error:
            check_inputs(spec)
        assert error.value.where["data.filter"] == text
        assert error.value.where.get("character") == place
    with pytest.raises(SpecError, match=r"data\.filter.*not a condition"):
        make_spec(prepared, "data.filter=C5 >")
