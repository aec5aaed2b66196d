import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from distrain.errors import DataError
from distrain.loader.partition.footers import read_footers
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.table_file import look_at
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("clicked", "float32", (Tags.TARGET,)),
        ColumnSchema("price", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("item", "int32", (Tags.CATEGORICAL,), cardinality=10),
    )
)


def columns(rows: int = 12) -> dict[str, Any]:
    return {
        "clicked": np.arange(rows, dtype=np.float32) % 2,
        "price": np.arange(rows, dtype=np.float32),
        "item": np.arange(rows, dtype=np.int32) % 10,
    }


def write(path: Path, row_group_size: int = 5, **changes: Any) -> Path:
    named = {k: v for k, v in {**columns(), **changes}.items() if v is not None}
    pq.write_table(pa.table(named), path, row_group_size=row_group_size)
    return path


def failure(path: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        read_footers(str(path), SCHEMA, **options)
    return str(caught.value)


def test_the_fingerprint_tells_tables_apart_but_not_places(tmp_path: Path) -> None:
    def fingerprint(folder: str, **changes: Any) -> str:
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "x.parquet", **changes)
        return read_footers(str(tmp_path / folder), SCHEMA).fingerprint

    first = fingerprint("first")
    assert len(first) == 64
    assert fingerprint("copy") == first
    assert fingerprint("regrouped", row_group_size=4) != first
    assert fingerprint("wider", item=np.arange(12, dtype=np.int64) % 10) != first
    shutil.copy(tmp_path / "first/x.parquet", tmp_path / "first/y.parquet")
    assert read_footers(str(tmp_path / "first"), SCHEMA).fingerprint != first


def test_empty_row_groups_are_left_out(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "x.parquet", pa.table(columns()).schema) as writer:
        writer.write_table(pa.table(columns(3)))
        writer.write_table(pa.table(columns(0)))
        writer.write_table(pa.table(columns(4)))
    table = read_footers(str(tmp_path), SCHEMA)
    assert [group.num_rows for group in table.row_groups] == [3, 4]
    assert table.num_rows == 7


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 40)


def overwrite(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [truncate, overwrite(b"a,b\n1,2\n"), overwrite(b"x"), overwrite(b"PAR1" + b"\0" * 90)],
)
def test_a_file_that_is_no_whole_parquet_file_is_named(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = write(tmp_path / "x.parquet")
    damage(path)
    text = failure(path)
    assert "not a complete parquet file" in text
    assert str(path) in text


_KEY = "k"


class _Keys(encryption.KmsClient):
    """Keys that are wrapped in nothing."""

    def __init__(self, config: Any):
        super().__init__()

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, name: str) -> bytes:
        return base64.b64decode(wrapped)


def write_encrypted(path: Path, secret: str, plaintext_footer: bool) -> str:
    configuration = encryption.EncryptionConfiguration(
        footer_key=_KEY,
        column_keys={_KEY: [secret]},
        plaintext_footer=plaintext_footer,
        data_key_length_bits=128,
    )
    keys = encryption.CryptoFactory(_Keys).file_encryption_properties(
        encryption.KmsConnectionConfig(), configuration
    )
    table = pa.table(columns())
    with pq.ParquetWriter(path, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)
    return str(path)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_encrypted_columns_are_told_and_the_process_goes_on(
    tmp_path: Path, plaintext_footer: bool
) -> None:
    file = write_encrypted(tmp_path / "a.parquet", "item", plaintext_footer)
    if plaintext_footer:  # other columns can be read
        others = Schema((SCHEMA["clicked"], SCHEMA["price"]))
        assert read_footers(file, others).num_rows == 12
    # In a process of its own, which pyarrow might end.
    code = (
        "import sys; from distrain.errors import DataError\n"
        "from distrain.loader.partition.footers import read_footers\n"
        "from distrain.schema import Schema\n"
        "try: read_footers(sys.argv[1], Schema.load(sys.argv[2]))\n"
        "except DataError as error: sys.exit(str(error))"
    )
    SCHEMA.save(tmp_path / "schema.json")
    arguments = [sys.executable, "-c", code, file, str(tmp_path / "schema.json")]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 1
    assert "a.parquet" in done.stderr
    assert "It is encrypted" in done.stderr
    if not plaintext_footer:
        with pytest.raises(DataError, match="encrypted") as caught:
            look_at(file, 0, FormatSpec())
        assert caught.value.where["file"] == file


