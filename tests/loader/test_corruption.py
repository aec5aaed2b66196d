"""Files that are damaged, replaced or gone, and values that cannot be: told, placed, in time.

In every test the batches before the error are those of the undamaged table, and the error comes at
the first step that needs a damaged row group.
"""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distrain.batch import Batch
from distrain.errors import DataError
from distrain.etl.parts import readable_parquet
from distrain.loader import Dataset, EpochIterator, Loader
from distrain.loader.options import LoaderOptions
from distrain.loader.reading import ArrowReader
from distrain.partition import RowGroup, read_footers
from distrain.schema import Schema
from distrain.spec import WindowsSpec

SIZES = [[20, 20, 20]] * 4
FILES, GROUPS, GROUP_ROWS = 4, 3, 20
SHUFFLED = {"global_batch_size": 16, "lanes": 4, "seed": 5}
IN_ORDER = {"global_batch_size": 10, "lanes": 1, "shuffle": "none"}
IN_WINDOWS: dict[str, Any] = SHUFFLED | {"windows": WindowsSpec(by="file")}


@pytest.fixture
def folder(write_table: Any) -> Path:
    return Path(write_table(SIZES))


def loader_of(
    folder: Path, schema: Schema, windows: WindowsSpec | None = None, **options: Any
) -> Loader:
    return Loader(Dataset(folder, schema, windows=windows), **options)


def rows_of(batch: Batch) -> list[int]:
    return batch["C3"].tolist()


def content(batch: Batch) -> bytes:
    assert batch.label is not None
    parts = (batch.categorical, batch.continuous, batch.label)
    return b"".join(part.contiguous().numpy().tobytes() for part in parts)


def take_until_error(batches: EpochIterator) -> tuple[list[bytes], DataError]:
    taken = []
    with batches, pytest.raises(DataError) as caught:  # noqa: PT012 (what comes before it counts)
        for batch in batches:
            taken.append(content(batch))  # noqa: PERF401 (an error ends it)
    return taken, caught.value


def first_step_with(clean: list[list[int]], file: int, group: int) -> int:
    start = (file * GROUPS + group) * GROUP_ROWS
    wanted = set(range(start, start + GROUP_ROWS))
    return next(step for step, rows in enumerate(clean) if wanted & set(rows))


def rewrite(path: Path, **changes: Any) -> None:
    """The file anew, under its name at once, with some columns changed."""
    table = pq.read_table(path)
    for name, values in changes.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    partial = path.with_suffix(".new")
    pq.write_table(table, partial, row_group_size=GROUP_ROWS, write_statistics=False)
    os.replace(partial, path)


def with_value(path: Path, name: str, row: int, value: Any, kind: pa.DataType) -> None:
    values = pq.read_table(path)[name].to_pylist()
    values[row] = value
    rewrite(path, **{name: pa.array(values, kind)})


@pytest.mark.parametrize(
    "options", [SHUFFLED, SHUFFLED | {"shuffle": "full"}, IN_ORDER, IN_WINDOWS]
)
@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("C2", None, pa.int32(), "column 'C2' holds a null"),
        ("C2", 1000, pa.int32(), "id 1000 of column 'C2' is not in 0..999"),
        ("I1", float("inf"), pa.float32(), "column 'I1' holds inf"),
    ],
)
def test_a_bad_value_comes_after_the_good_batches_before_it(
    folder: Path, schema: Schema, options: dict[str, Any],
    name: str, value: Any, kind: pa.DataType, message: str,
) -> None:  # fmt: skip
    clean = list(loader_of(folder, schema, **options))
    bad = folder / "part_2.parquet"
    with_value(bad, name, GROUP_ROWS + 7, value, kind)
    taken, error = take_until_error(loader_of(folder, schema, **options).epoch(0))
    assert message in error.message
    assert error.where == {
        "file": str(bad),
        "row group": 1,
        "row in the group": 7,
        "column": name,
    }
    step = first_step_with([rows_of(batch) for batch in clean], 2, 1)
    assert len(taken) == step
    assert taken == [content(batch) for batch in clean[:step]]


