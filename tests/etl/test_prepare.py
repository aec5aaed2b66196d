"""From raw files to training files on a cluster."""

import gzip
import json
import math
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import get_worker

from distrain.errors import DataError, InputError, OutputError, SpecError
from distrain.etl import (
    Categorify,
    ColumnGroup,
    FeatureConfig,
    LogOp,
    PrepProgress,
    PrepRequest,
    PrepResult,
    TextLayout,
    Workflow,
    criteo_workflow,
    prepare,
)
from distrain.etl.raw_lines import RAW_COLUMNS, parse_lines
from distrain.etl.workers import TaskRunner
from distrain.schema import CATEGORICAL, CONTINUOUS, Schema, criteo_schema
from distrain.storage.unfinished import partial_name

Lines = Callable[..., list[bytes]]
BLOCK_BYTES = 20_000  # about 80 lines
# What a column costs, in tasks, is most of what a small run takes.
NUMBERS, CATEGORIES = ("I1", "I2", "I7"), ("C1", "C4", "C26")
ALL_COLUMNS = criteo_workflow(freq_threshold=0)
SOME_COLUMNS = Workflow(
    tuple(
        ColumnGroup(names, group.operators)
        for names, group in zip((NUMBERS, CATEGORIES), ALL_COLUMNS.groups, strict=True)
    )
)


def text_of(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def written_rows(folder: Path) -> pa.Table:
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]).combine_chunks()


@pytest.fixture
def prep(client: Any, tmp_path: Path) -> Callable[..., PrepResult]:
    """Prepare some columns of small blocks into `tmp_path / "out"`, keeping all categories."""

    def run(*inputs: Path, **options: Any) -> PrepResult:
        options.setdefault("block_bytes", BLOCK_BYTES)
        if "saved_workflow" not in options:
            options.setdefault("workflow", SOME_COLUMNS)
        options.setdefault("out", tmp_path / "out")
        return prepare(PrepRequest(tuple(map(str, inputs)), **options), client)

    return run


@pytest.fixture
def raw(tmp_path: Path, make_lines: Lines) -> Path:
    path = tmp_path / "raw.tsv"
    path.write_bytes(text_of(make_lines(500)))
    return path


def expected(lines: list[bytes], workflow: Workflow = SOME_COLUMNS) -> pa.Table:
    """What an unparallel fit and transform of the same rows give."""
    table = parse_lines(text_of(lines), TextLayout())
    features = workflow.fit([table]).transform(table)
    return features.set_column(0, "label", table["label"].cast(pa.float32()))


def assert_same_rows(found: pa.Table, wanted: pa.Table) -> None:
    assert found.column_names == wanted.column_names
    for name in found.column_names:
        np.testing.assert_allclose(
            found[name].to_numpy(), wanted[name].to_numpy(), rtol=1e-5, atol=1e-6, err_msg=name
        )


def nothing_is_left(folder: Path) -> bool:
    return not [name for name in os.listdir(folder) if "out" in name]


def test_all_columns_come_out_in_order_in_files_laid_out_for_fast_reading(
    prep: Callable[..., PrepResult], raw: Path, make_lines: Lines
) -> None:
    result = prep(raw, row_group_rows=32, embedding_dim=8, workflow=ALL_COLUMNS)
    assert result.train.num_files > 4
    assert_same_rows(written_rows(result.out / "train"), expected(make_lines(500), ALL_COLUMNS))
    assert not (result.out / "valid").exists()
    assert sorted(p.name for p in result.out.iterdir()) == [
        "prep.json",
        "schema.json",
        "schema.pbtxt",
        "train",
        "workflow",
    ]
    for name in ("schema.json", "schema.pbtxt"):
        schema = Schema.load(result.out / name)
        assert schema.names == criteo_schema().names
        assert {c.name: c.cardinality for c in schema.categorical} == result.cardinalities
        assert {c.embedding_dim for c in schema.categorical} == {8}
    file = pq.ParquetFile(result.out / "train" / "part-00000.parquet")
    assert file.schema_arrow.names == ["label", *CONTINUOUS, *CATEGORICAL]
    assert not any(field.nullable for field in file.schema_arrow)
    assert {str(file.schema_arrow.field(c).type) for c in CATEGORICAL} == {"int32"}
    assert {str(file.schema_arrow.field(c).type) for c in ("label", *CONTINUOUS)} == {"float"}
    group = file.metadata.row_group(0)
    assert group.num_rows == 32
    for c in range(40):
        column = group.column(c)
        assert column.compression == "LZ4"
        assert any("DICTIONARY" in encoding for encoding in column.encodings)
        assert column.statistics.has_min_max


