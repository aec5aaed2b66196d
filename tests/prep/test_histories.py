"""Histories of earlier events, out of core, against a naive search."""

import csv
import itertools
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from tasks_here import TasksHere
from wording import Wording

from distrain.errors import DataError, InputError
from distrain.loader import Dataset, Loader
from distrain.predict.raw_rows import RawOptions, RawRows
from distrain.prep import ColumnGroup, FeatureConfig, History, PrepRequest, Workflow, prepare
from distrain.prep.features.columns import KEYS_OF_HISTORY, TIMES_OF_HISTORY
from distrain.prep.histories import ordering
from distrain.prep.histories.making import make_histories
from distrain.prep.lookups.index import Lookups, forget_run
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.history import seconds_of
from distrain.prep.parts import Part
from distrain.schema import Schema

KEYS = st.one_of(st.none(), st.integers(0, 3))
TIMES = st.one_of(st.none(), st.integers(-3, 6))
ROWS = st.lists(st.tuples(KEYS, TIMES), max_size=40)


def naive(
    asking: Sequence[int], events: Sequence[int], rows: Sequence[tuple[Any, Any]], keep: int
) -> list[list[int]]:
    """The rows of each asking row's history."""
    found = []
    for row in asking:
        key, time = rows[row]
        of_key = [e for e in events if rows[e][0] == key and rows[e][1] is not None]
        earlier = [] if None in (key, time) else [e for e in of_key if rows[e][1] < time]
        found.append(sorted(earlier, key=lambda e: rows[e][1])[-keep:])
    return found


def table_of(rows: Sequence[tuple[Any, Any]], texts: bool) -> pa.Table:
    keys = [None if key is None else f"k{key}" if texts else key for key, _ in rows]
    return pa.table(
        {
            "user": pa.array(keys, pa.string() if texts else pa.int64()),
            "time": pa.array([time for _, time in rows], pa.int64()),
            "number": pa.array(np.arange(len(rows)), pa.float64()),
        }
    )


@settings(max_examples=25, deadline=None)
@given(
    rows=ROWS,
    cuts=st.lists(st.integers(0, 40), min_size=3, max_size=6),
    keep=st.integers(1, 5),
    texts=st.booleans(),
    range_events=st.integers(1, 12),
)
def test_histories_out_of_core_are_the_same_however_the_events_are_cut(
    rows: list[tuple[Any, Any]], cuts: list[int], keep: int, texts: bool, range_events: int
) -> None:
    history = History("user", "time", keep, ("number", "time"))
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    spans = [range(a, b) for a, b in itertools.pairwise(bounds)]
    before, train, valid = spans[:1], spans[1:-1], spans[-1:]
    table = table_of(rows, texts)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "_SAMPLED", 1)
        workflow = Workflow((ColumnGroup(("number",), ()),), history=history)
        workflow.save(f"{folder}/workflow")
        parts = []
        for number, span in enumerate(spans):
            path = f"{folder}/{number}.parquet"
            staged = table.slice(span.start, len(span))
            staged = staged.append_column(KEYS_OF_HISTORY, staged["user"])
            staged = staged.append_column(TIMES_OF_HISTORY, staged["time"])
            pq.write_table(staged, path)
            parts.append(Part(path, (0,), len(span), path, first_row=0))
        made = make_histories(
            history,
            (parts[:1], parts[1:-1], parts[-1:]),
            (f"{folder}/workflow", Lookups(None, (), 1)),
            (TasksHere(), MemoryPlan(8 * 40 * range_events), folder),  # type: ignore[arg-type]
            1 << 8,
            lambda _: None,
        )
        of_training = [row for span in (*before, *train) for row in span]
        for part, span in zip(parts[1:], [*train, *valid], strict=True):
            one = next(made)
            assert one is not None
            opened = one.opened(part)
            events = of_training if span in train else list(range(len(rows)))
            wanted = naive(span, events, rows, keep)
            here = pa.table({"row": list(span)})
            pieces = list(opened.pieces(np.arange(len(span)), 3))
            assert all(len(piece) <= 3 for piece in pieces)
            found = [opened.append_to(here, piece) for piece in pieces]
            lists = [row for piece in found for row in piece["history_number"].to_pylist()]
            gaps = [row for piece in found for row in piece["history_time"].to_pylist()]
            assert lists == wanted
            assert gaps == [
                [rows[row][1] - rows[event][1] for event in of_row]
                for row, of_row in zip(span, wanted, strict=True)
            ]
        forget_run()


def test_times_are_times_or_numbers(wording: Wording) -> None:
    for times in (pa.array([5], pa.duration("s")), pa.array(["5"]), pa.array([5], pa.time32("s"))):
        wording.refused(DataError, partial(seconds_of, "at", times))