DAMAGE = """
import random, sys
from distrain.errors import DataError
from distrain.loader.partition.footers import read_footers
from distrain.schema import Schema
content, schema = open(sys.argv[1], "rb").read(), Schema.load(sys.argv[2])
length = int.from_bytes(content[-8:-4], "little")
draw, refused = random.Random(5), 0
for place in range(len(content) - 8 - length, len(content)):
    for value in {131, draw.randrange(256)}:  # 131 begins a longer number
        damaged = bytearray(content)
        damaged[place] = value
        open(sys.argv[1], "wb").write(damaged)
        try:
            assert 0 < read_footers(sys.argv[1], schema).num_rows
        except DataError as error:
            assert sys.argv[1] in str(error), error
            refused += 1
print(refused)
"""


@pytest.mark.slow
def test_no_damaged_byte_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns(2)), file, store_schema=False)
    SCHEMA.save(tmp_path / "schema.json")
    arguments = [sys.executable, "-c", DAMAGE, str(file), str(tmp_path / "schema.json")]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60


def test_text_is_to_be_prepared_first(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("clicked,price,item\n1,2,3\n")
    assert "Prepare text files first with `distrain prep`" in failure(path)


def test_a_prepared_folder_as_a_whole_is_refused_with_those_of_its_rows(tmp_path: Path) -> None:
    for name in ("train", "valid", "workflow/categories"):
        (tmp_path / name).mkdir(parents=True)
    files = [write(tmp_path / "train/a.parquet"), write(tmp_path / "valid/a.parquet")]
    pq.write_table(pa.table({"offset": [0]}), tmp_path / "workflow/categories/meta.item.parquet")
    text = failure(tmp_path)
    assert "the folder also holds vocabularies" in text
    assert f"Name {tmp_path}/train or {tmp_path}/valid." in text
    assert read_footers([*map(str, files)], SCHEMA).num_rows == 24


def test_a_missing_or_empty_file_is_named(tmp_path: Path) -> None:
    assert "no such file" in failure(tmp_path / "absent.parquet")
    (tmp_path / "empty.parquet").touch()
    assert "0 bytes" in failure(tmp_path / "empty.parquet")


def test_a_missing_column_offers_the_nearest_name(tmp_path: Path) -> None:
    text = failure(write(tmp_path / "x.parquet", item=None, items=np.zeros(12, np.int32)))
    assert "column 'item' is missing" in text
    assert "Did you mean 'items'?" in text


def changed(name: str, row: int, value: Any) -> dict[str, Any]:
    values = columns()[name].tolist()
    values[row] = value
    kind = pa.int32() if name == "item" else pa.float32()
    return {name: pa.array(values, kind)}


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        (changed("item", 7, 10), "id 10 of column 'item' is not in 0..9", "cardinality 10"),
        (changed("item", 7, 10), "is not in 0..9", "another run of prep"),
        (changed("item", 7, -1), "id -1 of column 'item' is not in 0..9", "start at 0"),
        (changed("clicked", 7, 2.0), "label 'clicked' is 2.0, not 0 or 1", "target"),
        (changed("clicked", 7, -1.0), "label 'clicked' is -1.0, not 0 or 1", "target"),
        (changed("price", 7, float("inf")), "column 'price' holds inf", "Clip"),
        (changed("price", 7, None), "column 'price' has 1 nulls", "Fill"),
        (changed("item", 7, None), "column 'item' has 1 nulls", "Fill"),
    ],
)
def test_a_bad_value_that_statistics_tell_is_placed(
    tmp_path: Path, changes: dict[str, Any], message: str, hint: str
) -> None:
    path = write(tmp_path / "x.parquet", **changes)
    text = failure(path)
    assert message in text
    assert hint in text
    assert f"file: {path}\n  row group: 1\n  column: {next(iter(changes))}" in text


def test_the_first_few_of_many_problems_are_listed(tmp_path: Path) -> None:
    for index in range(4):
        write(tmp_path / f"{index}.parquet", item=np.full(12, 99), price=["?"] * 12)
    (tmp_path / "4.parquet").write_bytes(b"no")
    text = failure(tmp_path)
    assert text.startswith("9 problems found in the files' footers:\n  - id 99 of column 'item'")
    assert "column 'price' has type string" in text
    assert "0.parquet" in text
    assert "and 4 more" in text


def test_no_rows_at_all_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table(columns(0)), tmp_path / "x.parquet")
    assert "no rows in 1 file" in failure(tmp_path)
