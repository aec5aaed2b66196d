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
from same_batches import rows_of

from distrain.errors import DataError
from distrain.jobs.spec.data import WindowsSpec
from distrain.loader import Dataset, EpochIterator, Loader
from distrain.loader.batch import Batch
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.table import RowGroup
from distrain.loader.reading.arrow import ArrowReader
from distrain.prep.parts import readable_parquet
from distrain.schema import Schema

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


def content(batch: Batch) -> bytes:
    assert batch.label is not None
    parts = (batch.categorical, batch.continuous, batch.label)
    return b"".join(part.contiguous().numpy().tobytes() for part in parts)


def take_until_error(batches: EpochIterator) -> tuple[list[bytes], DataError]:
    taken = []
    with batches:
        with pytest.raises(DataError) as caught:  # noqa: PT012 (what comes before it counts)
            for batch in batches:
                taken.append(content(batch))  # noqa: PERF401 (an error ends it)
        with pytest.raises(DataError):  # it does not look like the end of the epoch later
            next(batches)
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
    "options",
    [SHUFFLED, SHUFFLED | {"shuffle": "full"}, IN_ORDER | {"parts_per_chunk": 2}, IN_WINDOWS],
)
def test_a_bad_value_comes_after_the_good_batches_before_it(
    folder: Path, schema: Schema, options: dict[str, Any]
) -> None:
    clean = list(loader_of(folder, schema, **options))
    bad = folder / "part_2.parquet"
    with_value(bad, "C2", GROUP_ROWS + 7, None, pa.int32())
    taken, error = take_until_error(loader_of(folder, schema, **options).epoch(0))
    place = {"file": str(bad), "row group": 1, "row in the group": 7, "column": "C2"}
    assert error.where == place
    step = first_step_with([rows_of(batch) for batch in clean], 2, 1)
    assert len(taken) == step
    assert taken == [content(batch) for batch in clean[:step]]


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
@pytest.mark.parametrize("change", [*CHANGES, Path.unlink])
def test_a_file_changed_or_deleted_between_epochs_is_told(
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
    assert error.where["file"] == str(path)
    steps = [first_step_with([rows_of(batch) for batch in clean], 1, g) for g in range(GROUPS)]
    assert len(taken) == min(steps)
    assert taken == [content(batch) for batch in clean[: len(taken)]]


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
    columns = Dataset(folder, schema).columns
    reader = ArrowReader(columns)
    group = RowGroup(file, 0, GROUP_ROWS)
    with no_more_files():
        with pytest.raises(DataError, match="ulimit") as caught:
            list(reader.read(group, columns))
        assert "damaged" not in str(caught.value)
        with pytest.raises(DataError, match="ulimit"):
            read_footers(file, schema)
        with pytest.raises(DataError, match="ulimit"), readable_parquet(file):
            pass
    reader.close()
