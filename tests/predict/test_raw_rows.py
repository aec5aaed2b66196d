"""Raw rows scored by a run's own workflow, and rows that another workflow prepared."""

import json
import shutil
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from distributed import Client
from wording import Wording

from distrain import Run, fit
from distrain.cli.models.evaluate import command as evaluate_command
from distrain.cli.models.predict import command as predict_command
from distrain.errors import DataError, InputError, SchemaError
from distrain.loader import Dataset
from distrain.predict import raw_rows
from distrain.predict.in_memory import evaluate_rows, score_rows
from distrain.predict.prediction import PredictRequest, predict
from distrain.predict.raw_rows import RawOptions
from distrain.prep import FeatureConfig, PrepRequest, PrepResult, prepare
from distrain.prep.raw_lines import with_words_as_numbers

pytestmark = pytest.mark.usefixtures("undrawn", "cluster_here")

COLUMNS = {
    "shop": {"kind": "categorical"},
    "price": {"kind": "continuous", "log": True, "normalize": True},
    "pages": {"kind": "categorical", "separator": "|"},
}
TARGET = {"column": "bought", "missing": "drop"}
FEATURES = FeatureConfig.parse({"target": TARGET, "columns": COLUMNS})
LABELLED = [
    {
        "order": f"o{n}",
        "shop": f"s{n % 6}",
        "price": n * 37 % 90 / 4,
        "pages": "|".join(f"p{n % k}" for k in range(1, 2 + n % 3)),
        "bought": int(n * 7 % 3 == 0),
    }
    for n in range(120)
]
ROWS = [{name: value for name, value in row.items() if name != "bought"} for row in LABELLED]


def csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    lines = [",".join(map(str, row.values())) for row in rows]
    path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    return path


def job(train: Path, **data: str) -> dict[str, Any]:
    return {
        "data": {"train": str(train), **data},
        "model": {"kind": "mlp", "hidden": [4]},
        "train": {"global_batch_size": 40},
        "resources": {"backend": "inline", "device": "cpu"},
    }


def prepared(client: Client, path: Path, out: Path, **options: Any) -> PrepResult:
    return prepare(PrepRequest((str(path),), out, **options), client)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, client: Client) -> Path:
    """`t.csv`, its prepared rows `d`, and the run `r` on them."""
    root = tmp_path_factory.mktemp("raw")
    prepared(client, csv(root / "t.csv", LABELLED), root / "d", features=FEATURES)
    fit(job(root / "d" / "train"), run_dir=root / "r")
    return root


def scores(out: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted(out.iterdir())])


def without_data(root: Path, folder: Path) -> Path:
    """A copy of the run, where nothing else is."""
    shutil.copytree(root / "r" / "model", folder / "model")
    return folder / "model"


@pytest.mark.parametrize(
    ("ending", "labelled"), [("csv", True), ("csv", False), ("parquet", False), ("jsonl", False)]
)
def test_scores_of_raw_rows_are_those_of_the_prepared_ones_bit_for_bit(
    root: Path, client: Client, tmp_path: Path, ending: str, labelled: bool
) -> None:
    wanted = score_rows(root / "r" / "model", root / "d" / "train")
    rows, raw = LABELLED if labelled else ROWS, tmp_path / f"new.{ending}"
    if ending == "csv":
        csv(raw, rows)
    elif ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), raw, row_group_size=9)
    else:
        raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = without_data(root, tmp_path)
    request = PredictRequest(model, (str(raw),), tmp_path / "out", ("order", "shop"))
    result = predict(request, client)
    found = scores(tmp_path / "out")
    assert found["logit"].equals(wanted["logit"])
    assert found["probability"].equals(wanted["probability"])
    assert found["order"].to_pylist() == [row["order"] for row in ROWS]
    assert found["shop"].to_pylist() == [row["shop"] for row in ROWS]
    assert found["row_number"].to_pylist() == list(range(len(ROWS)))
    assert set(found["file"].to_pylist()) == {str(raw)}
    assert (result.rows, result.files) == (len(ROWS), 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["model", raw.name, "out"]), (
        "nothing of the preparation is left"
    )


