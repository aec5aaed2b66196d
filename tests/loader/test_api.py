"""The public face: `distrain.Dataset` and `distrain.Loader`, as a stranger would use them."""

import copy
import gc
import json
import pickle
import time
import traceback
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from loaded_scripts import run_script
from torch.utils.data import DataLoader

import distrain
from distrain.batch import Batch
from distrain.errors import SchemaError, SpecError
from distrain.loader.options import parse_bytes
from distrain.schema import Schema

SIZES = [[40, 31, 7], [64], [1, 50, 33]]
ROWS = 226


@pytest.fixture
def folder(write_table: Any) -> str:
    return str(write_table(SIZES))


@pytest.fixture
def dataset(folder: str, schema: Schema) -> distrain.Dataset:
    return distrain.Dataset(folder, schema)


def loader_of(dataset: distrain.Dataset, **options: Any) -> distrain.Loader:
    return distrain.Loader(dataset, **{"batch_size": 32, **options})


def rows_of(batch: Batch) -> list[int]:
    rows: list[int] = batch["C3"].tolist()
    return rows


def rows(batches: Any) -> list[list[int]]:
    return [rows_of(batch) for batch in batches]


def joined(parts: Any) -> list[Any]:
    return list(chain.from_iterable(parts))


def taken(loader: Any, count: int) -> list[list[int]]:
    """The first batches of the next epoch, left by `break`."""
    found = []
    for batch in loader:
        found.append(rows_of(batch))
        if len(found) == count:
            break
    return found


# Iterating