def test_progress_and_report_add_up(client: Any, tmp_path: Path, raw: Path) -> None:
    told: list[PrepProgress] = []
    request = PrepRequest(
        (str(raw),),
        tmp_path / "out",
        workflow=SOME_COLUMNS,
        valid_rows=120,
        block_bytes=BLOCK_BYTES,
    )
    result = prepare(request, client, told.append)
    assert list(dict.fromkeys(at.phase for at in told)) == ["read", "fit", "write"]
    ends = {at.phase: at for at in told}
    assert all(at.tasks == at.all_tasks for at in ends.values())
    assert {phase: at.rows for phase, at in ends.items()} == {
        "read": 500,
        "fit": 380,
        "write": 500,
    }
    size = raw.stat().st_size
    read = [at.size_bytes for at in told if at.phase == "read"]
    assert (read[0], read[-1], ends["read"].all_bytes) == (0, size, size)
    assert all(0 < more - before <= BLOCK_BYTES for before, more in pairwise(read))
    report = json.loads((result.out / "prep.json").read_text())
    assert report == json.loads(json.dumps(result.to_json()))
    assert report["rows"] == {"in": 500, "train": 380, "valid": 120}
    assert set(report["seconds"]) == {"read", "fit", "write", "total"}
    assert report["inputs"] == [str(raw)]


@pytest.mark.parametrize("form", ["gzip", "zstd", "commas", "header", "files", "folder", "url"])
def test_every_form_of_input_gives_the_same_rows(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines, form: str
) -> None:
    lines, options = make_lines(300), {}
    folder = tmp_path / "raw"
    folder.mkdir()
    inputs: list[Any] = [folder / "a"]
    if form == "gzip":
        (folder / "a").write_bytes(gzip.compress(text_of(lines)))
    elif form == "zstd":
        with pa.CompressedOutputStream(str(folder / "a"), "zstd") as stream:
            stream.write(text_of(lines))
    elif form == "commas":
        (folder / "a").write_bytes(text_of(make_lines(300, delimiter=",")))
        options["layout"] = TextLayout(delimiter=",")
    elif form == "header":
        (folder / "a").write_bytes(text_of(["\t".join(RAW_COLUMNS).encode(), *lines]))
        options["layout"] = TextLayout(header=True)
    elif form in ("files", "folder"):
        (folder / "a").write_bytes(gzip.compress(text_of(lines[:90])))
        (folder / "b").write_bytes(text_of(lines[90:200])[:-1])
        (folder / "c").write_bytes(text_of(lines[200:]))
        inputs = [folder / "[ab]", folder / "c"] if form == "files" else [folder]
    else:
        (folder / "a").write_bytes(text_of(lines))
        inputs = [f"file://{folder / 'a'}"]
    result = prep(*inputs, **options)
    assert_same_rows(written_rows(result.out / "train"), expected(lines))


@pytest.mark.parametrize("block_bytes", [7_001, 1 << 20])
def test_the_cuts_do_not_show_in_the_ids(
    prep: Callable[..., PrepResult], raw: Path, make_lines: Lines, block_bytes: int
) -> None:
    result = prep(raw, block_bytes=block_bytes)
    rows, wanted = written_rows(result.out / "train"), expected(make_lines(500))
    assert rows.select(CATEGORIES).equals(wanted.select(CATEGORIES))
    assert_same_rows(rows, wanted)