def test_every_raw_row_of_every_file_is_scored_in_its_place_or_named_as_bad(
    root: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    bad: dict[str, set[int]] = {}
    for number, rows in enumerate((ROWS[:70], ROWS[70:])):
        path = csv(tmp_path / f"{number}.csv", rows)
        lines = path.read_text().splitlines()
        bad[str(path)] = {int(row) for row in rng.choice(len(rows), 4, replace=False)}
        for row in bad[str(path)]:
            lines[row + 1] = "o,s,cheap,p0"
        path.write_text("\n".join(lines))
    words = [str(root / "r"), str(tmp_path / "*.csv"), "--keep", "order", "--json"]
    words += ["--out", str(tmp_path / "out"), "--bad-lines", "skip"]
    refused = CliRunner().invoke(predict_command, words)
    assert isinstance(refused.exception, DataError)
    done = CliRunner().invoke(predict_command, [*words, "--max-bad", "10%"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["rows"], told["files"], told["bad_lines"]["count"]) == (112, 2, 8)
    first = told["bad_lines"]["examples"][0]
    assert first["line"] - 2 in bad[first["file"]]
    wanted = score_rows(root / "r" / "model", pa.Table.from_pylist(ROWS))["logit"].to_pylist()
    for file, begin, num_rows in ((0, 0, 70), (1, 70, 50)):
        found = pq.read_table(tmp_path / "out" / f"{file}.csv.parquet")
        numbers = found["row_number"].to_pylist()
        (name,) = set(found["file"].to_pylist())
        assert sorted([*numbers, *bad[name]]) == list(range(num_rows))
        assert found["order"].to_pylist() == [ROWS[begin + n]["order"] for n in numbers]
        np.testing.assert_allclose(found["logit"], [wanted[begin + n] for n in numbers], rtol=1e-5)


def test_labelled_raw_rows_have_the_metrics_of_the_prepared_ones(
    root: Path, tmp_path: Path
) -> None:
    words = ["--json", "--group", "shop"]
    run, raw = str(root / "r"), str(root / "t.csv")
    done = CliRunner().invoke(evaluate_command, [run, raw, *words])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    wanted = evaluate_rows(root / "r" / "model", root / "d" / "train")
    assert (told["auc"], told["log_loss"]) == (wanted.auc, wanted.log_loss)
    assert told["group"] == "shop"
    assert {row["value"]: row["rows"] for row in told["largest_groups"]} == {
        f"s{n}": 20 for n in range(6)
    }
    assert evaluate_rows(root / "r" / "model", pa.Table.from_pylist(LABELLED)) == wanted
    done = CliRunner().invoke(evaluate_command, [run, raw, "--scheduler", "tcp://nowhere:1"])
    assert isinstance(done.exception, InputError)


def test_scores_of_a_dataframe_have_its_index_and_errors_tell_of_rows_and_functions(
    root: Path, wording: Wording
) -> None:
    run = Run(root / "r")
    whole = pd.DataFrame(LABELLED)
    scores = run.predict(whole)["logit"]
    some = whole.sample(30, random_state=0)
    np.testing.assert_allclose(some.join(run.predict(some))["logit"], scores[some.index], rtol=1e-5)

    wording.refused(
        DataError,
        lambda: run.predict(whole.drop(columns=["price"])),
        lambda: run.evaluate(whole.drop(columns="bought")),
    )
    for wrong in (whole["price"], [whole], 7, pd.DataFrame({"price": [1, "a"]})):
        with pytest.raises(InputError) as caught:
            run.predict(wrong)
        assert caught.value.hint is not None


def test_rows_in_memory_are_scored_without_a_cluster(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = score_rows(root / "r" / "model", root / "d" / "train")["logit"].to_pylist()
    monkeypatch.setattr(raw_rows, "open_cluster", None)
    run = Run(root / "r")
    for some in (slice(None), slice(7, 8), slice(0, 0)):
        table = pa.Table.from_pylist(ROWS)[some]
        for rows in (table.to_pandas(), table, *([ROWS[some]] if len(table) else [])):
            found = run.predict(rows, keep=["order"])
            np.testing.assert_allclose(found["logit"], wanted[some], rtol=1e-5, atol=1e-6)
            assert found["order"].tolist() == [row["order"] for row in ROWS[some]]
    prepared = pq.read_table(root / "d" / "train" / "part-00000.parquet")
    assert run.predict(prepared)["logit"].tolist() == wanted
    lacking = [ROWS[0] | {"shop": None, "pages": None}, ROWS[1]]
    assert len(run.predict(lacking)) == len(run.predict(lacking[:1])) + 1 == 2


def test_words_of_criteo_in_memory_are_numbers(wording: Wording) -> None:
    words = pa.table({"C1": ["0000000A", "", None], "I1": ["1", "2", "3"]})
    found = with_words_as_numbers(words, {"C1"})
    assert found["C1"].to_pylist() == [10, None, None]
    wording.refused(
        DataError, lambda: with_words_as_numbers(pa.table({"C1": ["0000000a", "x"]}), {"C1"})
    )


def test_drift_of_raw_rows_is_that_of_prepared_ones(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.cli.progress_bars.WORK_LINE_EVERY_S", 0.0)
    raw = str(root / "t.csv")
    words = [str(root / "r"), raw, "--json", "--drift"]
    done = [
        CliRunner().invoke(evaluate_command, [*words, train])
        for train in (raw, str(root / "d" / "train"))
    ]
    shown = ["training rows:" in one.stderr for one in done]
    assert shown == [True, False]  # the progress of their preparation
    told = [json.loads(one.stdout) for one in done]
    assert told[0]["drift"] == told[1]["drift"]
    assert set(told[0]["drift"]) == set(COLUMNS)


def test_dates_are_groups(root: Path, tmp_path: Path) -> None:
    dates = [date(2024, 3, 1 + n % 3) for n in range(len(LABELLED))]
    raw = csv(tmp_path / "t.csv", [{**r, "on": d} for r, d in zip(LABELLED, dates, strict=True)])
    rows = pq.read_table(root / "d" / "train").append_column("on", pa.array(dates))
    pq.write_table(rows, tmp_path / "rows.parquet")
    for data in (raw, tmp_path / "rows.parquet"):
        words = [str(root / "r"), str(data), "--group", "on", "--json"]
        told = json.loads(CliRunner().invoke(evaluate_command, words).stdout)
        found = {row["value"]: row["rows"] for row in told["largest_groups"]}
        assert (told["group"], found) == ("on", Counter(map(str, dates)))


def test_raw_rows_that_are_left_out_of_the_metrics_are_told(root: Path, tmp_path: Path) -> None:
    rows = [
        {**row, "bought": "" if n % 6 == 0 else row["bought"]} for n, row in enumerate(LABELLED)
    ]
    raw = csv(
        tmp_path / "t.csv", [{**row, "shop": str(row["shop"]).replace("s1", "")} for row in rows]
    )
    raw.write_text(raw.read_text() + "o,s\n")
    words = [str(root / "r"), str(raw), "--bad-lines", "skip", "--group", "shop", "--json"]
    told = json.loads(CliRunner().invoke(evaluate_command, words).stdout)
    assert (told["rows"], told["rows_without_label"], told["bad_lines"]["count"]) == (100, 20, 1)
    assert None in [row["value"] for row in told["largest_groups"]]


def test_a_column_to_keep_or_group_by_that_rows_lack_is_refused_with_a_guess(
    root: Path, tmp_path: Path, wording: Wording
) -> None:
    run, out = str(root / "r"), ["--out", str(tmp_path / "out")]
    for data in (root / "t.csv", root / "d" / "train"):
        for command, words in (
            (predict_command, ["--keep", "age", *out]),
            (predict_command, ["--keep", "er", *out]),  # a part of a name
            (evaluate_command, ["--group", "age"]),
        ):
            done = CliRunner().invoke(command, [run, str(data), *words])
            assert isinstance(done.exception, DataError)
            wording(done.exception)


def test_a_raw_file_in_place_of_prepared_rows_is_refused(
    root: Path, tmp_path: Path, wording: Wording
) -> None:
    wording.refused(
        SchemaError,
        lambda: fit(job(root / "t.csv"), run_dir=tmp_path / "r"),
        lambda: Dataset(root / "t.csv"),
    )


def test_what_rows_are_is_seen_or_asked(root: Path, tmp_path: Path, wording: Wording) -> None:
    model = root / "r" / "model"
    wanted = score_rows(model, root / "d" / "train")
    bare = pa.concat_tables([pq.read_table(f) for f in sorted((root / "d" / "train").iterdir())])
    pq.write_table(bare.drop_columns(["label"]), tmp_path / "bare.parquet")
    assert score_rows(model, tmp_path / "bare.parquet")["logit"].equals(wanted["logit"])
    fields = [pa.field(f.name, f.type) for f in bare.drop_columns(["label"]).schema]
    loose = pa.table(bare.drop_columns(["label"]).columns, schema=pa.schema(fields))
    pq.write_table(loose, tmp_path / "loose.parquet")
    wording.refused(
        InputError,
        lambda: score_rows(model, tmp_path / "loose.parquet"),
        lambda: Run(root / "r").predict(loose),
    )
    assert (
        Run(root / "r").predict(loose, raw=False)["logit"].tolist() == wanted["logit"].to_pylist()
    )
    said = score_rows(model, tmp_path / "loose.parquet", raw=RawOptions(is_raw=False))
    assert said["logit"].equals(wanted["logit"])


@pytest.fixture(scope="module")
def other(root: Path, client: Client) -> Path:
    """The same rows, prepared by a workflow that was fitted on half of them."""
    half = csv(root / "half.csv", [row for row in LABELLED if row["shop"] not in ("s1", "s4")])
    prepared(client, half, root / "fitted", features=FEATURES)
    prepared(client, root / "t.csv", root / "other", saved_workflow=root / "fitted" / "workflow")
    return root / "other"


def test_rows_that_another_workflow_prepared_are_refused(
    root: Path, other: Path, client: Client, tmp_path: Path, wording: Wording
) -> None:
    model = root / "r" / "model"
    request = PredictRequest(model, (str(other / "train"),), tmp_path / "out")
    valid = job(root / "d" / "train", valid=str(other / "train"))
    wording.refused(
        DataError,
        lambda: predict(request, client),
        lambda: evaluate_rows(model, other / "train"),
        lambda: fit(valid, run_dir=tmp_path / "r"),
    )
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_that_learnt_more_values_gives_known_ids_the_same_meaning(
    root: Path, client: Client, tmp_path: Path
) -> None:
    new = csv(tmp_path / "new.csv", [{**row, "shop": "s9"} for row in LABELLED[:30]] + LABELLED)
    saved = {"saved_workflow": root / "d" / "workflow"}
    prepared(client, new, tmp_path / "learnt", **saved, update=True)
    fit(job(tmp_path / "learnt" / "train"), run_dir=tmp_path / "r")
    assert evaluate_rows(tmp_path / "r" / "model", root / "d" / "train").rows == len(LABELLED)
    with pytest.raises(DataError, match="shop"):
        evaluate_rows(root / "r" / "model", tmp_path / "learnt" / "train")


def test_tables_without_a_workflow_are_scored_as_before(
    root: Path, tmp_path: Path, wording: Wording
) -> None:
    shutil.copytree(root / "d" / "train", tmp_path / "train")
    shutil.copy(root / "d" / "schema.pbtxt", tmp_path / "schema.pbtxt")
    wanted = score_rows(root / "r" / "model", root / "d" / "train")
    assert score_rows(root / "r" / "model", tmp_path / "train").equals(wanted)
    fit(job(tmp_path / "train"), run_dir=tmp_path / "r")
    assert not (tmp_path / "r" / "model" / "workflow").exists()
    assert score_rows(tmp_path / "r" / "model", root / "d" / "train").num_rows == len(ROWS)
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "raw.parquet")
    model, raw = tmp_path / "r" / "model", tmp_path / "raw.parquet"
    wording.refused(
        DataError,
        lambda: score_rows(model, raw),
        lambda: evaluate_rows(model, raw),
        lambda: Run(tmp_path / "r").predict(str(raw)),
        lambda: score_rows(model, root / "t.csv", raw=RawOptions(is_raw=True)),
    )
