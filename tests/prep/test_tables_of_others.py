"""Tables as other programs write them: what a sample does not show, null texts, hive keys."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from distrain.errors import DataError, InputError
from distrain.prep import FeatureConfig, PrepRequest, infer_features, prepare
from distrain.prep.features.inference.user_choices import UserChoices
from distrain.prep.rows_in_memory import store_rows, table_of
from distrain.sklearn import Classifier
from distrain.storage.inputs import list_inputs

ROWS = 300


@pytest.fixture
def frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "city": draw.choice(["Ulm", "Graz", "Bern"], ROWS),
            "x": draw.normal(size=ROWS).round(3),
            "y": draw.integers(0, 2, ROWS),
        }
    )


def save(frame: pd.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path, index=False)
    return path


def inferred(path: Path, target: str = "y", most: int = 100_000) -> Any:
    return infer_features(list_inputs([str(path)]), UserChoices((target,)), most)


Prepared = Callable[[Path, FeatureConfig, Path], pa.Table]


@pytest.fixture
def prepared(client: Any) -> Prepared:
    def run(path: Path, features: FeatureConfig, out: Path) -> pa.Table:
        prepare(PrepRequest((str(path),), out, features=features), client)
        files = [file for side in ("train", "valid") for file in (out / side).glob("*.parquet")]
        return pa.concat_tables([pq.read_table(file) for file in sorted(files)])

    return run


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_a_text_means_a_missing_value_in_all_forms_of_a_table(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path, suffix: str
) -> None:
    frame["x"] = frame.x.astype(str)
    frame.loc[frame.index % 9 == 0, "x"] = "?"
    path = save(frame, tmp_path / f"rows{suffix}")
    features = inferred(path).features
    assert features.document.columns["x"].kind == "continuous"
    assert features.document.format.null_values == ("", "?")
    assert prepared(path, features, tmp_path / "out").num_rows == ROWS


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_text_that_is_a_value_of_another_column_is_no_missing_value(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path, suffix: str
) -> None:
    frame["x"] = frame.x.astype(str)
    frame.loc[frame.index % 9 == 0, "x"] = "none"
    frame["level"] = np.random.default_rng(1).choice(["none", "low", "high"], ROWS)
    path = save(frame, tmp_path / f"rows{suffix}")
    features = inferred(path, "level").features
    assert "none" not in features.document.format.null_values
    labels = prepared(path, features, tmp_path / "out")["label"].to_pylist()
    assert len(labels) == ROWS
    assert labels.count(2) == (frame.level == "none").sum()


def test_one_such_text_in_a_column_of_texts_leaves_numbers_numbers(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame["x"] = frame.x.astype(str)
    frame.loc[frame.index % 9 == 0, "x"] = "NA"
    frame.loc[7, "city"] = "NA"
    path = save(frame, tmp_path / "rows.csv")
    features = inferred(path).features
    assert features.document.columns["x"].kind == "continuous"
    assert prepared(path, features, tmp_path / "out").num_rows == ROWS


def test_a_column_that_is_constant_in_the_sample_is_kept_and_numbers_may_be_missing_later(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame["shop"] = np.where(frame.index < ROWS - 20, "s1", "s2")
    frame.loc[ROWS - 5, "x"] = None
    path = save(frame, tmp_path / "rows.parquet")
    found = inferred(path, most=ROWS // 2)
    assert "shop" not in found.left_out
    assert prepared(path, found.features, tmp_path / "out").num_rows == ROWS
    frame["shop"] = "s1"
    assert "shop" in inferred(save(frame, tmp_path / "same.parquet")).left_out


def test_all_of_many_small_files_are_looked_at(frame: pd.DataFrame, tmp_path: Path) -> None:
    for number in range(12):
        part = frame[number * 25 : (number + 1) * 25].assign(shop=f"s{number % 2}")
        save(part, tmp_path / "all" / f"part-{number:02d}.parquet")
    assert "shop" not in inferred(tmp_path / "all").left_out


def test_folders_have_the_types_of_the_fit_in_later_rows(
    client: Any, prepared: Prepared, frame: pd.DataFrame, tmp_path: Path
) -> None:
    zips = ("01234", "AB12", "00777")
    for place, code in enumerate(zips):
        save(frame[place::3], tmp_path / "hive" / f"zip={code}" / "p.parquet")
    features = inferred(tmp_path / "hive").features
    prepared(tmp_path / "hive", features, tmp_path / "out")
    workflow = tmp_path / "out" / "workflow"
    saved = FeatureConfig.load(workflow / "features.yaml")
    assert saved.document.partitions == {"zip": "text"}

    def ids(inputs: Path, out: str) -> set[int]:
        request = PrepRequest(
            (str(inputs),), tmp_path / out, features=saved, saved_workflow=workflow
        )
        prepare(request, client)
        return {
            one
            for file in (tmp_path / out / "train").glob("*.parquet")
            for one in pq.read_table(file)["zip"].to_pylist()
        }

    alone = [ids(tmp_path / "hive" / f"zip={code}", f"only-{code}") for code in zips]
    assert set.union(*alone) == ids(tmp_path / "hive", "together")
    assert all(len(one) == 1 for one in alone)
    assert len(set.union(*alone)) == len(zips)


def test_a_named_index_of_dask_is_a_column_as_that_of_pandas(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    named = frame.assign(user=[f"u{n:03d}" for n in range(ROWS)]).set_index("user")
    stored = store_rows(dd.from_pandas(named, npartitions=2), tmp_path)
    assert set(pq.read_table(stored).column_names) == set(table_of(named).column_names)
    plain = store_rows(dd.from_pandas(frame, npartitions=2), tmp_path)
    assert set(pq.read_table(plain).column_names) == set(frame.columns)


def test_names_and_truth_values_of_other_programs(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path
) -> None:
    assert table_of({0: [1, 2], "y": [0, 1]}).column_names == ["0", "y"]
    with pytest.raises(InputError):
        table_of({1: [1, 2], "1": [0, 1]})
    spelled = np.where(frame.index % 3 == 0, "True", "true")
    frame["y"] = np.where(frame.y == 1, spelled, "FALSE")
    path = save(frame, tmp_path / "rows.csv")
    labels = prepared(path, inferred(path).features, tmp_path / "out")["label"].to_pylist()
    assert sum(labels) == (frame.y != "FALSE").sum()
    lines = [f"{row.x};{place};{place % 2}" for place, row in enumerate(frame.itertuples())]
    (tmp_path / "quoted.csv").write_text('"price, EUR";"qty, pcs";y\n' + "\n".join(lines))
    assert inferred(tmp_path / "quoted.csv").features.document.format.delimiter == ";"


def test_targets_that_cannot_be_learnt_are_refused(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = save(frame.assign(y=1), tmp_path / "rows.parquet")
    with pytest.raises(DataError) as refused:
        inferred(path)
    assert refused.value.where["column"] == "y"
    assert refused.value.where["value"] == 1
    target = np.array(["p" if one else None for one in frame.y], object)
    with pytest.raises(ValueError, match="NaN"):
        Classifier().fit(frame[["city", "x"]], target)


@pytest.mark.parametrize("is_one_file", [True, False])
def test_dates_of_iso_8601_and_of_one_other_form_are_read_in_one_column(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path, is_one_file: bool
) -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=ROWS))
    is_iso = frame.index % 2 == 0 if is_one_file else frame.index < ROWS // 2
    frame["day"] = days.dt.strftime("%Y-%m-%d").where(is_iso, days.dt.strftime("%m/%d/%Y"))
    frame["other"] = days.dt.strftime("%d.%m.%Y")
    for number, rows in enumerate([frame] if is_one_file else [frame[is_iso], frame[~is_iso]]):
        save(rows, tmp_path / "all" / f"part-{number}.csv")
    found = inferred(tmp_path / "all")
    assert found.features.document.format.timestamp == "%m/%d/%Y"
    assert "%d.%m.%Y" in found.left_out["other"]
    rows = prepared(tmp_path / "all", found.features, tmp_path / "out")
    assert len(rows["day_weekday"].unique()) == 7


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("least", [2**60, 2**63, 10**25])
def test_whole_numbers_that_float64_rounds_are_ids_with_all_digits(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path, suffix: str, least: int
) -> None:
    numbers = [Decimal(least + row % 12) for row in range(ROWS)]
    frame["k"], frame["other"] = numbers, [str(number) for number in numbers]
    frame["y"] = [Decimal(least + row % 2) for row in range(ROWS)]
    path = save(frame, tmp_path / f"rows{suffix}")
    features = inferred(path).features
    assert features.document.target.equals == least + 1
    rows = prepared(path, features, tmp_path / "out")
    assert [len(rows[name].unique()) for name in ("k", "other", "label")] == [12, 12, 2]


@pytest.mark.parametrize("epoch", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("form", [np.int64, np.float64, str])
def test_a_named_column_of_times_needs_no_name_of_times(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path, epoch: str, form: type
) -> None:
    hours = pd.Series(pd.date_range("2024-01-01", periods=ROWS, freq="h").astype(f"M8[{epoch}]"))
    frame["seen"] = hours.sample(frac=1, random_state=0).astype(np.int64).to_numpy()
    frame["seen"] = frame.seen.astype(form)
    path = save(frame, tmp_path / "rows.parquet")
    choices = UserChoices(("y",), time="seen")
    found = infer_features(list_inputs([str(path)]), choices).features
    assert found.document.columns["seen_hour"].epoch == epoch
    rows = prepared(path, found, tmp_path / "out")
    assert len(rows["seen_hour"].unique()) == 24
    assert pq.read_table(tmp_path / "out" / "valid").num_rows == ROWS // 10 + 1
    if form is np.float64:
        frame.loc[7, "seen"] = np.nan
        with pytest.raises(DataError) as error:
            infer_features(list_inputs([str(save(frame, path))]), choices)
        assert error.value.where["missing"] == 1


def test_a_target_that_is_constant_as_float32_is_refused(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame["y"] = 1e9 + frame.index / ROWS
    with pytest.raises(DataError) as error:
        inferred(save(frame, tmp_path / "rows.parquet"))
    assert error.value.where["lowest"] == "1000000000.0"


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_columns_of_later_files_are_named(frame: pd.DataFrame, tmp_path: Path, suffix: str) -> None:
    save(frame, tmp_path / "all" / f"a{suffix}")
    save(frame.assign(more=1.5), tmp_path / "all" / f"b{suffix}")
    found = inferred(tmp_path / "all")
    assert f"b{suffix}" in found.left_out["more"]
    assert "# " in found.text.split("more: ")[0].splitlines()[-1]


def test_folders_with_leading_zeros_stay_apart_and_an_odd_folder_is_named(
    client: Any, frame: pd.DataFrame, tmp_path: Path
) -> None:
    for month in ("01", "1", "02", "2"):
        save(frame, tmp_path / "text" / f"month={month}" / "a.parquet")
        save(frame, tmp_path / "whole" / f"month={int(month)}" / "a.parquet")
    features = inferred(tmp_path / "text").features
    result = prepare(
        PrepRequest((f"{tmp_path}/text",), tmp_path / "out", features=features), client
    )
    assert result.cardinalities["month"] - result.cardinalities["city"] == 1
    features = inferred(tmp_path / "whole").features
    prepare(PrepRequest((f"{tmp_path}/whole",), tmp_path / "fit", features=features), client)
    save(frame, tmp_path / "odd" / "month=n4" / "a.parquet")
    again = PrepRequest(
        (f"{tmp_path}/odd",), tmp_path / "no", saved_workflow=tmp_path / "fit" / "workflow"
    )
    with pytest.raises(DataError, match="Rename the folder") as error:
        prepare(again, client)
    assert error.value.where["column"] == "month"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_the_sample_lacks_is_a_warning_or_a_missing_value(
    prepared: Prepared, frame: pd.DataFrame, tmp_path: Path, suffix: str
) -> None:
    frame["late"] = pd.Series("v", frame.index).where(frame.index >= ROWS - 20, None)
    frame["spelt"] = frame.x.astype(str)
    frame.loc[ROWS - 5, "spelt"] = "NA"
    frame.loc[3, "city"] = "none"
    path = save(frame, tmp_path / f"rows{suffix}")
    found = inferred(path, most=ROWS // 2)
    assert [text.split()[0] for text in found.warnings] == ["late"]
    assert suffix == ".csv" or "row group 0" in found.warnings[0]
    assert "none" not in found.features.document.format.null_values
    assert prepared(path, found.features, tmp_path / "out").num_rows == ROWS


def test_a_large_row_group_is_read_in_slices(
    client: Any, frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame["big"] = frame.x
    save(frame, tmp_path / "rows.parquet")
    features = inferred(tmp_path / "rows.parquet").features
    slices = {}
    for name, block in {"whole": 64 << 20, "sliced": 64 * 256}.items():
        request = PrepRequest(
            (f"{tmp_path}/rows.parquet",), tmp_path / name, features=features, block_bytes=block
        )
        result = prepare(replace(request, keep=("x",)), client)
        slices[name] = result.train.num_files
    assert slices["sliced"] > slices["whole"]
    one, other = (ds.dataset(tmp_path / name / "train").to_table() for name in slices)
    assert one.equals(other)
    frame.loc[200, "big"] = np.inf
    save(frame, tmp_path / "rows.parquet")
    shutil.rmtree(tmp_path / "sliced")
    with pytest.raises(DataError) as error:
        prepare(request, client)
    assert error.value.where["row (from 0)"] == 200


@pytest.mark.parametrize("value", [1_711_767_600_000, 1.5, True])
def test_numbers_of_json_lines_are_times_only_with_a_unit(
    frame: pd.DataFrame, client: Any, tmp_path: Path, value: object
) -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=ROWS, freq="h").strftime("%F %T"))
    found = inferred(save(frame.assign(at=days), tmp_path / "rows.jsonl"))
    other = save(frame.assign(at=value), tmp_path / "other.jsonl")
    request = PrepRequest((str(other),), str(tmp_path / "out"), features=found.features)
    with pytest.raises(DataError) as caught:
        prepare(request, client)
    assert caught.value.where["line"] == 1


def test_a_compressed_file_gives_the_features_of_its_text(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame["year"] = 2024
    plain, packed = tmp_path / "rows.csv", tmp_path / "rows.csv.gz"
    frame.to_csv(plain, index=False)
    frame.to_csv(packed, index=False)
    found = [inferred(path).features.document for path in (plain, packed)]
    assert found[0].columns == found[1].columns
