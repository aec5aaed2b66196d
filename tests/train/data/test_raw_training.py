"""Training on raw parquet, which a workflow prepares in the loader's threads."""

import datetime
import decimal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from threads_as_cluster import client as client
from wording import Wording

from distrain import Run, fit
from distrain.errors import DataError, SchemaError, SpecError
from distrain.jobs.spec import parse_spec
from distrain.loader import Dataset, Loader
from distrain.prep import (
    Categorify,
    ColumnGroup,
    FeatureConfig,
    FillMissing,
    PrepRequest,
    Workflow,
    output_schema,
    prepare,
)
from distrain.train.data.inputs import check_inputs

pytestmark = pytest.mark.usefixtures("undrawn")

COLUMNS = {
    "shop": {"kind": "categorical"},
    "price": {"kind": "continuous", "log": True, "normalize": True, "fill": 0},
    "tags": {"kind": "categorical"},
    "hour": {"kind": "categorical", "source": "at", "as": "hour"},
    "cheap": {"kind": "categorical", "from": "price", "buckets": {"quantiles": 5}},
    "no_price": {"kind": "continuous", "from": "price", "missing_flag": True},
    "shop_rows": {"kind": "continuous", "from": "shop", "count": True, "normalize": True},
    "both": {"kind": "categorical", "cross": ["shop", "price"], "hash_buckets": 20},
}
FEATURES = FeatureConfig.parse(
    {
        "target": "bought",
        "columns": COLUMNS,
        "weight": "worth",
        "split": {"by": "hash", "column": "at", "share": 0.2},
    }
)
ROWS = 400
TRAIN_ROWS = 90  # of a row group


