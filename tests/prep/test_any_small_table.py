"""Small tables of any types, gaps, spellings and files: prepared as a naive loop does, or refused.

`DISTRAIN_EXAMPLES=500` tries more of them.

That raw rows score as prepared ones do needs a model for each fitted workflow, which takes seconds:
`tests/predict/test_raw_rows.py` has that law.
"""

import csv
import datetime as dt
import io
import json
import os
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from distrain.errors import DataError
from distrain.prep import FeatureConfig, PrepRequest, prepare

EXAMPLES = int(os.environ.get("DISTRAIN_EXAMPLES", "6"))
COLUMNS = {
    "c": {"kind": "categorical", "as": "text"},
    "x": {"kind": "continuous", "fill": -7},
    "tags": {"kind": "categorical", "as": "text"},
}
QUARTERS = st.integers(-(2**20), 2**20).map(lambda n: Decimal(n) / 4)
WHOLE = st.integers(-(2**62), 2**62).map(Decimal)
TIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)).map(
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)
)
KINDS = {
    "quarters": (QUARTERS, ["double", "decimal", "wide decimal", "csv", "jsonl"]),
    "whole": (WHOLE, ["int", "decimal", "csv", "jsonl"]),
    "texts": (
        st.sampled_from(["a", "B", "ü", "1.50", "007", " b"]),
        ["text", "bytes", "csv", "jsonl"],
    ),
    "times": (TIMES, ["ms", "us"]),
    "truths": (st.booleans(), ["bool", "jsonl"]),
}
TYPES = {
    "double": pa.float64(),
    "decimal": pa.decimal128(38, 3),
    "wide decimal": pa.decimal256(70, 9),
    "int": pa.int64(),
    "text": pa.large_string(),
    "bytes": pa.binary(),
    "ms": pa.timestamp("ms"),
    "us": pa.timestamp("us"),
    "bool": pa.bool_(),
}


@st.composite
def tables(draw: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    """The form and the rows of each file; a column may be all gaps in one of them."""
    values, forms = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    few = draw(st.lists(values, min_size=1, max_size=4))
    files = []
    for _ in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(forms))
        cell = st.none() if draw(st.integers(0, 3)) == 0 else st.none() | st.sampled_from(few)
        row = st.fixed_dictionaries(
            {
                "c": cell,
                "x": st.none() | QUARTERS,
                "tags": st.none() | st.lists(cell, max_size=3),
                "bad": st.integers(0, 60).map(lambda n: n == 0),
            }
        )
        files.append((form, draw(st.lists(row, min_size=2, max_size=6))))
    return files


