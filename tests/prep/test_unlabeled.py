"""Rows without a target, and where each prepared row comes from."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wording import Wording

from distrain.errors import DataError, InputError
from distrain.prep import ColumnGroup, FeatureConfig, PrepRequest, PrepResult, Workflow, prepare
from distrain.prep.features import text_head
from distrain.prep.raw_lines import RAW_COLUMNS, TextLayout
from distrain.prep.workflow import criteo_workflow
from distrain.schema import Schema

ROWS = [
    {"order": f"o{n}", "shop": f"s{n % 5}", "price": n * 37 % 90 / 4, "bought": n * 7 % 3 == 0}
    for n in range(80)
]
COLUMNS = {
    "shop": {"kind": "categorical"},
    "price": {"kind": "continuous", "log": True, "normalize": True},
}
FEATURES = FeatureConfig.parse({"target": "bought", "columns": COLUMNS})


def text_of(rows: list[dict[str, Any]], header: bool = True) -> str:
    lines = [",".join(map(str, row.values())).lower() for row in rows]
    return "\n".join([",".join(rows[0]), *lines] if header else lines) + "\n"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    match path.name.partition(".")[2]:
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
        case "csv":
            path.write_text(text_of(rows))
        case "csv.gz":
            path.write_bytes(gzip.compress(text_of(rows).encode()))
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def written(out: Path | str) -> pa.Table:
    files = sorted((Path(out) / "train").iterdir())
    return pa.concat_tables([pq.read_table(file) for file in files]).combine_chunks()


def without_target(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "bought"} for row in rows]


@pytest.fixture
def prep(client: Any, tmp_path: Path) -> Callable[..., PrepResult]:
    def run(*paths: Path, **options: Any) -> PrepResult:
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        options.setdefault("block_bytes", 300)
        return prepare(PrepRequest(tuple(map(str, paths)), out=out, **options), client)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["parquet", "csv.gz"])
def test_rows_without_a_target_get_the_features_of_those_with_one_and_keep_what_is_named(
    prep: Callable[..., PrepResult], tmp_path: Path, ending: str, wording: Wording
) -> None:
    fitted = prep(write(tmp_path / f"t.{ending}", ROWS), features=FEATURES)
    halves = [write(tmp_path / f"{n}.{ending}", without_target(half))
              for n, half in enumerate((ROWS[:30], ROWS[30:]))]  # fmt: skip
    saved = {"saved_workflow": f"{fitted.out}/workflow", "unlabeled": True}
    result = prep(*halves, **saved, keep=("order", "shop"))
    found = written(result.out)
    assert found.select(["shop", "price"]).equals(written(fitted.out).select(["shop", "price"]))
    assert found["order"].to_pylist() == [row["order"] for row in ROWS]
    assert found["raw_shop"].to_pylist() == [row["shop"] for row in ROWS]
    assert found["row_number"].to_pylist() == [*range(30), *range(50)]
    assert found["file"].to_pylist() == [str(halves[0])] * 30 + [str(halves[1])] * 50
    assert "label" not in found.column_names
    assert "label" not in Schema.load(Path(result.out) / "schema.pbtxt").names
    wording.refused(DataError, partial(prep, halves[0], saved_workflow=saved["saved_workflow"]))
    labelled = prep(tmp_path / f"t.{ending}", **saved)
    assert written(labelled.out)["price"].equals(found["price"])
    assert "label" not in written(labelled.out).column_names


def test_every_row_is_prepared_with_its_place_or_named_as_bad(
    prep: Callable[..., PrepResult], tmp_path: Path, wording: Wording
) -> None:
    fitted = prep(write(tmp_path / "t.csv", ROWS), features=FEATURES)
    rng = np.random.default_rng(3)
    lines = text_of(without_target(ROWS)).splitlines()
    bad = {int(row) for row in rng.choice(len(ROWS), 15, replace=False)}
    for row in bad:
        fields = lines[1 + row].split(",")
        lines[1 + row] = ",".join([*fields[:2], "12x"] if row % 2 else fields[:2])
    for place in sorted(rng.choice(len(lines), 6, replace=False), reverse=True):
        lines.insert(int(place) + 1, "")
    (tmp_path / "new.csv").write_text("\n".join(lines))
    saved = {"saved_workflow": f"{fitted.out}/workflow", "unlabeled": True, "keep": ("order",)}
    whole = partial(prep, tmp_path / "new.csv", **saved, block_bytes=1 << 20)
    wording.refused(DataError, whole, file=str(tmp_path / "new.csv"))
    result = prep(tmp_path / "new.csv", **saved, skip_bad_lines=True, max_bad=0.2)
    found = written(result.out)
    places = found["row_number"].to_pylist()
    assert sorted({*places} | bad) == list(range(len(ROWS)))
    assert len(places) + len(bad) == len(ROWS)
    assert result.bad_lines.count == len(bad)
    assert found["order"].to_pylist() == [ROWS[place]["order"] for place in places]
    whole = written(fitted.out)
    assert found["price"].to_pylist() == whole["price"].take(places).to_pylist()


def test_criteo_lines_with_and_without_label_give_the_same_rows(
    prep: Callable[..., PrepResult],
    tmp_path: Path,
    make_lines: Callable[..., list[bytes]],
    wording: Wording,
) -> None:
    lines = make_lines(60, seed=4)
    (tmp_path / "train.txt").write_bytes(b"\n".join(lines))
    blocks: dict[str, Any] = {"block_bytes": 4000}  # some 15 lines
    names = ["I1", "I2", "C1", "C26"]
    numbers, categories = (group.operators for group in criteo_workflow().groups)
    workflow = Workflow((ColumnGroup(names[:2], numbers), ColumnGroup(names[2:], categories)))
    fitted = prep(tmp_path / "train.txt", workflow=workflow, **blocks)
    whole = written(fitted.out)
    bare = [line.partition(b"\t")[2] for line in lines]
    saved = blocks | {"saved_workflow": f"{fitted.out}/workflow", "unlabeled": True}
    inputs = {"bare.txt": bare, "labelled.txt": lines, "some.txt": bare[:30] + lines[30:]}
    for name, content in inputs.items():
        (tmp_path / name).write_bytes(b"\n".join(content))
        found = written(prep(tmp_path / name, **saved).out)
        assert found.select(names).equals(whole.select(names))
        assert found["row_number"].to_pylist() == list(range(60))
    kept = written(prep(tmp_path / "bare.txt", **saved, keep=("I1",)).out)["raw_I1"]
    texts = [line.split(b"\t")[0] for line in bare]
    assert kept.to_pylist() == [int(text) if text else None for text in texts]
    header = "\t".join(RAW_COLUMNS[1:]).encode()
    (tmp_path / "bad.txt").write_bytes(b"\n".join([header, *bare[:7], b"1\t2"]))
    layout = TextLayout(header=True)
    wording.refused(DataError, partial(prep, tmp_path / "bad.txt", **saved, layout=layout), line=9)


def test_a_kept_column_of_json_lines_has_the_type_of_the_first_ones(
    prep: Callable[..., PrepResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Wording,
) -> None:
    monkeypatch.setattr(text_head, "_PROBED_LINES", 10)
    rows: list[Any] = [{**row, "id": n, "tags": ["a"]} for n, row in enumerate(ROWS)]
    path = write(tmp_path / "t.jsonl", rows)
    wording.refused(
        DataError,
        partial(prep, path, features=FEATURES, keep=("tags",)),
        **{"column tags": "lists in JSON lines, which cannot be kept"},
    )
    path.write_text(path.read_text().replace('"id": 70,', '"id": "70",'))
    found = written(prep(path, features=FEATURES, keep=("id",)).out)
    assert found["id"].to_pylist() == list(range(80))
    path.write_text(path.read_text().replace('"id": 71,', '"id": "x",'))
    wording.refused(DataError, partial(prep, path, features=FEATURES, keep=("id",)))


def test_columns_to_keep_are_there_and_have_names_of_their_own(
    prep: Callable[..., PrepResult], tmp_path: Path, wording: Wording
) -> None:
    path = write(tmp_path / "t.parquet", ROWS)
    wording.refused(DataError, partial(prep, path, features=FEATURES, keep=("ordre",)))
    wording.refused(InputError, partial(prep, path, features=FEATURES, keep=("order", "order")))
    found = written(prep(path, features=FEATURES, keep=("order", "bought")).out)
    assert found["label"].to_pylist() == [float(row["bought"]) for row in ROWS]
    assert found["bought"].to_pylist() == [row["bought"] for row in ROWS]


def test_rows_without_a_target_keep_a_column_of_windows_by_its_name() -> None:
    document = {
        "target": "bought",
        "windows": {"by": "at"},
        "columns": {"shop": {"kind": "categorical"}},
    }
    features = FeatureConfig.parse(document)
    assert replace(features, keep=("at",)).kept == {"raw_at": "at"}
    assert replace(features, keep=("at",), unlabeled=True).kept == {"at": "at"}
