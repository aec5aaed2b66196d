"""Targets: words keep their spelling, labels have two values, rows without one are counted."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.cli.data.prepared import print_prepared
from distrain.errors import DataError
from distrain.jobs.spec import JobSpec
from distrain.jobs.spec.load import parse_yaml
from distrain.launch.spec_warnings import spec_warnings
from distrain.prep import FeatureConfig, PrepRequest, PrepResult, prepare
from distrain.prep.features.bad_values import BadValues
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.inference.column_facts import facts_of
from distrain.prep.features.inference.suggest import pair_target
from distrain.prep.features.rows import labels_of
from distrain.prep.features.targets import TargetSpec
from distrain.train.data.inputs import read_inputs

NUM_ROWS = 60
C = "columns: {c: {kind: categorical}}"

Prep = Callable[..., PrepResult]


@pytest.fixture
def prep(client: Any, tmp_path: Path) -> Prep:
    def run(table: dict[str, Any] | Path, document: str, **options: Any) -> PrepResult:
        path = tmp_path / "t.parquet"
        if isinstance(table, Path):
            path = table
        else:
            pq.write_table(pa.table(table), path)
        (tmp_path / "features.yaml").write_text(document)
        features = FeatureConfig.load(tmp_path / "features.yaml")
        options = {"out": tmp_path / "out", "overwrite": True, "block_bytes": 200, **options}
        return prepare(PrepRequest((str(path),), features=features, **options), client)

    return run


def labels(result: PrepResult) -> list[float]:
    found: list[float] = pq.read_table(Path(result.out) / "train")["label"].to_pylist()
    return found


def with_target(values: list[Any]) -> dict[str, Any]:
    table = {"c": ["a", "b"] * (NUM_ROWS // 2), "y": values * (NUM_ROWS // len(values))}
    return table


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("equals: yes", ["yes", "no"]),
        ("equals: Yes", ["Yes", "No"]),
        ("equals: on", ["on", "off"]),
        ("one_of: [NO, SE]", ["NO", "DE"]),
        ("equals: 007", ["007", "7"]),
        ("equals: 2024-05-01", ["2024-05-01", "2024-05-02"]),
        ("equals: 12:30", ["12:30", "750"]),
        ("equals: '1'", ["1", "01"]),
        ("equals: 1", ["1.0", "0.0"]),
        ("equals: 1", [" 1", "none"]),
        ("equals: yes", [True, False]),
        ("equals: true", ["True", "False"]),
    ],
)
def test_values_of_a_target_mean_what_is_written(prep: Prep, rule: str, values: list[Any]) -> None:
    result = prep(with_target(values), f"target: {{column: y, {rule}}}\n{C}\n")
    assert labels(result) == [1.0, 0.0] * (NUM_ROWS // 2)
    again = FeatureConfig.load(Path(result.out) / "workflow" / "features.yaml")
    assert (
        again.document.target
        == FeatureConfig.parse(
            parse_yaml(f"target: {{column: y, {rule}}}\n{C}\n", keep_words=True)
        ).document.target
    )


SPELLINGS = ["yes", "Yes", "YES", " yes", "no", "No", "nO ", "n", "y", "maybe", "1", "0", "true"]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_labels_of_an_inferred_target_are_those_of_its_two_values_or_an_error_names_another(
    data: st.DataObject,
) -> None:
    two = data.draw(st.permutations(SPELLINGS))[:2]
    first = [*two, *data.draw(st.lists(st.sampled_from(two), max_size=9))]
    facts = facts_of("y", pa.array(first))
    if facts.kind != "text" or len(facts.pair) != 2:
        return
    value = pair_target(facts, "").value
    target = TargetSpec.model_validate(value)
    known = {value["equals"]: 1, next(one for one in two if one != value["equals"]): 0}
    later = data.draw(st.lists(st.sampled_from([*two, *SPELLINGS]), min_size=1, max_size=9))
    values = pa.array(later)
    others = [one for one in later if one not in two]
    if others:
        with pytest.raises(BadValues) as caught:
            labels_of(values, target, FormatSpec())
        assert [later[place] for place in caught.value.places] == others
        assert caught.value.described(0).startswith(repr(others[0]))
    else:
        found = labels_of(values, target, FormatSpec()).to_pylist()
        assert found == [known[one] for one in later]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_another_spelling_of_a_targets_values_is_a_bad_value(
    prep: Prep, tmp_path: Path, kind: str, wording: Wording
) -> None:
    document = f"target: {{column: y, equals: yes, otherwise: no, missing: drop}}\n{C}\n"
    table = with_target(["yes", "no"])
    fitted = prep(table, document)
    assert labels(fitted) == [1.0, 0.0] * 30
    table["y"][40:43] = ["Yes", "maybe", ""]
    rows: Path | dict[str, Any] = tmp_path / f"t.{kind}"
    if kind == "csv":
        pa_csv.write_csv(pa.table(table), rows)
    elif kind == "jsonl":
        lines = [json.dumps(row) + "\n" for row in pa.table(table).to_pylist()]
        (tmp_path / "t.jsonl").write_text("".join(lines))
    else:
        rows = table
    place = {"row (from 0)": 40} if kind == "parquet" else {"line": 42 if kind == "csv" else 41}
    wording.refused(DataError, partial(prep, rows, document), **place)
    # A fitted workflow: its document cannot be changed.
    later = {"out": tmp_path / "later", "saved_workflow": Path(fitted.out) / "workflow"}
    assert "document with" not in str(
        wording.refused(DataError, partial(prep, rows, document, **later), **place).hint
    )
    if kind != "parquet":
        for options in ({}, later):
            result = prep(rows, document, skip_bad_lines=True, max_bad=0.1, **options)
            assert result.bad_lines.by_kind == {"bad y": 2 if kind == "csv" else 3}
            assert result.unlabelled == (1 if kind == "csv" else 0)


@pytest.mark.parametrize("word", ["yes", "no", "on", "null", "1.50", "007", "true", "2024-05-01"])
def test_columns_are_named_as_they_are_written(prep: Prep, word: str, wording: Wording) -> None:
    table = {word: ["a", "b"] * 30, "y1": [0, 1] * 30}
    result = prep(table, f"target: y1\ncolumns:\n  {word}: {{kind: categorical}}\n")
    assert pq.read_table(Path(result.out) / "train").column_names == ["label", word]
    caught = wording.refused(
        DataError, lambda: prep(table, f"target: y1\ncolumns:\n  x{word}: {{kind: categorical}}\n")
    )
    assert f"column x{word}" in caught.where


def test_truth_values_of_a_document_may_be_words() -> None:
    text = "target: on\nformat: {header: no, names: [a, on], null_values: [no, NA]}\n"
    text += "columns: {a: {kind: continuous, log: yes, normalize: off}}\n"
    document = FeatureConfig.parse(parse_yaml(text, keep_words=True)).document
    assert not document.format.header
    assert document.format.null_values == ("no", "NA")
    assert (document.columns["a"].log, document.columns["a"].normalize) == (True, False)
    assert document.target.column == "on"


@pytest.mark.parametrize(
    ("target", "values"),
    [
        ("{column: y, equals: purchased}", ["bought ", "not"]),
        ("{column: y, one_of: [c, d]}", ["a", "b"]),
        ("{column: y, at_least: 40}", [4, 5]),
        ("y", [0, 0]),
    ],
)
def test_a_target_that_is_0_in_all_rows_is_an_error_that_shows_its_values(
    prep: Prep, tmp_path: Path, target: str, values: list[Any], wording: Wording
) -> None:
    pa_csv.write_csv(pa.table(with_target(values)), tmp_path / "t.csv")
    for table in (with_target(values), tmp_path / "t.csv"):
        caught = wording.refused(DataError, partial(prep, table, f"target: {target}\n{C}\n"))
        shown = str(caught.where["values in its first rows"])
        assert all(str(value) in shown for value in values)
        assert not (tmp_path / "out").exists()


def test_training_rows_without_a_one_are_an_error_and_rows_of_one_label_are_told(
    prep: Prep, capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    first_ones = with_target([0]) | {"y": [1] * 50 + [0] * 10}
    document = f"target: y\nsplit: {{by: rows, last: 10}}\n{C}\n"
    result = prep(first_ones, document)
    print_prepared(result)
    wording(capsys.readouterr().err)
    assert result.to_json()["rows_with_label_1"] == {"train": 50, "valid": 0}
    first_zeros = {**first_ones, "y": [0] * 50 + [1] * 10}
    wording.refused(DataError, lambda: prep(first_zeros, document))
    workflow = Path(result.out) / "workflow"
    later = prep(with_target([0]), document, out=workflow.parent.parent / "later",
                 saved_workflow=workflow)  # fmt: skip
    assert later.train.num_ones == 0


def test_rows_without_a_label_are_left_out_where_the_document_says_so(
    prep: Prep, tmp_path: Path, wording: Wording
) -> None:
    table = with_target([1, 0, None])
    pa_csv.write_csv(pa.table(table), tmp_path / "t.csv")
    dropping = f"target: {{column: y, missing: drop}}\n{C}\n"
    for rows in (table, tmp_path / "t.csv"):
        result = prep(rows, dropping, skip_bad_lines=False)
        assert labels(result) == [1.0, 0.0] * 20
        assert result.unlabelled == 20
        assert result.bad_lines.count == 0
        document = json.loads((Path(result.out) / "prep.json").read_text())
        assert document["rows_without_label"] == 20
        assert document["rows"]["in"] == 60
        traced = prep(rows, dropping, keep=("y",))
        numbers = pq.read_table(Path(traced.out) / "train")["row_number"].to_pylist()
        assert numbers == [number for number in range(60) if number % 3 != 2]
        weighted = f"target: {{column: c, equals: a, is_feature: true}}\nweight: y\n{C}\n"
        for document in (f"target: y\n{C}\n", weighted):
            whole = partial(prep, rows, document, block_bytes=1 << 20)
            assert wording.refused(DataError, whole).hint


def test_errors_beside_left_out_rows_name_the_row_of_the_file(
    prep: Prep, tmp_path: Path, wording: Wording
) -> None:
    table = {"y": [None, None, 1, 0, 1, 0], "x": [1.0, 2.0, 3.0, None, 5.0, 6.0]}
    pa_csv.write_csv(pa.table(table), tmp_path / "t.csv")
    document = "target: {column: y, missing: drop}\ncolumns: {x: {kind: continuous}}\n"
    for rows, place in ((table, ("row (from 0)", 3)), (tmp_path / "t.csv", ("line", 5))):
        caught = wording.refused(DataError, partial(prep, rows, document))
        assert caught.where[place[0]] == place[1]


def test_more_bad_lines_than_max_bad_are_an_error_that_names_the_largest_causes(
    prep: Prep, tmp_path: Path, wording: Wording
) -> None:
    lines = ["c,x,y", *("a,1,1", "b,2,0") * 45, *["a,3,"] * 7, *["b,oops,1"] * 3]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    skipping = partial(prep, path, skip_bad_lines=True, block_bytes=1 << 20)
    document = "target: y\ncolumns: {c: {kind: categorical}, x: {kind: continuous, as: number}}\n"
    causes = {"bad lines": "7 no label, 3 bad x"}
    wording.refused(DataError, partial(skipping, document=document), **causes)
    assert not (tmp_path / "out").exists()
    result = skipping(document=document, max_bad=0.1)
    assert result.bad_lines.by_kind == {"no label": 7, "bad x": 3}
    split = "split: {by: column, column: c, equals: b}\n"
    dropping = document.replace("target: y", "target: {column: y, missing: drop}")
    for one in (dropping, split + dropping):
        wording.refused(DataError, partial(skipping, document=one))
    assert skipping(document=split + dropping, max_bad=0.03).valid


def test_values_that_validation_rows_have_and_training_rows_lack_are_told_by_plan(
    prep: Prep, wording: Wording
) -> None:
    table = {
        "at": [f"2024-0{1 + number // 15}-03" for number in range(60)],
        "c": ["a", "b"] * 30,
        "rare": [f"r{number}" for number in range(60)],
        "y": [1, 0] * 30,
    }
    split = "split: {by: time, column: at, from: 2024-04-01}"
    columns = "  month: {from: at, kind: categorical, as: month}\n  c: {kind: categorical}\n"
    columns += "  rare: {kind: categorical, freq_threshold: 2}\n"
    result = prep(table, f"target: y\n{split}\ncolumns:\n{columns}")
    out = Path(result.out)
    data = {"train": [f"{out}/train/*.parquet"], "valid": [f"{out}/valid"]}
    spec = JobSpec.model_validate(
        {"data": data, "model": {"kind": "mlp"}, "train": {"global_batch_size": 5, "max_steps": 9}}
    )
    inputs = read_inputs(spec)
    wording("\n".join(spec_warnings(spec, inputs)))
    (out / "prep.json").write_text("{}")  # of an earlier version
    assert spec_warnings(spec, inputs) == []


def test_texts_that_count_seconds_are_told_to_be_numbers(
    prep: Prep, tmp_path: Path, wording: Wording
) -> None:
    table = {"at": [1451606400 + number for number in range(20)], "y": [0, 1] * 10}
    pa_csv.write_csv(pa.table(table), tmp_path / "t.csv")
    document = "target: y\nsplit: {by: time, column: at, from: 2016-01-01}\n"
    document += "columns: {h: {from: at, kind: categorical, as: hour, epoch: s}}\n"
    for bad in (document, document.replace(", epoch: s", "").replace("2016-01-01", "1451606410")):
        whole = partial(prep, tmp_path / "t.csv", bad, block_bytes=1 << 20)
        assert wording.refused(DataError, whole).hint
    result = prep(tmp_path / "t.csv", document.replace("2016-01-01", "1451606410"))
    assert (result.train.num_rows, labels(result)) == (10, [0.0, 1.0] * 5)
