"""Errors reach the caller at the right step, and whatever happens, nothing is left running."""

import contextlib
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wording import Wording

from distrain.errors import DataError
from distrain.loader import Dataset, EpochIterator, Loader
from distrain.loader.backends import CpuBackend
from distrain.loader.delivery import loads_ahead
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.filling.schedule import plan_loads
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.table import RowGroup, Table
from distrain.schema import Schema


def in_order(table: Table, schema: Schema, **options: Any) -> Loader:
    defaults = {"global_batch_size": 10, "lanes": 1, "shuffle": "none", "parts_per_chunk": 1}
    return Loader(Dataset.of(table, schema), **{**defaults, **options})


def take_until_error(iterator: EpochIterator) -> tuple[int, DataError]:
    taken = 0
    with pytest.raises(DataError) as caught:  # noqa: PT012 (counting what comes before it)
        for _ in iterator:
            taken += 1
    return taken, caught.value


def test_a_file_replaced_after_planning_is_named(write_table: Any, schema: Schema) -> None:
    planned = read_footers(write_table([[20, 20]]), schema)
    # Of the same size, or from before sizes were kept.
    table = Table(tuple(replace(g, version="") for g in planned.row_groups), planned.fingerprint)
    narrow = schema.with_columns(replace(schema["C2"], name="C9"))
    for of_table, columns, sizes, changes, expected in (
        (planned, schema, [20, 19], {}, 0),
        (table, schema, [20, 19], {}, 2),
        (table, schema, [20, 20], {"C2": ["x"] * 40}, 0),
        (table, narrow, [20, 20], {}, 0),
    ):
        write_table([sizes], **changes)
        with in_order(of_table, columns).epoch(0) as batches:
            taken, error = take_until_error(batches)
        assert taken == expected
        assert error.where["file"] == planned.row_groups[0].file


@pytest.mark.slow
def test_the_interpreter_exits_with_an_iterator_left_open(
    write_table: Any, schema: Schema, tmp_path: Path
) -> None:
    folder = write_table([[20] * 5])
    (tmp_path / "schema.py").write_text(f"document = {schema.to_json()!r}")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from schema import document
from distrain.loader import Dataset, Loader
from distrain.schema import Schema
schema = Schema.from_json(document)
loader = Loader(Dataset({folder!r}, schema), batch_size=10, prefetch_batches=1)
batches = loader.epoch(0)
next(batches)
print("left open")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "left open\n", "")


def test_an_epoch_that_cannot_begin_is_an_error_after_the_batches_before_it(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    table, plan = read_footers(write_table([[20] * 4]), schema), plan_loads
    calls: list[int] = []

    def failing_plan(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("no plan")
        return plan(*arguments)

    monkeypatch.setattr(loads_ahead, "plan_loads", failing_plan)
    loader = in_order(table, schema, decode_threads=4)
    with loader.in_turn(range(2 * loader.num_steps)) as batches:
        for _ in range(loader.num_steps):
            next(batches)
        wording.refused(RuntimeError, lambda: next(batches))
    assert not loader._source._users


def test_many_files_do_not_exhaust_the_descriptors(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distrain.loader.reading import arrow
    from distrain.loader.reading.open_files import Handle

    monkeypatch.setattr(arrow, "_OPEN_FILES_PER_THREAD", 2)
    opened: list[int] = []
    table = read_footers(write_table([[3, 4]] * 8), schema)

    class Counted(Handle):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            opened.append(1)

        def close(self) -> None:
            super().close()
            opened.append(-1)

    monkeypatch.setattr(arrow, "Handle", Counted)
    with Loader(Dataset.of(table, schema), batch_size=7, lanes=4, decode_threads=1).epoch(
        0
    ) as batches:
        assert sum(batch.num_rows for batch in batches) == 56
    assert max(np.cumsum(opened)) <= 2 + 1
    assert sum(opened) == 0


def test_a_thread_that_is_done_first_has_the_next_row_group(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = read_footers(write_table([[20] * 5]), schema)
    third_began = threading.Event()
    begun: list[int] = []

    def load(self: CpuBackend, group: RowGroup, *more: Any) -> None:
        begun.append(group.index)
        if len(begun) == 3:
            third_began.set()
        if group.index == 0:
            assert third_began.wait(60)
        original(self, group, *more)

    original = CpuBackend.load
    monkeypatch.setattr(CpuBackend, "load", load)
    with in_order(table, schema, decode_threads=2).epoch(0) as batches:
        assert sum(batch.num_rows for batch in batches) == 100
    assert sorted(begun) == [0, 1, 2, 3, 4]


def test_a_collection_inside_a_loader_thread_does_not_wait_for_itself(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = read_footers(write_table([[20] * 5]), schema)
    holder: list[EpochIterator] = []
    made = threading.Event()

    def dropping_decode(*arguments: Any) -> Any:
        assert made.wait(60)
        holder.clear()  # the last reference: the finalizer runs here, in the decoding thread
        return load(*arguments)

    load = CpuBackend.load
    monkeypatch.setattr(CpuBackend, "load", dropping_decode)
    holder.append(in_order(table, schema).epoch(0))
    threads = [thread for thread in threading.enumerate() if thread.name == "loader"]
    made.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_counting_waits_for_nobody() -> None:
    recorder = StatsRecorder()

    def count() -> None:
        for _ in range(1000):
            recorder.add(rows=2, wait_s=0.5)

    thread = threading.Thread(target=count, daemon=True)
    with recorder._lock:  # as who reads, in whom a collection waits for the loader's threads
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    count()
    assert recorder._added.qsize() < 1000
    stats = recorder.read()
    assert (stats.rows, stats.wait_s) == (4000, 1000.0)


@pytest.mark.parametrize("ends", ["well", "early", "badly"])
def test_a_backend_is_closed_once_when_nobody_loads_any_more(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    loads, closes = [], []

    class Watched(CpuBackend):
        def load(self, *args: Any) -> None:
            if ends == "badly" and len(loads) >= 2:  # several threads load
                raise DataError("bad")
            super().load(*args)
            loads.append(len(closes))

        def close(self) -> None:
            closes.append(len(loads))
            super().close()

    def backend(_: Any, source: Any, dataset: Dataset, pool: Any, stats: Any, **__: Any) -> Any:
        return Watched(dataset.columns, source.open(), pool, stats, {})

    monkeypatch.setattr("distrain.loader.loader.new_backend", backend)
    loader = Loader(Dataset(write_table([[20] * 6]), schema), batch_size=20)
    expected = pytest.raises(DataError) if ends == "badly" else contextlib.nullcontext()
    with expected, loader.epoch(0) as batches:
        for _ in batches:
            if ends == "early":
                break
    assert closes == [len(loads)]
    assert set(loads) == {0}