def spelled(value: Any, form: str) -> str | None:
    """The text of a value, digit by digit."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        seconds = f"{value.year:04}-{value:%m-%d %H:%M:%S}"
        return seconds + f".{value.microsecond:06}".rstrip("0") if value.microsecond else seconds
    if form == "jsonl" and value % 1 == 0 and abs(value) < 2**53:
        return str(int(value))
    digits = f"{value:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def write(folder: Path, number: int, form: str, rows: list[dict[str, Any]], first: int) -> Path:
    """One file; every row's target is its place's last bit."""
    target = [(first + place) % 2 for place in range(len(rows))]
    numbers = [
        1e300 if row["bad"] else None if row["x"] is None else float(row["x"]) for row in rows
    ]
    if form == "jsonl":
        path = folder / f"{number}.jsonl"

        def plain(value: Any) -> Any:
            if isinstance(value, list):
                return [plain(item) for item in value]
            is_whole = isinstance(value, Decimal) and value % 1 == 0
            return int(value) if is_whole else float(value) if isinstance(value, Decimal) else value

        cells = zip(rows, numbers, target, strict=True)
        path.write_text(
            "".join(
                json.dumps({"c": plain(r["c"]), "x": x, "tags": plain(r["tags"]), "y": y}) + "\n"
                for r, x, y in cells
            )
        )
        return path
    if form == "csv":
        path, text = folder / f"{number}.csv", io.StringIO()
        to = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        to.writerow(["c", "x", "y"])
        for row, x, y in zip(rows, numbers, target, strict=True):
            to.writerow([spelled(row["c"], form) or "", "" if x is None else x, y])
        path.write_text(text.getvalue())
        return path
    path = folder / f"{number}.parquet"

    def of(values: list[Any], dtype: pa.DataType) -> pa.Array:
        def typed(value: Any) -> Any:
            if isinstance(value, list):
                return [typed(item) for item in value]
            if isinstance(value, Decimal) and form in ("double", "int"):
                return float(value) if form == "double" else int(value)
            return value.encode() if form == "bytes" and value is not None else value

        items = [v for value in values for v in (value if isinstance(value, list) else [value])]
        if all(item is None for item in items):
            dtype = pa.list_(pa.null()) if pa.types.is_list(dtype) else pa.null()
        return pa.array([typed(value) for value in values], dtype)

    table = pa.table(
        {
            "c": of([row["c"] for row in rows], TYPES[form]),
            "x": pa.array(numbers, pa.null() if numbers.count(None) == len(rows) else pa.float64()),
            "tags": of([row["tags"] for row in rows], pa.list_(TYPES[form])),
            "y": pa.array(target, pa.int8()),
        }
    )
    pq.write_table(table, path)
    return path


def ids_of(texts: list[str | None], known: list[str]) -> list[int]:
    return [1 if t is None else known.index(t) + 3 if t in known else 2 for t in texts]


def vocabulary(texts: list[str | None]) -> list[str]:
    counts = Counter(text for text in texts if text is not None)
    return sorted(counts, key=lambda text: (-counts[text], text.encode()))


def written(folder: Path) -> dict[str, list[Any]]:
    return pa.concat_tables(map(pq.read_table, sorted((folder / "train").iterdir()))).to_pydict()


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=tables(), turned=st.booleans())
def test_a_small_table_gives_the_oracles_rows_or_an_error_that_names_the_place(
    tmp_path_factory: Any, client: Any, files: list[tuple[str, list[Any]]], turned: bool
) -> None:
    folder = tmp_path_factory.mktemp("table")
    paths, first = [], 0
    for number, (form, rows) in enumerate(files):
        paths.append(write(folder, number, form, rows, first))
        first += len(rows)
    has_lists = all(form != "csv" for form, _ in files)
    columns = {name: spec for name, spec in COLUMNS.items() if name != "tags" or has_lists}
    features = FeatureConfig.parse({"target": "y", "columns": columns})
    request = PrepRequest(tuple(map(str, paths)), folder / "out", features=features)
    if any(row["bad"] for _, rows in files for row in rows):
        with pytest.raises(DataError) as caught:
            prepare(request, client)
        assert str(caught.value.where["file"]) in map(str, paths)
        assert "line" in caught.value.where or "column" in caught.value.where
        return
    found = written(prepare(request, client).out)
    cells = [(row, form) for form, rows in files for row in rows]
    texts = [spelled(row["c"], form) for row, form in cells]
    assert found["c"] == ids_of(texts, vocabulary(texts))
    assert found["x"] == [-7 if row["x"] is None else float(row["x"]) for row, _ in cells]
    assert found["label"] == [place % 2 for place in range(len(cells))]
    lists = [[spelled(v, form) for v in row["tags"] or []] for row, form in cells]
    known = vocabulary([text for some in lists for text in some])
    if has_lists:
        assert found["tags"] == [ids_of(some, known) for some in lists]
    order = list(reversed(range(len(files)))) if turned else list(range(len(files)))
    later = PrepRequest(
        tuple(str(paths[n]) for n in order),
        folder / "later",
        saved_workflow=folder / "out" / "workflow",
    )
    again = written(prepare(later, client).out)
    begins = np.cumsum([0, *(len(rows) for _, rows in files)])
    rows_again = [row for n in order for row in range(begins[n], begins[n + 1])]
    for name, values in again.items():
        assert values == [found[name][row] for row in rows_again]