def flipped(path: Path, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def chunk_bytes(path: Path, group: int, names: tuple[str, ...]) -> np.ndarray:
    """The offsets of a row group's pages of some columns."""
    footer = pq.read_metadata(path).row_group(group)
    spans = []
    for number in range(footer.num_columns):
        column = footer.column(number)
        if column.path_in_schema in names:
            first = column.data_page_offset
            if column.has_dictionary_page:
                first = min(first, column.dictionary_page_offset)
            spans.append(np.arange(first, first + column.total_compressed_size))
    return np.concatenate(spans)


def outcomes_of_flips(
    folder: Path, schema: Schema, *, checksums: bool, compression: str, flips: int
) -> list[str]:
    """What becomes of a flipped bit in the wanted columns' pages of file 1, row group 1."""
    path = folder / "part_1.parquet"
    pq.write_table(
        pq.read_table(path), path, row_group_size=GROUP_ROWS, write_page_checksum=checksums,
        compression=compression, write_statistics=False,
    )  # fmt: skip
    dataset = Dataset(folder, schema)
    clean = [content(batch) for batch in Loader(dataset, **IN_ORDER)]
    whole = path.with_suffix(".whole")
    shutil.copyfile(path, whole)
    rng = np.random.default_rng(3)
    offsets = chunk_bytes(path, 1, tuple(column.name for column in dataset.columns))
    outcomes = []
    for offset in rng.choice(offsets, min(flips, len(offsets)), replace=False):
        flipped(path, int(offset))
        batches = Loader(dataset, **IN_ORDER).epoch(0)
        try:
            with batches:
                same = [content(batch) for batch in batches] == clean
            outcomes.append("harmless" if same else "other numbers")
        except DataError as error:
            told_of = (error.where["file"], error.where["row group"])
            outcomes.append("told" if told_of == (str(path), 1) else f"{told_of} told")
        shutil.copyfile(whole, path)
    return outcomes


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_with_checksums_a_flipped_bit_is_told_or_does_no_harm(
    folder: Path, schema: Schema, compression: str
) -> None:
    outcomes = outcomes_of_flips(folder, schema, checksums=True, compression=compression, flips=60)
    assert set(outcomes) <= {
        "told",
        "harmless",
    }  # the headers of pages have no checksum of their own
    assert outcomes.count("told") > len(outcomes) / 2


def test_without_checksums_only_some_flipped_bits_can_be_told(folder: Path, schema: Schema) -> None:
    outcomes = outcomes_of_flips(folder, schema, checksums=False, compression="none", flips=60)
    assert "told" in outcomes  # in headers, levels and dictionary indices
    assert "other numbers" in outcomes  # in values: why `distrain prep` writes checksums


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_the_end(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8)


@pytest.mark.parametrize("cut", [cut_in_half, cut_the_end])
def test_a_truncated_file_is_told_before_training(
    folder: Path, schema: Schema, cut: Callable[[Path], None]
) -> None:
    path = folder / "part_3.parquet"
    cut(path)
    with pytest.raises(DataError, match="not a whole parquet file") as caught:
        Dataset(folder, schema)
    assert caught.value.where["file"] == str(path)


@pytest.mark.parametrize("cut", [cut_in_half, cut_the_end])
def test_a_file_truncated_in_the_middle_of_an_epoch_is_told(
    folder: Path, schema: Schema, cut: Callable[[Path], None]
) -> None:
    loader = loader_of(folder, schema, **IN_ORDER, decode_threads=1, prefetch_batches=1)
    batches = loader.epoch(0)
    next(batches)
    cut(folder / "part_3.parquet")
    taken, error = take_until_error(batches)
    assert len(taken) == 3 * GROUPS * GROUP_ROWS // 10 - 1
    assert error.where["file"] == str(folder / "part_3.parquet")
    assert error.where["row group"] == 0


def replaced(path: Path) -> None:
    """Another file of the same rows and types under the same name."""
    rewrite(path, I1=pa.array(np.arange(GROUPS * GROUP_ROWS), pa.float32()))


def overwritten(path: Path) -> None:
    """The same content as `replaced` gives, written into the file itself."""
    inode = path.stat().st_ino
    other = path.with_suffix(".other")
    shutil.copyfile(path, other)
    replaced(other)
    shutil.copyfile(other, path)
    other.unlink()
    assert path.stat().st_ino == inode


CHANGES = [replaced, overwritten]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_changed_between_epochs_is_told(
    folder: Path, schema: Schema, tmp_path: Path, change: Callable[[Path], None], cached: bool
) -> None:
    cache = str(tmp_path / "cache") if cached else None
    loader = loader_of(folder, schema, **SHUFFLED, cache=cache)
    first = [rows_of(batch) for batch in loader]
    assert len(first) == 15
    with loader.epoch(1) as batches:
        clean = list(batches)
    path = folder / "part_1.parquet"
    change(path)
    taken, error = take_until_error(loader.epoch(1))
    assert "was replaced or written to since it was first read" in error.message
    assert error.where["file"] == str(path)
    steps = [first_step_with([rows_of(batch) for batch in clean], 1, g) for g in range(GROUPS)]
    assert len(taken) == min(steps)
    assert taken == [content(batch) for batch in clean[: len(taken)]]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_changed_in_the_middle_of_an_epoch_is_told(
    folder: Path,
    schema: Schema,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    cached: bool,
) -> None:
    monkeypatch.setattr(LoaderOptions, "loads_ahead", 0)  # or all of the file would be read
    cache = str(tmp_path / "cache") if cached else None
    loader = loader_of(
        folder, schema, **IN_ORDER, decode_threads=1, prefetch_batches=1, cache=cache
    )
    clean = [content(batch) for batch in loader]
    batches = loader.epoch(1)
    next(batches)  # the first row group; the second may be open for reading, the third is not
    path = folder / "part_0.parquet"
    change(path)
    taken, error = take_until_error(batches)
    assert "was replaced or written to since it was first read" in error.message
    assert error.where["file"] == str(path)
    assert error.where["row group"] in (1, 2)
    assert taken == clean[1 : 1 + len(taken)]


def test_a_new_loader_reads_the_new_file(folder: Path, schema: Schema) -> None:
    loader = loader_of(folder, schema, **IN_ORDER)
    list(loader)
    replaced(folder / "part_1.parquet")
    values = [v for b in loader_of(folder, schema, **IN_ORDER) for v in b["I1"].tolist()]
    assert values[60:120] == list(range(60))


@pytest.mark.parametrize("cached", [False, True])
def test_a_file_deleted_between_epochs_is_told(
    folder: Path, schema: Schema, tmp_path: Path, cached: bool
) -> None:
    cache = str(tmp_path / "cache") if cached else None
    loader = loader_of(folder, schema, **IN_ORDER, cache=cache)
    assert len(list(loader)) == 24
    (folder / "part_3.parquet").unlink()
    taken, error = take_until_error(loader.epoch(1))
    assert len(taken) == 18
    assert "No such file" in error.message
    assert error.where == {"file": str(folder / "part_3.parquet"), "row group": 0}


def other_type(path: Path) -> None:
    rewrite(path, C2=pa.array(["x"] * 20))


def missing_column(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["C2"]), path)


