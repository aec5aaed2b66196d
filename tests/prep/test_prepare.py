"""From raw files to training files on a cluster."""

import gzip
import json
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import get_worker
from wording import Wording

from distrain.errors import DataError, InputError, OutputError, SpecError
from distrain.prep import (
    Categorify,
    ColumnGroup,
    FeatureConfig,
    LogOp,
    PrepRequest,
    PrepResult,
    Workflow,
    prepare,
)
from distrain.prep.progress import PrepProgress
from distrain.prep.raw_lines import RAW_COLUMNS, TextLayout, parse_lines
from distrain.prep.workers import TaskRunner
from distrain.prep.workflow import criteo_workflow
from distrain.schema import Schema, criteo_schema
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS

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
    numbers = SOME_COLUMNS.groups[0].operators
    twice = ColumnGroup(("I3",), (*numbers, numbers[-1]))  # a second pass fits it
    request = PrepRequest(
        (str(raw),),
        tmp_path / "out",
        workflow=Workflow((*SOME_COLUMNS.groups, twice)),
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
    report = json.loads((result.out / "prep.json").read_text())
    assert report == json.loads(json.dumps(result.to_json()))
    assert report["rows"] == {"in": 500, "train": 380, "valid": 120}
    assert set(report["seconds"]) == {"read", "fit", "write", "total"}
    assert report["inputs"] == [str(raw)]
    saved = {"saved_workflow": result.out / "workflow", "update": True}
    told.clear()
    prepare(PrepRequest((str(raw),), tmp_path / "later", **saved), client, told.append)
    (*_, end) = (at for at in told if at.phase == "fit")
    assert (end.tasks, end.rows) == (end.all_tasks, 500)


def test_every_form_of_input_and_any_cut_give_the_same_rows(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines
) -> None:
    lines, folder, other = make_lines(300), tmp_path / "raw", tmp_path / "other"
    folder.mkdir()
    (folder / "a").write_bytes(gzip.compress(text_of(lines[:90])))
    (folder / "b").write_bytes(pa.compress(text_of(lines[90:200]), "zstd", asbytes=True))
    (folder / "c").write_bytes(text_of(lines[200:])[:-1])
    header = ",".join(RAW_COLUMNS).encode()
    other.write_bytes(text_of([header, *make_lines(300, delimiter=",")]))
    layout = TextLayout(delimiter=",", header=True)
    for number, (inputs, options) in enumerate(
        (
            ([folder], {"block_bytes": 7_001}),
            ([f"file://{folder}/[ab]", folder / "c"], {}),
            ([other], {"layout": layout, "block_bytes": 1 << 20}),
        )
    ):
        result = prep(*inputs, out=tmp_path / f"out{number}", **options)
        found, wanted = written_rows(result.out / "train"), expected(lines)
        assert found.select(CATEGORIES).equals(wanted.select(CATEGORIES))
        assert_same_rows(found, wanted)


def test_validation_files_are_transformed_but_not_fitted(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path, make_lines: Lines
) -> None:
    other = tmp_path / "other.gz"
    other.write_bytes(gzip.compress(text_of(make_lines(50, seed=9))))
    result = prep(raw, valid=(str(other),))
    assert_same_rows(written_rows(result.out / "train"), expected(make_lines(500)))
    assert result.valid.num_rows == 50


def test_an_operator_after_a_fitted_one_takes_a_second_pass(
    prep: Callable[..., PrepResult], raw: Path, make_lines: Lines
) -> None:
    numbers = criteo_workflow().groups[0].operators
    workflow = Workflow((ColumnGroup(("I1", "I2"), (*numbers, numbers[-1])),))
    result = prep(raw, workflow=workflow)
    table = parse_lines(text_of(make_lines(500)), TextLayout())
    found = written_rows(result.out / "train")
    assert_same_rows(found, workflow.fit([table]).transform(table))


@pytest.mark.slow
def test_documents_may_say_that_their_text_has_criteo_s_form(
    prep: Callable[..., PrepResult], raw: Path, tmp_path: Path, wording: Wording
) -> None:
    numbers = {"fill": 0, "clip": {"min": 0}, "log": True, "normalize": True}
    columns = {name: {"kind": "continuous", **numbers} for name in NUMBERS}
    columns |= {name: {"kind": "categorical"} for name in CATEGORIES}
    document = {"target": "label", "format": {"kind": "criteo"}, "columns": columns}
    built_in = prep(raw)
    named = prep(raw, workflow=None, features=FeatureConfig.parse(document), out=tmp_path / "out2")
    assert written_rows(named.out / "train").equals(written_rows(built_in.out / "train"))
    for header in (True, False):
        text = {"kind": "criteo", "header": header}
        features = FeatureConfig.parse({**document, "format": text})
        features.save(tmp_path / "features.yaml")
        assert FeatureConfig.load(tmp_path / "features.yaml") == features
    quoted = {**document, "format": {"kind": "criteo", "quote": None}}
    wording.refused(SpecError, lambda: FeatureConfig.parse(quoted))


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
def test_bad_lines_stop_the_run_or_are_skipped_and_counted(
    prep: Callable[..., PrepResult],
    tmp_path: Path,
    make_lines: Lines,
    packed: bool,
    wording: Wording,
) -> None:
    good, path = make_lines(300), tmp_path / "raw"
    layout = TextLayout(header=packed)

    def write(places: dict[int, tuple[str, bytes]]) -> None:
        lines = ["\t".join(RAW_COLUMNS).encode()] * packed + spoil(good, places)
        path.write_bytes(gzip.compress(text_of(lines)) if packed else text_of(lines))

    write({170: SPOILT[170]})
    caught = wording.refused(DataError, partial(prep, path, layout=layout))
    assert (caught.where["file"], caught.where["line"]) == (str(path), 171 + packed)
    assert len(str(caught.where["content"])) <= 72
    assert nothing_is_left(tmp_path)
    write(SPOILT)
    result = prep(path, skip_bad_lines=True, max_bad=0.02, layout=layout)
    kept = [line for place, line in enumerate(good) if place not in SPOILT]
    assert_same_rows(written_rows(result.out / "train"), expected(kept))
    assert result.bad_lines.by_kind == {"bad hex": 2, "bad integer": 1, "bad label": 1}
    found = [(bad.file, bad.line) for bad in result.bad_lines.examples]
    assert found == [(str(path), place + 1 + packed) for place in SPOILT]
    report = json.loads((result.out / "prep.json").read_text())
    assert (report["bad_lines"]["count"], report["rows"]["in"]) == (4, 300)


# Inputs that cannot be used.


def test_inputs_that_cannot_be_used_are_refused_and_nothing_is_left(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path, make_lines: Lines, wording: Wording
) -> None:
    rows, names = make_lines(3), "\t".join(RAW_COLUMNS)
    files = {
        "empty": "",
        "header only": names + "\n",
        "bad": "1\t2\n3\n",
        "swapped": "\t".join(["label", "I2", "I1", *RAW_COLUMNS[3:]]) + "\n",
        "short header": "label\tI1\n",
        "no header": text_of(rows).decode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    header = {"layout": TextLayout(header=True)}
    for name, options in (
        ("absent", {}),
        ("empty", {}),
        ("header only", header),
        ("bad", {"skip_bad_lines": True}),
        ("swapped", header),
        ("short header", header),
        ("no header", header),
        ("raw.tsv", {"valid_rows": 500}),
    ):
        wording.refused(DataError, partial(prep, tmp_path / name, **options))
    wording.refused(InputError, partial(prep, raw, valid=(str(raw),)))
    assert nothing_is_left(tmp_path)
    out = prep(raw).out
    for inputs in (out / "train", out / "train" / "part-00000.parquet"):
        wording.refused(InputError, partial(prep, inputs), folder=out / "train")


def test_unusable_requests(wording: Wording) -> None:
    for options in (
        {"valid_rows": 3, "valid_fraction": 0.1},
        {"valid_fraction": 1.0},
        {"valid_rows": 0},
        {"layout": TextLayout(delimiter="ab")},
        {"row_group_rows": 0, "block_bytes": 0},
        {"embedding_dim": 0},
        {"workflow": criteo_workflow(), "saved_workflow": Path("w")},
        {"update": True},
        {"unlabeled": True},
        {"unlabeled": True, "saved_workflow": "w", "update": True},
    ):
        wording.refused(InputError, partial(PrepRequest, ("a",), Path("out"), **options))


# Parquet inputs.


def raw_table(lines: list[bytes]) -> pa.Table:
    return parse_lines(text_of(lines), TextLayout())


def test_parquet_inputs_may_spell_categories_as_text_and_have_more_columns(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines
) -> None:
    table = raw_table(make_lines(300))
    table = table.set_column(0, "label", table["label"].cast(pa.bool_()))
    for i, name in enumerate(table.column_names):
        if name in CATEGORICAL:
            text = table[name].cast(pa.string())
            table = table.set_column(i, name, text.dictionary_encode() if i % 2 else text)
    more = table.append_column("more", table["I1"])
    pq.write_table(more, tmp_path / "raw.parquet", row_group_size=21)
    result = prep(tmp_path / "raw.parquet", valid_rows=100)
    assert result.train.num_files > 1
    found = written_rows(result.out / "train")
    assert found["label"].to_pylist() == [float(one.as_py()) for one in table["label"][:200]]
    wanted = Workflow.load(result.out / "workflow").transform(table.slice(0, 200))
    assert_same_rows(found.drop_columns("label"), wanted.drop_columns("label"))
    share = table["I1"].slice(0, 200).null_count / 200
    assert result.train.missing_share["I1"] == pytest.approx(share)


def test_text_and_parquet_of_the_same_kind_can_be_mixed(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines, wording: Wording
) -> None:
    lines, out = make_lines(300), tmp_path / "out2"
    (tmp_path / "a.tsv").write_bytes(text_of(lines[:100]))
    pq.write_table(raw_table(lines[100:]), tmp_path / "b.parquet")
    result = prep(tmp_path / "a.tsv", tmp_path / "b.parquet")
    assert_same_rows(written_rows(result.out / "train"), expected(lines))
    strings = raw_table(lines).set_column(39, "C26", pa.array(["a"] * 300))
    pq.write_table(strings, tmp_path / "c.parquet")
    mixed = partial(prep, tmp_path / "a.tsv", tmp_path / "c.parquet", out=out)
    wording.refused(DataError, mixed, column="C26")
    saved = partial(prep, saved_workflow=result.out / "workflow", out=out)
    wording.refused(DataError, lambda: saved(tmp_path / "c.parquet"), column="C26")


def test_unusable_parquet_columns_are_all_named(
    prep: Callable[..., PrepResult], tmp_path: Path, make_lines: Lines, wording: Wording
) -> None:
    table = raw_table(make_lines(10)).drop_columns(["I5", "C7"])
    table = table.set_column(1, "I1", pa.array(["a"] * 10))
    table = table.set_column(table.column_names.index("C1"), "C1", pa.array([0.5] * 10))
    pq.write_table(table, tmp_path / "raw.parquet")
    error = wording.refused(
        DataError, partial(prep, tmp_path / "raw.parquet", workflow=ALL_COLUMNS)
    )
    assert [*error.where] == ["file", *(f"column {name}" for name in ("I1", "I5", "C1", "C7"))]
    orders = pa.table({name: [1.0] for name in ("user", "item", "price", "label")})
    pq.write_table(orders, tmp_path / "orders.parquet")
    refused = partial(prep, tmp_path / "orders.parquet", workflow=ALL_COLUMNS)
    wording.refused(DataError, refused, **{"columns here": "user, item, price, label"})


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


def test_workflows_of_other_columns(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path, wording: Wording
) -> None:
    shops = {"price": [1.0, math.nan, -3.0], "shop": ["a", "b", "a"], "seen": ["b", "c", "c"]}
    shop, out = tmp_path / "shop.parquet", tmp_path / "out2"
    pq.write_table(pa.table({"label": [0, 1, 1], **shops}), shop)
    prices = ColumnGroup(("price",), criteo_workflow().groups[0].operators)
    domain = ColumnGroup(("shop", "seen"), (Categorify(domain="shop"),))
    result = prep(shop, workflow=Workflow((prices, domain)))
    rows = written_rows(result.out / "train")
    assert [rows[name].to_pylist() for name in ("shop", "seen")] == [[3, 4, 3], [4, 5, 5]]
    assert result.train.missing_share["price"] == pytest.approx(1 / 3, abs=1e-6)
    wording.refused(DataError, partial(prep, raw, workflow=Workflow((prices,)), out=out))
    unclipped = partial(prep, shop, workflow=Workflow((ColumnGroup(("price",), (LogOp(),)),)))
    wording.refused(DataError, partial(unclipped, out=out), file=str(shop))


# Outputs.


def test_an_existing_output_is_kept_unless_told_otherwise(
    prep: Callable[..., PrepResult], tmp_path: Path, raw: Path, wording: Wording
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    wording.refused(OutputError, lambda: prep(raw))
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


def test_errors_of_tasks_are_the_errors_of_the_tree(client: Any, wording: Wording) -> None:
    runner = TaskRunner(client)
    assert runner.run("square", _square, [(n,) for n in range(30)]) == [n * n for n in range(30)]
    wording.refused(
        DataError, lambda: runner.run("square", _square_but_17, [(n,) for n in range(30)])
    )


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
