"""Exports with a workflow: a folder without distrain scores raw rows as `predict` does."""

import datetime
import importlib.util
import json
import runpy
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import dask
import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped, unused-ignore]
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner
from distributed import Client
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain import Run, fit
from distrain.cli.models.export import command
from distrain.errors import DataError, InputError
from distrain.models.saved_model import save_model
from distrain.predict.in_memory import score_rows
from distrain.predict.load_model import open_model
from distrain.predict.serving import folder as serving_folder, preprocess, raw_graph
from distrain.predict.serving.deltas import apply_deltas
from distrain.predict.serving.onnx_steps import Nodes
from distrain.predict.serving.preprocess import BadValue, Preprocessor
from distrain.predict.serving.program import (
    Program,
    _mistakes,
    column_program,
    described,
    program_of,
    write_vocabulary,
)
from distrain.predict.serving.raw_graph import raw_inputs
from distrain.predict.serving.score import DamagedExport, Scorer, largest_difference
from distrain.prep import (
    Categorify,
    Clip,
    ColumnGroup,
    FeatureConfig,
    FillMissing,
    ListSlice,
    LogOp,
    Normalize,
    PrepRequest,
    Workflow,
    prepare,
)
from distrain.prep.features.columns import UnchangedSpec
from distrain.prep.features.times import calendar
from distrain.prep.operators import OPERATORS
from distrain.prep.operators.operator import Operator
from distrain.prep.raw_lines import TextLayout
from distrain.prep.reading import saved_features
from distrain.prep.steps import STEPS, Values

pytestmark = pytest.mark.usefixtures("undrawn", "cluster_here")

COLUMNS = {
    "shop": {"kind": "categorical", "num_buckets": 5},
    "user": {"kind": "categorical"},
    "vip": {"kind": "categorical", "as": "text"},
    "price": {"kind": "continuous", "fill": 0, "clip": {"min": 0}, "log": True, "normalize": True},
    "amount": {"kind": "continuous", "fill": 1},
    "cost": {"kind": "categorical", "from": "price", "as": "text"},
    "hour": {"kind": "categorical", "from": "at", "as": "hour"},
    "month": {"kind": "categorical", "from": "at", "as": "month"},
    "since": {"kind": "continuous", "from": "at", "as": "seconds", "fill": 0, "normalize": True},
    "tags": {"kind": "categorical", "list_slice": 3},
    "few": {"kind": "categorical", "from": "amount", "buckets": {"quantiles": 4}},
    "cheap": {"kind": "categorical", "from": "price", "buckets": [1, 5]},
    "size": {"kind": "categorical", "from": "amount", "buckets": "log_square"},
    "no_vip": {"kind": "continuous", "from": "vip", "missing_flag": True},
    "shop_rows": {"kind": "continuous", "from": "shop", "count": True, "log": True},
    "user_mean": {"kind": "continuous", "from": "user", "target_mean": {}, "normalize": True},
    "both": {"kind": "categorical", "cross": ["shop", "user", "vip", "amount"]},
    "both_mean": {"kind": "continuous", "cross": ["shop", "user"], "target_mean": {}},
    "user_hash": {"kind": "categorical", "from": "user", "hash_buckets": 3},
    "shop_hash": {"kind": "categorical", "from": "shop", "hash_buckets": 3},
    "hash_rows": {"kind": "continuous", "from": "shop", "hash_buckets": 3, "count": True},
}
FEATURES = FeatureConfig.parse({"target": "bought", "columns": COLUMNS})
UNCHANGED = UnchangedSpec(holds=None)
NO_TEXT = {"null_values": [], "decimal_point": ".", "timestamp": None}
START = datetime.datetime(2024, 2, 27)
ROWS = [
    {
        "shop": f"s{n % 6}",
        "user": n % 11,
        "vip": n % 2 == 0,
        "price": Decimal(n * 37 % 900) / 100,
        "amount": n / 7,
        "at": START + datetime.timedelta(hours=n),
        "tags": [f"t{n % k}" for k in range(1, 2 + n % 4)],
        "bought": int(n * 7 % 3 == 0),
    }
    for n in range(120)
]
TABLE = pa.Table.from_pylist(ROWS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, client: Client) -> Path:
    """`t.parquet`, the run `r` on it, and its export `x`."""
    root = tmp_path_factory.mktemp("served")
    pq.write_table(TABLE, root / "t.parquet")
    prepare(PrepRequest((str(root / "t.parquet"),), root / "d", features=FEATURES), client)
    fit(job(root / "d" / "train"), run_dir=root / "r")
    done = export(root, root / "x")
    assert done.exit_code == 0, done.output
    return root


