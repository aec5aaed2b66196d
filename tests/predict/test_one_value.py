"""One value has one category and one number, whatever file format or type carries it."""

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped, unused-ignore]
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from distributed import Client

from distrain import Run, fit
from distrain.errors import DataError, InputError
from distrain.predict import in_memory
from distrain.predict.load_model import open_model
from distrain.predict.prediction import PredictRequest, predict
from distrain.predict.serving.folder import export_folder
from distrain.predict.serving.preprocess import _Column
from distrain.predict.serving.program import column_program
from distrain.predict.serving.raw_graph import RawInput
from distrain.predict.serving.score import Scorer
from distrain.prep import FeatureConfig, PrepRequest, prepare
from distrain.prep.features.bad_values import BadValues
from distrain.prep.features.values import staged_values
from distrain.prep.raw_values import UnusableValue
from distrain.prep.steps import Values, limits
from distrain.prep.transforming import raw_tables

pytestmark = pytest.mark.usefixtures("undrawn", "cluster_here")

COLUMNS = {
    "engines": {"kind": "categorical"},
    "rate": {"kind": "categorical"},
    "vip": {"kind": "categorical"},
    "town": {"kind": "categorical"},
    "hour": {"kind": "categorical", "from": "at", "as": "hour"},
    "price": {"kind": "continuous", "fill": 0},
    "size": {"kind": "continuous", "normalize": True},
    "rows": {"kind": "continuous", "from": "engines", "count": True},
}
FEATURES = FeatureConfig.parse({"target": "bought", "columns": COLUMNS})
TYPES = {
    "engines": pa.int64(),
    "rate": pa.float64(),
    "vip": pa.bool_(),
    "town": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "price": pa.float64(),
    "size": pa.float64(),
    "bought": pa.int64(),
}


TRAINING = 0
"""The seed of the training rows, which have no gap in `size`."""


def table_of(seed: int, rows: int = 40) -> pa.Table:
    rng = np.random.default_rng(seed)
    start = datetime.datetime(2024, 3, 30, 22, tzinfo=datetime.UTC)
    made = {
        "engines": rng.integers(1, 12, rows).tolist(),
        "rate": (rng.integers(0, 9, rows) / 4).tolist(),
        "vip": (rng.random(rows) < 0.5).tolist(),
        "town": [f"t{n}" for n in rng.integers(0, 5, rows)],
        "at": [start + datetime.timedelta(hours=int(n)) for n in rng.integers(0, 48, rows)],
        "price": (rng.integers(-50, 900, rows) / 8).tolist(),
        "size": (rng.integers(0, 40, rows) / 4).tolist(),
    }
    for name in [name for name in made if seed != TRAINING or name != "size"]:
        values = made[name]
        made[name] = [None if rng.random() < 0.1 else value for value in values]
    return pa.table(made | {"bought": [n % 2 for n in range(rows)]}, pa.schema(TYPES.items()))


def with_types(table: pa.Table, **types: pa.DataType) -> pa.Table:
    fields = [pa.field(f.name, types.get(f.name, f.type)) for f in table.schema]
    return table.cast(pa.schema(fields))


def as_csv(table: pa.Table, path: Path) -> Path:
    """As pandas writes it: integers with gaps as 2.0, truth as True, times with an offset."""
    table.to_pandas().to_csv(path, index=False)
    return path


def as_arrow_csv(table: pa.Table, path: Path) -> Path:
    pa_csv.write_csv(with_types(table, at=pa.timestamp("us")), path)
    return path


def as_json(table: pa.Table, path: Path) -> Path:
    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, datetime.datetime) else value

    lines = [json.dumps({n: plain(v) for n, v in row.items()}) for row in table.to_pylist()]
    path.write_text("\n".join(lines) + "\n")
    return path


def as_parquet(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path)
    return path


def with_other_types(table: pa.Table, path: Path) -> Path:
    other = with_types(
        table,
        engines=pa.float32(),
        rate=pa.decimal128(9, 4),
        vip=pa.int8() if path.name.startswith("never") else pa.bool_(),
        town=pa.dictionary(pa.int8(), pa.string()),
        at=pa.timestamp("ms", "Asia/Tokyo"),
        price=pa.float32(),
    )
    return as_parquet(other, path)


def of_texts(table: pa.Table, path: Path) -> Path:
    texts = {name: pa.string() for name in ("engines", "rate", "vip", "price", "size", "bought")}
    return as_parquet(with_types(table, **texts), path)