@pytest.mark.parametrize(("how", "num_valid"), [({"valid_rows": 77}, 77),
                                                ({"valid_fraction": 0.25}, 125)])  # fmt: skip
def test_the_last_rows_are_split_off_exactly_and_not_fitted(
    prep: Callable[..., PrepResult],
    raw: Path,
    make_lines: Lines,
    how: dict[str, Any],
    num_valid: int,
) -> None:
    result = prep(raw, **how)
    lines = make_lines(500)
    assert (result.train.num_rows, result.valid.num_rows) == (500 - num_valid, num_valid)
    assert_same_rows(written_rows(result.out / "train"), expected(lines[:-num_valid]))
    fitted = Workflow.load(result.out / "workflow")
    rest = parse_lines(text_of(lines[-num_valid:]), TextLayout())
    assert_same_rows(written_rows(result.out / "valid"), fitted.transform(rest))


def test_validation_files_are_transformed_but_not_fitted(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path, make_lines: Lines
) -> None:
    other = tmp_path / "other.gz"
    other.write_bytes(gzip.compress(text_of(make_lines(50, seed=9))))
    result = prep(raw, valid=(str(other),))
    assert_same_rows(written_rows(result.out / "train"), expected(make_lines(500)))
    assert result.valid.num_rows == 50
    with pytest.raises(InputError, match="both for training and for validation"):
        prep(raw, valid=(str(raw),), out=tmp_path / "out2")


def test_a_saved_workflow_prepares_the_same_rows_the_same_way(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path
) -> None:
    first = prep(raw)
    again = prep(raw, saved_workflow=first.out / "workflow", out=tmp_path / "out2")
    assert written_rows(again.out / "train").equals(written_rows(first.out / "train"))
    assert again.cardinalities == first.cardinalities
    assert Schema.load(again.out / "schema.json") == Schema.load(first.out / "schema.json")
    third = prep(raw, saved_workflow=again.out / "workflow", out=tmp_path / "out3")
    assert written_rows(third.out / "train").equals(written_rows(first.out / "train"))


def test_two_runs_give_the_same_bytes(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path
) -> None:
    first, second = prep(raw), prep(raw, out=tmp_path / "out2")
    for file in first.out.rglob("*.parquet"):
        assert file.read_bytes() == (second.out / file.relative_to(first.out)).read_bytes()
    for name in ("workflow/workflow.json", "schema.pbtxt"):
        assert (first.out / name).read_text() == (second.out / name).read_text()


def test_an_operator_after_a_fitted_one_takes_a_second_pass(
    prep: Callable[..., PrepResult], raw: Path, make_lines: Lines
) -> None:
    numbers = criteo_workflow().groups[0].operators
    workflow = Workflow((ColumnGroup(("I1", "I2"), (*numbers, numbers[-1])),))
    result = prep(raw, workflow=workflow)
    table = parse_lines(text_of(make_lines(500)), TextLayout())
    found = written_rows(result.out / "train")
    assert_same_rows(found, workflow.fit([table]).transform(table))


def test_documents_may_say_that_their_text_has_criteo_s_form(
    prep: Callable[..., PrepResult], raw: Path, tmp_path: Path
) -> None:
    numbers = {"fill": 0, "clip": {"min": 0}, "log": True, "normalize": True}
    columns = {name: {"kind": "continuous", **numbers} for name in NUMBERS}
    columns |= {name: {"kind": "categorical"} for name in CATEGORIES}
    document = {"target": "label", "format": {"kind": "criteo"}, "columns": columns}
    features = FeatureConfig.parse(document)
    built_in = prep(raw)
    named = prep(raw, workflow=None, features=features, out=tmp_path / "out2")
    assert written_rows(named.out / "train").equals(written_rows(built_in.out / "train"))
    saved = FeatureConfig.load(named.out / "workflow" / "features.yaml")
    assert saved.document.format == features.document.format
    with pytest.raises(SpecError, match="quote: not with kind criteo"):
        FeatureConfig.parse({**document, "format": {"kind": "criteo", "quote": None}})


