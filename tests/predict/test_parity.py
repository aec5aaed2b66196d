"""Raw rows of two tables, as `prep --infer` describes them: exports score as `predict` does."""

import datetime
import gzip
import itertools
import pickle
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from distributed import Client, LocalCluster
from hypothesis import HealthCheck, given, settings, strategies as st

import distrain
from distrain.cli.models.export import command
from distrain.errors import DataError
from distrain.predict.serving.folder import _scores_of_graph, values_of
from distrain.predict.serving.preprocess import BadValue
from distrain.predict.serving.score import Scorer
from distrain.prep import FeatureConfig, PrepRequest, infer_features, prepare
from distrain.storage.inputs import list_inputs

pytestmark = pytest.mark.slow

ROWS = 10_000
LOG = Path(__file__).parents[3] / "shared" / "data" / "online_retail"
WORDS = ("Köln", "東京", "", " ", "a\tb", "e\u0301", "🧿", *(f"w{n}" for n in range(2000)))
REPLAY = """
import pickle, sys
sys.modules.update(dict.fromkeys(["distrain", "torch", "pyarrow"]))  # importing them fails
sys.path[:] = [".", *sys.path, sys.argv[1]]
from score import Scorer
with open("rows", "rb") as file:
    rows = pickle.load(file)
with open("scores", "wb") as file:
    pickle.dump(Scorer().score(rows), file)
"""