FILES: dict[str, Callable[[pa.Table, Path], Path]] = {
    "pandas.csv": as_csv,
    "arrow.csv": as_arrow_csv,
    "lines.jsonl": as_json,
    "typed.parquet": as_parquet,
    "other.parquet": with_other_types,
    "texts.parquet": of_texts,
}


def frames(table: pa.Table, folder: Path) -> dict[str, Any]:
    """The same rows in memory."""
    file = as_csv(table, folder / "again.csv")
    rows = table.to_pylist()
    return {
        "arrow": table,
        "pandas": table.to_pandas(),
        "read_csv": pd.read_csv(file, parse_dates=["at"]),
        "read_csv of texts": pd.read_csv(file, dtype=str),
        "nullable": table.to_pandas().convert_dtypes(),
        "rows": rows,
        "texts": [{n: v if v is None else str(v) for n, v in row.items()} for row in rows],
        "decimals": [
            {n: Decimal(str(v)) if isinstance(v, float) else v for n, v in row.items()}
            for row in rows
        ],
    }


@pytest.fixture(scope="module", params=["pandas.csv", "typed.parquet"])
def root(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, client: Client
) -> Path:
    """A run on rows of one file format, and its export."""
    root = tmp_path_factory.mktemp("carriers")
    file = FILES[request.param](table_of(TRAINING, 200), root / request.param)
    prepare(PrepRequest((str(file),), root / "d", features=FEATURES), client)
    job = {
        "data": {"train": str(root / "d" / "train")},
        "model": {"kind": "mlp", "hidden": [4]},
        "train": {"global_batch_size": 40, "epochs": 3},
        "resources": {"backend": "inline", "device": "cpu"},
    }
    fit(job, run_dir=root / "r")
    model = root / "r" / "model"
    export_folder(root / "x", model, open_model(model), "onnx", with_workflow=True)
    return root