# Bad lines.


def spoil(lines: list[bytes], places: dict[int, tuple[str, bytes]]) -> list[bytes]:
    lines = list(lines)
    for place, (column, value) in places.items():
        fields = lines[place].split(b"\t")
        fields[RAW_COLUMNS.index(column)] = value
        lines[place] = b"\t".join(fields)
    return lines


SPOILT = {30: ("C4", b"xyz"), 170: ("I2", b"many"), 171: ("label", b"7"), 290: ("C4", b"1")}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("place", "column", "value", "problem"),
    [
        (0, "label", b"yes", "label is 'yes', not 0 or 1"),
        (250, "I7", b"12a", "I7 is '12a', not an integer"),
        (299, "C26", b"0000000", "C26 is '0000000', not 8 hex digits"),
    ],
)
def test_a_bad_line_stops_with_its_number(
    prep: Callable[..., PrepResult],
    tmp_path: Path,
    make_lines: Lines,
    packed: bool,
    place: int,
    column: str,
    value: bytes,
    problem: str,
) -> None:
    content = text_of(spoil(make_lines(300), {place: (column, value)}))
    path = tmp_path / "raw"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError) as caught:
        prep(path)
    assert problem == caught.value.message
    assert (caught.value.where["file"], caught.value.where["line"]) == (str(path), place + 1)
    assert len(str(caught.value.where["content"])) <= 72
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("header", [False, True])
def test_bad_lines_are_skipped_and_told(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines, packed: bool, header: bool
) -> None:
    good = make_lines(300)
    lines = spoil(good, SPOILT)
    lines = ["\t".join(RAW_COLUMNS).encode()] * header + lines
    path = tmp_path / "raw"
    path.write_bytes(gzip.compress(text_of(lines)) if packed else text_of(lines))
    result = prep(path, skip_bad_lines=True, max_bad=0.02, layout=TextLayout(header=header))
    kept = [line for place, line in enumerate(good) if place not in SPOILT]
    assert_same_rows(written_rows(result.out / "train"), expected(kept))
    assert result.bad_lines.by_kind == {"bad hex": 2, "bad integer": 1, "bad label": 1}
    found = [(bad.file, bad.line) for bad in result.bad_lines.examples]
    assert found == [(str(path), place + 1 + header) for place in SPOILT]
    report = json.loads((result.out / "prep.json").read_text())
    assert report["bad_lines"]["count"] == 4
    assert report["rows"]["in"] == 300
    assert report["bad_lines"]["examples"][1]["problem"] == "I2 is 'many', not an integer"


def test_prepared_rows_are_not_prepared_again(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines
) -> None:
    raw = tmp_path / "raw.tsv"
    raw.write_bytes(text_of(make_lines(10)))
    out = prep(raw).out
    for inputs in (out / "train", out / "train" / "part-00000.parquet"):
        with pytest.raises(InputError, match="prepared already") as caught:
            prep(inputs)
        assert caught.value.where == {"folder": out / "train"}


def test_bad_headers_are_explained(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines
) -> None:
    path = tmp_path / "raw"
    swapped = ["label", "I2", "I1", *RAW_COLUMNS[3:]]
    for header, message in [
        ("\t".join(swapped), "in another order"),
        ("label\tI1", "the header has 2 fields, not 40"),
        (make_lines(1)[0].decode(), "the first line is a row, not a header"),
    ]:
        path.write_bytes(text_of([header.encode(), *make_lines(3)]))
        with pytest.raises(DataError, match=message):
            prep(path, layout=TextLayout(header=True))


# Inputs that cannot be used.