@pytest.mark.parametrize("change", [other_type, missing_column])
def test_another_schema_in_file_seven_is_told_before_training(
    write_table: Any, schema: Schema, change: Callable[[Path], None]
) -> None:
    folder = Path(write_table([[20]] * 9))
    change(folder / "part_7.parquet")
    with pytest.raises(DataError, match="C2") as caught:
        Dataset(folder, schema)
    assert caught.value.where["file"] == str(folder / "part_7.parquet")


@contextmanager
def no_more_files() -> Iterator[None]:
    """Not one file can be opened."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_too_many_open_files_are_told_as_that_never_as_damage(folder: Path, schema: Schema) -> None:
    file = str(next(folder.glob("*.parquet")))
    reader = ArrowReader(Dataset(folder, schema).columns)
    group = RowGroup(file, 0, GROUP_ROWS)
    with no_more_files():
        with pytest.raises(DataError, match="ulimit -n") as caught:
            reader.read(group)
        assert "damaged" not in str(caught.value)
        with pytest.raises(DataError, match="ulimit -n"):
            read_footers(file, schema)
        with pytest.raises(DataError, match="ulimit -n"), readable_parquet(file):
            pass
    reader.close()


def test_an_error_without_a_message_is_told_by_its_kind(folder: Path) -> None:
    file = str(next(folder.glob("*.parquet")))
    with pytest.raises(DataError) as caught, readable_parquet(file):
        raise OSError
    assert caught.value.where["cause"] == "OSError"