@pytest.mark.slow
def test_a_value_has_one_id_and_one_score_in_every_file_format_and_frame(
    root: Path, client: Client, tmp_path: Path
) -> None:
    table = table_of(1)
    run, scorer, tables = Run(root / "r"), Scorer(root / "x"), raw_tables(str(root / "d/workflow"))
    wanted = tables.of_rows(table, "rows")
    scores = run.predict(table)["probability"].to_numpy()
    for name, write in FILES.items():
        file = write(table, tmp_path / name)
        out, scored = tmp_path / f"{name}.d", tmp_path / f"{name}.s"
        prepare(PrepRequest((str(file),), out, saved_workflow=root / "d" / "workflow"), client)
        assert pq.read_table(out / "train").equals(wanted), name
        predict(PredictRequest(root / "r" / "model", (str(file),), scored), client)
        np.testing.assert_array_equal(pq.read_table(scored)["probability"], scores, name)
    for name, rows in frames(table, tmp_path).items():
        np.testing.assert_array_equal(run.predict(rows)["probability"], scores, name)
        found = scorer.score(rows)["probability"]
        np.testing.assert_allclose(found, scores, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(of_graph(scorer, rows), scores, atol=1e-6, err_msg=name)


def of_graph(scorer: Scorer, rows: Any) -> Any:
    graph = scorer.manifest["raw_graph"]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # inputs that may be left out are warned of
    session = onnxruntime.InferenceSession(str(scorer.folder / graph["file"]), options)
    read, given = scorer.preprocessor.read(rows), dict[str, Any]()
    for one in graph["inputs"]:
        given |= RawInput(**one).fed(*read[one["column"]])
    return session.run(["probability"], given)[0]


def test_many_rows_are_scored_in_pieces_and_a_bad_row_is_counted_from_the_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table_of(4, 20).drop_columns("bought").to_pylist()
    run = Run(root / "r")
    whole = run.predict(rows)
    monkeypatch.setattr(in_memory, "_AT_ONCE", 7)
    np.testing.assert_allclose(run.predict(rows), whole, atol=1e-6)
    with pytest.raises(DataError) as refused:
        run.predict([{**r, "price": "dear" if n == 17 else None} for n, r in enumerate(rows)])
    assert str(refused.value.where["row"]) == "17"


def test_no_rows_and_rows_without_values_are_scored(root: Path) -> None:
    run, scorer = Run(root / "r"), Scorer(root / "x")
    assert len(run.predict([])) == len(scorer.score([])["probability"]) == 0
    for gap in (None, float("nan"), pd.NA, pd.NaT, np.float64("nan")):
        rows = [dict.fromkeys(TYPES, gap) for _ in range(3)]
        found = run.predict(rows)["probability"]
        np.testing.assert_allclose(scorer.score(rows)["probability"], found, atol=1e-6)


def test_columns_of_several_types_are_read_as_those_of_a_file(root: Path, tmp_path: Path) -> None:
    rows = table_of(5, 20).drop_columns("bought").to_pylist()
    rows[3] |= {"town": 7, "engines": "2", "rate": Decimal("0.5"), "vip": "True"}
    rows[4] |= {"town": 2**70, "rate": b"0.5", "at": "2024-03-30T22:00:00Z"}
    run, scorer = Run(root / "r"), Scorer(root / "x")
    wanted = run.predict(rows)["probability"].to_numpy()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for given in (columns, pd.DataFrame(columns, dtype=object)):
        np.testing.assert_array_equal(run.predict(given)["probability"], wanted)
        np.testing.assert_allclose(scorer.score(given)["probability"], wanted, atol=1e-6)
    at = datetime.datetime(2024, 3, 31, tzinfo=datetime.UTC)
    with pytest.raises(DataError) as late:  # a number is no microsecond beside times
        run.predict([rows[0] | {"at": at}, rows[1] | {"at": 1711861200}])
    assert (late.value.where["column"], str(late.value.where["row"])) == ("at", "1")
    columns["price"][2] = {"no": "value"}
    with pytest.raises(InputError) as refused:
        run.predict(columns)
    assert refused.value.where["column"] == "price"


FIRST = {"a": ["x", "NA", "2.0", "y"] * 5, "b": ["u", "1.0", "v", "w"] * 5, "y": [0, 1] * 10}


def prepared(client: Client, folder: Path, columns: dict[str, Any]) -> Any:
    features = FeatureConfig.parse(
        {"target": "y", "columns": columns, "format": {"null_values": ["", "NA"]}}
    )
    pd.DataFrame(FIRST).to_csv(folder / "t.csv", index=False)
    prepare(PrepRequest((str(folder / "t.csv"),), folder / "d", features=features), client)
    return raw_tables(str(folder / "d" / "workflow"))


def test_texts_for_missing_values_are_missing_in_every_type(client: Client, tmp_path: Path) -> None:
    tables = prepared(client, tmp_path, {"a": {"kind": "categorical"}})
    wanted = pq.read_table(tmp_path / "d" / "train")
    a = pa.array(FIRST["a"])
    types = (pa.large_string(), pa.binary(), pa.string_view(), pa.dictionary(pa.int8(), a.type))
    for dtype in types:
        assert tables.of_rows(pa.table(FIRST | {"a": a.cast(dtype)}), "rows").equals(wanted), dtype
    lines = [json.dumps(row) for row in pa.table(FIRST).to_pylist()]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    workflow = tmp_path / "d" / "workflow"
    request = PrepRequest((str(tmp_path / "t.jsonl"),), tmp_path / "e", saved_workflow=workflow)
    prepare(request, client)
    assert pq.read_table(tmp_path / "e" / "train").equals(wanted)


def test_a_number_is_a_list_of_one_where_texts_are_split(client: Client, tmp_path: Path) -> None:
    tags = {"kind": "categorical", "separator": "|"}
    spec = FeatureConfig.parse({"target": "y", "columns": {"a": tags}}).document.columns["a"]
    column, learnt = column_program("a", (), spec, lists=True, holds_text=True)
    reader = _Column(column, {"null_values": [], "decimal_point": "."}, learnt)
    found, lengths = reader._flat([7, "7|8", None, 2.0], "table")
    assert (found, lengths) == (["7", "7", "8", "2"], [1, 2, 0, 1])


def test_infinity_is_refused_by_preparations_and_exports_before_a_logarithm() -> None:
    logged = {"kind": "continuous", "fill": 0, "log": True}
    spec = FeatureConfig.parse({"target": "y", "columns": {"a": logged}}).document.columns["a"]
    column, _ = column_program("a", spec.operators, spec, lists=False, holds_text=False)
    with pytest.raises(BadValues):
        staged_values(pa.array([1.0, np.inf]), spec, None)
    with pytest.raises(UnusableValue) as refused:
        limits(Values(np.array([1.0, np.inf])), column["steps"][0], None)
    assert refused.value.place == 1