def odd_table() -> pa.Table:
    """Strings, times, decimals, booleans and lists, each with gaps."""
    rng = np.random.default_rng(3)

    def gaps(values: Any) -> list[Any]:
        are_gaps = rng.random(ROWS) < 0.05
        return [None if gap else one for gap, one in zip(are_gaps, values, strict=True)]

    def some(most: int) -> Any:
        return np.minimum(rng.zipf(1.3, ROWS), most) - 1

    second = rng.integers(0, 400 * 86400, ROWS)
    times = [datetime.datetime(2019, 12, 28) + datetime.timedelta(0, int(s)) for s in second]
    lists = [[WORDS[j] for j in rng.integers(0, 60, k)] for k in rng.integers(0, 5, ROWS)]
    price = [Decimal(int(cents)) / 100 for cents in rng.integers(-500, 10**6, ROWS)]
    return pa.table(
        {
            "city": gaps(WORDS[n] for n in some(len(WORDS))),
            "code": [f"{n:05d}" for n in some(900)],
            "at": pa.array(gaps(times), pa.timestamp("us")),
            "seen": pa.array(gaps(times), pa.timestamp("ms", "Europe/Berlin")),
            "day": pa.array(gaps(time.date() for time in times), pa.date32()),
            "price": pa.array(gaps(price), pa.decimal128(12, 2)),
            "ratio": pa.array(gaps(rng.normal(0, 1e3, ROWS)), pa.float32()),
            "user": pa.array(gaps((some(9000) * 7919 - 10**6).tolist()), pa.int64()),
            "level": pa.array(rng.integers(-3, 9, ROWS), pa.int8()),
            "amount": gaps(np.exp(rng.normal(2, 2, ROWS)).tolist()),
            "vip": gaps((rng.random(ROWS) < 0.3).tolist()),
            "tags": gaps(lists),
            "clicked": pa.array(rng.random(ROWS) < 0.3).cast(pa.int8()),
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of `odd.parquet` and `retail.csv` the run `NAME-r` and its export `NAME-x`."""
    root = tmp_path_factory.mktemp("parity")
    pq.write_table(odd_table(), root / "odd.parquet")
    files = {"odd": root / "odd.parquet"}
    if LOG.is_dir():
        files["retail"] = root / "retail.csv"
        with gzip.open(next(LOG.glob("*.csv.gz")), "rt") as log:
            files["retail"].write_text("".join(itertools.islice(log, ROWS + 1)))
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    with LocalCluster(dashboard_address=":0", **options) as cluster, Client(cluster) as client:
        for name, file in files.items():
            inferred = yaml.safe_load(infer_features(list_inputs(str(file))).text)
            if name == "retail":
                del inferred["target"]["placeholder"]
            features = FeatureConfig.parse(inferred)
            prepare(PrepRequest((str(file),), root / name, features=features), client)
    for name, file in files.items():
        cut = {"tags": 2} if name == "odd" else {}  # lists are cut, also where they are scored
        job = {
            "data": {"train": str(root / name / "train"), "max_list_length": cut},
            "model": {"kind": "mlp", "hidden": [16]},
            "train": {"global_batch_size": 2048, "optimizer": {"lr": 0.05}},
            "resources": {"backend": "inline", "device": "cpu"},
        }
        distrain.fit(job, run_dir=root / f"{name}-r")
        words = [str(root / f"{name}-r"), str(root / f"{name}-x"), "--to", "onnx"]
        done = CliRunner().invoke(command, [*words, "--with-workflow", "--sample", str(file)])
        assert done.exit_code == 0, done.output
    return root


def table_of(root: Path, name: str) -> pa.Table:
    """The raw rows; those of a text file are texts, "" where nothing stands."""
    if not (root / f"{name}-x").is_dir():
        pytest.skip("the log of Online Retail is not here")
    if name == "odd":
        return pq.read_table(root / "odd.parquet")
    from pyarrow import csv

    names = list(FIELDS)
    texts = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return csv.read_csv(root / "retail.csv", convert_options=texts)


def scores_of(predicted: Any) -> dict[str, Any]:
    kept = [name for name in predicted.columns if name.startswith(("probability", "prediction"))]
    return {name: predicted[name].to_numpy() for name in kept}


def same(found: Any, wanted: Any) -> None:
    assert wanted
    for column, values in wanted.items():
        np.testing.assert_allclose(found[column], values, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["odd", "retail"])
def test_whole_tables_score_alike_without_distrain(root: Path, name: str) -> None:
    table, folder = table_of(root, name), root / f"{name}-x"
    rows = {column: values_of(table[column]) for column in table.column_names}
    (folder / "rows").write_bytes(pickle.dumps(rows))
    words = [sys.executable, "-I", "-S", "-c", REPLAY, str(Path(np.__file__).parents[1])]
    subprocess.run(words, cwd=folder, check=True)
    found = pickle.loads((folder / "scores").read_bytes())
    run, file = distrain.load(root / f"{name}-r"), "odd.parquet" if name == "odd" else "retail.csv"
    assert len(run.predict(str(root / file))) == ROWS
    for given_rows in (str(root / file), table):
        same(found, scores_of(run.predict(given_rows)))


def test_a_graph_of_raw_columns_scores_a_whole_table(root: Path) -> None:
    table, folder = table_of(root, "retail"), root / "retail-x"
    rows = {column: values_of(table[column]) for column in table.column_names}
    found = _scores_of_graph(Scorer(folder), rows, "csv")
    same(found, scores_of(distrain.load(root / "retail-r").predict(str(root / "retail.csv"))))


texts = st.sampled_from(WORDS[:12]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
instants = st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(2400, 1, 1))
ITEMS: dict[str, st.SearchStrategy[Any]] = {
    "city": texts,
    "code": texts,
    "at": instants,
    # Later ones have no summer time in Arrow's calendars, while Python's know the rule.
    "seen": st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2037, 1, 1)).map(
        lambda time: time.replace(microsecond=0, tzinfo=datetime.UTC)
    ),
    "day": st.dates(),
    "price": st.decimals(1 - 10**10, 10**10 - 1, places=2),
    "ratio": st.floats(width=32),
    "user": st.sampled_from([-(10**6), 7919 - 10**6]) | st.integers(-(2**63), 2**63 - 1),
    "level": st.integers(-128, 127),
    "amount": st.floats(),
    "vip": st.booleans(),
    "tags": st.lists(st.none() | texts, max_size=5),
}
numbers = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)
printable = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "InvoiceNo": printable,
    "StockCode": st.sampled_from(["85123A", "71053"]) | printable,
    "Description": st.sampled_from(["WHITE METAL LANTERN"]) | printable,
    "Quantity": (numbers | printable).map(str),
    "InvoiceDate": st.datetimes().map(lambda time: time.strftime("%Y-%m-%d %H:%M")) | printable,
    "UnitPrice": (numbers | printable).map(str),
    "CustomerID": (numbers | printable).map(str),
    "Country": st.sampled_from(["France", "EIRE"]) | printable,
}


def compare(root: Path, name: str, table: pa.Table, form: str) -> None:
    """The export and `predict` agree on the scores of rows, or that they have none."""
    scorer, run = Scorer(root / f"{name}-x"), distrain.load(root / f"{name}-r")
    rows = {column: values_of(table[column]) for column in table.column_names}
    try:
        wanted = scores_of(run.predict(table))
    except DataError:
        with pytest.raises(BadValue):
            scorer.score(rows, form)
    else:
        same(scorer.score(rows, form), wanted)
        as_rows = [dict(zip(rows, one, strict=True)) for one in zip(*rows.values(), strict=True)]
        for _ in range(2):  # the second time all values were met before
            same(scorer.score(as_rows, form), wanted)


fuzzed = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)


@fuzzed
@given(st.data())
def test_any_rows_of_types_score_alike_or_are_refused_alike(
    root: Path, data: st.DataObject
) -> None:
    schema = pq.read_schema(root / "odd.parquet")
    table = table_of(root, "odd").slice(data.draw(st.integers(0, 9)), 5)
    for name in data.draw(st.sets(st.sampled_from(sorted(ITEMS)), min_size=1, max_size=4)):
        items = st.none() | ITEMS[name]
        values = data.draw(st.lists(items, min_size=5, max_size=5))
        place = schema.get_field_index(name)
        table = table.set_column(place, name, pa.array(values, schema.field(name).type))
    compare(root, "odd", table, "table")


@fuzzed
@given(st.data())
def test_any_fields_of_text_score_alike_or_are_refused_alike(
    root: Path, data: st.DataObject
) -> None:
    table = table_of(root, "retail").slice(data.draw(st.integers(0, 9)), 3)
    for name in data.draw(st.sets(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=3)):
        values = data.draw(st.lists(FIELDS[name], min_size=3, max_size=3))
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, pa.string()))
    compare(root, "retail", table, "csv")