DOCUMENT: dict[str, Any] = {
    "target": "bought",
    "split": {"by": "time", "column": "at", "from": "2026-01-04"},
    "columns": {
        "item": {"kind": "categorical"},
        "price": {"kind": "continuous", "fill": 0, "log": True},
    },
    "history": {"by": "user", "order": "at", "keep": 3, "of": ["item", "price", "at"]},
}
RNG = np.random.default_rng(5)
LOG = [
    {
        "user": RNG.choice(["a", "b", "c", ""]),
        "at": f"2026-01-{RNG.integers(1, 6):02d} {RNG.integers(0, 24):02d}:00:00",
        "item": f"i{RNG.integers(0, 9)}",
        "price": str(RNG.integers(0, 90)),
        "bought": str(n % 2),
    }
    for n in range(300)
]
DAY_6 = [{**row, "at": row["at"].replace("-01-0", "-01-1")} for row in LOG[:40]]


def write(path: Path, rows: Sequence[dict[str, str]]) -> str:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, LOG[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def wanted_items(rows: Sequence[dict[str, str]], events: Sequence[dict[str, str]]) -> list[Any]:
    pairs = [(row["user"] or None, np.datetime64(row["at"])) for row in (*events, *rows)]
    asking = range(len(events), len(pairs))
    found = naive(asking, range(len(events)), pairs, 3)
    return [[events[event]["item"] for event in of_row] for of_row in found]


def items(folder: Path, split: str, column: str, workflow: Path) -> list[Any]:
    names = Workflow.load(workflow).groups[0].operators[-1].vocabularies["item"].values  # type: ignore[attr-defined]
    ids = pq.read_table(folder / split)[column].to_pylist()
    first = Workflow.load(workflow).cardinalities["item"] - len(names)
    return [[names[id_ - first].as_py() for id_ in of_row] for of_row in ids]


def test_prepared_rows_have_histories_and_later_days_those_of_the_log(
    client: Any, tmp_path: Path, wording: Wording
) -> None:
    inputs = (write(tmp_path / "a.csv", LOG[:200]), write(tmp_path / "b.csv", LOG[200:]))
    features, out = FeatureConfig.parse(DOCUMENT), tmp_path / "out"
    prepare(PrepRequest(inputs, out, features=features, block_bytes=2048), client)
    train = [row for row in LOG if row["at"] < "2026-01-04"]
    valid = [row for row in LOG if row["at"] >= "2026-01-04"]
    workflow = out / "workflow"
    assert items(out, "train", "history_item", workflow) == wanted_items(train, train)
    assert items(out, "valid", "history_item", workflow) == wanted_items(valid, [*train, *valid])
    rows = pq.read_table(out / "valid")
    gaps = rows["history_at"].to_pylist()
    assert all(gap > 0 for of_row in gaps for gap in of_row)
    assert all(sorted(of_row, reverse=True) == of_row for of_row in gaps)
    schema = Schema.load(out)
    events = [c.name for c in schema if c.properties.get("event") == "history"]
    assert events == ["history_item", "history_price", "history_at"]
    assert schema["history_item"].domain == schema["item"].domain == "item"
    assert schema["history_item"].cardinality == schema["item"].cardinality
    assert schema["history_at"].tags == ("continuous", "sequence", "time_difference")
    assert schema["history_at"].value_count == (0, 3)
    with Loader(
        Dataset(str(out / "valid"), schema), batch_size=50, lanes=1, shuffle="none"
    ) as loader:
        batch = next(iter(loader))
        wanted = [gap for of_row in gaps[:50] for gap in of_row]
        assert batch.lists["history_at"].values.tolist() == pytest.approx(wanted)

    day = (write(tmp_path / "day.csv", DAY_6),)
    later = PrepRequest(day, tmp_path / "later", saved_workflow=workflow, log=inputs)
    prepare(later, client)
    found = items(tmp_path / "later", "train", "history_item", workflow)
    assert found == wanted_items(DAY_6, [*LOG, *DAY_6])
    items_alone = (write(tmp_path / "i.csv", [row | {"user": "", "at": ""} for row in DAY_6]),)
    prepare(PrepRequest(items_alone, tmp_path / "i", saved_workflow=workflow, log=()), client)
    without_events = pq.read_table(tmp_path / "i" / "train")
    for name in events:
        assert without_events.schema.field(name) == rows.schema.field(name)
        assert not any(without_events[name].to_pylist())
    wording.refused(
        InputError,
        lambda: prepare(PrepRequest(day, tmp_path / "none", saved_workflow=workflow), client),
    )
    wording.refused(InputError, lambda: RawRows((), str(workflow), RawOptions()).check("--keep"))


def test_rows_in_the_order_of_windows_have_the_histories_of_the_log(
    client: Any, tmp_path: Path
) -> None:
    features = FeatureConfig.parse({**DOCUMENT, "windows": {"by": "at", "size": "1d"}})
    inputs, out = (write(tmp_path / "log.csv", LOG),), tmp_path / "out"
    prepare(PrepRequest(inputs, out, features=features, block_bytes=1 << 20), client)
    train = [row for row in LOG if row["at"] < "2026-01-04"]
    by_day = sorted(train, key=lambda row: row["at"][:10])
    found = items(out, "train", "history_item", out / "workflow")
    assert found == wanted_items(by_day, train)