def job(train: Path) -> dict[str, Any]:
    return {
        "data": {"train": str(train)},
        "model": {"kind": "mlp", "hidden": [4]},
        "train": {"global_batch_size": 40},
        "resources": {"backend": "inline", "device": "cpu"},
    }


def export(root: Path, out: Path, to: str = "onnx", *more: str) -> Any:
    words = [str(root / "r"), "--out", str(out), "--to", to, "--with-workflow", *more, "--json"]
    return CliRunner().invoke(command, words)


def test_columns_without_a_graph_are_named(root: Path) -> None:
    assert json.loads((root / "x" / "manifest.json").read_text())["no_raw_graph"].keys() == {
        *("shop", "cost", "price", "cheap", "tags", "both", "both_mean", "shop_hash", "hash_rows")
    }


@pytest.mark.slow
def test_python_warns_of_columns_without_a_graph(root: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="shop_hash"):
        Run(root / "r").export(tmp_path / "x", to="onnx", with_workflow=True)


@pytest.mark.slow
def test_an_export_of_torch_is_compared_with_predict_too(root: Path, tmp_path: Path) -> None:
    assert export(root, tmp_path / "x", "torch").exit_code == 0


def test_a_changed_file_is_refused_by_name(root: Path, tmp_path: Path, wording: Wording) -> None:
    folder = shutil.copytree(root / "x", tmp_path / "x")
    for name in ("model.onnx.data", "vocabularies/shop.order.npy", "program.json", "score.py"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        wording.refused(DamagedExport, lambda: Scorer(folder))
        (folder / name).unlink()
        wording.refused(DamagedExport, lambda: Scorer(folder))
        (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    for document in (manifest | {"tolerance": 9.9}, {"files": {}}):
        (folder / "manifest.json").write_text(json.dumps(document))
        wording.refused(DamagedExport, lambda: Scorer(folder))


def test_a_difference_is_that_of_the_worst_row_and_nan_is_one() -> None:
    found = {"probability": np.array([0.3, np.nan, np.inf]), "prediction": np.array([200.0])}
    same = {"probability": [0.3, np.nan, np.inf], "prediction": [200.0]}
    assert largest_difference(found, same) == 0
    assert largest_difference(found, same | {"prediction": [100.0]}) == 1
    assert np.isnan(largest_difference(found, same | {"probability": [0.3, 0.5, np.inf]}))
    # Near 0, predictions of hundreds are off by float32 of hundreds.
    many = np.append(np.full(9, 200.0), [0.002, np.nan])
    wanted = np.append(np.full(9, 200.0), [0.0, np.nan])
    assert largest_difference({"prediction": many}, {"prediction": wanted}) == pytest.approx(1e-5)


@pytest.mark.slow
def test_rounded_tables_score_as_the_rounded_model_and_deltas_have_their_rows(
    root: Path, tmp_path: Path
) -> None:
    """A run whose model differs from that of the export before in a row of one table."""
    first = export(root, tmp_path / "first", "onnx", "--tables", "int8")
    assert first.exit_code == 0, first.output
    saved = open_model(root / "r" / "model")
    with torch.no_grad():
        saved.model.embeddings.weights[0][3] += 0.5
    shutil.copytree(root / "r", tmp_path / "r")
    shutil.rmtree(tmp_path / "r" / "model")
    save_model(tmp_path / "r" / "model", saved.model, saved.spec, saved.schema, about=saved.about)
    shutil.copytree(root / "r" / "model" / "workflow", tmp_path / "r" / "model" / "workflow")
    since = ("--tables", "int8", "--since", str(tmp_path / "first"))
    done = export(tmp_path, tmp_path / "delta", "onnx", *since)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["delta"]["changed_rows"] == 1
    assert told["delta"]["rows"] > 20
    whole = export(tmp_path, tmp_path / "whole", "onnx", "--tables", "int8")
    assert whole.exit_code == 0, whole.output
    apply_deltas(tmp_path / "made", tmp_path / "first", [tmp_path / "delta"])
    for file in (tmp_path / "whole").rglob("*"):
        if file.is_file():
            made = tmp_path / "made" / file.relative_to(tmp_path / "whole")
            assert made.read_bytes() == file.read_bytes(), file
    assert Scorer(tmp_path / "made").check() <= 1e-6
    other = export(tmp_path, tmp_path / "other", "onnx", *since[2:])
    assert isinstance(other.exception, InputError)


def test_a_scorer_keeps_a_bounded_number_of_values(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preprocess, "MOST_KEPT", 64)
    scorer = Scorer(root / "x").preprocessor
    wanted = Scorer(root / "x").preprocessor.inputs(ROWS)
    for first, last in ((0, 64), (50, 114), (0, 120), (7, 8)):
        found = scorer.inputs(ROWS[first:last])
        for name in ("categorical", "continuous"):
            np.testing.assert_array_equal(found[name], wanted[name][first:last])
        kept = [len(met) for column in scorer._columns.values() for met in column.met.values()]
        assert 0 < max(kept) <= 64


def test_rows_that_predict_refuses_are_refused_by_column_and_row(
    root: Path, wording: Wording
) -> None:
    scorer, frame = Scorer(root / "x"), TABLE.to_pandas()
    odd: dict[str, list[Any]] = {
        "price": ["dear", 10**400],
        "user": [1.5],
        "shop": [b"\xff", "\ud800"],
        "amount": [float("inf")],
        "tags": ["t1"],
        "at": [17, datetime.time(3)],
    }
    for column, values in odd.items():
        for value in values:
            rows = [ROWS[0], ROWS[1] | {column: value}]
            wording.refused(BadValue, partial(scorer.score, rows))
    times = [dict.fromkeys(ROWS[0]) | {"at": 17}]
    without = {name: value for name, value in ROWS[0].items() if name != "shop"}
    wording.refused(
        BadValue,
        lambda: scorer.score(times, "csv"),
        lambda: scorer.score(times, "json"),
        lambda: scorer.score([ROWS[0], without]),
        lambda: scorer.score(pd.concat([frame, frame[["shop"]]], axis=1)),
        lambda: scorer.score(ROWS[0] | {"shop": "s1"}),
        lambda: scorer.score(frame.to_numpy()),
    )
    gap, nan = (scorer.score([ROWS[0] | {"price": one}]) for one in (None, Decimal("NaN")))
    np.testing.assert_array_equal(gap["probability"], nan["probability"])
    too_large = [ROWS[0] | {"user": 2**64}]
    with pytest.raises(InputError):
        score_rows(root / "r" / "model", too_large)


@pytest.mark.slow
def test_export_refuses_scores_that_are_not_those_of_predict(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = lambda _saved, _on, made, _classes: {"probability": [0.5] * len(made)}  # noqa: E731
    monkeypatch.setattr(serving_folder, "scores_of_prepared", half)
    done = export(root, tmp_path / "x", "torch")
    assert isinstance(done.exception, DataError)
    assert not (tmp_path / "x").exists()


def test_a_sample_is_needed_where_the_fitted_rows_are_gone(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "r", tmp_path / "r")
    file = tmp_path / "r" / "model" / "workflow" / "workflow.json"
    file.write_text(file.read_text().replace("t.parquet", "gone.parquet"))
    done = export(tmp_path, tmp_path / "x")
    assert isinstance(done.exception, DataError)
    assert "gone.parquet" in str(done.exception.where)
    assert done.exception.hint is not None


CSV_FORMAT = {"null_values": ["", "NA"], "decimal_point": ",", "timestamp": "%d.%m.%Y %H:%M"}
CSV_COLUMNS = {
    "shop": {"kind": "categorical"},
    "price": {"kind": "continuous", "fill": 0, "clip": {"min": 0, "max": 1e6}, "log": True},
    "day": {"kind": "categorical", "from": "at", "as": "weekday"},
    "tags": {"kind": "categorical", "separator": "|"},
}


@pytest.mark.slow
def test_fields_of_text_are_read_as_the_features_document_says(
    tmp_path: Path, client: Client
) -> None:
    lines = ["shop;price;at;tags;bought"]
    lines += [
        f"s{n % 5};{n % 9},5;{1 + n % 28:02}.02.2024 1:30;a|b{n % 3};{n % 2}" for n in range(60)
    ]
    lines += ["NA;NA;01.03.2024 00:00;;1"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    document = {"target": "bought", "format": CSV_FORMAT, "columns": CSV_COLUMNS}
    features = FeatureConfig.parse(document)
    prepare(PrepRequest((str(tmp_path / "t.csv"),), tmp_path / "d", features=features), client)
    fit(job(tmp_path / "d" / "train"), run_dir=tmp_path / "r")
    done = export(tmp_path, tmp_path / "x")
    assert done.exit_code == 0, done.output
    scorer = Scorer(tmp_path / "x")
    given = {"shop": "s1", "price": "1,5", "at": "02.02.2024 1:30", "tags": "a|b1"}
    typed = given | {"price": 1.5, "at": datetime.datetime(2024, 2, 2), "tags": ["a", "b1"]}
    (one,), (other,) = (scorer.score([row])["probability"] for row in (given, typed))
    assert one == other
    assert scorer.check() <= 1e-6


def test_an_operator_that_needs_other_rows_is_refused_by_name(root: Path, wording: Wording) -> None:
    saved = open_model(root / "r" / "model")
    workflow_dir = root / "d" / "workflow"
    workflow, features = Workflow.load(workflow_dir), saved_features(workflow_dir)
    assert features is not None
    columns = dict(enumerate(workflow.groups))
    lacking = Workflow(tuple(g for g in columns.values() if "shop" not in g.columns))
    wording.refused(InputError, lambda: program_of(lacking, features, saved, "table"))


@dataclass(frozen=True)
class Doubled(Operator):
    kind: ClassVar[str] = "Doubled"

    def transform(self, _column: str, values: pa.Array) -> pa.Array:
        return pc.add(values, values)


@pytest.mark.parametrize(
    ("operator", "is_served"),
    [(FillMissing(2), True), (ListSlice(2), True), (Clip(min=0), False), (Doubled(), False)],
)
def test_numbers_that_an_operator_computed_are_no_categories_of_a_program(
    operator: Operator, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STEPS, Doubled.kind, STEPS["Clip"])
    group = ColumnGroup(("x",), (operator, Categorify()))
    workflow = Workflow((group,))
    features = FeatureConfig.built_in(workflow, TextLayout(), True, ())
    found = list(_mistakes("x", {"x": group}, workflow, features))
    assert [text.partition(":")[0] for text in found] == ([] if is_served else [operator.kind])


def test_every_operator_has_a_step_without_distrain() -> None:
    assert set(OPERATORS) == {*STEPS, ListSlice.kind} - {"calendar", "limits"}


whole = st.none() | st.integers(-(2**40), 2**40)
real = st.none() | st.floats(allow_nan=True, allow_infinity=False, width=64)
text = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
numbers = st.lists(
    st.sampled_from(
        [Clip(0, 50), Clip(min=-3), FillMissing(2), FillMissing(-0.5), LogOp(), Normalize()]
    ),
    max_size=4,
)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_steps_give_what_operators_give(tmp_path_factory: Any, data: st.DataObject) -> None:
    ids = data.draw(st.booleans())
    items = data.draw(st.sampled_from([whole, text] if ids else [whole, real]))
    fitted, given = (data.draw(st.lists(items, min_size=1, max_size=12)) for _ in range(2))
    operators = (Categorify(num_buckets=data.draw(st.integers(0, 3))),)
    operators = operators if ids else (FillMissing(0), Clip(-9, 1e6), *data.draw(numbers))
    dtype = pa.string() if items is text else pa.float64() if items is real else pa.int64()
    group = ColumnGroup(("x",), operators)
    try:
        workflow = Workflow((group,)).fit([pa.table({"x": pa.array(fitted, dtype)})])
        wanted = workflow.transform(pa.table({"x": pa.array(given, dtype)}))["x"].to_pylist()
    except DataError:
        wanted = None
        if not all(getattr(o, "moments", True) for o in operators):
            return  # nothing was fitted
    folder = tmp_path_factory.mktemp("steps")
    document, vocabularies = column_program("x", workflow.groups[0].operators, UNCHANGED, False)
    for name, vocabulary in vocabularies.items():
        write_vocabulary(folder, name, vocabulary)
    known = {n: described(v) for n, v in vocabularies.items()}
    program = {"form": "table", "text": NO_TEXT, "columns": [document], "vocabularies": known}
    reader = Preprocessor(program | {"lists": [], "categorical": [], "continuous": []}, folder)
    column = reader._columns["x"]
    if wanted is None:
        with pytest.raises(BadValue):
            column.made(*reader.read({"x": given})["x"])
        return
    read = reader.read({"x": given})["x"]
    np.testing.assert_array_equal(column.made(*read)[0], wanted)
    if not (items is text and operators[0].num_buckets > 1):
        flat = {"categorical": ["x"] if ids else [], "continuous": [] if ids else ["x"]}
        program |= {"lists": [], **flat}
        made = in_onnx(Program(program, vocabularies, {}), read)
        found, none = made if ids else reversed(made)
        assert none.shape == (len(given), 0)
        np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-6)


def in_onnx(program: Program, read: Any) -> list[Any]:
    """The ids and the numbers of a program of one column, made by the nodes of a graph."""
    (taken,), unserved = raw_inputs(program, [])
    assert not unserved
    nodes = Nodes(program)
    given = raw_graph._read(nodes, [taken])
    column = program.document["columns"][0]
    names = ("model/categorical", "model/continuous")
    raw_graph._prepare(nodes, {column["source"]: raw_graph._values(nodes, taken)}, {*names})
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    graph = onnx.helper.make_graph(nodes.all, "x", given, outputs, nodes.constants)
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 4)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, taken.fed(*read))


def test_columns_of_a_domain_have_one_vocabulary_in_a_program() -> None:
    group = ColumnGroup(("a", "b"), (Categorify(domain="d"),))
    workflow = Workflow((group,)).fit([pa.table({"a": ["x"], "b": ["y"]})])
    made = [column_program(name, workflow.groups[0].operators, UNCHANGED, False) for name in "ab"]
    assert [learnt.keys() for _, learnt in made] == [{"d"}, {"d"}]
    assert [column["steps"][0]["vocabulary"] for column, _ in made] == ["d", "d"]


@pytest.mark.parametrize("part", ["year", "month", "day", "hour", "minute", "weekday"])
def test_calendars_are_those_of_python(part: str) -> None:
    days = ((1, 1, 1), (1600, 2, 29), (1969, 12, 31), (2000, 3, 1), (9999, 12, 31))
    times = [datetime.datetime(*day, 23, 59, 59, 999_999) for day in days]
    column = {"name": "x", "source": "x", "to": "time", "takes": ["time"], "epoch": None}
    step = {"kind": "calendar", "part": part, "whole": False}
    column |= {"lists": False, "separator": None, "slices": [], "is_whole": False, "steps": [step]}
    program = {"form": "table", "text": NO_TEXT, "columns": [column], "vocabularies": {}}
    program |= {"lists": [], "categorical": [], "continuous": ["x"]}
    read = Preprocessor(program, Path()).read({"x": [*times, None]})["x"]
    found = [one.weekday() if part == "weekday" else getattr(one, part) for one in times]
    wanted = np.float32([*found, np.nan])
    of_arrow = calendar(pa.array([*times, None], pa.timestamp("us")), part)
    assert of_arrow.to_pylist() == [*found, None]
    np.testing.assert_array_equal(STEPS["calendar"](Values(read[0]), step, {}).x, wanted)
    np.testing.assert_array_equal(in_onnx(Program(program, {}, {}), read)[1][:, 0], wanted)


NARROW = pa.table(
    {
        "x": pa.array([0.1, None, 2.5], pa.float32()),
        "tags": pa.array([[0.1, None], None, [2.5]], pa.list_(pa.float32())),
    }
)


@pytest.mark.parametrize(
    "frame", [NARROW, NARROW.to_pandas(), NARROW.to_pandas(types_mapper=pd.ArrowDtype)]
)
def test_texts_of_32_bit_numbers_in_frames_are_those_of_the_etl(tmp_path: Path, frame: Any) -> None:
    columns = [
        column_program(name, (), UNCHANGED, name == "tags", True)[0] for name in ("x", "tags")
    ]
    for column in columns:
        column |= {"to": "text", "takes": ["number"]}
    program = {"form": "table", "text": NO_TEXT, "columns": columns, "vocabularies": {}}
    reader = Preprocessor(program | {"lists": [], "categorical": [], "continuous": []}, tmp_path)
    found = reader.read(frame)
    assert found["x"][0] == ["0.1", None, "2.5"]
    assert found["tags"] == (["0.1", None, "2.5"], [2, 0, 1])


def test_the_program_of_an_export_tells_what_is_wrong_without_a_traceback(
    root: Path, tmp_path: Path, wording: Wording
) -> None:
    file = tmp_path / "rows.jsonl"
    for text in ("\n\xff", '{"shop": "s1"}'):
        file.write_bytes(text.encode("latin-1"))
        words = [sys.executable, str(root / "x" / "score.py"), str(file)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        wording(done.stderr)


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def other_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of an export are imported by their own names, and forgotten afterwards."""
    names = ("score", "preprocess", "rows", "raw_values", "steps", "deltas")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in names:
        sys.modules.pop(name, None)
    yield
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's
def test_a_batch_job_on_dask_scores_partitions(
    root: Path, tmp_path: Path, other_modules: None
) -> None:
    pytest.importorskip("dask.dataframe")
    (tmp_path / "rows").mkdir()
    for name, first in (("a", 0), ("b", 70)):
        table = TABLE.slice(first, 70 if name == "a" else None)
        pq.write_table(table.drop_columns(["bought"]), tmp_path / "rows" / f"{name}.parquet")
    sys.path.append(str(EXAMPLES))  # Dask names functions by their modules
    example = importlib.import_module("score_dask")
    with dask.config.set(scheduler="sync"):  # not the cluster of the preparation
        example.main(str(root / "x"), str(tmp_path / "rows" / "*.parquet"), str(tmp_path / "out"))
    found = pq.read_table(tmp_path / "out")["probability"].to_numpy()
    wanted = score_rows(root / "r" / "model", TABLE)["probability"].to_numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_repository_for_triton_has_its_layout_and_answers(
    root: Path, tmp_path: Path, other_modules: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tritonclient")
    package = importlib.util.find_spec("tritonclient")
    (place,) = package.submodule_search_locations
    # The package around it needs grpcio.
    schema = runpy.run_path(f"{place}/grpc/model_config_pb2.py")
    from google.protobuf import text_format  # type: ignore[import-untyped, unused-ignore]

    example = runpy.run_path(str(EXAMPLES / "triton_repository.py"))
    example["main"](root / "x", tmp_path / "repository")
    model = tmp_path / "repository" / "clicks"
    config = text_format.Parse((model / "config.pbtxt").read_text(), schema["ModelConfig"]())
    assert (config.name, config.backend, config.max_batch_size) == (model.name, "python", 4096)

    class Tensor:
        def __init__(self, name: str, values: Any):
            self.name, self.values = name, values

        def as_numpy(self) -> Any:
            return self.values

    def answered(output_tensors: Any = (), error: Any = None) -> Any:
        return error or {one.name: one.values for one in output_tensors}

    stand_in = types.SimpleNamespace(
        Tensor=Tensor,
        TritonError=str,
        InferenceResponse=answered,
        get_input_tensor_by_name=lambda request, name: request[name],
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", stand_in)  # type: ignore[arg-type]
    python = runpy.run_path(str(model / "1" / "model.py"))["TritonPythonModel"]()
    python.initialize({"model_repository": str(model), "model_version": "1"})
    rows = [row | {"price": None, "at": str(row["at"])} for row in ROWS[:3]]
    texts = np.array([[json.dumps(row).encode()] for row in rows], object)
    bad = np.array([[json.dumps(rows[0] | {"user": "nobody"}).encode()]], object)
    inputs = [{"row": Tensor("row", some)} for some in (texts, bad)]
    good, refused = python.execute(inputs)
    (output,) = config.output
    wanted = Scorer(root / "x").score(rows, "json")["probability"]
    np.testing.assert_array_equal(good[output.name], wanted[:, None])
    assert "row 0: 'nobody'" in refused


def test_the_http_scorer_answers_with_the_scores_of_predict(
    root: Path, monkeypatch: pytest.MonkeyPatch, other_modules: None
) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    monkeypatch.setenv("SERVED", str(root / "x"))
    example = runpy.run_path(str(EXAMPLES / "serve_fastapi.py"))
    rows = [row | {"price": float(row["price"]), "at": str(row["at"])} for row in ROWS[:9]]
    rows = [row | {"price": None} for row in rows]
    with TestClient(example["app"]) as http:
        found = http.post("/score", json=rows)
        assert found.status_code == 200, found.text
        again = Scorer(root / "x").score(rows)["probability"]
        np.testing.assert_allclose(found.json()["probability"], again, atol=1e-6)
        assert http.post("/score", json={"shop": ["a"]}).status_code == 422
        refused = http.post("/score", json=[rows[0] | {"user": "nobody"}])
        assert (refused.status_code, "'user', row 0" in refused.text) == (422, True)
        manifest = json.loads((root / "x" / "manifest.json").read_text())
        assert http.get("/health").json() == {"version": manifest["version"]}
        assert "scorer_rows_total 9\n" in http.get("/metrics").text