def test_missing_empty_and_hopeless_inputs(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path
) -> None:
    empty, header_only, bad = (tmp_path / name for name in ("empty", "header", "bad"))
    empty.touch()
    header_only.write_text("\t".join(RAW_COLUMNS) + "\n")
    bad.write_text("1\t2\n3\n")
    with pytest.raises(DataError, match="no such file"):
        prep(tmp_path / "absent")
    with pytest.raises(DataError, match="empty"):
        prep(raw, empty)
    with pytest.raises(DataError, match="no usable rows"):
        prep(header_only, layout=TextLayout(header=True))
    with pytest.raises(DataError, match="no usable rows") as caught:
        prep(bad, skip_bad_lines=True)
    assert str(caught.value.where["first"]).endswith("line 1: 2 fields, not 40")
    with pytest.raises(DataError, match="no training rows are left of 500"):
        prep(raw, valid_rows=500)
    assert nothing_is_left(tmp_path)


def test_a_compressed_file_cut_short(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines
) -> None:
    path = tmp_path / "raw.gz"
    path.write_bytes(gzip.compress(text_of(make_lines(400)))[:-9])
    with pytest.raises(DataError, match="cannot be decompressed") as caught:
        prep(path)
    assert caught.value.where["file"] == str(path)
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid_rows": 3, "valid_fraction": 0.1}, "name one of valid, valid_fraction"),
        ({"valid_fraction": 1.0}, "valid_fraction 1.0 is not between 0 and 1"),
        ({"valid_rows": 0}, "valid_rows 0 is below 1"),
        ({"layout": TextLayout(delimiter="ab")}, "delimiter 'ab' is not one"),
        ({"row_group_rows": 0, "block_bytes": 0}, "row_group_rows 0 .*; block_bytes 0"),
        ({"embedding_dim": 0}, "embedding_dim 0"),
        ({"workflow": criteo_workflow(), "saved_workflow": Path("w")}, "not both"),
    ],
)
def test_unusable_requests(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PrepRequest(("a",), Path("out"), **options)


# Parquet inputs.


def raw_table(lines: list[bytes]) -> pa.Table:
    return parse_lines(text_of(lines), TextLayout())


@pytest.mark.parametrize("as_text", [False, True])
def test_parquet_inputs(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines, as_text: bool
) -> None:
    table = raw_table(make_lines(300))
    label = table["label"].cast(pa.bool_() if as_text else pa.int64())
    table = table.set_column(0, "label", label).append_column("more", table["I1"])
    if as_text:
        for i, name in enumerate(table.column_names):
            if name in CATEGORICAL:
                text = table[name].cast(pa.string())
                table = table.set_column(i, name, text.dictionary_encode() if i % 2 else text)
    pq.write_table(table, tmp_path / "raw.parquet", row_group_size=21)
    result = prep(tmp_path / "raw.parquet", valid_rows=100)
    assert result.train.num_files > 1
    fitted = Workflow.load(result.out / "workflow")
    assert_same_rows(
        written_rows(result.out / "train").drop_columns("label"),
        fitted.transform(table.slice(0, 200)).drop_columns("label"),
    )
    assert result.train.missing_share["I1"] == pytest.approx(
        table["I1"].slice(0, 200).null_count / 200
    )
    if not as_text:
        assert_same_rows(written_rows(result.out / "train"), expected(make_lines(300)[:200]))


def test_text_and_parquet_of_the_same_kind_can_be_mixed(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines
) -> None:
    lines = make_lines(300)
    (tmp_path / "a.tsv").write_bytes(text_of(lines[:100]))
    pq.write_table(raw_table(lines[100:]), tmp_path / "b.parquet")
    result = prep(tmp_path / "a.tsv", tmp_path / "b.parquet")
    assert_same_rows(written_rows(result.out / "train"), expected(lines))
    strings = raw_table(lines).set_column(39, "C26", pa.array(["a"] * 300))
    pq.write_table(strings, tmp_path / "c.parquet")
    with pytest.raises(DataError, match="holds string here and int64 in an earlier file") as caught:
        prep(tmp_path / "a.tsv", tmp_path / "c.parquet", out=tmp_path / "out2")
    assert caught.value.where["column"] == "C26"
    with pytest.raises(DataError, match="holds string, but the saved categories are int64"):
        prep(
            tmp_path / "c.parquet",
            saved_workflow=result.out / "workflow",
            out=tmp_path / "out2",
        )


def test_unusable_parquet_columns_are_all_named(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines
) -> None:
    table = raw_table(make_lines(10)).drop_columns(["I5", "C7"])
    table = table.set_column(1, "I1", pa.array(["a"] * 10))
    table = table.set_column(table.column_names.index("C1"), "C1", pa.array([0.5] * 10))
    pq.write_table(table, tmp_path / "raw.parquet")
    with pytest.raises(DataError, match="4 of 40 columns cannot be used") as caught:
        prep(tmp_path / "raw.parquet", workflow=ALL_COLUMNS)
    assert caught.value.where == {
        "file": str(tmp_path / "raw.parquet"),
        "column I1": "string, not a number",
        "column I5": "missing",
        "column C1": "double, not integer or string",
        "column C7": "missing",
    }


def test_a_table_of_another_kind_is_told_in_a_few_lines(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    table = pa.table({name: [1.0] for name in ("user", "item", "price", "label")})
    pq.write_table(table, tmp_path / "orders.parquet")
    with pytest.raises(DataError, match="another table than the workflow is for") as caught:
        prep(tmp_path / "orders.parquet", workflow=ALL_COLUMNS)
    assert "39 of its 40 columns are missing" in caught.value.message
    assert caught.value.where["columns here"] == "user, item, price, label"
    assert "Workflow" in caught.value.hint
    assert len(str(caught.value).splitlines()) == 5


def test_workers_may_have_another_working_directory(
    client: Any, tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a run has begun, no relative path is looked up in the working directory."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    request = PrepRequest((raw.name,), Path("out"), workflow=SOME_COLUMNS)
    result = prepare(request, client, lambda _: os.chdir(tmp_path / "elsewhere"))
    assert Path.cwd() == tmp_path / "elsewhere"
    assert written_rows(tmp_path / "out" / "train").num_rows == result.num_rows == 500
    assert not list((tmp_path / "elsewhere").iterdir())


def test_damaged_parquet_files_are_named(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines
) -> None:
    path = tmp_path / "raw.parquet"
    pq.write_table(raw_table(make_lines(400)), path, compression="zstd", use_dictionary=False)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(DataError, match="the parquet file cannot be read") as caught:
        prep(path)
    assert caught.value.where["file"] == str(path)
    path.write_bytes(whole[:2000] + b"\x55" * 3000 + whole[5000:])
    with pytest.raises(DataError, match="the parquet file cannot be read") as caught:
        prep(path)
    assert caught.value.where["row groups"] == "0"
    path.write_text("label,I1\n")
    with pytest.raises(DataError, match="not a parquet file, though named like one"):
        prep(path)
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize(("label", "said"), [(2, "2, not 0 or 1"), (None, "missing")])
def test_a_bad_label_in_parquet_is_located(
    prep: Callable[..., PrepResult],
    tmp_path: Path,
    make_lines: Lines,
    label: int | None,
    said: str,
) -> None:
    table = raw_table(make_lines(300))
    labels = [0] * 300
    labels[222] = label
    table = table.set_column(0, "label", pa.array(labels, pa.int64()))
    pq.write_table(table, tmp_path / "raw.parquet", row_group_size=50)
    with pytest.raises(DataError, match=f"the label is {said}") as caught:
        prep(tmp_path / "raw.parquet")
    assert caught.value.where == {
        "file": str(tmp_path / "raw.parquet"),
        "row groups": "4",
        "row (from 0)": 222,
        "column": "label",
    }


def test_workflows_of_other_columns(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path
) -> None:
    pq.write_table(
        pa.table({"label": [0, 1, 1], "price": [1.0, math.nan, -3.0], "shop": ["a", "b", "a"]}),
        tmp_path / "shop.parquet",
    )
    workflow = Workflow(
        (
            ColumnGroup(("price",), criteo_workflow().groups[0].operators),
            ColumnGroup(("shop",), (Categorify(),)),
        )
    )
    result = prep(tmp_path / "shop.parquet", workflow=workflow)
    assert written_rows(result.out / "train")["shop"].to_pylist() == [3, 4, 3]
    assert result.train.missing_share == {"price": pytest.approx(1 / 3, abs=1e-6), "shop": 0}
    with pytest.raises(DataError, match="raw Criteo lines have no columns price, shop"):
        prep(raw, workflow=workflow, out=tmp_path / "out2")
    unclipped = Workflow((ColumnGroup(("price",), (LogOp(),)),))
    with pytest.raises(DataError, match=r"log\(1 \+ x\) of -3") as caught:
        prep(tmp_path / "shop.parquet", workflow=unclipped, out=tmp_path / "out2")
    assert caught.value.where["file"] == str(tmp_path / "shop.parquet")


def test_a_domain_of_many_columns_has_one_vocabulary(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    names = [f"item{place}" for place in range(6)]
    rows = {name: [place % 3, 7, place] for place, name in enumerate(names)}
    pq.write_table(pa.table({"label": [0, 1, 1], **rows}), tmp_path / "items.parquet")
    workflow = Workflow((ColumnGroup(names, (Categorify(domain="item"),)),))
    result = prep(tmp_path / "items.parquet", workflow=workflow)
    counted = Counter(value for values in rows.values() for value in values)
    ordered = sorted(counted, key=lambda value: (-counted[value], value))
    found = written_rows(result.out / "train")
    for name in names:
        assert found[name].to_pylist() == [3 + ordered.index(value) for value in rows[name]]
    assert set(result.cardinalities.values()) == {3 + len(counted)}


# Outputs.


def test_an_existing_output_is_kept_unless_told_otherwise(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(OutputError, match="exists already"):
        prep(raw)
    assert (tmp_path / "out" / "mine").exists()
    prep(raw, overwrite=True)
    assert not (tmp_path / "out" / "mine").exists()
    assert (tmp_path / "out" / "train").is_dir()


@pytest.mark.parametrize("phase", ["read", "fit", "write"])
def test_a_run_that_is_stopped_leaves_nothing(
    client: Any, tmp_path: Path, raw: Path, phase: str
) -> None:
    def stop(at: PrepProgress) -> None:
        if at.phase == phase and at.tasks == 1:
            raise KeyboardInterrupt

    request = PrepRequest(
        (str(raw),), tmp_path / "out", workflow=SOME_COLUMNS, block_bytes=BLOCK_BYTES
    )
    with pytest.raises(KeyboardInterrupt):
        prepare(request, client, stop)
    assert nothing_is_left(tmp_path)


def test_what_a_killed_worker_left_is_not_in_the_folder(
    client: Any, tmp_path: Path, raw: Path
) -> None:
    def leave(at: PrepProgress) -> None:
        if (at.phase, at.tasks) == ("write", 1):
            (folder,) = tmp_path.glob(".out.partial-*/train")
            left = partial_name(folder / "part-00000.parquet")
            left.write_bytes(b"half")
            made.append(left)

    made: list[Path] = []
    request = PrepRequest(
        (str(raw),), tmp_path / "out", workflow=SOME_COLUMNS, block_bytes=BLOCK_BYTES
    )
    result = prepare(request, client, leave)
    assert made
    files = os.listdir(result.out / "train")
    assert len(files) == result.train.num_files
    assert all(name.startswith("part-") for name in files)


def test_an_output_below_a_file_is_refused(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path
) -> None:
    with pytest.raises(OutputError, match="could not write"):
        prep(raw, out=raw / "deeper" / "out")


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"may not mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("num_lines", [1000, 6000])  # full while writing; while reading
def test_a_full_disk_is_told_and_nothing_is_left(
    prep: Callable[..., PrepResult],
    tmp_path: Path,
    full_disk: Path,
    make_lines: Lines,
    num_lines: int,
) -> None:
    path = tmp_path / "raw.gz"
    path.write_bytes(gzip.compress(text_of(make_lines(num_lines))))
    with pytest.raises(OutputError) as caught:
        prep(path, out=full_disk / "out", workflow=ALL_COLUMNS)
    assert "No space left" in caught.value.message
    assert "full" in str(caught.value.hint)
    assert str(full_disk / "out") in str(caught.value.where["path"])
    assert list(full_disk.iterdir()) == []


def test_real_rows(prep: Callable[..., PrepResult], shared_data: Path) -> None:
    folder = shared_data / "criteo"
    result = prep(folder / "*.tsv.gz", workflow=ALL_COLUMNS, valid_rows=2000, block_bytes=1 << 18)
    assert (result.train.num_rows, result.valid.num_rows) == (5500, 2000)
    assert result.bad_lines.count == 0
    shares = {
        name: (result.train.missing_share[name] * 5500 + result.valid.missing_share[name] * 2000)
        / 7500
        for name in (*CONTINUOUS, *CATEGORICAL)
    }
    numbers = [0.24, 0.10, 0.25, 0.50, 0.46, 0.09, 0.03, 0, 0, 0.09, 0.46, 0.02, 0.25]
    stated = dict(zip(CONTINUOUS, numbers, strict=True)) | dict.fromkeys(CATEGORICAL, 0.0)
    stated |= dict.fromkeys(("C14", "C16", "C17", "C23"), 0.47)
    stated |= dict.fromkeys(("C1", "C10", "C11", "C20", "C21", "C22"), 0.03)
    for name, share in stated.items():
        assert shares[name] == pytest.approx(share, abs=0.0051), name
    clicks = sum(written_rows(result.out / s)["label"].to_numpy().sum() for s in ("train", "valid"))
    assert clicks == 198


def test_all_distinct_values_of_real_rows_get_ids(
    prep: Callable[..., PrepResult], shared_data: Path
) -> None:
    # Without the missing value: pad, null and unknown have ids of their own.
    distinct = {"C1": 2071, "C2": 1526, "C6": 3, "C14": 285, "C17": 3, "C26": 24}
    workflow = Workflow((ColumnGroup(tuple(distinct), (Categorify(),)),))
    result = prep(shared_data / "criteo" / "*.gz", workflow=workflow, block_bytes=1 << 20)
    assert {c: result.cardinalities[c] - 3 for c in distinct} == distinct


def test_errors_of_tasks_are_the_errors_of_the_tree(client: Any) -> None:
    runner = TaskRunner(client)
    assert runner.run("square", _square, [(n,) for n in range(30)]) == [n * n for n in range(30)]
    with pytest.raises(DataError, match="17 is bad"):
        runner.run("square", _square_but_17, [(n,) for n in range(30)])


def test_calls_of_small_neighbours_are_one_task(client: Any) -> None:
    mib, done = 1 << 20, []
    sizes = [3 * mib, 3 * mib, 3 * mib, 20 * mib, 0, 0, mib]
    keys = TaskRunner(client).run(
        "key", _key, [(n,) for n in range(7)], lambda place, _: done.append(place), sizes
    )
    assert [place for place, _ in keys] == sorted(done) == list(range(7))
    tasks = [key for _, key in keys]
    assert [tasks.index(key) for key in tasks] == [0, 0, 2, 3, 4, 4, 4]
    assert TaskRunner(client).run("key", _key, [], sizes_bytes=[]) == []


def _key(n: int) -> tuple[int, str]:
    return n, str(get_worker().get_current_task())


def _square(n: int) -> int:
    return n * n


def _square_but_17(n: int) -> int:
    if n == 17:
        raise DataError(f"{n} is bad")
    return n * n