def test_an_epoch_gives_every_row_once(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    batches = list(loader)
    assert len(loader) == len(batches) == loader.num_steps == 8
    assert sorted(joined(rows(batches))) == list(range(ROWS))
    assert [batch.num_rows for batch in batches] == [32] * 7 + [2]
    assert [loader.rows_in_step(step) for step in range(8)] == [32] * 7 + [2]
    assert loader.num_rows == len(dataset) == ROWS
    batch = batches[0]
    assert batch.categorical_names == ("C1", "C2", "C3")
    assert batch.continuous_names == ("I1", "I2")
    assert batch.label is not None
    number = rows_of(batch)
    assert batch["C1"].tolist() == [2**24 + 2 * n + 1 for n in number]
    assert batch.label.tolist() == [float(n % 3 == 0) for n in number]


def test_each_epoch_has_an_order_of_its_own(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    epochs = [rows(loader) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    again = loader_of(dataset)
    assert rows(again.epochs(3)) == joined(epochs)
    again.set_epoch(1)
    assert rows(again) == epochs[1]
    assert rows(again) == epochs[2]
    with again.epoch(1) as batches:
        assert rows(batches) == epochs[1]
    assert rows(loader_of(dataset, seed=1)) != epochs[0]


def test_an_epoch_left_by_break_is_over(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    taken(loader, 2)
    with loader.epoch(1) as second:
        assert rows(loader) == rows(second)


def test_booleans_mean_the_usual_shuffles(dataset: distrain.Dataset) -> None:
    assert rows(loader_of(dataset, shuffle=True)) == rows(loader_of(dataset, shuffle="chunk"))
    in_order = loader_of(dataset, shuffle=False, lanes=1)
    assert joined(rows(in_order)) == list(range(ROWS))
    assert rows(loader_of(dataset, shuffle="none", lanes=1)) == rows(in_order)


def test_batch_size_is_per_rank(dataset: distrain.Dataset) -> None:
    whole = rows(loader_of(dataset))
    per_rank = [
        rows(distrain.Loader(dataset, batch_size=16, rank=rank, num_ranks=2)) for rank in (0, 1)
    ]
    assert [a + b for a, b in zip(*per_rank, strict=True)] == whole
    half = distrain.Loader(dataset, global_batch_size=32, rank=1, num_ranks=2)
    assert rows(half) == per_rank[1]


def test_sample_batch_is_the_first_and_takes_no_step(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    sample = rows_of(loader.sample_batch())
    assert loader.state_dict()["step"] == 0
    assert next(iter(loader))["C3"].tolist() == sample


def test_the_context_manager_ends_running_iterators(dataset: distrain.Dataset) -> None:
    with loader_of(dataset, prefetch_batches=1) as loader:
        iterators = [iter(loader), loader.epoch(4), loader.epoch(5)]
        for iterator in iterators:
            next(iterator)
    assert [list(iterator) for iterator in iterators] == [[], [], []]
    loader.close()
    with loader.epoch(0) as batches:  # a loader that was closed can be used again
        assert len(list(batches)) == 8


# Where the stream stands


def test_a_state_goes_on_after_the_last_batch_given(dataset: distrain.Dataset) -> None:
    with loader_of(dataset).epoch(0) as batches:
        whole = rows(batches)
    loader = loader_of(dataset)
    for steps in (1, 3, 7):
        loader.set_epoch(0)
        taken(loader, steps)
        state = json.loads(json.dumps(loader.state_dict()))
        assert (state["epoch"], state["step"]) == (0, steps)
        other = loader_of(dataset, decode_threads=1, prefetch_batches=2)
        other.load_state_dict(state)
        assert other.state_dict() == state
        assert rows(other) == whole[steps:]
        with loader.epoch(1) as second:
            assert rows(other) == rows(second)


def test_a_state_after_an_epoch_is_the_next_one(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    taken(loader, 8)  # the last batch was given, but not asked for one more
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (1, 0)
    list(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (2, 0)
    other = loader_of(dataset)
    other.load_state_dict(loader.state_dict())
    assert rows(other) == rows(loader)


def test_a_loader_goes_back_to_a_state_of_its_own(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    first = taken(loader, 3)
    state = loader.state_dict()
    rest = rows(loader_of(dataset))[3:]
    list(loader)
    loader.load_state_dict(state)
    assert rows(loader) == rest
    assert len(first) + len(rest) == 8


def test_a_state_at_the_end_of_an_epoch_begins_the_next_one(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    loader.load_state_dict(loader.state_dict() | {"step": len(loader)})
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (1, 0)
    with loader.epoch(1) as second:
        assert rows(loader) == rows(second)


def test_an_iterator_that_still_runs_does_not_move_what_was_set(dataset: distrain.Dataset) -> None:
    with loader_of(dataset).epoch(0) as batches:
        whole = rows(batches)
    loader = loader_of(dataset)
    running = iter(loader)
    next(running)
    loader.set_epoch(0)
    next(running)
    assert rows(loader) == whole
    loader.load_state_dict(loader.state_dict() | {"epoch": 0, "step": 5})
    next(running)
    loader.sample_batch()
    assert rows(loader) == whole[5:]


def test_a_state_may_be_loaded_by_another_number_of_ranks(dataset: distrain.Dataset) -> None:
    one = loader_of(dataset)
    taken(one, 3)
    with one.epoch(0, start_step=3) as batches:
        rest = rows(batches)
    parts = []
    for rank in range(3):
        loader = distrain.Loader(dataset, global_batch_size=32, rank=rank, num_ranks=3)
        loader.load_state_dict(one.state_dict())
        parts.append(rows(loader))
    assert [a + b + c for a, b, c in zip(*parts, strict=True)] == rest


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 7}, "seed is 7 here and 0 in the state"),
        ({"batch_size": 16}, "global_batch_size is 16 here and 32 in the state"),
        ({"lanes": 12}, "lanes is 12 here and 24 in the state"),
        ({"shuffle": "full"}, "shuffle is 'full' here and 'chunk' in the state"),
        ({"drop_last": True}, "drop_last is True here and False in the state"),
        ({"parts_per_chunk": 2}, "parts_per_chunk is 2 here and 1 in the state"),
    ],
)
def test_the_state_of_another_order_is_refused(
    dataset: distrain.Dataset, changes: dict[str, Any], told: str
) -> None:
    loader = loader_of(dataset, **changes)
    before = loader.state_dict()
    state = loader_of(dataset).state_dict()
    with pytest.raises(SpecError, match="another stream of rows") as caught:
        loader.load_state_dict(state)
    assert told in caught.value.message
    assert "only the number of ranks may differ" in str(caught.value)
    assert loader.state_dict() == before


def test_the_state_of_other_data_is_refused(
    dataset: distrain.Dataset, folder: str, schema: Schema
) -> None:
    state = loader_of(dataset).state_dict()
    other = distrain.Dataset(f"{folder}/part_[01].parquet", schema)
    with pytest.raises(SpecError) as caught:
        loader_of(other).load_state_dict(state)
    assert dataset.table.fingerprint in caught.value.message
    assert other.table.fingerprint in caught.value.message
    parts = distrain.Dataset(folder, schema, part_size="1 KiB")
    with pytest.raises(SpecError, match=r"part_rows is \d+ here and None in the state"):
        loader_of(parts).load_state_dict(state)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"step": 9}, "step 9 is not in 0..8"),
        ({"step": -1}, "step is -1, not 0 or more"),
        ({"epoch": -1}, "epoch is -1, not 0 or more"),
        ({"epoch": None}, "epoch is None, not a whole number"),
        ({"step": "3"}, "step is '3', not a whole number"),
    ],
)
def test_a_state_that_names_no_place_is_refused(
    dataset: distrain.Dataset, damage: dict[str, Any], told: str
) -> None:
    loader = loader_of(dataset)
    before = loader.state_dict()
    with pytest.raises(SpecError, match=told):
        loader.load_state_dict(before | damage)
    assert loader.state_dict() == before
    with pytest.raises(SpecError, match="epoch is -1, not 0 or more"):
        loader.set_epoch(-1)


# Transforms


def number_of_rows(batch: Batch) -> int:
    return batch.num_rows


def negative(number: int) -> int:
    return -number


def test_map_makes_a_new_loader(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    counted = loader.map(number_of_rows)
    chained = counted.map(negative)
    assert isinstance(chained, distrain.Loader)
    assert list(chained) == [-32] * 7 + [-2]
    assert list(counted) == [32] * 7 + [2]
    assert isinstance(next(iter(loader)), Batch)
    assert list(loader_of(dataset, transforms=[number_of_rows, negative])) == [-32] * 7 + [-2]
    assert chained.stats.batches == 8
    assert loader.stats.batches == 1


def test_map_keeps_the_stream_and_its_place(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    taken(loader, 3)
    mapped = loader.map(rows_of)
    assert mapped.state_dict() == loader.state_dict()
    assert list(mapped) == rows(loader)


def test_an_error_in_a_transform_comes_at_its_batch(dataset: distrain.Dataset) -> None:
    seen = []

    def fail_at_the_fourth(batch: Batch) -> Batch:
        seen.append(batch)
        if len(seen) == 4:
            raise ZeroDivisionError("of the fourth batch")
        return batch

    count = 0
    with pytest.raises(ZeroDivisionError, match="of the fourth batch") as caught:  # noqa: PT012
        for _ in loader_of(dataset).map(fail_at_the_fourth):
            count += 1
    assert count == 3
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "fail_at_the_fourth"


# Torch's DataLoader


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_dataloader_gives_the_same_stream(dataset: distrain.Dataset, num_workers: int) -> None:
    own = loader_of(dataset)
    torchs: DataLoader[Any] = DataLoader(
        loader_of(dataset),
        batch_size=None,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
    )
    assert len(torchs) == 8
    first = list(torchs)
    assert all(isinstance(batch, Batch) for batch in first)
    assert rows(first) == rows(own)
    assert rows(torchs) == rows(own)
    taken(torchs, 2)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_workers_that_start_anew_need_set_epoch(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    torchs: DataLoader[Any] = DataLoader(loader, batch_size=None, num_workers=1)
    streams = []
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        streams.append(rows(torchs))
    with loader.epoch(0) as first, loader.epoch(1) as second:
        assert streams == [rows(first), rows(second)]


@pytest.mark.slow  # torch takes 5 s to end each worker whose dataset failed
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_two_workers_are_refused_with_advice(dataset: distrain.Dataset) -> None:
    torchs: DataLoader[Any] = DataLoader(loader_of(dataset), batch_size=None, num_workers=2)
    with pytest.raises(SpecError, match="2 workers would give each batch so many times") as caught:
        next(iter(torchs))
    assert "Use num_workers=0 or 1" in str(caught.value)


def test_one_of_two_workers_gives_nothing(
    dataset: distrain.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = SimpleNamespace(num_workers=2)
    monkeypatch.setattr("distrain.loader.loader.get_worker_info", lambda: worker)
    with pytest.raises(SpecError, match="2 workers would give each batch so many times"):
        next(iter(loader_of(dataset)))


class _Stateful:
    """What torchdata's StatefulDataLoader does with a dataset that has a state, in this process.

    It asks the dataset for its state after each batch it hands out, and loads a state into a new
    dataset before it calls `iter`.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self.state: dict[str, Any] | None = None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        if self.state is not None:
            self.dataset.load_state_dict(self.state)
        for batch in iter(self.dataset):
            yield batch, copy.deepcopy(self.dataset.state_dict())


def test_states_follow_torchs_convention(dataset: distrain.Dataset) -> None:
    steps = list(_Stateful(loader_of(dataset)))
    for number, (_, state) in enumerate(steps[:-1]):
        resumed = _Stateful(loader_of(dataset))
        resumed.load_state_dict(state)
        assert rows_of(next(iter(resumed))[0]) == rows_of(steps[number + 1][0])


# Copies


def test_a_pickled_loader_goes_on_as_its_original(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    batches = iter(loader)
    next(batches)
    for twin in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader), copy.copy(loader)):
        assert twin.state_dict() == loader.state_dict()
        assert twin.stats.batches == 0
        with loader.epoch(1) as second:
            assert rows(twin) == rows(second)
    assert len(list(batches)) == 7
    del twin
    gc.collect()


def test_a_loader_works_in_a_new_process(dataset: distrain.Dataset, tmp_path: Path) -> None:
    loader = loader_of(dataset)
    taken(loader, 2)
    (tmp_path / "loader.pickle").write_bytes(pickle.dumps(loader))
    (tmp_path / "script.py").write_text(
        "import json, pickle, sys\n"
        "loader = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(json.dumps([batch['C3'].tolist() for batch in loader]))"
    )
    ran = run_script(tmp_path / "script.py", tmp_path / "loader.pickle")
    assert ran.stderr == ""
    assert json.loads(ran.stdout) == rows(loader)


# Options


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch_size": None}, "give either batch_size or global_batch_size"),
        ({"global_batch_size": 32}, "give either batch_size or global_batch_size"),
        ({"batch_size": 0}, "batch_size is 0, not 1 or more"),
        ({"batch_size": 1.5}, "batch_size is 1.5, not a whole number"),
        ({"batch_size": None, "global_batch_size": -1}, "global_batch_size is -1, not 1 or more"),
        ({"shuffle": "rows"}, "unknown shuffle 'rows'"),
        ({"shuffle": None}, "unknown shuffle None"),
        ({"seed": -1}, "seed is -1, not 0 or more"),
        ({"seed": "x"}, "seed is 'x', not a whole number"),
        ({"lanes": 0}, "lanes is 0, not 1 or more"),
        ({"num_ranks": 0}, "num_ranks is 0, not 1 or more"),
        ({"num_ranks": 5}, "5 ranks cannot share 24 lanes evenly"),
        ({"num_ranks": 2, "rank": 2}, r"rank 2 is not in 0\.\.1"),
        ({"rank": -1}, "rank is -1, not 0 or more"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "meta"}, "cpu or cuda devices, not meta"),
        ({"drop_last": True, "batch_size": 227}, "226 rows do not fill one global batch of 227"),
        ({"parts_per_chunk": 0}, "parts_per_chunk is 0, not 1 or more"),
        ({"prefetch_batches": 0}, "prefetch_batches is 0, not 1 or more"),
        ({"decode_threads": 0}, "decode_threads is 0, not 1 or more"),
        ({"reader": "csv"}, "unknown reader 'csv'"),
        ({"reader": "packed"}, "reader 'packed' cannot serve this table"),
        ({"reader": "cudf"}, "reader 'cudf' cannot serve this table"),
        ({"cache": "unused", "cache_size": "much"}, "'much' is no size in bytes"),
        ({"gpu_memory_fraction": 1.0}, "gpu_memory_fraction is 1.0, not between 0 and 1"),
    ],
)
def test_a_number_out_of_its_range_is_named(
    dataset: distrain.Dataset, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        loader_of(dataset, **options)


def test_numbers_may_come_from_numpy(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset, batch_size=np.int64(32), seed=np.uint8(0), lanes=np.int32(24))
    json.dumps(loader.state_dict())
    assert rows(loader) == rows(loader_of(dataset))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1), ("1", 1), ("64", 64), ("1kb", 1000), ("1 KiB", 1024), ("1.5GB", 1_500_000_000),
        (" 2 mib ", 2**21), ("3TB", 3 * 10**12), ("1TiB", 2**40), ("0.5 kB", 500), ("7B", 7),
    ],
)  # fmt: skip
def test_sizes_are_read_as_people_write_them(text: int | str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "1 GHz", "-1", -1, 0, "0GB", "1e3", "1,5GB", "0.1B"])
def test_what_is_no_size_is_refused(text: int | str) -> None:
    with pytest.raises(SpecError, match="is no size in bytes"):
        parse_bytes(text)


# Figures


def test_counts_are_exact(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset, prefetch_batches=3)
    assert set(loader.stats.to_json().values()) == {0}
    start_s = time.perf_counter()
    for _ in loader.epochs(2):
        pass
    wall_s = time.perf_counter() - start_s
    stats = loader.stats
    assert (stats.epochs, stats.batches, stats.rows) == (2, 16, 2 * ROWS)
    assert stats.row_groups == 2 * 7
    assert stats.bytes_read > 0
    assert 0 < stats.first_batch_s <= wall_s
    assert 0 < stats.wait_s <= wall_s
    assert 0 < stats.decode_s <= 2 * wall_s
    assert 0 < stats.fill_s <= 2 * wall_s
    assert 0 <= stats.mean_queue_depth <= 3
    json.dumps(stats.to_json())


def test_counts_of_a_part_of_an_epoch(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset, shuffle=False, lanes=1, batch_size=40)
    with loader.epoch(0, start_step=2) as batches:  # row 80 is in the first row group of file 1
        assert next(batches)["C3"].tolist() == list(range(80, 120))
        assert (loader.stats.batches, loader.stats.rows) == (1, 40)
        list(batches)
    assert (loader.stats.batches, loader.stats.rows) == (4, ROWS - 80)
    assert loader.stats.row_groups == 4


def test_counts_of_ranks_add_up(dataset: distrain.Dataset) -> None:
    loaders = [loader_of(dataset, rank=rank, num_ranks=4) for rank in range(4)]
    for loader in loaders:
        list(loader)
    assert sum(loader.stats.rows for loader in loaders) == ROWS
    assert {loader.stats.batches for loader in loaders} == {loaders[0].num_steps}


# Datasets


def test_a_dataset_says_what_it_is(dataset: distrain.Dataset) -> None:
    assert repr(dataset) == "Dataset(226 rows, 7 row groups, 3 files, 6 columns)"
    assert len(dataset) == ROWS
    twin = pickle.loads(pickle.dumps(dataset))
    assert twin.table == dataset.table
    assert rows(loader_of(twin)) == rows(loader_of(dataset))


def test_paths_may_be_given_in_many_ways(folder: str, schema: Schema) -> None:
    files = sorted(Path(folder).glob("*.parquet"))
    fingerprints = {
        distrain.Dataset(paths, schema).table.fingerprint
        for paths in (folder, Path(folder), files, [str(f) for f in files], f"{folder}/*.parquet")
    }
    assert len(fingerprints) == 1


def test_the_schema_is_found_beside_the_files_and_above(folder: str, schema: Schema) -> None:
    table = Path(folder)
    with pytest.raises(SchemaError, match="found no schema beside the files"):
        distrain.Dataset(table)
    inner = table / "train"
    inner.mkdir()
    for file in table.glob("*.parquet"):
        file.rename(inner / file.name)
    schema.save(table / "schema.pbtxt")
    above = distrain.Dataset(inner)
    schema.save(inner / "schema.json")
    (table / "schema.pbtxt").unlink()
    beside = distrain.Dataset(inner)
    by_file = distrain.Dataset(inner, inner / "schema.json")
    by_folder = distrain.Dataset(inner, str(inner))
    for found in (above, beside, by_file, by_folder):
        assert found.schema == schema
        assert found.table.fingerprint == beside.table.fingerprint


def test_a_schema_that_cannot_be_read_is_not_passed_over(folder: str, schema: Schema) -> None:
    schema.save(Path(folder).parent / "schema.pbtxt")
    (Path(folder) / "schema.json").write_text("{")
    try:
        with pytest.raises(SchemaError) as caught:
            distrain.Dataset(folder)
    finally:
        (Path(folder).parent / "schema.pbtxt").unlink()
    assert "schema.json" in str(caught.value)


def test_without_labels(folder: str, schema: Schema) -> None:
    batch = loader_of(distrain.Dataset(folder, schema, need_label=False)).sample_batch()
    assert batch.label is None
    assert batch.continuous.shape == torch.Size([32, 2])