def raw_table() -> pa.Table:
    rng = np.random.default_rng(3)
    shops = rng.choice(["a", "ß", "\U0001f600 x", "", None], ROWS)
    start = datetime.datetime(2024, 5, 1)
    prices = [decimal.Decimal(int(n)) / 4 if n % 7 else None for n in rng.integers(0, 400, ROWS)]
    return pa.table(
        {
            "shop": pa.array(shops.tolist(), pa.string()),
            "price": pa.array(prices, pa.decimal128(10, 2)),
            "tags": pa.array(
                [None if n == 3 else list(range(n)) for n in rng.integers(0, 5, ROWS)]
            ),
            "at": pa.array([start + datetime.timedelta(hours=int(n)) for n in range(ROWS)]),
            "bought": pa.array(rng.random(ROWS) < 0.4),
            "worth": pa.array(rng.integers(1, 4, ROWS)),
            "unused": pa.array(rng.random(ROWS)),
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, client: Client) -> Path:
    """Raw files in `raw`, of a row group each, and the same rows prepared in `d`."""
    root = tmp_path_factory.mktemp("raw-training")
    (root / "raw").mkdir()
    table = raw_table()
    for number, first in enumerate(range(0, ROWS, TRAIN_ROWS)):
        pq.write_table(table.slice(first, TRAIN_ROWS), root / "raw" / f"{number}.parquet")
    prepare(PrepRequest((str(root / "raw"),), root / "fitted", features=FEATURES), client)
    again = PrepRequest((str(root / "raw"),), root / "d", saved_workflow=root / "fitted/workflow")
    prepare(again, client)
    return root


def job(train: Path, **data: Any) -> dict[str, Any]:
    return {
        "data": {"train": str(train), "decode_threads": 2, **data},
        "model": {"kind": "mlp", "hidden": [4]},
        "train": {"global_batch_size": 64, "epochs": 2, "lanes": 4},
        "evaluate": {"at_end": True},
        "resources": {"backend": "inline", "device": "cpu"},
    }


def test_a_training_on_raw_rows_has_the_bits_of_one_on_prepared_rows(
    root: Path, tmp_path: Path
) -> None:
    workflow = str(root / "d" / "workflow")
    raw = fit(job(root / "raw", workflow=workflow), run_dir=tmp_path / "raw")
    prepared = fit(job(root / "d" / "train"), run_dir=tmp_path / "prepared")
    weights = [run.run_dir / "model" / "weights.safetensors" for run in (raw, prepared)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert raw.summary.steps == prepared.summary.steps
    table = raw_table()
    scores = Run(tmp_path / "raw").predict(table)
    assert scores.equals(Run(tmp_path / "prepared").predict(table))


PLAIN = {
    "label": [0, 1, 1, 0, 1, 0],
    "c": ["x", None, "y", "", "new \U0001f600", "x"],
    "n": [1, 2, None, 7, 2, 1],
    "l": [[3, 4], [], None, [5], [99], [3]],
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workflow without a features document, fitted on `PLAIN`, and its schema."""
    root = tmp_path_factory.mktemp("plain")
    groups = (
        ColumnGroup(("c", "l"), (Categorify(),)),
        ColumnGroup(("n",), (FillMissing(-1.0),)),
    )
    table = pa.table(PLAIN)
    fitted = Workflow(groups).fit([table.slice(0, 4)])
    fitted.save(root / "workflow")
    lengths = {"l": (0, 2)}
    output_schema(fitted, fitted.cardinalities, list_lengths=lengths).save(root / "schema.json")
    return root


def batches(dataset: Dataset, **options: Any) -> list[Any]:
    with Loader(dataset, batch_size=4, lanes=1, shuffle="none", **options) as loader:
        return list(loader)


def test_slices_of_large_row_groups_are_prepared_one_by_one(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", 8)
    table = pa.concat_tables([pa.table(PLAIN)] * 9)
    pq.write_table(table, tmp_path / "t.parquet")
    wanted = Workflow.load(plain / "workflow").transform(table)
    dataset = Dataset(tmp_path / "t.parquet", workflow=plain / "workflow")
    assert dataset.slices.any_large
    found = batches(dataset, decode_threads=2)
    names = found[0].categorical_names
    ids = np.concatenate([batch.categorical for batch in found])
    assert ids[:, names.index("c")].tolist() == wanted["c"].to_pylist()


@pytest.mark.parametrize(
    ("column", "values", "row"),
    [
        ("label", [0, 1, 2, 0, 1, 0], 2),
        ("label", [0, 1, 1, 0, None, 0], 4),
        ("n", [1.0, 2.0, 3.0, np.inf, 1.0, 2.0], 3),
    ],
)
def test_a_bad_value_is_named_by_file_column_and_row(
    plain: Path, tmp_path: Path, column: str, values: list[Any], row: int
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({**PLAIN, column: values}), path, row_group_size=2)
    with pytest.raises(DataError) as caught:
        batches(Dataset(path, workflow=plain / "workflow"))
    wanted = {"file": str(path), "column": column, "row (from 0)": row}
    assert wanted.items() <= caught.value.where.items()


def test_files_that_the_workflow_cannot_take_are_refused_before_any_row_is_read(
    plain: Path, tmp_path: Path
) -> None:
    for name, table in {
        "lacks": pa.table({k: v for k, v in PLAIN.items() if k != "n"}),
        "texts": pa.table({**PLAIN, "n": ["1"] * 6}),
        "integers": pa.table({**PLAIN, "c": [1] * 6}),
    }.items():
        path = tmp_path / f"{name}.parquet"
        pq.write_table(table, path)
        with pytest.raises(DataError) as caught:
            Dataset(path, workflow=plain / "workflow")
        assert name not in ("lacks", "texts") or "column n" in caught.value.where
        assert name != "integers" or "saved categories have type string" in caught.value.message


def test_what_only_prepared_rows_have_is_refused_beside_a_workflow(
    plain: Path, tmp_path: Path, wording: Wording
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(PLAIN), path)
    workflow = str(plain / "workflow")
    for name, value in {"filter": "n > 1", "negatives": 0.5, "hive": True}.items():
        with pytest.raises(SpecError) as caught:
            parse_spec(job(path, workflow=workflow, **{name: value}))
        assert name in caught.value.message  # the rest shows a part of the path
    for cardinality in (3, None):
        schema = Dataset(path, workflow=workflow).schema
        other = tmp_path / "schema.json"
        schema.with_columns(replace(schema["c"], cardinality=cardinality)).save(other)
        wording.refused(
            SchemaError,
            partial(check_inputs, parse_spec(job(path, workflow=workflow, schema=str(other)))),
        )
    wording.refused(SpecError, lambda: batches(Dataset(path, workflow=workflow), reader="cudf"))
