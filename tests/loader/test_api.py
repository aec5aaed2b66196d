"""The public API: `distrain.Dataset` and `distrain.Loader`, as a new user would use them."""

import copy
import gc
import json
import pickle
from functools import partial
from itertools import chain
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from same_batches import rows_of
from torch.utils.data import DataLoader
from wording import Wording

import distrain
from distrain.errors import SchemaError, SpecError
from distrain.loader.batch import Batch
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


def test_booleans_mean_the_usual_shuffles(dataset: distrain.Dataset) -> None:
    assert rows(loader_of(dataset, shuffle=True)) == rows(loader_of(dataset, shuffle="chunk"))
    in_order = loader_of(dataset, shuffle=False, lanes=1)
    assert joined(rows(in_order)) == list(range(ROWS))
    assert rows(loader_of(dataset, shuffle="none", lanes=1)) == rows(in_order)


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


def test_a_state_after_an_epoch_is_the_next_one(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset)
    taken(loader, 8)  # the last batch was given, but not asked for one more
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (1, 0)
    list(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (2, 0)
    other = loader_of(dataset)
    other.load_state_dict(loader.state_dict())
    assert rows(other) == rows(loader)


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


def test_the_state_of_another_order_is_refused(dataset: distrain.Dataset, wording: Wording) -> None:
    state = loader_of(dataset).state_dict()
    for name, value in {
        "seed": 7, "batch_size": 16, "lanes": 12, "shuffle": "full", "drop_last": True,
        "parts_per_chunk": 2,
    }.items():  # fmt: skip
        loader = loader_of(dataset, **{name: value})
        before = loader.state_dict()
        with pytest.raises(SpecError, match=name) as caught:
            loader.load_state_dict(state)
        wording(caught.value)
        assert loader.state_dict() == before


def test_the_state_of_other_data_is_refused(
    dataset: distrain.Dataset, folder: str, schema: Schema, wording: Wording
) -> None:
    state = loader_of(dataset).state_dict()
    other = distrain.Dataset(f"{folder}/part_[01].parquet", schema)
    with pytest.raises(SpecError) as caught:
        loader_of(other).load_state_dict(state)
    assert dataset.table.fingerprint in caught.value.message
    assert other.table.fingerprint in caught.value.message
    parts = distrain.Dataset(folder, schema, part_size="1 KiB")
    wording.refused(SpecError, lambda: loader_of(parts).load_state_dict(state))


def test_a_state_that_names_no_place_is_refused(
    dataset: distrain.Dataset, wording: Wording
) -> None:
    loader = loader_of(dataset)
    before = loader.state_dict()
    damages = ({"step": 9}, {"step": -1}, {"epoch": -1}, {"epoch": None}, {"step": "3"})
    for damaged in ({}, *(before | damage for damage in damages)):
        wording.refused(SpecError, partial(loader.load_state_dict, damaged))
        assert loader.state_dict() == before
    with pytest.raises(SpecError, match="epoch"):
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
def test_two_workers_are_refused_and_an_error_of_a_worker_leaves_no_worker_behind(
    dataset: distrain.Dataset,
) -> None:
    torchs: DataLoader[Any] = DataLoader(loader_of(dataset), batch_size=None, num_workers=2)
    gc.disable()  # a collection would wait 5 s for each worker
    try:
        with pytest.raises(SpecError, match="num_workers"):
            next(iter(torchs))
        assert active_children() == []
    finally:
        gc.enable()


# Copies


@pytest.mark.slow
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


# Options


UNUSABLE: list[dict[str, Any]] = [
    {"batch_size": None},
    {"global_batch_size": 32},
    {"batch_size": 0},
    {"batch_size": 1.5},
    {"batch_size": None, "global_batch_size": -1},
    {"shuffle": "rows"},
    {"shuffle": None},
    {"seed": -1},
    {"seed": "x"},
    {"lanes": 0},
    {"num_ranks": 0},
    {"num_ranks": 5},
    {"num_ranks": 2, "rank": 2},
    {"rank": -1},
    {"device": "tpu"},
    {"device": "meta"},
    {"drop_last": True, "batch_size": 227},
    {"parts_per_chunk": 0},
    {"prefetch_batches": 0},
    {"decode_threads": 0},
    {"reader": "csv"},
    {"reader": "cudf"},
    {"cache": "unused", "cache_size": "much"},
    {"gpu_memory_fraction": 1.0},
]


def test_an_unusable_option_is_refused(
    dataset: distrain.Dataset, wording: Wording, tmp_path: Path
) -> None:
    (tmp_path / "cache").touch()
    for options in (*UNUSABLE, {"cache": str(tmp_path / "cache")}):
        with pytest.raises(SpecError) as caught:
            loader_of(dataset, **options)
        wording(str(caught.value).partition(": Expected")[0])  # the rest is torch's


def test_numbers_may_come_from_numpy(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset, batch_size=np.int64(32), seed=np.uint8(0), lanes=np.int32(24))
    json.dumps(loader.state_dict())
    assert rows(loader) == rows(loader_of(dataset))


def test_an_option_under_two_names_is_refused(folder: str, schema: Schema, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        distrain.Dataset(folder, schema, row_filter="C1 > 1", filter="C1 > 2")
    with pytest.raises(SpecError):
        loader_of(distrain.Dataset(folder, schema), cache=tmp_path / "a", cache_dir=tmp_path / "b")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1), ("1", 1), ("64", 64), ("1kb", 1000), ("1 KiB", 1024), ("1.5GB", 1_500_000_000),
        (" 2 mib ", 2**21), ("3TB", 3 * 10**12), ("1TiB", 2**40), ("0.5 kB", 500), ("7B", 7),
    ],
)  # fmt: skip
def test_sizes_are_read_as_people_write_them(text: int | str, size: int) -> None:
    assert parse_bytes(text) == size


def test_what_is_no_size_is_refused() -> None:
    for text in ("", "GB", "1 GHz", "-1", -1, 0, "0GB", "1e3", "1,5GB", "0.1B"):
        with pytest.raises(SpecError, match="size"):
            parse_bytes(text)


# Figures


def test_counts_are_exact(dataset: distrain.Dataset) -> None:
    loader = loader_of(dataset, prefetch_batches=3)
    assert set(loader.stats.to_json().values()) == {0}
    for _ in loader.epochs(2):
        pass
    stats = loader.stats
    assert (stats.epochs, stats.batches, stats.rows) == (2, 16, 2 * ROWS)
    assert stats.row_groups == 2 * 7
    assert min(stats.bytes_read, stats.first_batch_s, stats.decode_s, stats.fill_s) > 0
    assert stats.wait_s > 0
    assert 0 <= stats.mean_queue_depth <= 3
    json.dumps(stats.to_json())


# Datasets


def test_paths_may_be_given_in_many_ways(folder: str, schema: Schema) -> None:
    files = sorted(Path(folder).glob("*.parquet"))
    fingerprints = {
        distrain.Dataset(paths, schema).table.fingerprint
        for paths in (folder, Path(folder), files, [str(f) for f in files], f"{folder}/*.parquet")
    }
    assert len(fingerprints) == 1


def test_the_schema_is_found_beside_the_files_and_above(
    folder: str, schema: Schema, wording: Wording
) -> None:
    table = Path(folder)
    wording.refused(SchemaError, lambda: distrain.Dataset(table))
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
